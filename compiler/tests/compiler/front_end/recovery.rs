//! Several independent errors in one file are all reported, and none twice.

use crate::front_end::support::{body, read};

#[track_caller]
fn finds(text: &str, expected: &[&str]) {
    assert_eq!(read(text).errors(), expected, "{text}");
}

#[test]
fn every_statement_is_read() {
    let statements =
        "var a = 1 +\nvar in = 2\nif x { var y = * }\nfor (i of 0..1) { b = ] }\nwhile (1 { }\nreturn 1 2)";
    let positions = "3:1 3:5 4:4 4:18 5:6 5:23 6:10 7:11";
    let expected: Vec<_> = positions.split(' ').map(|position| format!("{position} KS0201")).collect();
    assert_eq!(read(&body(statements)).errors(), expected);
}

#[test]
fn every_declaration_is_read() {
    let text = "struct S { a u32 }\nenum E { 1 }\nfn f(a) {\n    var = 1\n}\nvar m : hash<u32>(1, 2)\ntype \
                T\nfn g() { x = }\n";
    finds(
        text,
        &[
            "1:14 KS0201",
            "2:10 KS0201",
            "3:7 KS0201",
            "4:9 KS0201",
            "6:19 KS0204",
            "8:1 KS0201",
            "8:14 KS0201",
        ],
    );
}

#[test]
fn an_open_block_is_reported_once() {
    finds(
        "fn f() {\n    if (a) {\n        while (b) {\n            c()\n}\nfn g() {\n    d = \n}\n",
        &["6:1 KS0201", "8:1 KS0201"],
    );
    finds("fn f() {\n    if (a) {\n        c()\n", &["4:1 KS0201"]);
    finds("struct S {\n    a: u32,\n", &["3:1 KS0201"]);
}

#[test]
fn an_extra_brace_is_reported_once() {
    finds("fn f() {\n    a()\n    }\n    b()\n}\nfn g() { c = }\n", &["4:5 KS0201", "6:14 KS0201"]);
}

#[test]
fn errors_inside_of_expressions_stay_there() {
    let text = body("var a = match (x) {\n    1: { y = ] },\n    2: f(,),\n    default: 3,\n}\nreturn )");
    finds(&text, &["3:14 KS0201", "4:10 KS0201", "7:8 KS0201"]);
    finds(&body("g(S { a: 1, b }, {\n    x: 1\n})\nreturn )"), &["2:15 KS0201", "5:8 KS0201"]);
}

#[test]
fn errors_of_the_scanner_cause_no_further_errors() {
    finds(
        &body("var a = b ? c : d\nvar e = $(f)\nvar g = 'xy' + ''"),
        &["2:11 KS0101", "3:9 KS0101", "4:9 KS0104", "4:16 KS0103"],
    );
    finds("fn f() {\n    print(\"open)\n}\n", &["2:11 KS0105"]);
}

#[test]
fn deep_texts_are_refused_with_one_error() {
    let many = 100_000;
    for text in [
        format!("var a = {}1{}", "(".repeat(many), ")".repeat(many)),
        format!("var a = {}1", "-".repeat(many)),
        format!("var a = {}1", "[".repeat(many)),
        format!("var a = 1{}", " + 1".repeat(many)),
        format!("var a = x{}", ".y".repeat(many)),
        format!("var a = x{}", "(1)".repeat(many)),
        format!("var a = x{}", "[1]".repeat(many)),
        format!("var a = x{}", " as u8".repeat(many)),
        format!("var a : {}u8", "*".repeat(many)),
        format!("var a : u8{}", "[1]".repeat(many)),
        format!("var a : {}u8", "fn() -> ".repeat(many)),
        format!("fn f() {{ {} }}", "if (a) { ".repeat(many)),
        format!("fn f() {{ if (a) {{ }} {} }}", "else if (a) { } ".repeat(many)),
        format!("fn f() {{ {} }}", "match (a) { 1: { ".repeat(many)),
        format!("var a = {}", "S { a: ".repeat(many)),
        format!("var a = {}", "new hash<".repeat(many)),
    ] {
        let found = read(&text).errors();
        assert_eq!(found.len(), 1, "{} {found:?}", &text[..60]);
    }
}

#[test]
fn long_lists_do_not_count_as_nesting() {
    let sum = format!("fn f() -> u32 {{ return {}1 }}", "1 + ".repeat(200));
    let elements = format!("var a : u8[20000] = [{}1]", "1, ".repeat(19_999));
    let statements = body(&"x = x + 1 * 2\n".repeat(10_000));
    for text in [sum, elements, statements] {
        assert_eq!(read(&text).errors(), [""; 0]);
    }
}
