//! Constant expressions of all widths, with the whole numbers that they are.

use super::numbers::Numbers;
use super::scope::Gen;
use super::tree::Node;
use super::types::{I32, I64, Int, Ty, U32, U64};

/// Numbers around which widths begin and end.
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

/// Parts of a constant expression are below this, so that none overflows what the compiler computes in.
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

    /// The number that the low bits of a value are.
    pub fn cut(self, value: i128) -> i128 {
        let low = value & ((1 << self.bits) - 1);
        if low > self.most() { low - (1 << self.bits) } else { low }
    }
}

/// A constant expression, and the number that it is.
#[derive(Clone, Debug)]
pub struct Constant {
    pub text: String,
    pub value: i128,
}

/// A literal, perhaps negative, that a type holds.
pub fn literal(numbers: &mut Numbers, int: Int) -> Constant {
    let value = number(numbers, int);
    Constant { text: spelled(numbers, value), value }
}

/// A constant expression of literals and operators that a type holds.
pub fn folded(numbers: &mut Numbers, int: Int) -> Constant {
    for _ in 0..20 {
        let Some(made) = tree(numbers, 3) else { continue };
        if int.holds(made.value) {
            return made;
        }
        // The complement is as wide as its destination.
        if !int.signed && int.bits >= 32 && made.value < 0 && numbers.one_in(2) {
            let inner = literal(numbers, int);
            return Constant { text: format!("(~{})", inner.text), value: int.cut(!inner.value) };
        }
        // What is left of it fits, and so does a number that brings it there.
        let wanted = number(numbers, int);
        if let Some(text) = brought(numbers, &made, wanted) {
            return Constant { text, value: wanted };
        }
    }
    literal(numbers, int)
}

/// The constant and an operation that makes it a number; `None` if no literal can.
fn brought(numbers: &mut Numbers, made: &Constant, wanted: i128) -> Option<String> {
    let Constant { text, value } = made;
    if numbers.one_in(3) && *value >= 0 {
        let other = wanted ^ value;
        return U64.holds(other).then(|| format!("({text} ^ {})", spelled(numbers, other)));
    }
    let (op, other) = if *value <= wanted { ('+', wanted - value) } else { ('-', value - wanted) };
    U64.holds(other).then(|| format!("({text} {op} {})", spelled(numbers, other)))
}

fn number(numbers: &mut Numbers, int: Int) -> i128 {
    loop {
        let limit = match numbers.below(4) {
            0 => i128::from(numbers.draw() >> numbers.below(64)),
            _ => *numbers.pick(LIMITS),
        };
        let value = if int.signed && numbers.one_in(2) { -limit } else { limit };
        // Limits are also one off.
        let value = value + [0, 0, 1, -1][numbers.below(4)];
        if int.holds(value) {
            return value;
        }
    }
}

/// A number as a literal.
fn spelled(numbers: &mut Numbers, value: i128) -> String {
    let size = value.unsigned_abs();
    let digits = match numbers.below(6) {
        0 => format!("{size:#x}"),
        1 if size < 1 << 32 => format!("{size:#b}"),
        _ => size.to_string(),
    };
    if value < 0 { format!("-{digits}") } else { digits }
}

fn tree(numbers: &mut Numbers, depth: u32) -> Option<Constant> {
    if depth == 0 || numbers.one_in(4) {
        let int = if numbers.one_in(3) { I64 } else { U64 };
        let made = literal(numbers, int);
        let text = if made.value < 0 { format!("({})", made.text) } else { made.text };
        return Some(Constant { text, value: made.value });
    }
    let left = tree(numbers, depth - 1)?;
    let op = *numbers.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "neg"]);
    if op == "neg" {
        return Some(Constant { text: format!("(-{})", left.text), value: -left.value });
    }
    let right = match op {
        "<<" | ">>" => {
            let by = numbers.below(70);
            Constant { text: by.to_string(), value: by as i128 }
        }
        _ => tree(numbers, depth - 1)?,
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
    /// The construct that this is one of.
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

/// An integer constant that may go to a place of the type.
pub fn fitting(generator: &mut Gen, int: Int) -> Node {
    let numbers = &mut generator.numbers;
    let made = if numbers.one_in(3) { folded(numbers, int) } else { literal(numbers, int) };
    let construct = made.construct();
    Node::constant(&Ty::Int(int), made.text).of(construct)
}

/// A constant of exactly the type without a cast; `None` if literals have other types.
pub fn own(generator: &mut Gen, int: Int) -> Option<Node> {
    let numbers = &mut generator.numbers;
    let is_folded = numbers.one_in(2);
    let made = (0..8).find_map(|_| {
        let made = match int {
            U32 if is_folded => sum(numbers),
            _ if is_folded => folded(numbers, int),
            _ => literal(numbers, int),
        };
        let is_own = match int {
            U32 => true,
            // A part that is negative makes the whole an i64.
            U64 => !U32.holds(made.value) && !made.text.contains(['-', '~']),
            I64 => made.value < 0 && !made.text.contains('~'),
            _ => false,
        };
        is_own.then_some(made)
    })?;
    let construct = made.construct();
    let text = if made.value < 0 { format!("({})", made.text) } else { made.text };
    Some(Node::constant(&Ty::Int(int), text).of(construct))
}

/// A u32 of parts that are no larger.
fn sum(numbers: &mut Numbers) -> Constant {
    let whole = literal(numbers, U32).value;
    let part = i128::from(numbers.draw()) % (whole + 1);
    let (first, second) = (spelled(numbers, part), spelled(numbers, whole - part));
    Constant { text: format!("({first} + {second})"), value: whole }
}

/// A variable compared with a constant that its type holds.
pub fn compared(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Bool {
        return None;
    }
    let int = generator.int_type();
    let left = generator.variable(&Ty::Int(int));
    let right = fitting(generator, int);
    let op = *generator.numbers.pick(&["==", "!=", "<", "<=", ">", ">="]);
    Some(Node::expr(ty, &format!("($ {op} $)"), vec![left, right]))
}
