//! Chapter 3: integers, conversions, strings, arrays, structs, enums, functions as values, returns.

use crate::conformance::scripts::{
    accepts, accepts_both, accepts_without, has_type, in_main, in_program, other_value, refuses,
    refuses_both, same_value, warns, warns_both, with_empty_main,
};

const INTEGERS: [&str; 8] = ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64"];

/// The upper half of the table in 3.4: the result type of a row's type and a column's.
const COMBINED: [[Option<&str>; 8]; 8] = [
    [Some("u8"), Some("u16"), Some("u32"), Some("u64"), Some("i8"), None, None, None],
    [None, Some("u16"), Some("u32"), Some("u64"), None, Some("i16"), None, None],
    [None, None, Some("u32"), Some("u64"), Some("i32"), Some("i32"), Some("i32"), Some("i64")],
    [None, None, None, Some("u64"), None, None, None, Some("i64")],
    [None, None, None, None, Some("i8"), Some("i16"), Some("i32"), Some("i64")],
    [None, None, None, None, None, Some("i16"), Some("i32"), Some("i64")],
    [None, None, None, None, None, None, Some("i32"), Some("i64")],
    [None, None, None, None, None, None, None, Some("i64")],
];

#[test]
fn lf_033_pairs_of_integers() {
    for (row, a) in INTEGERS.iter().enumerate() {
        for (column, b) in INTEGERS.iter().enumerate() {
            let result = COMBINED[row.min(column)][row.max(column)];
            let before = format!("var x: {a} = 1\nvar y: {b} = 1");
            match result {
                Some(ty) => {
                    for operator in ["+", "-", "*", "/", "%"] {
                        has_type("", &before, &format!("x {operator} y"), ty);
                    }
                    has_type("", &before, "x < y", "bool");
                    has_type("", &before, "x == y", "bool");
                    accepts_both("", &format!("{before}\nx = y\nx += y"));
                }
                None => {
                    for wrong in [
                        "var z = x + y",
                        "var z = x % y",
                        "var z = x >= y",
                        "var z = x != y",
                        "x = y",
                        "x += y",
                    ] {
                        refuses_both("", &format!("{before}\n{wrong}"), "KS0401|KS0402");
                    }
                }
            }
        }
    }
}

#[test]
fn lf_034_narrowing() {
    has_type("", "var b: u8 = 255", "b + 1", "u32");
    accepts_both("", "var b: u8 = 255\nb += 1\nb = b + 1");
    warns(in_main("", "var big: u64 = 300\nvar b: u8 = big"), "KS0415");
    accepts_without(in_main("", "var big: u64 = 300\nvar b: u32 = big"), "KS0415");
}

#[test]
fn lf_035_negative_literals() {
    has_type("", "", "-1", "i64");
    has_type("", "var a: u64 = 1", "a == -1", "bool");
    warns_both("", "var x: u32 = -1", "KS0414");
    accepts_both("", "var y: i8 = -1\nvar z: i16 = -300\nvar a: u64 = -1");
    for wrong in ["var z: u16 = -1", "var z: u8 = -1", "var a: u16 = 1\nvar b = a + -1"] {
        refuses_both("", wrong, "KS0401|KS0402");
    }
}

#[test]
fn lf_036_operators_that_do_not_apply() {
    for (wrong, codes) in [
        ("var x: u64 = 1\nvar y = -x", "KS0402"),
        ("var y = !1", "KS0401|KS0402"),
        ("var y = 1 && true", "KS0401|KS0402"),
        ("var y = true || \"x\"", "KS0401|KS0402"),
        ("var y = -true", "KS0401|KS0402"),
    ] {
        refuses_both("", wrong, codes);
    }
    has_type("", "var x: u8 = 1", "-x", "i16");
    has_type("", "var x: u16 = 1", "-x", "i32");
    has_type("", "var x: u32 = 1", "-x", "i64");
}

#[test]
fn lf_037_constant_divisors() {
    for wrong in
        ["var a = 1 / 0", "var a: u32 = 5\nvar b = a % 0", "var a: u32 = 5\na /= 0", "var b = 1 % (2 - 2)"]
    {
        refuses_both("", wrong, "KS0416");
    }
    accepts_both("", "var zero: u32 = 0\nvar b = 1 / zero");
    for overflow in
        ["var a: u64 = 18446744073709551615 + 1", "var a = 1 << 64", "var a = -9223372036854775808 - 1"]
    {
        refuses(in_main("", overflow), "KS0416");
    }
}

#[test]
fn lf_040_literals_that_do_not_fit() {
    warns_both("", "var a: u8 = 300", "KS0414");
    warns(in_main("type Address = u32", "var a: Address = 192168001001"), "KS0414");
    has_type("", "", "4294967296", "u64");
    has_type("", "", "4294967295 + 1", "u64");
    has_type("", "", "65536 * 65536", "u64");
    has_type("", "", "1 - 2", "i64");
    has_type("", "var x: u16 = 2", "x + (1 - 2) * (1 - 2)", "u32");
    has_type("", "const A: u64 = 5\nvar x: i32 = 2", "x + A", "i64");
    has_type("", "var x: i32 = 2", "x + 5000000000", "i64");
    has_type("", "var x: i32 = 2", "x + 4000000000", "i64");
    has_type("", "var x: i32 = 2", "x & 4000000000", "i32");
    has_type("", "var x: i32 = 2", "x + 2000000000", "i32");
    has_type("", "", "-5000000000", "i64");
    has_type("", "", "5000000000 - 4999999999", "u64");
    has_type("", "", "4294967295", "u32");
}

#[test]
fn lf_041_bool_and_char_stay_apart() {
    for wrong in [
        "var a = true + 1",
        "var a = true == 1",
        "var a: bool = 1",
        "var a: u32 = true",
        "var a = 'a' + 1",
        "var a = 'a' == 97",
        "var a: char = 97",
        "var a: u8 = 'a'",
        "var a = true < 1",
        "var a = 'a' == true",
    ] {
        refuses_both("", wrong, "KS0401|KS0402");
    }
    has_type("", "", "'a' < 'b'", "bool");
    has_type("", "", "false < true", "bool");
}

#[test]
fn lf_043_types_of_conditions() {
    let all = "struct S { a: u32 }\nenum E { A, B }\nvar m : hash<u32, S>(8)\nfn f() -> u32 { return 1 }";
    let good = "var e: E = A\nvar s = S { a: 1 }\nvar p = &s\nvar t: str(4) = \"x\"\n\
                if (true) { }\nif (1) { }\nif ('a') { }\nif (t) { }\n\
                if (e) { }\nif (p) { }\nif (m[1]) { }\nif (null) { }";
    accepts_both(all, good);
    for (wrong, codes) in [
        ("var s = S { a: 1 }\nif (s) { }", "KS0403"),
        ("var a: u32[2] = [1, 2]\nif (a) { }", "KS0403"),
        ("if (m) { }", "KS0403|KS0608"),
        ("var s = S { a: 1 }\nwhile (s) { }", "KS0403"),
    ] {
        refuses_both(all, wrong, codes);
    }
    refuses(in_main(all, "var h = load(beside)\nif (h) { }"), "KS0403|KS0422");
    refuses(in_main(all, "if (f) { }"), "KS0403");
    refuses(in_program("", "var a = XDP_PASS\nif (a) { }"), "KS0403");
}

#[test]
fn lf_046_strings_hold_one_byte_less() {
    warns_both("", "var s: str(8) = \"12345678\"", "KS0414");
    accepts_without(in_main("", "var s: str(8) = \"1234567\""), "KS0414");
    has_type("", "", "\"abc\"", "str(4)");
    has_type("", "", "\"\"", "str(1)");
    refuses(in_main("", "var s: str(0) = \"\""), "KS0430");
    refuses(in_main("", "var s: str(65536) = \"\""), "KS0430");
}

#[test]
fn lf_047_concatenation_and_comparison() {
    has_type("", "var a: str(8) = \"a\"\nvar b: str(4) = \"b\"", "a + b", "str(12)");
    has_type("", "var a: str(8) = \"a\"", "a + \"bc\"", "str(11)");
    has_type("", "var a: str(8) = \"a\"\nvar b: str(4) = \"b\"", "a == b", "bool");
    accepts_both("", "var a: str(8) = \"a\"\nvar b: str(4) = a\nvar c: str(32) = a + b + \"!\"");
}

#[test]
fn lf_048_operations_that_strings_lack() {
    let strings = "var s: str(8) = \"a\"\nvar t: str(8) = \"b\"";
    for (wrong, codes) in [
        ("s += t", "KS0402"),
        ("var a = s < t", "KS0402"),
        ("var a = s - t", "KS0402"),
        ("s[0] = 'x'", "KS0212|KS0412"),
        ("var a = s[8]", "KS0406"),
        ("var a = s + 1", "KS0402"),
    ] {
        refuses_both("", &format!("{strings}\n{wrong}"), codes);
    }
    has_type("", strings, "s[0]", "char");
    has_type("", &format!("{strings}\nvar i: u32 = 9"), "s[i]", "char");
}

#[test]
fn lf_049_strings_into_bytes() {
    accepts_both("", "var a: u8[8] = \"eight...\"\nvar b: char[4] = \"abc\"\nvar s: str(8) = a");
    for wrong in ["var a: u8[8] = \"nine.....\"", "var a: char[2] = \"abc\""] {
        refuses_both("", wrong, "KS0401");
    }
}

#[test]
fn lf_050_fields_of_struct_literals() {
    let s = "struct S { a: u32, b: u64 }";
    accepts_both(s, "var s = S { b: 2, a: 1 }\nvar z: S");
    for (wrong, code) in [
        ("var s = S { a: 1 }", "KS0408"),
        ("var s = S { a: 1, b: 2, c: 3 }", "KS0304"),
        ("var s = S { a: 1, b: 2, a: 3 }", "KS0409"),
        ("var s = S { a: \"x\", b: 2 }", "KS0401"),
    ] {
        refuses_both(s, wrong, code);
    }
}

#[test]
fn lf_051_structs_and_arrays_are_not_compared() {
    for wrong in
        ["var s = S { a: 1 }\nvar t = s\nvar e = s == t", "var a: u32[2] = [1, 2]\nvar b = a\nvar e = a != b"]
    {
        refuses_both("struct S { a: u32 }", wrong, "KS0402");
    }
    refuses(with_empty_main("struct S { s: S }"), "KS0419");
    refuses(with_empty_main("struct A { b: B }\nstruct B { a: A }"), "KS0419");
    accepts(with_empty_main("struct S { s: *S, a: u32 }"));
    refuses(with_empty_main("type A = B\ntype B = A"), "KS0419");
}

#[test]
fn lf_052_values_of_enumerators() {
    let e = "enum E { A, B, C = 10, D, H = 0xFF, I }\n\
             enum Wide { Huge = 0x8000000000000001, Next, Last = 18446744073709551615 }";
    for (name, value) in [("A", "0"), ("B", "1"), ("C", "10"), ("D", "11"), ("H", "255"), ("I", "256")] {
        same_value(e, name, value);
        other_value(e, name, "77");
    }
    same_value(e, "Huge", "9223372036854775809");
    same_value(e, "Next", "9223372036854775810");
    same_value(e, "Last", "18446744073709551615");
    let negative = "enum S { M = -5, N, Z = 0, P }";
    let matching = |one: &str, other: &str| {
        in_main(
            negative,
            &format!("var n: i32 = 1\nvar r = match (n) {{ {one}: 1, {other}: 2, default: 3 }}"),
        )
    };
    warns(matching("M", "-5"), "KS0706");
    warns(matching("N", "-4"), "KS0706");
    warns(matching("P", "1"), "KS0706");
    accepts_without(matching("M", "-4"), "KS0706");
}

#[test]
fn lf_053_enums_and_integers() {
    let enums = "enum E { A, B }\nenum F { X, Y }";
    let good = "var e: E = A\nvar n: u32 = e\nvar w: u64 = B\nvar back: E = n\ne = 1\n\
                var c = e == 1 && n == A && e < B";
    accepts_both(enums, good);
    for (wrong, codes) in [
        ("var e: E = A\nvar x = e + 1", "KS0402"),
        ("var e: E = A\ne += 1", "KS0402"),
        ("var x = A + B", "KS0402"),
        ("var e: E = X", "KS0401|KS0402"),
        ("var e: E = A\nvar f: F = X\nvar x = e == f", "KS0401|KS0402"),
        ("var e = E::A", "KS0201"),
        ("var e = E.A", "KS0301|KS0304|KS0608"),
    ] {
        refuses_both(enums, wrong, codes);
    }
}

#[test]
fn lf_054_functions_as_values() {
    let functions = "type Op = fn(u32, u32) -> u32\n\
                     fn add(a: u32, b: u32) -> u32 { return a + b }\n\
                     fn apply(op: Op, n: u32) -> u32 { return op(n, 1) }\n\
                     struct Step { op: Op }\n\
                     fn wide(a: u64, b: u64) -> u64 { return a }";
    let good = "var f: Op = add\nvar g = add\nvar h: fn(x: u32, y: u32) -> u32 = g\nvar s = Step { op: \
    add }\n\
                var r = f(1, 2) + g(3, 4) + h(5, 6) + apply(add, 1) + s.op(7, 8)";
    accepts(in_main(functions, good));
    refuses(in_main(functions, "var f: Op = wide"), "KS0401");
    refuses(in_main(functions, "var r = apply(wide, 1)"), "KS0401");
    refuses(in_main(functions, "var f = add\nf(1)"), "KS0404");
    refuses(in_main("@helper\nfn h(a: u32) -> u32 { return a }", "var f: fn(u32) -> u32 = h"), "KS0306");
    let kernel = "@helper\nfn plus(a: u32) -> u32 { return a + 1 }\n\
                  @helper\nfn run(f: fn(u32) -> u32) -> u32 { return f(1) }";
    accepts(in_program(kernel, "var f: fn(u32) -> u32 = plus\nvar r = f(2) + run(plus)"));
}

#[test]
fn lf_055_returns_and_void() {
    refuses(with_empty_main("fn f() -> u32 { return }"), "KS0413");
    refuses(with_empty_main("fn f() -> void { return 1 }"), "KS0413");
    for wrong in ["var x = f()", "g(f())", "return f()"] {
        refuses(in_main("fn f() -> void { }\nfn g(a: u32) { }", wrong), "KS0413");
    }
    accepts(in_main(
        "fn f() -> void { return }\nfn g() { return }\nfn h() { return 1 }",
        "f()\ng()\nvar x: u32 = h()",
    ));
}

#[test]
fn lf_056_named_returns() {
    accepts(with_empty_main(
        "fn f(n: u32) -> r: u32 {\n    if (n == 1) { return }\n    if (n == 2) { return 5 }\n    r = n\n}\n\
         @helper\nfn g() -> s: str(8) { s = \"x\" }\n\
         @tc(\"ingress\")\nfn t(ctx: *__sk_buff) -> verdict: i32 { }",
    ));
    refuses(with_empty_main("extern f() -> r: u32"), "KS0201");
}

#[test]
fn lf_057_every_path_returns() {
    for wrong in [
        "if (a > 1) { return 1 }",
        "while (a > 1) { return 1 }",
        "for (i in 0..a) { return i }",
        "try { if (a == 0) { throw 1 } return a } catch 1 { print(\"x\") }",
        "if (a > 1) { return 1 } else { var b = 2 }",
        "",
    ] {
        refuses(with_empty_main(&format!("fn f(a: u32) -> u32 {{\n{wrong}\n}}")), "KS0413");
    }
    for good in [
        "match (a) { 1: 10, default: 20 }",
        "a + 1",
        "if (a > 1) { return 1 } else { return 2 }",
        "match (a) { 1: { return 10 }, default: { return 20 } }",
        "try { if (a == 0) { throw 1 } return a } catch 1 { return 2 }",
        "try { if (a == 0) { throw 1 } return a } catch _ { return 2 }",
        "if (a > 1) { return 1 }\nthrow 3",
        "while (true) { }",
    ] {
        accepts(with_empty_main(&format!("fn f(a: u32) -> u32 {{\n{good}\n}}")));
    }
    refuses("@xdp\nfn p(ctx: *xdp_md) -> xdp_action { var a = 1 }", "KS0413");
}

#[test]
fn lf_059_expressions_that_cannot_be_assigned() {
    refuses_both("", "const N = 4\nN = 5", "KS0412");
    refuses_both("", "for (i in 0..3) { i = 1 }", "KS0412");
    refuses(in_program("config c { a: u32 = 1 }", "c.a = 2"), "KS0412");
    accepts(in_main("config c { a: u32 = 1 }", "c.a = 2"));
    refuses(in_program("", "ctx->ingress_ifindex = 1"), "KS0412");
    for wrong in ["f() = 1", "1 = 2", "x + 1 = 2"] {
        refuses(in_main("fn f() -> u32 { return 1 }\nvar x: u32", wrong), "KS0212");
    }
}

#[test]
fn lf_060_dot_and_arrow() {
    refuses(in_program("", "var x = ctx.data"), "KS0410");
    refuses_both("struct S { a: u32 }", "var s = S { a: 1 }\nvar x = s->a", "KS0410");
    refuses_both("struct S { a: u32 }", "var s = S { a: 1 }\nvar p = &s\nvar x = p.a", "KS0410");
}

#[test]
fn lf_061_arguments() {
    let f = "fn f(a: u32, s: str(8)) { }";
    for (wrong, code) in [
        ("f(1)", "KS0404"),
        ("f(1, \"a\", 2)", "KS0404"),
        ("f(\"a\", \"b\")", "KS0401"),
        ("f(1, 2)", "KS0401"),
    ] {
        refuses(in_main(f, wrong), code);
        refuses(in_program(&format!("@helper\n{f}"), wrong), code);
    }
    accepts(in_main(f, "var n: u64 = 5\nf(n, \"longer than eight\")"));
}

#[test]
fn lf_062_recursion() {
    let recursive = "fn down(n: u32) -> u32 { if (n == 0) { return 0 } return down(n - 1) }";
    accepts(in_main(recursive, "var x = down(3)"));
    refuses(in_program(&format!("@helper\n{recursive}"), "down(3)"), "KS0717");
    let pair = "@helper\nfn a(n: u32) -> u32 { return b(n) }\n@helper\nfn b(n: u32) -> u32 { return a(n) }";
    refuses(in_program(pair, "a(3)"), "KS0717");
}
