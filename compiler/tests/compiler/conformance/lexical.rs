//! Chapter 1: characters, words, literals, comments.

use crate::conformance::scripts::{
    accepts, accepts_both, has_type, in_main, is_constant, refuses, refuses_strict, same_value, warns,
    with_empty_main,
};

/// Keywords that the scanner reserves.
const RESERVED: [&str; 45] = [
    "fn", "extern", "include", "import", "from", "pin", "local", "config", "type", "struct", "enum", "impl",
    "var", "const", "if", "else", "for", "while", "return", "break", "continue", "in", "new", "delete",
    "try", "catch", "throw", "defer", "match", "default", "u8", "u16", "u32", "u64", "i8", "i16", "i32",
    "i64", "bool", "char", "void", "str", "true", "false", "null",
];

#[test]
fn lf_001_line_ends_and_tabs_anywhere() {
    let script = "var m : hash < u32 , u64 > ( 8 )\n@xdp\nfn p ( ctx : * xdp_md ) -> xdp_action {\n\
                  m [ 1 ] = 2\nreturn XDP_PASS\n}\nfn main ( ) -> i32 {\nvar a = 1 + 2\nreturn 0\n}\n";
    accepts(script);
    for blank in ["\r\n", "\r", "\n\n", "\t", "  \t "] {
        accepts(script.replace('\n', blank));
        accepts(script.replace(' ', blank));
    }
}

#[test]
fn lf_002_semicolons_only_separate() {
    refuses_strict(in_main("", "var x = 1;"), "KS0101");
    refuses_strict(with_empty_main("var g: u32 = 1;"), "KS0101");
    accepts(in_main("", "var x = 1; x = 2;; return x;"));
    accepts(with_empty_main("var g: u32 = 1; struct S { a: u32 };"));
    for wrong in ["f(1; 2)", "var x = ; 1", "if (a;) { }", "match (1) { 1: 2; default: 3 }"] {
        refuses(in_main("fn f(a: u32, b: u32) -> u32 { return a }", wrong), "KS0201");
    }
    accepts(in_main("", "// not here;\nprint(\"a;b\")"));
}

#[test]
fn lf_003_forms_of_integers() {
    for (form, value) in [("0x1F", "31"), ("0X1f", "31"), ("0b101", "5"), ("0B101", "5"), ("007", "7")] {
        same_value("", form, value);
    }
}

#[test]
fn lf_004_forms_that_do_not_exist() {
    refuses(in_main("", "var a = 0o7"), "KS0201|KS0301");
    refuses(in_main("", "var a = 1_000"), "KS0201|KS0301");
    refuses(in_main("", "var a = 1.5"), "KS0201|KS0304|KS0410");
}

#[test]
fn lf_005_integers_of_64_bits() {
    accepts(in_main("", "var a: u64 = 18446744073709551615\nvar b: u64 = 0xFFFFFFFFFFFFFFFF"));
    refuses(in_main("", "var a: u64 = 18446744073709551616"), "KS0102");
    refuses(in_main("", "var a: u64 = 0x10000000000000000"), "KS0102");
}

#[test]
fn lf_006_characters() {
    for good in [r"'a'", r"'\n'", r"'\x41'", r"'\''", r"'\0'", r"'\\'"] {
        has_type("", "", good, "char");
    }
    refuses(in_main("", "var c = ''"), "KS0103");
    for bad in ["'ab'", "'é'", r"'\q'"] {
        refuses(in_main("", &format!("var c = {bad}")), "KS0104");
    }
}

#[test]
fn lf_007_escapes_in_strings() {
    let fits = |text: &str, bytes: usize| in_main("", &format!("var a: u8[{bytes}] = \"{text}\""));
    let texts = [
        (r"\\", 1),
        ("\\\"", 1),
        (r"\n", 1),
        (r"\t", 1),
        (r"\r", 1),
        (r"\0", 1),
        (r"\x41", 1),
        (r"\q", 2),
        ("é", 2),
    ];
    for (text, bytes) in texts {
        accepts(fits(text, bytes));
        refuses(fits(&format!("{text}."), bytes), "KS0401");
    }
}

#[test]
fn lf_008_ends_of_strings() {
    refuses("fn main() -> i32 {\n    print(\"never closed)\n    return 0\n}\n", "KS0105|KS0201");
    accepts(in_main("", "print(\"first line\nsecond line\")"));
}

#[test]
fn lf_009_keywords() {
    for keyword in RESERVED {
        refuses(in_main("", &format!("var {keyword} = 1")), "KS0201");
    }
    for keyword in
        ["loop", "pub", "priv", "hash", "array", "print", "flags", "kernel", "iter", "let", "as", "xdp"]
    {
        accepts(in_main("", &format!("var {keyword} = 1\nvar other = {keyword} + 1")));
    }
}

#[test]
fn lf_010_type_as_a_field() {
    let body = "var s = S { type: 1 }\nvar p = &s\ns.type = s.type + p->type";
    accepts_both("struct S { type: u32 }", body);
    refuses(with_empty_main("struct S { in: u32 }"), "KS0201");
}

#[test]
fn lf_011_precedence() {
    is_constant("1 + 2 * 3", 7);
    is_constant("(1 + 2) * 3", 9);
    is_constant("10 - 3 - 2", 5);
    is_constant("100 / 10 / 2", 5);
    is_constant("7 - 2 * 3 % 4", 5);
    has_type("", "", "1 + 2 * 3 == 7 && !false", "bool");
    has_type("", "", "!false == true", "bool");
    has_type("", "", "1 < 2 == true", "bool");
    has_type("", "", "true || 1 == 2 && false", "bool");
    refuses(in_main("", "var a = 1 < 2 < 3"), "KS0402");
}

#[test]
fn lf_012_prefix_and_postfix() {
    has_type("", "var v: i16[2] = [3]", "-v[0]", "i16");
    has_type("struct S { f: *u16 }", "var x: u16 = 1\nvar s = S { f: &x }\nvar p = &s", "*p->f", "u16");
    has_type("", "var v: u8[2] = [3]", "*&v[1]", "u8");
}

#[test]
fn lf_013_a_line_that_continues_the_one_above() {
    warns(in_main("", "var b: i32 = 3\nvar c: i32 = 1\nvar a = b\n-c"), "KS0214");
    has_type("", "var b: u16 = 3\nvar c: u32 = 1\nvar a = b\n-c", "a", "u32");
    warns("fn g() -> i32 { return 1 }\nfn main() -> i32 {\nreturn\ng()\n}\n", "KS0214");
}

#[test]
fn lf_014_comments() {
    refuses(in_main("", "/* a comment */"), "KS0201");
    accepts("fn main() -> i32 { return 0 } // the end");
}
