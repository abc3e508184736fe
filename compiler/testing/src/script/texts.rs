//! Productions for text: `print`, string concatenation, lengths, and byte order.

use super::exprs::MAX_DEPTH;
use super::scope::Gen;
use super::tree::Node;
use super::types::{Int, Ty, U32, U64};

/// Limit on the values of a line.
const MAX_VALUES: usize = 5;

/// Generates a `print`.
pub fn printed(generator: &mut Gen) -> Option<Node> {
    if !generator.kernel_only {
        return None;
    }
    let mut format = String::from("at");
    let mut values = Vec::new();
    for _ in 0..generator.rng.below(MAX_VALUES + 1) {
        let ty = match generator.rng.below(3) {
            0 => Ty::Str(*generator.rng.pick(&[4, 8, 16])),
            _ => generator.scalar_type(),
        };
        let conversions: &[&str] = match ty {
            Ty::Int(_) => &["%d", "%u", "%5llu", "%-8d", "%08x", "%X", "%o", "{}"],
            Ty::Char => &["%c", "{}"],
            Ty::Str(_) => &["%s", "%-12s", "{}"],
            _ => &["%d", "{}"],
        };
        format.push(' ');
        format.push_str(generator.rng.pick::<&str>(conversions));
        values.push(generator.unknown(&ty));
    }
    let placeholders = ", $".repeat(values.len());
    Some(Node::stmt(&format!("print(\"{format}\"{placeholders})"), values))
}

/// Generates `a + b`, where a string is expected.
pub fn joined(generator: &mut Gen) -> Node {
    let mut parts = Vec::new();
    for _ in 0..2 + generator.rng.below(2) {
        let ty = Ty::Str(*generator.rng.pick(&[3, 4, 8, 13]));
        parts.push(generator.unknown(&ty));
    }
    let template = vec!["$"; parts.len()].join(" + ");
    Node::expr(&Ty::Str(16), &format!("({template})"), parts)
}

/// Generates a `len`.
pub fn length(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Int(U32) {
        return None;
    }
    let text = Ty::Str(*generator.rng.pick(&[4, 8, 13, 16]));
    let lvalue = generator.lvalue_to_read(&text)?;
    Some(Node::expr(ty, "len($)", vec![lvalue]))
}

/// Generates a number with reversed bytes.
pub fn swapped(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if generator.function.depth >= MAX_DEPTH {
        return None;
    }
    let call = match ty {
        Ty::Int(Int { bits: 16, signed: false }) => "ntohs($)",
        Ty::Int(int) if *int == U32 => "htonl($)",
        Ty::Int(int) if *int == U64 => "ntohll($)",
        _ => return None,
    };
    Some(Node::expr(ty, call, vec![generator.unknown(ty)]))
}
