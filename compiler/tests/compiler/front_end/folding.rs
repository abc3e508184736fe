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

/// Without those that make negative numbers.
const BITS_OPERATORS: &[&str] = &["&", "|", "^", "<<", ">>", "+", "*", "/", "%"];

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
    compiled_and_cut(ty, value).map(|(value, _)| value)
}

/// Returns the initial bytes of the variable `g` of a script without zeros at the end, or the codes of the
/// errors.
fn initial(script: &str) -> Result<Vec<u8>, Vec<String>> {
    let script = format!("{script}\nfn main() -> i32 {{\n    return 0\n}}\n");
    let checked = pipeline::parse("t.ks", script.as_bytes(), Options::new("t")).expect("short").check();
    let Some(hir) = checked.hir else {
        return Err(checked.diagnostics.iter().map(|one| one.code.to_string()).collect());
    };
    let global = hir.globals.iter().find(|global| global.name == "g").expect("declared");
    Ok(global.init.clone())
}

#[test]
fn initial_values_are_computed() {
    for (ty, value, expected) in [
        ("bool", "!true", &[0_u8][..]),
        ("bool", "!false", &[1]),
        ("bool", "1 < 2", &[1]),
        ("bool", "\"a\" == \"b\"", &[0]),
        ("bool", "\"a\" == \"a\"", &[1]),
        ("bool", "\"ab\" == \"abc\"", &[0]),
        ("bool", "\"ab\" != \"abc\"", &[1]),
        ("bool", "\"a\" + \"b\" == \"ab\"", &[1]),
        ("bool", "\"a\" + \"b\" == \"ac\"", &[0]),
        ("bool", "null == null", &[1]),
        ("bool", "(null as *u8) == null", &[1]),
        ("bool", "(null as *u8) != null", &[0]),
        ("bool", "5 as bool", &[1]),
        ("bool", "0 as bool", &[0]),
        ("bool", "!(0 as bool) && (256 as bool)", &[1]),
        ("bool", "true && false", &[0]),
        ("bool", "false && true", &[0]),
        ("bool", "true && true", &[1]),
        ("bool", "false || true", &[1]),
        ("bool", "true || false", &[1]),
        ("bool", "false || false", &[0]),
        ("bool", "(1 < 2) as u32 == 1", &[1]),
        ("bool", "!(1 < 2) || (3 as u8) > 2", &[1]),
        ("u32", "(1 < 2) as u32", &[1, 0, 0, 0]),
        ("u32", "(true as u32) + 1", &[2, 0, 0, 0]),
        ("i16", "(255 as u8) as i8 as i16", &[0xff, 0xff]),
        ("u16", "(1 as u8) << 9", &[2, 0]),
        ("u16", "(3 as u8) << 7", &[0x80, 0]),
        ("u8", "(255 as u8) >> 12", &[15]),
        ("i16", "(-8 as i16) >> 1", &[0xfc, 0xff]),
        ("str(4)", "\"ab\"", b"ab\0\0"),
        ("str(4)", "\"abcdef\"", b"abc\0"),
        ("str(8)", "\"ab\" + \"cd\"", b"abcd\0\0\0\0"),
        ("str(4)", "\"ab\" + \"cd\"", b"abc\0"),
        ("u8[4]", "[7]", &[7, 7, 7, 7]),
        ("u8[4]", "[7, 8]", &[7, 8, 0, 0]),
        ("u8[1]", "[7]", &[7]),
    ] {
        let end = expected.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let found = initial(&format!("var g: {ty} = {value}"));
        assert_eq!(found.as_deref(), Ok(&expected[..end]), "{ty} = {value}");
    }
}

/// An operand with a type of its own is computed in it, and a literal beside it must fit a type.
#[test]
fn constants_with_a_type_are_computed_in_it() {
    for value in [
        "(4294967295 as u32) + 1",
        "(5 as u64) * 18446744073709551615",
        "(1 as u64) & (18446744073709551615 * 2 + 2)",
        "(5 as u64) / 0",
    ] {
        assert_eq!(initial(&format!("var g: u64 = {value}")), Err(vec!["KS0416".to_owned()]), "{value}");
    }
}

#[test]
fn literals_of_structs_are_complete_or_reported_once() {
    let declared = "struct P { a: u8 = 3, b: u8, name: str(2) = \"x\" }\nvar g: P = ";
    let of = |literal: &str| initial(&format!("{declared}{literal}"));
    assert_eq!(of("P { b: 1 }"), Ok(vec![3, 1, b'x']));
    assert_eq!(of("P { a: 2, b: 1, name: \"\" }"), Ok(vec![2, 1]));
    let once = |code: &str| Err(vec![code.to_owned()]);
    assert_eq!(of("Q { b: 1 }"), once("KS0303"));
    assert_eq!(of("P { a: 1, c: 1 }"), once("KS0304"), "it is not reported as missing, too");
    assert_eq!(
        initial("struct R { a: Missing }\nvar g: u8 = 0\nfn f() -> u8 { var r = R { a: 1 }\n return 0 }"),
        once("KS0303")
    );
}

/// Returns the initial value of a variable as compiled, and whether a warning says that it is another number
/// than the one that is written; or the codes of the errors.
fn compiled_and_cut(ty: &str, value: &str) -> Result<(i128, bool), Vec<String>> {
    let script =
        format!("var g: {ty} = {value}\nfn main() -> i32 {{\n    print(\"{{}}\", g)\n    return 0\n}}\n");
    let checked = pipeline::parse("t.ks", script.as_bytes(), Options::new("t")).expect("short").check();
    let Some(hir) = checked.hir else {
        return Err(checked.diagnostics.iter().map(|one| one.code.to_string()).collect());
    };
    let global = hir.globals.iter().find(|global| global.name == "g").expect("declared");
    let mut bytes = [0; 8];
    bytes[..global.init.len()].copy_from_slice(&global.init);
    let is_cut = checked.diagnostics.iter().any(|one| one.code.to_string() == "KS0414");
    let unused = 128 - ty[1..].parse::<u32>().expect("a type with its width");
    let number = i128::from(u64::from_le_bytes(bytes));
    Ok((if ty.starts_with('i') { (number << unused) >> unused } else { number }, is_cut))
}

/// An expression that is never negative but by `~`.
#[derive(Debug, Clone)]
enum Bits {
    Literal(u64),
    Complement(Box<Bits>),
    Binary(&'static str, Box<Bits>, Box<Bits>),
}

/// The value of such an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BitsValue {
    Number(i128),
    /// The complement of a number: ones in all places above, however wide the destination is.
    Mask(i128),
}

fn bits() -> impl Strategy<Value = Bits> {
    let literal = prop_oneof![
        4 => prop::sample::select(LITERALS).prop_map(Bits::Literal),
        1 => any::<u64>().prop_map(Bits::Literal),
    ];
    literal.prop_recursive(4, 16, 2, |inner| {
        prop_oneof![
            2 => inner.clone().prop_map(|inner| Bits::Complement(Box::new(inner))),
            3 => (prop::sample::select(BITS_OPERATORS), inner.clone(), inner)
                .prop_map(|(op, left, right)| Bits::Binary(op, Box::new(left), Box::new(right))),
        ]
    })
}

impl BitsValue {
    /// Returns the number that this is where its width counts: 32 bits if they hold it, else 64.
    fn number(self) -> i128 {
        match self {
            BitsValue::Number(number) => number,
            BitsValue::Mask(mask) if !mask <= i128::from(u32::MAX) => mask & i128::from(u32::MAX),
            BitsValue::Mask(mask) => mask & i128::from(u64::MAX),
        }
    }

    /// Returns the number itself, or all ones but those of the complement.
    fn whole(self) -> i128 {
        let (BitsValue::Number(whole) | BitsValue::Mask(whole)) = self;
        whole
    }

    /// Returns what a variable of so many bits has, and whether that is the same number; `None` if no variable
    /// has it.
    fn in_variable(self, bits: u32, signed: bool) -> Option<(i128, bool)> {
        let whole = self.whole();
        if whole > i128::from(u64::MAX) {
            return None;
        }
        let cut = (whole << (128 - bits)) >> (128 - bits);
        let ones = (1 << bits) - 1;
        Some(match self {
            // The complement of a number of that many bits, whatever the sign.
            BitsValue::Mask(_) => (if signed { cut } else { cut & ones }, !whole <= ones),
            BitsValue::Number(_) if signed => (cut, cut == whole),
            BitsValue::Number(_) => (cut & ones, whole <= ones),
        })
    }
}

impl Bits {
    fn text(&self) -> String {
        match self {
            Bits::Literal(value) => value.to_string(),
            Bits::Complement(inner) => format!("(~{})", inner.text()),
            Bits::Binary(op, left, right) => format!("({} {op} {})", left.text(), right.text()),
        }
    }

    /// Returns the value; `None` if the language rejects the expression.
    fn value(&self) -> Option<BitsValue> {
        let fits = |value: i128| (0..=i128::from(u64::MAX)).contains(&value);
        Some(match self {
            Bits::Literal(value) => BitsValue::Number(i128::from(*value)),
            Bits::Complement(inner) => match inner.value()? {
                BitsValue::Number(number) if fits(number) => BitsValue::Mask(!number),
                BitsValue::Number(_) => return None,
                BitsValue::Mask(mask) => BitsValue::Number(!mask),
            },
            Bits::Binary(op, left, right) => {
                let (a, b) = (left.value()?, right.value()?);
                let whole = match *op {
                    "&" => a.whole() & b.whole(),
                    "|" => a.whole() | b.whole(),
                    "^" => a.whole() ^ b.whole(),
                    "<<" => {
                        let by = b.number();
                        (0..by).take_while(|at| *at < 200).try_fold(a.whole(), |a, _| a.checked_mul(2))?
                    }
                    ">>" => a.number() >> b.number().min(127),
                    "+" => a.number().checked_add(b.number())?,
                    "*" => a.number().checked_mul(b.number())?,
                    "/" => a.number().checked_div(b.number())?,
                    _ => a.number().checked_rem(b.number())?,
                };
                match whole {
                    0.. => BitsValue::Number(whole),
                    _ if fits(!whole) => BitsValue::Mask(whole),
                    _ => return None,
                }
            }
        })
    }
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

    #[test]
    fn complements_of_literals_are_as_wide_as_their_destination(bits in bits()) {
        let text = bits.text();
        let value = bits.value();
        for (signed, width) in [(false, 8), (false, 16), (false, 32), (false, 64), (true, 8), (true, 32), (true, 64)] {
            let ty = format!("{}{width}", if signed { "i" } else { "u" });
            let expected = value.and_then(|value| value.in_variable(width, signed));
            let found = compiled_and_cut(&ty, &text).ok().map(|(found, is_cut)| (found, !is_cut));
            prop_assert_eq!(found, expected, "{}: {}", ty, text);
        }
    }

    #[test]
    fn complements_of_literals_are_compared_as_numbers(left in bits(), right in bits()) {
        let (Some(a), Some(b)) = (left.value(), right.value()) else { return Ok(()) };
        let text = format!("({} < {}) as u64", left.text(), right.text());
        prop_assert_eq!(compiled("u64", &text), Ok(i128::from(a.number() < b.number())), "{}", text);
    }
}
