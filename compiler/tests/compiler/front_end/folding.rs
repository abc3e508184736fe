//! Random expressions of literals: the compiler's results, compared with arithmetic on unbounded integers.

use ks_compiler::pipeline::{self, Options};
use proptest::prelude::*;

/// Numbers near the limits of types.
const LITERALS: &[u64] = &[
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    63,
    64,
    127,
    128,
    255,
    1000,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

const OPERATORS: &[&str] = &["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"];

#[derive(Debug, Clone)]
enum Node {
    Literal(u64),
    Negated(Box<Node>),
    Binary(&'static str, Box<Node>, Box<Node>),
}

fn node() -> impl Strategy<Value = Node> {
    let literal = prop_oneof![
        4 => prop::sample::select(LITERALS).prop_map(Node::Literal),
        1 => any::<u64>().prop_map(Node::Literal),
    ];
    literal.prop_recursive(4, 16, 2, |inner| {
        prop_oneof![
            1 => inner.clone().prop_map(|inner| Node::Negated(Box::new(inner))),
            4 => (prop::sample::select(OPERATORS), inner.clone(), inner)
                .prop_map(|(op, left, right)| Node::Binary(op, Box::new(left), Box::new(right))),
        ]
    })
}

impl Node {
    fn text(&self) -> String {
        match self {
            Node::Literal(value) => value.to_string(),
            Node::Negated(inner) => format!("(-{})", inner.text()),
            Node::Binary(op, left, right) => format!("({} {op} {})", left.text(), right.text()),
        }
    }

    /// Returns the value as an unbounded integer; `None` if the language rejects the expression.
    fn value(&self) -> Option<i128> {
        match self {
            Node::Literal(value) => Some(i128::from(*value)),
            Node::Negated(inner) => inner.value()?.checked_neg(),
            Node::Binary(op, left, right) => {
                let (a, b) = (left.value()?, right.value()?);
                match *op {
                    "+" => a.checked_add(b),
                    "-" => a.checked_sub(b),
                    "*" => a.checked_mul(b),
                    // Rounded toward zero, as the language does.
                    "/" => (b != 0).then(|| a.wrapping_div(b)),
                    "%" => (b != 0).then(|| a.wrapping_rem(b)),
                    "&" => Some(a & b),
                    "|" => Some(a | b),
                    "^" => Some(a ^ b),
                    "<<" => (0..b)
                        .take_while(|at| *at < 200)
                        .try_fold(a, |a, _| a.checked_mul(2))
                        .filter(|_| b >= 0),
                    _ => (b >= 0).then(|| a >> b.min(127)),
                }
            }
        }
    }
}

/// Returns the initial value of a variable as compiled, or the codes of the errors.
fn compiled(ty: &str, value: &str) -> Result<i128, Vec<String>> {
    let script =
        format!("var g: {ty} = {value}\nfn main() -> i32 {{\n    print(\"{{}}\", g)\n    return 0\n}}\n");
    let checked = pipeline::parse("t.ks", script.as_bytes(), Options::new("t")).expect("short").check();
    let Some(hir) = checked.hir else {
        return Err(checked.diagnostics.iter().map(|one| one.code.to_string()).collect());
    };
    let global = hir.globals.iter().find(|global| global.name == "g").expect("declared");
    let mut bytes = [0; 8];
    bytes[..global.init.len()].copy_from_slice(&global.init);
    let signed = ty.starts_with('i');
    Ok(if signed { i128::from(i64::from_le_bytes(bytes)) } else { i128::from(u64::from_le_bytes(bytes)) })
}

proptest! {
    #[test]
    fn expressions_of_literals_are_whole_numbers(node in node()) {
        let text = node.text();
        let fits = |value: &i128| (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(value);
        match node.value().filter(fits) {
            Some(value) => {
                let ty = if value < 0 { "i64" } else { "u64" };
                prop_assert_eq!(compiled(ty, &text), Ok(value), "{}", text);
            }
            None => {
                let codes = compiled("u64", &text).expect_err("no type has the value");
                prop_assert!(!codes.is_empty() && codes.iter().all(|code| code == "KS0416"), "{}", text);
            }
        }
    }

    #[test]
    fn comparisons_of_literals_are_those_of_whole_numbers(left in node(), right in node()) {
        let (Some(a), Some(b)) = (left.value(), right.value()) else { return Ok(()) };
        for (op, holds) in [
            ("<", a < b),
            ("<=", a <= b),
            ("==", a == b),
            ("!=", a != b),
            (">", a > b),
            (">=", a >= b),
        ] {
            let text = format!("({} {op} {}) as u64", left.text(), right.text());
            prop_assert_eq!(compiled("u64", &text), Ok(i128::from(holds)), "{}", text);
        }
    }
}
