//! Rows of the conformance table (language reference, chapter 12) about results of both halves. Each case is
//! one text, run as a helper of the kernel half at a page fault and as a plain function in the plugin; both
//! must return the value of the row. These tests need root.

use std::fmt::Write as _;

use ks_tests::compile;
use ks_tests::row::Row;

/// Returns statements that compute the bytes of a string of up to 8 as a number.
fn bytes_of(text: &str, len: usize) -> String {
    let mut out = "var sum: u64 = 0\n".to_owned();
    for at in (0..len).rev() {
        let _ = writeln!(out, "sum = sum * 256 + ({text}[{at}] as u64)");
    }
    out + "return sum"
}

#[test]
fn root_lf_007_bytes_of_strings() {
    let bytes = |literal: &str, len| format!("var s: str(9) = \"{literal}\"\n{}", bytes_of("s", len));
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_i128, |sum, byte| sum << 8 | i128::from(*byte));
    Row::default()
        .case(&bytes("\\\\\\\"\\n\\t\\r\\x41\\'", 8), number(b"\\\"\n\t\rA'\0"))
        .case(&bytes("\\qa", 4), number(b"\\qa\0"))
        .case(&bytes("aé", 4), number("aé\0".as_bytes()))
        .case(&bytes("a\nb", 4), number(b"a\nb\0"))
        .case("return len(\"\\0abc\")", 0)
        .case("var s: str(8) = \"\\x00\"\nif (s) { return 1 }\nreturn 2", 2)
        .holds("strings");
}

/// Returns the common type of two integers (3.4), or none: its bits, and whether it is signed.
fn combined(a: (u32, bool), b: (u32, bool)) -> Option<(u32, bool)> {
    let (narrow, wide) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    match (narrow.1, wide.1) {
        (false, false) | (true, true) => Some(wide),
        // The signed type of two equally wide ones, and of u32 with any signed one.
        _ if narrow.0 == wide.0 => Some((wide.0, true)),
        (false, true) if narrow.0 == 32 => Some(wide),
        (true, false) if wide.0 == 32 => Some((32, true)),
        _ => None,
    }
}

#[test]
fn root_lf_033_pairs_of_integers() {
    let types =
        [(8, false), (16, false), (32, false), (64, false), (8, true), (16, true), (32, true), (64, true)];
    let cut = |value: i128, (bits, signed): (u32, bool)| {
        let value = value & ((1_i128 << bits) - 1);
        if signed && value >> (bits - 1) != 0 { value - (1_i128 << bits) } else { value }
    };
    let name = |(bits, signed): (u32, bool)| format!("{}{bits}", if signed { 'i' } else { 'u' });
    let mut found = Row::default();
    let mut pairs = 0;
    for (a, b) in types.iter().flat_map(|a| types.map(|b| (*a, b))) {
        let Some(ty) = combined(a, b) else { continue };
        pairs += 1;
        let (left, right) = (cut(0x9c5a_e2b7_1f38_d4eb, a), cut(0x3e71_94c5_a80d_f2a9, b));
        let both = format!(
            "var a: {} = (0x9c5ae2b71f38d4eb as {0}) ^ (zero as {0})\nvar b: {} = (0x3e7194c5a80df2a9 as \
             {1}) ^ (zero as {1})\n",
            name(a),
            name(b)
        );
        let (left, right) = (cut(left, ty), cut(right, ty));
        for (op, value) in [
            ("+", left + right),
            ("-", left - right),
            ("*", left.wrapping_mul(right)),
            ("/", left / right),
            ("%", left % right),
        ] {
            found = found.case(&format!("{both}return (a {op} b) as i64 as u64"), cut(value, ty));
        }
        found = found.case(&format!("{both}return (a < b) as u64"), i128::from(left < right));
        found = found
            .case(&format!("{both}a = b\nreturn a as i64 as u64"), cut(cut(0x3e71_94c5_a80d_f2a9, b), a));
    }
    assert_eq!(pairs, 46, "of the table");
    found.holds("pairs");
}

#[test]
fn root_lf_034_narrowing() {
    Row::default()
        .case("var b: u8 = 255 + zero\nreturn b + 1", 256)
        .case("var b: u8 = 255 + zero\nb += 1\nreturn b", 0)
        .case(
            "var w: u64 = 0x123456789abcdef0 + zero\nvar a: u8 = w\nvar b: u16 = w\nvar c: u32 = \
               w\nreturn a + b + c",
            0xf0_i64 + 0xdef0 + 0x9abc_def0,
        )
        .case("var w: i64 = 300 + zero\nvar s: i8 = w\nreturn s as u64", 44)
        .case("var w: i32 = 200 + zero\nvar s: i8 = w\nvar l: i64 = s\nreturn l as u64", -56)
        .holds("narrow");
}

#[test]
fn root_lf_035_negative_literals() {
    Row::default()
        .case("var x: u32 = -1\nreturn x + (zero as u64)", u32::MAX)
        .case("var y: i8 = -1\nvar l: i64 = y\nreturn l as u64", -1)
        .case("var x = -1\nreturn (x >> 63) as u64", -1)
        .case("var x: u64 = 5 + zero\nif (x - 6 == -1) { return 1 }\nreturn 0", 1)
        .holds("negative");
}

#[test]
fn root_lf_037_division_by_zero() {
    Row::default()
        .case("return 7 / zero", 0)
        .case("return 7 % zero", 7)
        .case("var x: i64 = -7\nvar z: i64 = zero\nreturn (x / z) as u64", 0)
        .case("var x: i64 = -7\nvar z: i64 = zero\nreturn (x % z) as u64", -7)
        .case("var x: u8 = 200\nvar z: u8 = zero\nx /= z\nreturn x", 0)
        .case("var x: i16 = -200\nvar z: i16 = zero\nx %= z\nvar l: i64 = x\nreturn l as u64", -200)
        .case("var x: u64 = 18446744073709551615\nvar z: u64 = zero\nreturn x % z", u64::MAX)
        .holds("zero");
}

#[test]
fn root_lf_038_signed_division() {
    let divide = |a: i64, op: &str, b: i64| {
        format!("var a: i64 = {a} + zero\nvar b: i64 = {b} + zero\nreturn (a {op} b) as u64")
    };
    let mut found = Row::default();
    for (a, b) in [(-7, 2), (7, -2), (-7, -2), (7, 2), (-1, 5), (-2_147_483_649, 3)] {
        found = found.case(&divide(a, "/", b), a / b).case(&divide(a, "%", b), a % b);
    }
    found
        .case("var a: i64 = 1\na = a << (63 + zero)\nreturn (a / (-1 - zero)) as u64", i64::MIN)
        .case("var a: i64 = 1\na = a << (63 + zero)\nreturn (a % (-1 - zero)) as u64", 0)
        .case(
            "var a: i32 = 1\na = a << (31 + zero)\nvar m: i32 = -1\nvar l: i64 = a / m\nreturn l as u64",
            i32::MIN,
        )
        .case("var a: i8 = -128\nvar m: i8 = -1 - zero\nvar l: i64 = a / m\nreturn l as u64", -128)
        .holds("signed");
}

#[test]
fn root_lf_039_comparisons() {
    let compare = |unsigned: &str, signed: &str| {
        format!(
            "var a: {unsigned} = -1 + zero\nvar b: {unsigned} = 1 + zero\nvar c: {signed} = -1 + zero\n\
             var d: {signed} = 1 + zero\nvar r: u64 = 0\nif (a > b) {{ r += 1 }}\nif (a >= b) {{ r += 2 }}\n\
             if (a < b) {{ r += 4 }}\nif (c < d) {{ r += 8 }}\nif (c <= d) {{ r += 16 }}\n\
             if (c > d) {{ r += 32 }}\nif (c != d) {{ r += 64 }}\nif (c == c) {{ r += 128 }}\nreturn r"
        )
    };
    let narrow = |unsigned: &str, signed: &str| {
        compare(unsigned, signed)
            .replace("var a: u8 = -1 + zero", "var a: u8 = 255 + zero")
            .replace("var a: u16 = -1 + zero", "var a: u16 = 65535 + zero")
    };
    let expected = 1 + 2 + 8 + 16 + 64 + 128;
    Row::default()
        .case(&narrow("u8", "i8"), expected)
        .case(&narrow("u16", "i16"), expected)
        .case(&compare("u32", "i32"), expected)
        .case(&compare("u64", "i64"), expected)
        .holds("compare");
}

#[test]
fn root_lf_042_short_circuit_evaluation() {
    let shared =
        "var X_calls : u64 = 0\n\n@HELPER\nfn X_say(value: bool) -> bool {\nX_calls += 1\nreturn value\n}\n";
    Row::with(shared)
        .case("X_calls = 0\nif (X_say(zero == 1) && X_say(true)) { return 99 }\nreturn X_calls", 1)
        .case("X_calls = 0\nif (X_say(zero == 0) && X_say(true)) { return 10 + X_calls }\nreturn 0", 12)
        .case("X_calls = 0\nif (X_say(zero == 0) || X_say(true)) { return 10 + X_calls }\nreturn 0", 11)
        .case(
            "X_calls = 0\nvar r = X_say(zero == 1) || X_say(false) || X_say(true)\n\
               if (r) { return X_calls }\nreturn 0",
            3,
        )
        .holds("logic");
}

#[test]
fn root_lf_044_presence_is_not_the_value() {
    let shared =
        "struct Pair { a: u32, b: u64 }\n\nvar X_m : hash<u32, u64>(8)\n\nvar X_p : hash<u32, Pair>(8)";
    Row::with(shared)
        .case("X_m[1] = zero\nif (X_m[1]) { return 1 }\nreturn 2", 1)
        .case("if (X_m[2 + zero]) { return 1 }\nreturn 2", 2)
        .case("X_m[3] = 0\nif (X_m[3] == null) { return 1 }\nreturn 2", 2)
        .case("X_m[4] = 0\nif (var v = X_m[4]) { return 10 + v }\nreturn 2", 10)
        .case("if (var p = X_p[5]) { return p.b }\nelse { return 7 }", 7)
        .case(
            "X_m[6] = 0\nvar v = X_m[6]\nvar w = X_m[7]\nif (v != null && w == null) { return 5 }\nreturn 6",
            5,
        )
        .holds("presence");
}

#[test]
fn root_lf_045_an_absent_element_is_zero() {
    let shared = "struct Pair { a: u32, b: u64, name: str(6) }\n\nvar X_m : hash<u32, u64>(8)\n\nvar X_p : \
                  hash<u32, Pair>(8)\n\n\
                  var X_s : hash<u64, str(8)>(8)\n\nvar X_a : array<u32, u16>(4)";
    Row::with(shared)
        .case("return X_m[9] + 3", 3)
        .case("var p = X_p[zero]\nif (p.name == \"\") { return p.a + p.b + 4 }\nreturn 0", 4)
        .case("return X_p[zero].b + 1", 1)
        .case("if (X_s[7]) { return 1 }\nreturn len(X_s[8]) + 2", 2)
        .case("return X_a[100 + zero] + 6", 6)
        .holds("absent");
}

#[test]
fn root_lf_046_bytes_of_a_string() {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_i128, |sum, byte| sum << 8 | i128::from(*byte));
    Row::default()
        .case(&format!("var s: str(8) = \"0123456789\"\n{}", bytes_of("s", 8)), number(b"0123456\0"))
        .case(
            &format!("var l: str(12) = \"0123456789\"\nvar s: str(8) = l\n{}", bytes_of("s", 8)),
            number(b"0123456\0"),
        )
        .case(&format!("var s: str(8) = \"long one\"\ns = \"ab\"\n{}", bytes_of("s", 8)), number(b"ab"))
        .case("var s: str(8) = \"0123456789\"\nreturn len(s)", 7)
        .holds("bytes");
}

#[test]
fn root_lf_047_concatenation_and_equality() {
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0_i128, |sum, byte| sum << 8 | i128::from(*byte));
    Row::default()
        .case(
            &format!("var a: str(4) = \"ab\"\nvar b: str(4) = \"cde\"\nvar s = a + b\n{}", bytes_of("s", 8)),
            number(b"abcde"),
        )
        .case(
            &format!("var a: str(4) = \"ab\"\nvar s: str(6) = a + \"-\" + a + \"xyz\"\n{}", bytes_of("s", 6)),
            number(b"ab-ab"),
        )
        .case(
            "var a: str(4) = \"ab\"\nvar b: str(16) = \"ab\"\nvar c: str(16) = \"abc\"\nvar r: u64 = \
               0\nif (a == b) { r += 1 }\nif (a != c) { r += 2 }\nif (a + \"c\" == c) { r += 4 }\nif (a \
               == \"ab\") { r += 8 }\nreturn r",
            15,
        )
        .holds("concat");
}

#[test]
fn root_lf_048_a_byte_of_a_string_is_a_char() {
    Row::default()
        .case(
            "var s: str(8) = \"abc\"\nif (s[0] == 'a') { return s[2 + zero] as u64 }\nreturn 0",
            i64::from(b'c'),
        )
        .case("var s: str(8) = \"abc\"\nif (s[70 + zero] == '\\0') { return 5 }\nreturn 0", 5)
        .holds("character");
}

#[test]
fn root_lf_113_iterations_of_a_for_loop() {
    Row::default()
        .case("var sum: u64 = 0\nfor (i in 2..5) { sum = sum * 10 + i }\nreturn sum", 234)
        .case(
            "var sum: u64 = 7\nfor (i in (5 + zero)..5) { sum = 0 }\nfor (i in 9..zero) { sum = 0 }\n\
               return sum",
            7,
        )
        .case(
            "var sum: u64 = 0\nvar a: i64 = -3\nfor (i in a..2) { sum = sum * 10 + ((i + 5) as u64) }\n\
               return sum",
            23456,
        )
        .case("var sum: u64 = 0\nvar e: u32 = 4 + zero\nfor (i in 0..e) { e = 2\nsum += 1 }\nreturn sum", 4)
        .case(
            "var sum: u64 = 0\nfor (i in 1..4) { for (j in i..4) { sum = sum * 10 + j } }\nreturn sum",
            123233,
        )
        .holds("turns");
}

#[test]
fn root_lf_115_a_long_loop_with_exits() {
    let body = "var sum: u64 = 0\nvar last: u32 = 0\nfor (i in 0..1000) {\nif (i % 3 == zero) { continue }\n\
                last = i\nsum += i * 2\nif (sum > LIMIT) { break }\n}\nreturn sum * 1000 + last";
    let expected = |limit: u64| {
        let (mut sum, mut last) = (0_u64, 0_u64);
        for i in (0..1000_u64).filter(|i| i % 3 != 0) {
            last = i;
            sum += i * 2;
            if sum > limit {
                break;
            }
        }
        i128::from(sum * 1000 + last)
    };
    Row::default()
        .case(&body.replace("LIMIT", "1000000000"), expected(1_000_000_000))
        .case(&body.replace("LIMIT", "5000"), expected(5000))
        .case("for (i in 0..1000) { if (i == 700 + zero) { return i } }\nreturn 1", 700)
        .holds("long");
}

#[test]
fn root_lf_117_the_arm_that_fits() {
    let shared = "enum Color { RED = 3, GREEN, BLUE, ALSO_RED = 3 }";
    Row::with(shared)
        .case("var n: u32 = 2 + zero\nreturn match (n) { 1: 10, 2: 20, default: 30 }", 20)
        .case("var n: u32 = 9 + zero\nreturn match (n) { default: 30, 1: 10, 9: 90 }", 90)
        .case("var n: i32 = -2 - zero\nreturn match (n) { -2: 1, default: 2 }", 1)
        .case("var n: u32 = 9 + zero\nvar r: u64 = match (n) { 1: 10, 2: 20 }\nreturn r", 0)
        .case("var c: Color = GREEN\nreturn match (c) { RED: 1, GREEN: 2, BLUE: 3 }", 2)
        .case("var n: u32 = 3 + zero\nreturn match (n) { RED: 1, ALSO_RED: 2, 3: 4, default: 8 }", 1)
        .case("var s: str(8) = \"two\"\nreturn match (s) { \"one\": 1, \"two\": 2, default: 3 }", 2)
        .case("var b = zero == 0\nreturn match (b) { false: 1, true: 2 }", 2)
        .case("var s: str(2) = \"x\"\nreturn match (s[zero]) { 'x': 1, default: 2 }", 1)
        .case("var r: u64 = 0\nmatch (zero) { 0: { r = 5\nr += 1 }, default: { r = 9 } }\nreturn r", 6)
        .holds("match");
}

#[test]
fn root_lf_120_the_first_clause_that_fits_takes_a_code() {
    let shared = "enum Failure { LOST = 4, LATE = 7 }\n\n@HELPER\nfn X_fails(code: u32) -> u64 {\n\
                  if (code > 0) { throw code }\nreturn 5\n}\n\n\
                  @HELPER\nfn X_through(code: u32) -> u64 {\nvar r = X_fails(code)\nreturn r + 100\n}\n\n\
                  @HELPER\nfn X_partly(code: u32) -> u64 {\n\
                  try { return X_through(code) } catch 4 { return 40 }\n}\n";
    let tried = |code: u32| {
        format!(
            "try {{ return X_partly({code} + zero) }} catch 3 {{ return 30 }} catch LATE {{ return 70 }} \
             catch _ {{ return 90 }}"
        )
    };
    Row::with(shared)
        .case(&tried(0), 105)
        .case(&tried(3), 30)
        .case(&tried(4), 40)
        .case(&tried(7), 70)
        .case(&tried(8), 90)
        .case(
            "try { throw -2 - (zero as i32) } catch 2 { return 1 } catch code { return (code as i64) as u64 \
               }",
            -2,
        )
        .case(
            "var r: u64 = 0\ntry { try { throw 1 } catch 1 { r += 1\nthrow 2 } catch 2 { r += 10 } } \
               catch 2 { r += 100 }\nreturn r",
            101,
        )
        .case(
            "var r: u64 = 0\nfor (i in 0..4) { try { if (i == 2) { throw 1 } r += 1 } catch _ { r += 100\n\
               continue } r += 10 }\nreturn r",
            133,
        )
        .holds("codes");
}

#[test]
fn root_lf_121_deferred_calls() {
    let shared = "var X_log : u64 = 0\n\n@HELPER\nfn X_note(n: u64) {\nX_log = X_log * 10 + n\n}\n\n\
                  @HELPER\nfn X_work(how: u32) -> u64 {\nvar n: u64 = 1\ndefer X_note(n)\nn = 2\n\
                  defer X_note(n)\n\
                  if (how == 1) { throw 9 }\nif (how == 2) { defer X_note(3)\nreturn X_log }\nX_note(4)\n\
                  return X_log\n}\n";
    let how = |how: u32| {
        format!(
            "X_log = 0\nvar r: u64 = 0\ntry {{ r = X_work({how} + zero) }} catch _ {{ r = 7 }}\nreturn \
             X_log * 100 + r"
        )
    };
    Row::with(shared)
        .case(&how(0), 421 * 100 + 4)
        .case(&how(1), 21 * 100 + 7)
        .case(&how(2), 321 * 100)
        .holds("deferred");
}

#[test]
fn root_lf_142_bits_shifts_and_casts() {
    let mut found = Row::default();
    for (ty, bits) in
        [("u8", 8), ("i8", 8), ("u16", 16), ("i16", 16), ("u32", 32), ("i32", 32), ("u64", 64), ("i64", 64)]
    {
        let signed = ty.starts_with('i');
        let cut = |value: i128| {
            let value = value & ((1_i128 << bits) - 1);
            if signed && value >> (bits - 1) != 0 { value - (1_i128 << bits) } else { value }
        };
        let (a, b) = (cut(0x9c5a_e2b7_1f38_d46b), cut(0x3e71_94c5_a80d_f2e9));
        let set = |name: &str, value: i128| {
            format!("var {name}: {ty} = (0x{:x} as {ty}) ^ ((zero as {ty}))\n", value & i128::from(u64::MAX))
        };
        let both = set("a", a) + &set("b", b);
        for (op, value) in [("&", a & b), ("|", a | b), ("^", a ^ b)] {
            found = found.case(&format!("{both}return (a {op} b) as u64"), cut(value));
        }
        found = found.case(&format!("{both}return (~a) as u64"), cut(!a));
        for amount in [0, 1, bits - 1, bits, bits + 3] {
            let by = amount % bits;
            found = found
                .case(&format!("{both}return (a << ({amount} + zero)) as u64"), cut(a << by))
                .case(&format!("{both}return (a >> ({amount} + zero)) as u64"), cut(a >> by));
        }
        for (to, wide) in [("u8", 8), ("i16", 16), ("u32", 32), ("i64", 64)] {
            let value = a & ((1_i128 << wide) - 1);
            let value = if to.starts_with('i') && value >> (wide - 1) != 0 {
                value - (1_i128 << wide)
            } else {
                value
            };
            found = found.case(&format!("{both}return (a as {to}) as u64"), value);
        }
    }
    found
        .case("return (2 + zero) as bool as u64", 1)
        .case("return ('a' as u8) + zero", 97)
        .case("return ntohs((0x1234 + zero) as u16)", 0x3412)
        .case("return ntohl(0x12345678 + zero)", 0x7856_3412)
        .case("return ntohll(0x0102030405060708 + (zero as u64))", 0x0807_0605_0403_0201_i64)
        .holds("bits");
}

#[test]
fn lf_144_the_same_source_gives_the_same_bytes() {
    let script = Row::with("enum Color { RED, GREEN }")
        .case("var c: Color = GREEN\nreturn c", 1)
        .case("return 3", 3)
        .script();
    let [first, second] = [(); 2].map(|()| compile("same", &script).plugin);
    assert!(first == second);
}
