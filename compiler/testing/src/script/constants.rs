//! Constant expressions of all widths, with their values as unbounded integers.

use super::rng::Rng;
use super::scope::Gen;
use super::tree::Node;
use super::types::{I32, I64, Int, Ty, U32, U64};

/// Numbers near the limits of widths.
const LIMITS: &[i128] = &[
    0,
    1,
    2,
    3,
    5,
    7,
    8,
    10,
    31,
    32,
    33,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
    1000,
    32_767,
    32_768,
    65_535,
    65_536,
    1_000_000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    5_000_000_000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_fff6,
    0xffff_ffff_ffff_ffff,
];

/// Limit on the magnitude of a constant's parts, so that none overflows the compiler's own numbers.
const MOST: i128 = 1 << 100;

impl Int {
    pub fn least(self) -> i128 {
        if self.signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    pub fn most(self) -> i128 {
        (1 << (self.bits - u32::from(self.signed))) - 1
    }

    pub fn holds(self, value: i128) -> bool {
        (self.least()..=self.most()).contains(&value)
    }

    /// Truncates a value to the width of the type.
    pub fn cut(self, value: i128) -> i128 {
        let low = value & ((1 << self.bits) - 1);
        if low > self.most() { low - (1 << self.bits) } else { low }
    }
}

/// A constant expression, and its value.
#[derive(Clone, Debug)]
pub struct Constant {
    pub text: String,
    pub value: i128,
}

/// Generates a literal, possibly negative, that a type can represent.
pub fn literal(rng: &mut Rng, int: Int) -> Constant {
    let value = number(rng, int);
    Constant { text: spelled(rng, value), value }
}

/// Generates a constant expression of literals and operators that a type can represent.
pub fn folded(rng: &mut Rng, int: Int) -> Constant {
    for _ in 0..20 {
        let Some(constant) = tree(rng, 3) else { continue };
        if int.holds(constant.value) {
            return constant;
        }
        // The complement has the width of its destination.
        if !int.signed && int.bits >= 32 && constant.value < 0 && rng.one_in(2) {
            let inner = literal(rng, int);
            return Constant { text: format!("(~{})", inner.text), value: int.cut(!inner.value) };
        }
        // The remainder fits, and so does a number that adjusts it to the wanted value.
        let wanted = number(rng, int);
        if let Some(text) = adjusted_to(rng, &constant, wanted) {
            return Constant { text, value: wanted };
        }
    }
    literal(rng, int)
}

/// Adjusts the constant to a value by one operation; `None` if no literal can.
fn adjusted_to(rng: &mut Rng, constant: &Constant, wanted: i128) -> Option<String> {
    let Constant { text, value } = constant;
    if rng.one_in(3) && *value >= 0 {
        let other = wanted ^ value;
        return U64.holds(other).then(|| format!("({text} ^ {})", spelled(rng, other)));
    }
    let (op, other) = if *value <= wanted { ('+', wanted - value) } else { ('-', value - wanted) };
    U64.holds(other).then(|| format!("({text} {op} {})", spelled(rng, other)))
}

fn number(rng: &mut Rng, int: Int) -> i128 {
    loop {
        let limit = match rng.below(4) {
            0 => i128::from(rng.draw() >> rng.below(64)),
            _ => *rng.pick(LIMITS),
        };
        let value = if int.signed && rng.one_in(2) { -limit } else { limit };
        // Also uses numbers next to the limits.
        let value = value + [0, 0, 1, -1][rng.below(4)];
        if int.holds(value) {
            return value;
        }
    }
}

/// Formats a number as a literal.
fn spelled(rng: &mut Rng, value: i128) -> String {
    let size = value.unsigned_abs();
    let digits = match rng.below(6) {
        0 => format!("{size:#x}"),
        1 if size < 1 << 32 => format!("{size:#b}"),
        _ => size.to_string(),
    };
    if value < 0 { format!("-{digits}") } else { digits }
}

fn tree(rng: &mut Rng, depth: u32) -> Option<Constant> {
    if depth == 0 || rng.one_in(4) {
        let int = if rng.one_in(3) { I64 } else { U64 };
        let constant = literal(rng, int);
        let text = if constant.value < 0 { format!("({})", constant.text) } else { constant.text };
        return Some(Constant { text, value: constant.value });
    }
    let left = tree(rng, depth - 1)?;
    let op = *rng.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "neg"]);
    if op == "neg" {
        return Some(Constant { text: format!("(-{})", left.text), value: -left.value });
    }
    let right = match op {
        "<<" | ">>" => {
            let by = rng.below(70);
            Constant { text: by.to_string(), value: by as i128 }
        }
        _ => tree(rng, depth - 1)?,
    };
    let (a, b) = (left.value, right.value);
    let value = match op {
        "+" => a + b,
        "-" => a - b,
        "*" => a.checked_mul(b)?,
        "/" => a.checked_div(b)?,
        "%" => a.checked_rem(b)?,
        "&" => a & b,
        "|" => a | b,
        "^" => a ^ b,
        "<<" => a.checked_mul(1 << b)?,
        _ => a >> b,
    };
    let text = format!("({} {op} {})", left.text, right.text);
    (-MOST..=MOST).contains(&value).then_some(Constant { text, value })
}

/// The result of [`Constant::construct`].
pub const CONSTRUCTS: [&str; 5] = [
    "literal",
    "literal beyond i64",
    "negative literal of 64 bits",
    "folded constant",
    "folded constant beyond i64",
];

impl Constant {
    /// Returns the construct of this constant.
    pub fn construct(&self) -> &'static str {
        let [literal, large, negative, folded, large_folded] = CONSTRUCTS;
        let is_large = self.value > I64.most();
        match self.text.contains([' ', '~']) {
            true if is_large => large_folded,
            true => folded,
            false if is_large => large,
            false if self.value < I32.least() => negative,
            false => literal,
        }
    }
}

/// Generates an integer constant that may be assigned to the type.
pub fn fitting(generator: &mut Gen, int: Int) -> Node {
    let rng = &mut generator.rng;
    let constant = if rng.one_in(3) { folded(rng, int) } else { literal(rng, int) };
    let construct = constant.construct();
    Node::constant(&Ty::Int(int), constant.text).of(construct)
}

/// Generates a constant of exactly the type without a cast; `None` if literals have other types.
pub fn own(generator: &mut Gen, int: Int) -> Option<Node> {
    let rng = &mut generator.rng;
    let is_folded = rng.one_in(2);
    let constant = (0..8).find_map(|_| {
        let constant = match int {
            U32 if is_folded => sum(rng),
            _ if is_folded => folded(rng, int),
            _ => literal(rng, int),
        };
        let is_own = match int {
            U32 => true,
            // A negative part makes the whole an i64.
            U64 => !U32.holds(constant.value) && !constant.text.contains(['-', '~']),
            I64 => constant.value < 0 && !constant.text.contains('~'),
            _ => false,
        };
        is_own.then_some(constant)
    })?;
    let construct = constant.construct();
    let text = if constant.value < 0 { format!("({})", constant.text) } else { constant.text };
    Some(Node::constant(&Ty::Int(int), text).of(construct))
}

/// Generates a u32 sum of parts that are no larger.
fn sum(rng: &mut Rng) -> Constant {
    let whole = literal(rng, U32).value;
    let part = i128::from(rng.draw()) % (whole + 1);
    let (first, second) = (spelled(rng, part), spelled(rng, whole - part));
    Constant { text: format!("({first} + {second})"), value: whole }
}

/// Generates a comparison of a variable with a constant that its type can represent.
pub fn compared(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Bool {
        return None;
    }
    let int = generator.int_type();
    let left = generator.variable(&Ty::Int(int));
    let right = fitting(generator, int);
    let op = *generator.rng.pick(&["==", "!=", "<", "<=", ">", ">="]);
    Some(Node::expr(ty, &format!("($ {op} $)"), vec![left, right]))
}
