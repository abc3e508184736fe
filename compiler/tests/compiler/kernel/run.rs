//! Arithmetic on the running kernel compared with the language, for every integer type.

use std::fmt::Write;

use ks_compiler_testing::kernel_half::object_with;
use ks_compiler_testing::loaded::Loaded;

const OPERATORS: &[&str] = &["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];
const COMPARISONS: &[&str] = &["==", "!=", "<", "<=", ">", ">="];

#[derive(Clone, Copy)]
struct Int {
    bits: u32,
    signed: bool,
}

impl Int {
    const ALL: [Int; 8] = [
        Int { bits: 8, signed: false },
        Int { bits: 16, signed: false },
        Int { bits: 32, signed: false },
        Int { bits: 64, signed: false },
        Int { bits: 8, signed: true },
        Int { bits: 16, signed: true },
        Int { bits: 32, signed: true },
        Int { bits: 64, signed: true },
    ];

    fn name(self) -> String {
        format!("{}{}", if self.signed { 'i' } else { 'u' }, self.bits)
    }

    /// Interprets the low bits as a value of the type.
    fn wrap(self, value: i128) -> i128 {
        let modulus = 1i128 << self.bits;
        let low = value.rem_euclid(modulus);
        if self.signed && low >= modulus / 2 { low - modulus } else { low }
    }

    fn edges(self) -> Vec<i128> {
        let top = 1i128 << (self.bits - 1);
        let numbers = [0, 1, 2, 3, 7, 100, top - 1, top, top + 1, -1, -2, -7, i128::from(self.bits) + 1];
        numbers.into_iter().map(|number| self.wrap(number)).collect()
    }

    fn bytes(self, values: &[i128]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()[..self.bits as usize / 8].to_vec()).collect()
    }

    /// Computes the language's result. Source: the language reference, 3.2.
    fn apply(self, op: &str, a: i128, b: i128) -> i128 {
        let amount = b.rem_euclid(i128::from(self.bits)) as u32;
        self.wrap(match op {
            "+" => a + b,
            "-" => a - b,
            "*" => self.wrap(a).wrapping_mul(self.wrap(b)),
            "/" => a.checked_div(b).unwrap_or(0),
            "%" => a.checked_rem(b).unwrap_or(a),
            "&" => a & b,
            "|" => a | b,
            "^" => a ^ b,
            "<<" => self.wrap(a).wrapping_shl(amount),
            ">>" => a >> amount,
            other => i128::from(compare(other, a, b)),
        })
    }
}

fn compare(op: &str, a: i128, b: i128) -> bool {
    match op {
        "==" => a == b,
        "!=" => a != b,
        "<" => a < b,
        "<=" => a <= b,
        ">" => a > b,
        _ => a >= b,
    }
}

/// Returns all pairs of edge values.
fn pairs(int: Int) -> (Vec<i128>, Vec<i128>) {
    let edges = int.edges();
    edges.iter().flat_map(|a| edges.iter().map(move |b| (*a, *b))).unzip()
}

fn numbers(value: &serde_json::Value) -> Vec<i128> {
    let list = value.as_array().unwrap_or_else(|| panic!("{value} is not an array"));
    let number = |one: &serde_json::Value| {
        one.as_i64().map(i128::from).or_else(|| one.as_u64().map(i128::from)).expect("a number")
    };
    list.iter().map(number).collect()
}

/// One loop per operator over two arrays whose contents the compiler does not know.
#[test]
fn root_operators_agree_with_the_language_for_every_width() {
    for int in Int::ALL {
        let (left, right) = pairs(int);
        let (ty, count) = (int.name(), left.len());
        let mut items = format!("var a: {ty}[{count}] = [0]\nvar b: {ty}[{count}] = [0]\n");
        let mut body = format!("var n: u32 = {count}\n");
        for (index, op) in OPERATORS.iter().chain(COMPARISONS).enumerate() {
            writeln!(items, "var r{index}: {ty}[{count}] = [0]").expect("a string grows");
            let statement = if COMPARISONS.contains(op) {
                format!("if (a[i] {op} b[i]) {{ r{index}[i] = 1 }}")
            } else {
                format!("r{index}[i] = a[i] {op} b[i]")
            };
            writeln!(body, "for (i in 0..n) {{\n{statement}\n}}").expect("a string grows");
        }
        let script = ks_compiler_testing::kernel_half::perf_program(&items, &format!("{body}return 0"));
        let object = object_with(&script, &[("a", int.bytes(&left)), ("b", int.bytes(&right))]);
        let loaded = Loaded::load_runnable(object.elf());
        loaded.run("watch");
        let globals = loaded.globals("bss");
        for (index, op) in OPERATORS.iter().chain(COMPARISONS).enumerate() {
            let results = numbers(&globals[&format!("r{index}")]);
            for ((a, b), result) in left.iter().zip(&right).zip(results) {
                assert_eq!(result, int.apply(op, *a, *b), "{a} {op} {b} as {ty}");
            }
        }
    }
}

/// A deterministic random number generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound
    }
}

/// Generates a random expression over `a[0]`..`a[7]`: its text and its value.
fn expression(rng: &mut Rng, int: Int, inputs: &[i128], depth: u32) -> (String, i128) {
    if depth == 0 || rng.below(8) == 0 {
        let index = rng.below(inputs.len());
        return (format!("v{index}"), inputs[index]);
    }
    let op = OPERATORS[rng.below(OPERATORS.len())];
    let (left, a) = expression(rng, int, inputs, depth - 1);
    let (right, b) = expression(rng, int, inputs, depth - 1);
    (format!("({left} {op} {right})"), int.apply(op, a, b))
}

#[test]
fn root_random_expressions_agree_with_the_language() {
    const EXPRESSIONS: usize = 24;
    for (seed, int) in Int::ALL.into_iter().enumerate() {
        let mut generator = Rng(seed as u64 + 1);
        let edges = int.edges();
        let inputs: Vec<i128> = (0..8).map(|_| edges[generator.below(edges.len())]).collect();
        let ty = int.name();
        let mut items = String::new();
        let mut body = String::new();
        let mut expected = Vec::new();
        let mut inits = Vec::new();
        for (index, input) in inputs.iter().enumerate() {
            writeln!(items, "var g{index}: {ty} = 1").expect("a string grows");
            writeln!(body, "var v{index} = g{index}").expect("a string grows");
            inits.push((format!("g{index}"), int.bytes(&[*input])));
        }
        writeln!(items, "var r: {ty}[{EXPRESSIONS}] = [0]").expect("a string grows");
        for index in 0..EXPRESSIONS {
            let (text, value) = expression(&mut generator, int, &inputs, 5);
            writeln!(body, "r[{index}] = {text}").expect("a string grows");
            expected.push(value);
        }
        let script = ks_compiler_testing::kernel_half::perf_program(&items, &format!("{body}return 0"));
        let inits: Vec<_> = inits.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
        let object = object_with(&script, &inits);
        let loaded = Loaded::load_runnable(object.elf());
        loaded.run("watch");
        assert_eq!(numbers(&loaded.globals("bss")["r"]), expected, "{script}");
    }
}
