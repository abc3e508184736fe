//! The types of generated scripts.

/// An integer type: width and signedness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Int {
    pub bits: u32,
    pub signed: bool,
}

pub const U8: Int = Int { bits: 8, signed: false };
pub const U32: Int = Int { bits: 32, signed: false };
pub const U64: Int = Int { bits: 64, signed: false };
pub const I32: Int = Int { bits: 32, signed: true };
pub const I64: Int = Int { bits: 64, signed: true };

impl Int {
    pub const ALL: [Int; 8] = [
        Int { bits: 8, signed: false },
        Int { bits: 16, signed: false },
        U32,
        U64,
        Int { bits: 8, signed: true },
        Int { bits: 16, signed: true },
        I32,
        I64,
    ];

    /// Returns the result type of an operation on two integers. Source: the language reference, 3.4.
    pub fn combine(self, other: Int) -> Option<Int> {
        let wider = if self.bits >= other.bits { self } else { other };
        if self.signed == other.signed {
            return Some(wider);
        }
        let (signed, unsigned) = if self.signed { (self, other) } else { (other, self) };
        match (unsigned.bits, signed.bits) {
            (8, 8) | (16, 16) | (64, 64) | (32, 32 | 64) => Some(signed),
            (32, 8 | 16) => Some(I32),
            _ => None,
        }
    }
}

/// A type; structs and enums are numbered: `S0`, `E0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ty {
    Int(Int),
    Bool,
    Char,
    Enum(usize),
    Str(u32),
    Array(Box<Ty>, u32),
    Struct(usize),
}

impl Ty {
    pub fn name(&self) -> String {
        match self {
            Ty::Int(int) => format!("{}{}", if int.signed { 'i' } else { 'u' }, int.bits),
            Ty::Bool => "bool".into(),
            Ty::Char => "char".into(),
            Ty::Enum(number) => format!("E{number}"),
            Ty::Str(len) => format!("str({len})"),
            Ty::Array(element, len) => format!("{}[{len}]", element.name()),
            Ty::Struct(number) => format!("S{number}"),
        }
    }

    pub fn is_scalar(&self) -> bool {
        matches!(self, Ty::Int(_) | Ty::Bool | Ty::Char | Ty::Enum(_))
    }

    /// Returns the shortest expression that fits where the type is expected.
    pub fn simplest(&self) -> Option<String> {
        Some(match self {
            Ty::Int(int) if *int == U32 => "0".into(),
            Ty::Int(_) => format!("(0 as {})", self.name()),
            Ty::Bool => "false".into(),
            Ty::Char => "'a'".into(),
            Ty::Enum(number) => enumerator(*number, 0),
            Ty::Str(_) => "\"\"".into(),
            Ty::Array(..) | Ty::Struct(_) => return None,
        })
    }
}

/// Returns the name of an enumerator.
pub fn enumerator(number: usize, member: usize) -> String {
    format!("E{number}_{member}")
}
