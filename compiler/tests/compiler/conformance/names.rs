//! Section 3.1: scopes, order of declarations, predeclared names.

use crate::conformance::scripts::{
    accepts, accepts_both, in_main, in_program, refuses, refuses_both, warns, with_empty_main,
};

#[test]
fn lf_029_scopes() {
    refuses_both("", "var a = 1\nvar a: bool = true", "KS0302");
    refuses(with_empty_main("fn f(a: u32) { var a = 1 }"), "KS0302");
    let shadows = "var a = 1\nif (true) { var a: bool = true\nif (a) { } }\nif (a == 1) { var b = 1 } \
    else { var b = 'c' }\n\
                   for (i in 0..2) { var c = i }\nfor (i in 0..2) { var c = true }\n\
                   try { var d = 1 } catch _ { var d = true }\n\
                   match (a) { 1: { var e = 1 }, default: { var e = true } }";
    accepts_both("", shadows);
    for body in [
        "if (true) { var a = 1 }\na = 2",
        "for (i in 0..2) { }\ni = 1",
        "try { var a = 1 } catch _ { }\na = 2",
        "if (var v = m[1]) { } else { m[2] = v }",
        "if (var v = m[1]) { }\nm[2] = v",
        "a = 1\nvar a: u32",
    ] {
        refuses_both("var m : hash<u32, u64>(8)", body, "KS0301");
    }
}

#[test]
fn lf_030_any_order() {
    accepts(include_str!("../scripts/names_lf_030_any_order.ks"));
    accepts(in_program("", "h(g)\ng += 1") + "@helper\nfn h(a: u32) { }\nvar g: u32 = 1\n");
}

#[test]
fn lf_031_enumerators_are_global() {
    refuses(with_empty_main("enum A { One }\nenum B { One }"), "KS0302");
    refuses(with_empty_main("enum Mine { GFP_KERNEL }"), "KS0310");
    refuses(with_empty_main("enum Mine { page_faults }"), "KS0310");
    accepts(with_empty_main(
        "enum tc_action { TC_ACT_UNSPEC = -1, TC_ACT_OK = 0, TC_ACT_RECLASSIFY = 1, TC_ACT_SHOT = 2, \
        TC_ACT_PIPE = 3, TC_ACT_STOLEN = 4, TC_ACT_QUEUED = 5, TC_ACT_REPEAT = 6, TC_ACT_REDIRECT = 7, \
        TC_ACT_TRAP = 8 }",
    ));
    refuses(with_empty_main("enum tc_action { TC_ACT_OK = 1 }"), "KS0310");
    // Predeclared names that are not part of 0.1.1 may be redeclared.
    accepts(with_empty_main("enum Mine { cpu_clock, dummy }"));
}

#[test]
fn lf_032_programs_may_be_called_like_a_builtin_or_their_target() {
    let script = "@xdp\nfn test(ctx: *xdp_md) -> xdp_action { return XDP_PASS }\n\
                  fn main() -> i32 {\n    var h = load(test)\n    return attach(h, \"lo\", 0)\n}\n";
    warns(script, "KS0311");
    accepts(in_main(
        "@probe(\"do_exit\")\nfn do_exit(code: i64) -> i32 { return 0 }",
        "var h = load(do_exit)",
    ));
}

#[test]
fn lf_058_names_of_types() {
    refuses(in_main("", "var a: Missing"), "KS0303");
    refuses(with_empty_main("struct S { inner: Missing }"), "KS0303");
    refuses(with_empty_main("@helper\nfn h(f: file) { }"), "KS0303");
    accepts(with_empty_main("@probe(\"vfs_read\")\nfn p(f: *file) -> i32 { return 0 }"));
    accepts(with_empty_main("@helper\nfn h(f: *opaque_thing) -> bool { return f == null }"));
    refuses(with_empty_main("fn f(file: *file) { }"), "KS0303");
}
