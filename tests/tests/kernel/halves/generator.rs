//! A generator of functions whose text is valid in both halves and never indexes out of range.

use std::fmt::Write;

use crate::halves::text::{self, FIELDS};

/// The types of the parameters `p0` to `p7`, in this order.
const TYPES: [Type; 8] = [
    Type(8, false),
    Type(8, true),
    Type(16, false),
    Type(16, true),
    Type(32, false),
    Type(32, true),
    Type(64, false),
    Type(64, true),
];

/// An integer type: its bits, and whether it is signed.
#[derive(Clone, Copy, PartialEq)]
struct Type(u32, bool);

const U32: Type = Type(32, false);
const U64: Type = Type(64, false);
const I16: Type = Type(16, true);
const I32: Type = Type(32, true);
const I64: Type = Type(64, true);

impl Type {
    fn name(self) -> String {
        format!("{}{}", if self.1 { "i" } else { "u" }, self.0)
    }

    /// Returns the result type of an operator between two types, if the language allows the combination.
    fn with(self, other: Type) -> Option<Type> {
        let (narrow, wide) = if self.0 <= other.0 { (self, other) } else { (other, self) };
        if narrow.1 == wide.1 {
            return Some(wide);
        }
        let (unsigned, signed) = if self.1 { (other, self) } else { (self, other) };
        match (unsigned.0, signed.0) {
            (32, 8 | 16) => Some(Type(32, true)),
            (32, 32 | 64) | (8, 8) | (16, 16) | (64, 64) => Some(signed),
            _ => None,
        }
    }

    /// Returns the type of a negated value; none for `u64`.
    fn negated(self) -> Option<Type> {
        match self {
            Type(_, true) => Some(self),
            Type(64, false) => None,
            Type(bits, false) => Some(Type(bits * 2, true)),
        }
    }
}

/// A script generator, deterministic for its seed.
pub struct Generator {
    state: u64,
    out: String,
    loops: usize,
    names: usize,
    /// The loop variables in scope, with their types.
    counters: Vec<(String, Type)>,
}

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            out: String::new(),
            loops: 0,
            names: 0,
            counters: Vec::new(),
        }
    }

    /// Returns a random number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        ((self.state >> 20) as usize) % bound
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn fresh(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names)
    }

    /// Returns a script with every function twice, a program that runs one copy, and a `main` that runs the
    /// other.
    pub fn script(mut self, functions: usize, inputs: usize) -> String {
        let bodies = self.functions(functions);
        let mut text = format!("{}{}", text::TYPES, text::INPUT);
        let _ = writeln!(text, "var results : u64[{functions}]");
        let _ = writeln!(text, "var memory : u8[{}]", (inputs + 2) * text::PAGE);
        for half in ["k_", "u_"] {
            let attribute = if half == "k_" { "@helper\n" } else { "" };
            text += &format!("{}{}{bodies}", text::MAPS, text::SHARED)
                .replace("@HELPER\n", attribute)
                .replace("X_", half);
        }
        text += PROGRAM;
        text += "    if (armed == 0) {\n        return 0\n    }\n    armed = 0\n";
        text += &calls(functions);
        text += &text::MAIN.replace("INPUTS", &inputs.to_string()).replace("PAGE", &text::PAGE.to_string());
        for index in 0..functions {
            let _ = writeln!(text, "        check({index}, u_case{index}({ARGUMENTS}))");
        }
        text += "    }\n    print(\"%u results compared\", compared)\n    return 0\n}\n";
        text
    }

    /// Returns the functions and a program that runs them, for the kernel half alone.
    pub fn kernel_script(mut self, functions: usize) -> String {
        let bodies = self.functions(functions);
        let mut text = format!("{}{}var results : u64[{functions}]\n", text::TYPES, text::INPUT);
        text += &format!("{}{}{bodies}", text::MAPS, text::SHARED)
            .replace("@HELPER", "@helper")
            .replace("X_", "k_");
        text + PROGRAM + &calls(functions)
    }

    fn functions(&mut self, functions: usize) -> String {
        (0..functions).map(|index| self.function(index)).collect()
    }

    fn function(&mut self, index: usize) -> String {
        self.out = String::new();
        self.names = 0;
        let parameters: Vec<_> =
            TYPES.iter().enumerate().map(|(n, kind)| format!("p{n}: {}", kind.name())).collect();
        let _ = writeln!(self.out, "@HELPER\nfn X_case{index}({}) -> u64 {{", parameters.join(", "));
        self.out += "    var acc: u64 = 1\n    var bytes: i8[5] = [0]\n    var words: u16[4] = [0]\n";
        self.out +=
            "    var record = Record { a: p0, b: p7, c: p3, d: p4, e: p1, f: p5, g: p2, h: p6, list: [0] }\n";
        self.out += "    var word: str(12) = \"begin\"\n    var short: str(4) = \"ab\"\n";
        for (n, kind) in TYPES.iter().enumerate() {
            let value = self.pick(&[0, 1, 7, 100]);
            let _ = writeln!(self.out, "    var v{n}: {} = {value}", kind.name());
        }
        self.block(1, 7);
        for n in 0..8 {
            let _ = writeln!(self.out, "    acc = acc * 31 + (p{n} as u64) + (v{n} as u64) * 7");
        }
        self.out += "    acc = acc * 31 + X_fold(record)\n";
        self.out += "    for (i in 0..4) {\n        acc = acc * 31 + words[i]\n        \
                     acc = acc * 31 + (bytes[i] as u64)\n    }\n";
        self.out +=
            "    for (i in 0..12) {\n        acc = acc * 31 + (word[i] as u64)\n    }\n    return acc\n}\n";
        std::mem::take(&mut self.out)
    }

    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.out, "{}{text}", "    ".repeat(depth));
    }

    fn block(&mut self, depth: usize, statements: usize) {
        for _ in 0..statements {
            self.statement(depth);
        }
    }

    fn statement(&mut self, depth: usize) {
        match self.below(if depth < 3 { 18 } else { 12 }) {
            0..4 => self.assignment(depth),
            4 => {
                let value = self.value_for(U64);
                let key = self.index(8);
                let operator = self.pick(&["=", "+=", "-=", "*=", "/=", "%="]);
                self.line(depth, &format!("X_numbers[{key}] {operator} {value}"));
            }
            5 => {
                let key = self.index(6);
                let value = self.value_for(I64);
                let text = self.pick(&[
                    "X_records[KEY].b += VALUE",
                    "X_records[KEY].b = VALUE",
                    "record.f = (X_records[KEY].b as i32)",
                    "X_records[KEY] = record",
                ]);
                self.line(depth, &text.replace("KEY", &key).replace("VALUE", &value));
            }
            6 => {
                let name = self.fresh("found");
                let key = self.index(8);
                let value = self.value_for(I64);
                self.line(depth, &format!("if (var {name} = X_records[{key}]) {{"));
                self.line(depth + 1, &format!("acc += {name}.h + ({name}.b as u64)"));
                self.line(depth + 1, &format!("{name}.b = {value}"));
                self.line(depth, "} else {");
                self.line(depth + 1, "acc += 77");
                self.line(depth, "}");
            }
            7 => {
                let (argument, _) = self.expression(2);
                self.line(depth, &format!("record = X_change(record, ({argument}) as u8)"));
            }
            8 => {
                let text = self.pick(&[
                    "word = short",
                    "short = word",
                    "word = \"a longer text\"",
                    "short = \"xyz\"",
                    "word = X_name(v0)",
                    "short = X_name(p2)",
                    "X_names[word] += 1",
                    "acc += X_names[short]",
                    "X_texts[p0] = word",
                    "word = X_texts[v0]",
                    "word = X_longer(word)",
                ]);
                self.line(depth, text);
            }
            9 => {
                let index = self.index(5);
                let other = self.index(4);
                let text = self.pick(&[
                    "bytes[I] += words[J] as i8",
                    "words[J] *= words[J]",
                    "words[J] = bytes[I] as u16",
                    "bytes[I] -= 100",
                    "bytes[I] /= -1",
                    "v2 = words[J]",
                    "v3 = bytes[I]",
                    "words[J] += 40000",
                    "bytes[I] = v7",
                    "words[J] = v6",
                    "record.list[J] += 1",
                    "record.list[J] = record.list[J] * 3",
                ]);
                self.line(depth, &text.replace('I', &index).replace('J', &other));
            }
            10 if self.loops > 0 => {
                let condition = self.condition(2);
                let what = self.pick(&["break", "continue", "return acc + 3"]);
                self.line(depth, &format!("if ({condition}) {{\n{0}    {what}\n{0}}}", "    ".repeat(depth)));
            }
            10 | 11 => {
                let to = self.below(8);
                let kind = TYPES[to];
                let value = self.value_for(kind);
                self.line(depth, &format!("v{to} = X_pass{to}({value})"));
            }
            12 | 13 => {
                let condition = self.condition(3);
                self.line(depth, &format!("if ({condition}) {{"));
                self.block(depth + 1, 2);
                if self.below(2) == 0 {
                    self.line(depth, "} else {");
                    self.block(depth + 1, 2);
                }
                self.line(depth, "}");
            }
            14 => self.counted_loop(depth),
            15 => self.attempt(depth),
            _ => {
                let name = self.fresh("turn");
                self.line(depth, &format!("var {name}: u8 = 0"));
                let condition = self.condition(2);
                let limit = self.pick(&[3, 6, 70]);
                self.line(depth, &format!("while ({name} < {limit} && ({condition})) {{"));
                self.line(depth + 1, &format!("{name} += 1"));
                self.body(depth, None);
            }
        }
    }

    /// Writes a `try` statement, with a call that throws.
    fn attempt(&mut self, depth: usize) {
        self.line(depth, "try {");
        self.block(depth + 1, 1);
        let (value, least) = (self.value_for(I32), self.value_for(I16));
        self.line(depth + 1, &format!("acc += X_checked({value}, {least}) as u64"));
        self.block(depth + 1, 1);
        if self.below(2) == 0 {
            self.line(depth, "} catch 1 {");
            self.block(depth + 1, 1);
        }
        let name = self.fresh("code");
        self.line(depth, &format!("}} catch {name} {{"));
        self.line(depth + 1, &format!("acc = acc * 31 + ({name} as u64)"));
        self.block(depth + 1, 1);
        self.line(depth, "}");
    }

    fn counted_loop(&mut self, depth: usize) {
        let name = self.fresh("at");
        let (from, to, kind) = match self.below(4) {
            0 => ("0".into(), self.pick(&["3", "5", "66"]).to_owned(), U32),
            1 => ("v0 % 4".to_owned(), "p0 % 9".to_owned(), U32),
            2 => ("0".into(), "p2 % 5".to_owned(), U32),
            _ => ("(v7 % 5)".to_owned(), "(p7 % 7)".to_owned(), I64),
        };
        self.line(depth, &format!("for ({name} in {from}..{to}) {{"));
        self.body(depth, Some((name, kind)));
    }

    /// Writes the body of a loop, and its end.
    fn body(&mut self, depth: usize, counter: Option<(String, Type)>) {
        self.loops += 1;
        let before = self.counters.len();
        self.counters.extend(counter);
        let statements = 1 + self.below(3);
        self.block(depth + 1, statements);
        self.counters.truncate(before);
        self.loops -= 1;
        self.line(depth, "}");
    }

    fn assignment(&mut self, depth: usize) {
        let to = self.below(8);
        let kind = TYPES[to];
        let lvalue = if self.below(3) == 0 { format!("record.{}", FIELDS[to]) } else { format!("v{to}") };
        if self.below(2) == 0 {
            let value = self.value_for(kind);
            return self.line(depth, &format!("{lvalue} = {value}"));
        }
        let operator = self.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]);
        let value = self.value_for(kind);
        self.line(depth, &format!("{lvalue} {operator}= {value}"));
    }

    /// Returns an expression that may be assigned to this type, with or without an explicit conversion.
    fn value_for(&mut self, kind: Type) -> String {
        let (text, of) = self.expression(3);
        if kind.with(of).is_some() { text } else { format!("(({text}) as {})", kind.name()) }
    }

    /// Returns an index below `length`.
    fn index(&mut self, length: usize) -> String {
        let unsigned = self.pick(&["p0", "v0", "p2", "v2", "p4", "v4", "p6", "v6", "record.a", "record.g"]);
        format!("{unsigned} % {length}")
    }

    fn condition(&mut self, depth: usize) -> String {
        if depth > 0 && self.below(4) == 0 {
            let (a, b) = (self.condition(depth - 1), self.condition(depth - 1));
            return match self.below(3) {
                0 => format!("({a}) && ({b})"),
                1 => format!("({a}) || ({b})"),
                _ => format!("!({a})"),
            };
        }
        if self.below(6) == 0 {
            let key = self.index(8);
            let text = self.pick(&[
                "word == short",
                "word != \"begin\"",
                "short == \"xyz\"",
                "word[1] == 'e'",
                "word[KEY] == short[1]",
                "X_numbers[KEY] != null",
                "X_records[KEY] == null",
                "X_even(v4)",
                "X_numbers[KEY] > 5",
            ]);
            return text.replace("KEY", &key);
        }
        let (a, of) = self.expression(depth.min(2));
        let (mut b, other) = self.expression(depth.min(2));
        if of.with(other).is_none() {
            b = format!("({b} as {})", of.name());
        }
        format!("{a} {} {b}", self.pick(&["==", "!=", "<", "<=", ">", ">="]))
    }

    /// Returns an expression in parentheses or a name, and its type. It always contains a variable.
    fn expression(&mut self, depth: usize) -> (String, Type) {
        if depth == 0 || self.below(5) == 0 {
            return self.name();
        }
        let (a, of) = self.expression(depth - 1);
        match self.below(11) {
            10 if of.1 => (format!("log2_slot({a} as u64)"), U32),
            10 => (format!("linear_slot({a}, 3, 7, 1000)"), U32),
            0 => match of.negated() {
                Some(kind) => (format!("(-{a})"), kind),
                None => (format!("(~{a})"), of),
            },
            1 => {
                let kind = self.pick(&TYPES);
                (format!("({a} as {})", kind.name()), kind)
            }
            2 => {
                let (amount, _) = self.expression(depth - 1);
                (format!("({a} {} {amount})", self.pick(&["<<", ">>"])), of)
            }
            3 => {
                let literal =
                    self.pick(&["1", "3", "31", "255", "32768", "65535", "2147483648", "4294967295"]);
                let operator = self.pick(&["+", "-", "*", "/", "%", "&", "|", "^"]);
                (format!("({a} {operator} {literal})"), of.with(U32).unwrap_or(U32))
            }
            _ => {
                let (mut b, mut other) = self.expression(depth - 1);
                if of.with(other).is_none() {
                    (b, other) = (format!("({b} as {})", of.name()), of);
                }
                let kind = of.with(other).unwrap_or(of);
                (format!("({a} {} {b})", self.pick(&["+", "-", "*", "/", "%", "&", "|", "^"])), kind)
            }
        }
    }

    fn name(&mut self) -> (String, Type) {
        let n = self.below(8);
        match self.below(8) {
            0 => (format!("record.{}", FIELDS[n]), TYPES[n]),
            1 if !self.counters.is_empty() => {
                let at = self.below(self.counters.len());
                self.counters[at].clone()
            }
            2 => (format!("X_pass{n}(p{n})"), TYPES[n]),
            3 => (format!("X_numbers[{}]", self.index(8)), U64),
            4 | 5 => (format!("v{n}"), TYPES[n]),
            _ => (format!("p{n}"), TYPES[n]),
        }
    }
}

const PROGRAM: &str = "@perf_event\nfn program(ctx: *bpf_perf_event_data) -> i32 {\n";
const ARGUMENTS: &str = "g0, g1, g2, g3, g4, g5, g6, g7";

/// Returns the rest of a program, which calls all functions.
fn calls(functions: usize) -> String {
    let calls = (0..functions).map(|index| format!("    results[{index}] = k_case{index}({ARGUMENTS})\n"));
    format!("{}    return 0\n}}\n", calls.collect::<String>())
}
