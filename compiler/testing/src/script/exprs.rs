//! Productions of expressions. A new one is a function and an entry of the table.

use super::scope::Gen;
use super::tree::Node;
use super::types::{Int, Ty, U32, U64, enumerator};
use super::{calls, constants, forms, kernel_memory, state, texts};

/// Generates an expression of exactly the type, or nothing if it has none of that type.
type Production = fn(&mut Gen, &Ty) -> Option<Node>;

const PRODUCTIONS: &[(usize, &str, Production)] = &[
    (12, "variable or element", lvalue),
    (6, "literal", literal),
    (6, "arithmetic", arithmetic),
    (3, "bitwise operator", bits),
    (2, "shift", shift),
    (1, "negation", negation),
    (1, "complement", complement),
    (2, "cast", cast),
    (4, "comparison", comparison),
    (3, "logic", logic),
    (2, "not", not),
    (2, "presence", presence),
    (1, "presence of an inner map", state::inner_map),
    (2, "letter of a string", letter),
    (2, "call of a helper", calls::call),
    (1, "match with a value", selection),
    (1, "builtin", builtin),
    (2, "member of the context", member),
    (1, "slot of a histogram", slot),
    (1, "struct literal", struct_literal),
    (3, "byte of the packet", forms::packet),
    (1, "pointer as a number", forms::address),
    (2, "pointers compared", forms::pointers_compared),
    (2, "call of the kernel's helper", calls::kernel),
    (2, "pop or peek", state::taken),
    (1, "has", state::maybe_added),
    (1, "len", texts::length),
    (1, "byte order", texts::swapped),
    (2, "comparison with a constant", constants::compared),
    (2, "kernel member by its pointer", kernel_memory::number),
];

/// Returns the constructs that expressions can be instances of.
pub fn constructs() -> impl Iterator<Item = &'static str> {
    PRODUCTIONS.iter().map(|(_, construct, _)| *construct)
}

/// Limit on the nesting of expressions.
pub const MAX_DEPTH: u32 = 5;

impl Gen {
    pub fn int_type(&mut self) -> Int {
        match self.rng.below(3) {
            0 => U32,
            1 => U64,
            _ => *self.rng.pick(&Int::ALL),
        }
    }

    /// Generates an expression of exactly this type.
    pub fn expr(&mut self, ty: &Ty) -> Node {
        let depth = self.function.depth;
        if self.function.fuel == 0 || depth == MAX_DEPTH {
            return self.leaf(ty);
        }
        self.function.fuel -= 1;
        self.function.depth += 1 + self.rng.below(2) as u32;
        self.function.depth = self.function.depth.min(MAX_DEPTH);
        let generated = (0..12).find_map(|_| self.production(ty));
        self.function.depth = depth;
        generated.unwrap_or_else(|| self.leaf(ty))
    }

    fn production(&mut self, ty: &Ty) -> Option<Node> {
        let (construct, production) = self.rng.weighted(PRODUCTIONS);
        production(self, ty).map(|generated| generated.of(construct))
    }

    /// Generates an expression without operands.
    fn leaf(&mut self, ty: &Ty) -> Node {
        let lvalue = if self.rng.one_in(4) { None } else { lvalue(self, ty) };
        match lvalue.or_else(|| literal(self, ty)).or_else(|| lvalue_without_maps(self, ty)) {
            Some(leaf) => leaf,
            None => struct_literal(self, ty).unwrap_or_else(|| panic!("no value of {}", ty.name())),
        }
    }

    /// Generates an expression that the compiler cannot evaluate.
    pub fn unknown(&mut self, ty: &Ty) -> Node {
        let generated = self.expr(ty);
        if generated.is_constant() { self.variable(ty) } else { generated }
    }

    /// Generates a variable or an element, or a value that the compiler does not know, such as `cpu()`.
    pub fn variable(&mut self, ty: &Ty) -> Node {
        lvalue(self, ty).unwrap_or_else(|| match ty {
            Ty::Str(_) if self.program.has_task => Node::expr(&Ty::Str(16), "comm()", Vec::new()),
            Ty::Str(_) => Node::expr(&Ty::Str(3), "match (cpu()) { 0: \"ab\", default: \"cd\" }", Vec::new()),
            _ => Node::expr(ty, &format!("(cpu() as {})", ty.name()), Vec::new()),
        })
    }

    /// Generates an expression that may be assigned to a variable of this type.
    pub fn fitting(&mut self, ty: &Ty) -> Node {
        match ty {
            Ty::Int(int) if self.rng.one_in(8) => constants::fitting(self, *int),
            Ty::Int(int) => {
                let other = *self.rng.pick(&Int::ALL);
                let exact = if int.combine(other).is_some() { other } else { *int };
                self.expr(&Ty::Int(exact))
            }
            Ty::Str(_) if self.rng.one_in(5) => texts::joined(self),
            Ty::Str(_) if self.rng.one_in(3) => {
                let other = Ty::Str(*self.rng.pick(&[1, 3, 4, 8, 13, 16]));
                self.expr(&other)
            }
            Ty::Enum(_) if self.rng.one_in(4) => self.expr(&Ty::Int(U32)),
            Ty::Array(..) => self.array_literal(ty),
            _ => self.expr(ty),
        }
    }

    /// Generates a condition.
    pub fn condition(&mut self) -> Node {
        let ty = match self.rng.below(8) {
            0 => self.scalar_type(),
            1 => Ty::Str(8),
            2 => {
                if let Some(element) = self.any_element() {
                    return element;
                }
                Ty::Bool
            }
            _ => Ty::Bool,
        };
        self.unknown(&ty)
    }

    /// Generates an element of any map.
    pub fn any_element(&mut self) -> Option<Node> {
        if self.maps.is_empty() {
            return None;
        }
        let map = self.rng.below(self.maps.len());
        let value = self.maps[map].value.clone();
        self.element(&value)
    }

    /// Generates two operands whose types combine to a type; at most the second is a constant.
    fn operands(&mut self, result: Int) -> (Node, Node) {
        let pairs: Vec<(Int, Int)> = Int::ALL
            .iter()
            .flat_map(|a| Int::ALL.iter().map(move |b| (*a, *b)))
            .filter(|(a, b)| a.combine(*b) == Some(result))
            .collect();
        let plain = self.rng.one_in(2);
        let (left, right) = if plain { (result, U32) } else { *self.rng.pick(&pairs) };
        let right = if result.combine(right) == Some(result) { right } else { result };
        (self.unknown(&Ty::Int(left)), self.expr(&Ty::Int(right)))
    }

    /// Makes a node valid as the right operand of `/` and `%`.
    pub fn divisor(&mut self, node: Node, ty: &Ty) -> Node {
        if !node.is_constant() {
            return node;
        }
        let number = 1 + self.rng.below(100);
        match ty {
            Ty::Int(int) if *int != U32 => Node::constant(ty, format!("({number} as {})", ty.name())),
            _ => Node::constant(ty, number.to_string()),
        }
    }

    /// Generates a pattern for values of a type; patterns of different arms differ.
    pub fn pattern(&mut self, ty: &Ty, arm: usize) -> Option<String> {
        Some(match ty {
            // Small numbers are not near limits, and differ from each other and from these.
            Ty::Int(int) if arm < 2 && self.rng.one_in(2) => {
                let limit = [int.most(), int.least()][arm];
                return (limit != 0).then(|| limit.to_string());
            }
            Ty::Int(int) if int.signed && arm == 1 => "-3".into(),
            Ty::Int(_) => (arm * 7).to_string(),
            Ty::Bool => ["false", "true"].get(arm)?.to_string(),
            Ty::Char => format!("'{}'", char::from(b'a' + u8::try_from(arm).ok()?)),
            Ty::Enum(number) if arm < self.enums[*number] => enumerator(*number, arm),
            Ty::Str(_) => format!("\"{}\"", &"abcdef"[..arm.min(6)]),
            _ => return None,
        })
    }
}

fn lvalue(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    generator.lvalue_to_read(ty)
}

/// Generates an lvalue without map elements, so that the recursion ends.
fn lvalue_without_maps(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let fuel = std::mem::take(&mut generator.function.fuel);
    let lvalue = generator.lvalue_to_read(ty);
    generator.function.fuel = fuel;
    lvalue
}

fn literal(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let text = match ty {
        Ty::Int(int) => match constants::own(generator, *int) {
            Some(own) if *int == U32 || generator.rng.one_in(2) => return Some(own),
            _ => {
                // A value that does not fit is truncated.
                let from = if generator.rng.one_in(4) { U64 } else { *int };
                let number = constants::literal(&mut generator.rng, from);
                format!("({} as {})", number.text, ty.name())
            }
        },
        Ty::Bool => ["true", "false"][generator.rng.below(2)].into(),
        Ty::Char => (*generator.rng.pick(&["'a'", "'\\0'", "'z'", "'\\xff'"])).into(),
        Ty::Enum(number) => enumerator(*number, generator.rng.below(generator.enums[*number])),
        Ty::Str(len) => format!("\"{}\"", &"abcdefghijklmnopqrstuvwxyz"[..*len as usize - 1]),
        Ty::Array(..) | Ty::Struct(_) => return None,
    };
    Some(Node::constant(ty, text))
}

fn arithmetic(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let Ty::Int(int) = ty else { return None };
    let op = *generator.rng.pick(&["+", "-", "*", "/", "%"]);
    let (left, mut right) = generator.operands(*int);
    if matches!(op, "/" | "%")
        && let super::tree::NodeKind::Expr { ty, .. } = right.kind.clone()
    {
        right = generator.divisor(right, &ty);
    }
    Some(Node::expr(ty, &format!("($ {op} $)"), vec![left, right]))
}

fn bits(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let Ty::Int(int) = ty else { return None };
    let op = *generator.rng.pick(&["&", "|", "^"]);
    let (left, right) = generator.operands(*int);
    Some(Node::expr(ty, &format!("($ {op} $)"), vec![left, right]))
}

fn shift(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let Ty::Int(_) = ty else { return None };
    let op = *generator.rng.pick(&["<<", ">>"]);
    let amount = generator.int_type();
    let operands = vec![generator.unknown(ty), generator.expr(&Ty::Int(amount))];
    Some(Node::expr(ty, &format!("($ {op} $)"), operands))
}

fn negation(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let Ty::Int(int) = ty else { return None };
    let from = match *int {
        int if int.signed && (int.bits == 8 || generator.rng.one_in(2)) => int,
        int if int.signed => Int { bits: int.bits / 2, signed: false },
        _ => return None,
    };
    Some(Node::expr(ty, "(-$)", vec![generator.unknown(&Ty::Int(from))]))
}

fn complement(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let Ty::Int(_) = ty else { return None };
    Some(Node::expr(ty, "(~$)", vec![generator.unknown(ty)]))
}

fn cast(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if !ty.is_scalar() {
        return None;
    }
    let from = generator.scalar_type();
    Some(Node::expr(ty, &format!("($ as {})", ty.name()), vec![generator.unknown(&from)]))
}

fn comparison(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Bool {
        return None;
    }
    let op = *generator.rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
    let (left, right) = match generator.rng.below(8) {
        0 => {
            let sizes = [1, 3, 4, 8, 16];
            let (a, b) = (*generator.rng.pick(&sizes), *generator.rng.pick(&sizes));
            let op = *generator.rng.pick(&["==", "!="]);
            let operands = vec![generator.unknown(&Ty::Str(a)), generator.expr(&Ty::Str(b))];
            return Some(Node::expr(ty, &format!("($ {op} $)"), operands));
        }
        1 | 2 => {
            let same = generator.scalar_type();
            (generator.unknown(&same), generator.expr(&same))
        }
        _ => {
            let result = generator.int_type();
            generator.operands(result)
        }
    };
    Some(Node::expr(ty, &format!("($ {op} $)"), vec![left, right]))
}

fn logic(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Bool {
        return None;
    }
    let op = *generator.rng.pick(&["&&", "||"]);
    let operands = vec![generator.unknown(ty), generator.expr(ty)];
    Some(Node::expr(ty, &format!("($ {op} $)"), operands))
}

fn not(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    (*ty == Ty::Bool).then(|| Node::expr(ty, "(!$)", vec![generator.unknown(ty)]))
}

fn presence(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Bool {
        return None;
    }
    let op = *generator.rng.pick(&["==", "!="]);
    let element = generator.any_element()?;
    Some(Node::expr(ty, &format!("($ {op} null)"), vec![element]))
}

/// Generates an indexed character of a string.
fn letter(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Char {
        return None;
    }
    let len = *generator.rng.pick(&[3, 4, 8, 13, 16]);
    let text = generator.lvalue_to_read(&Ty::Str(len))?;
    let index = generator.index(len);
    Some(Node::expr(ty, "$[$]", vec![text, index]))
}

/// Generates a `match` with a value.
fn selection(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if matches!(ty, Ty::Array(..) | Ty::Struct(_)) {
        return None;
    }
    let of = if generator.rng.one_in(5) { Ty::Str(8) } else { generator.scalar_type() };
    let mut template = String::from("match ($) { ");
    let mut children = vec![generator.unknown(&of)];
    for arm in 0..1 + generator.rng.below(4) {
        let Some(pattern) = generator.pattern(&of, arm) else { break };
        template += &format!("{pattern}: $, ");
        let value = if generator.rng.one_in(4) { generator.block_value(ty) } else { generator.expr(ty) };
        children.push(value);
    }
    template += "default: $ }";
    children.push(generator.expr(ty));
    Some(Node::expr(ty, &template, children))
}

impl Gen {
    /// Generates a block whose last statement is a value.
    fn block_value(&mut self, ty: &Ty) -> Node {
        self.block(|generator| {
            let mut stmts: Vec<Node> = generator.stmt().into_iter().collect();
            let value = generator.lvalue_to_read(ty).filter(|value| !value.text().starts_with('('));
            stmts.push(
                value.unwrap_or_else(|| {
                    Node::expr(ty, "match (cpu()) { default: $ }", vec![generator.expr(ty)])
                }),
            );
            stmts
        })
    }
}

fn builtin(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let has_task = generator.program.has_task;
    let calls: &[&str] = match ty {
        Ty::Int(U64) if has_task => &["time_ns()", "cgroup_id()"],
        Ty::Int(U64) => &["time_ns()"],
        Ty::Int(U32) if has_task => &["pid()", "tid()", "uid()", "gid()", "cpu()"],
        Ty::Int(U32) => &["cpu()"],
        Ty::Str(16) if has_task => &["comm()"],
        _ => return None,
    };
    let call = *generator.rng.pick(calls);
    Some(Node::expr(ty, call, Vec::new()))
}

/// Generates a number that is reachable from the program's parameters.
fn member(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let fits = |(int, _): &&(Int, &str)| *ty == Ty::Int(*int);
    let members: Vec<&str> =
        generator.program.number_exprs.iter().filter(fits).map(|(_, text)| *text).collect();
    if !generator.function.has_context || members.is_empty() {
        return None;
    }
    Some(Node::expr(ty, generator.rng.pick::<&str>(&members), Vec::new()))
}

/// Generates the slot of a histogram.
fn slot(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Int(U32) {
        return None;
    }
    if generator.rng.one_in(2) {
        return Some(Node::expr(ty, "log2_slot($)", vec![generator.expr(&Ty::Int(U64))]));
    }
    let operands = (0..4).map(|_| generator.expr(&Ty::Int(U64))).collect();
    Some(Node::expr(ty, "linear_slot($, $, $, $)", operands))
}

fn struct_literal(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let Ty::Struct(number) = ty else { return None };
    let fields = generator.structs[*number].clone();
    let mut parts = Vec::new();
    let mut values = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        parts.push(format!("f{index}: $"));
        values.push(generator.fitting(field));
    }
    Some(Node::expr(ty, &format!("{ty} {{ {} }}", parts.join(", "), ty = ty.name()), values))
}

impl Gen {
    /// Generates the elements of an array, or an array to copy.
    pub fn array_literal(&mut self, ty: &Ty) -> Node {
        if self.rng.one_in(3)
            && let Some(lvalue) = self.lvalue_to_read(ty)
        {
            return lvalue;
        }
        let Ty::Array(element, len) = ty else { return self.expr(ty) };
        if !element.is_scalar() {
            return Node::constant(ty, "[]".into());
        }
        let count = self.rng.below(*len as usize + 1);
        let texts: Vec<String> = (0..count).map(|_| self.element_literal(element)).collect();
        Node::constant(ty, format!("[{}]", texts.join(", ")))
    }

    /// Formats literals of a type as an array.
    pub fn int_list(&mut self, int: Int, count: usize) -> String {
        let texts: Vec<String> = (0..count).map(|_| constants::literal(&mut self.rng, int).text).collect();
        format!("[{}]", texts.join(", "))
    }

    fn element_literal(&mut self, ty: &Ty) -> String {
        match ty {
            Ty::Int(int) => constants::literal(&mut self.rng, *int).text,
            _ => literal(self, ty).expect("a scalar has literals").text(),
        }
    }
}
