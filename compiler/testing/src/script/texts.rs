//! Productions for text: `print`, string concatenation, lengths, and byte order.

use super::exprs::MAX_DEPTH;
use super::scope::Gen;
use super::tree::Node;
use super::types::{Int, Ty, U32, U64};

/// Limit on the values of most lines.
const MAX_VALUES: usize = 5;

/// Limit on the values of some lines: more than registers hold.
const MANY_VALUES: usize = 30;

/// Generates a `print`.
pub fn printed(generator: &mut Gen) -> Option<Node> {
    if !generator.kernel_only {
        return None;
    }
    let mut format = String::from("at");
    let mut values = Vec::new();
    let most = if generator.rng.below(8) == 0 { MANY_VALUES } else { MAX_VALUES };
    for _ in 0..generator.rng.below(most + 1) {
        if generator.rng.below(4) == 0 {
            format.push_str(" %s");
            values.push(displayed(generator));
            continue;
        }
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

/// Generates a text that the host makes.
fn displayed(generator: &mut Gen) -> Node {
    let (i32, i64) = (Int { bits: 32, signed: true }, Int { bits: 64, signed: true });
    let (call, operands): (&str, &[Int]) = match generator.rng.below(11) {
        0 | 1 => ("ipv4($)", &[U32]),
        2 => ("syscall_name($)", &[i64]),
        3 => ("errno_name($)", &[i64]),
        4 => ("signal_name($)", &[i32]),
        5 => ("capability_name($)", &[U32]),
        6 => ("ksym($)", &[U64]),
        7 => ("usym($, $)", &[i32, U64]),
        8 => ("human_bytes($)", &[U64]),
        9 => ("enum_name(pid_type, $)", &[i32]),
        _ => ("human_time($)", &[U64]),
    };
    let operands = operands.iter().map(|int| generator.unknown(&Ty::Int(*int))).collect();
    Node::expr(&Ty::Str(128), call, operands)
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
