//! Chapter 2: declarations, types, statements, expressions.

use crate::conformance::scripts::{
    accepts, accepts_both, accepts_strict, has_type, in_both, in_main, in_program, refuses, refuses_both,
    refuses_strict, with_empty_main,
};

#[test]
fn lf_015_trailing_commas() {
    accepts(include_str!("../scripts/grammar_lf_015_trailing_commas.ks"));
}

#[test]
fn lf_016_fields_need_commas() {
    refuses(with_empty_main("struct S { a: u32\n b: u32 }"), "KS0201");
    refuses(in_main("struct S { a: u32 }", "var s = S { }"), "KS0201|KS0408");
}

#[test]
fn lf_017_flags_stand_before_pin() {
    accepts(with_empty_main("@flags(rdonly) pin var m : hash<u32, u64>(8)"));
    refuses(with_empty_main("pin @flags(rdonly) var m : hash<u32, u64>(8)"), "KS0201|KS0203");
}

#[test]
fn lf_018_kind_size_and_flags_of_maps() {
    refuses(with_empty_main("var m : hash<u32, u64>"), "KS0204");
    refuses(with_empty_main("var m : hash<u32, u64>(4 * 2)"), "KS0201|KS0204");
    refuses(with_empty_main("var m : hash<u32, u64>(N)"), "KS0204|KS0301");
    refuses(with_empty_main("var m : hash<u32, u64>(0)"), "KS0606");
    refuses(with_empty_main("var m : hashmap<u32, u64>(8)"), "KS0202");
    refuses(with_empty_main("@flags(fast) var m : hash<u32, u64>(8)"), "KS0203");
}

#[test]
fn lf_019_flags_combine() {
    accepts(with_empty_main("@flags(no_prealloc | numa_node(0)) var m : hash<u32, u64>(8)"));
    accepts(with_empty_main("@flags(no_common_lru) var m : lru_hash<u32, u64>(8)"));
}

#[test]
fn lf_020_arguments_of_attributes() {
    let program = |attribute: &str| {
        with_empty_main(&format!("{attribute}\nfn t(ctx: *__sk_buff) -> i32 {{ return 0 }}"))
    };
    accepts(program("@tc(\"ingress\")"));
    refuses(program("@tc(\"ingress\", \"egress\")"), "KS0208");
    refuses(program("@tc(ingress)"), "KS0208");
}

#[test]
fn lf_021_top_level_items() {
    refuses_strict(in_main("const N = 4", ""), "KS0201|KS0211");
    accepts(in_main("const N = 4\nvar m : hash<u32, u64>(N)", "for (i in 0..N) { }"));
    refuses(with_empty_main("var x: u32 = 1\nx = 2"), "KS0201");
    refuses(with_empty_main("print(\"hello\")"), "KS0201");
    refuses(with_empty_main("if (true) { }"), "KS0201");
}

#[test]
fn lf_022_externs() {
    accepts(in_program("extern f(a: u32) -> u64\nextern g()", "var x = f(1)\ng()"));
    refuses(with_empty_main("extern fn f()"), "KS0201");
}

#[test]
fn lf_023_calls_as_primaries() {
    let functions = "struct S { x: u16 }\n\
                     @helper\nfn f() -> S { return S { x: 1 } }\n\
                     @helper\nfn g(s: *S) -> *S { return s }\n\
                     @helper\nfn n() -> u32 { return 3 }";
    accepts(in_program(functions, "var s = f()\nvar a = f().x\nvar b = g(&s)->x\nfor (i in 0..n()) { }"));
    let sample = "@perf_event\nfn sample(ctx: *bpf_perf_event_data) -> i32 { return 0 }";
    accepts(in_main(
        sample,
        "var a = attach(load(sample), perf_options { event: page_faults, pid: 0, cpu: -1 }, 0)\n\
         var n: i64 = read(a).scaled\nvar first = read(a).values[0]",
    ));
}

#[test]
fn lf_024_members_of_elements() {
    let map = "struct S { f: u32 }\nvar m : hash<u32, S>(8)";
    for script in in_both(map, "m[1].f = m[2].f + 1") {
        accepts(&script);
        refuses_strict(&script, "KS0201|KS0211");
    }
    // The part that 0.1.1 can parse.
    accepts_strict(in_program(map, "m[1].f += 1\nvar x = (m[2]).f"));
}

#[test]
fn lf_025_statements_that_do_not_exist() {
    refuses(in_main("", "{ var x = 1 }"), "KS0201");
    refuses(in_main("", "var x = true ? 1 : 2"), "KS0101|KS0201");
    refuses(in_main("", "do { } while (true)"), "KS0201|KS0301");
    refuses(in_main("", "var x = 1\nswitch (x) { case 1: print(\"1\") }"), "KS0201|KS0301|KS0305");
    refuses(in_main("", "if (true) return 1"), "KS0201");
    refuses(in_main("", "var x = 1\nx++"), "KS0201");
    refuses(in_main("", "var a, b = 1"), "KS0201");
}

#[test]
fn lf_026_bindings_in_a_chain() {
    let maps = "var m : hash<u32, u64>(8)\nvar n : hash<u32, u32>(8)";
    let chain = "if (var v = m[1]) { m[2] = v } else if (var w = n[1]) { n[2] = w } else { }";
    accepts_both(maps, chain);
    refuses(in_main(maps, "if (var v: u64 = m[1]) { }"), "KS0201");
    refuses(in_main(maps, "while (var v = m[1]) { }"), "KS0201");
    refuses(in_main(maps, "if (true && var v = m[1]) { }"), "KS0201");
}

#[test]
fn lf_027_arrays_of_strings() {
    let direct = in_main("", "var names: str(16)[4] = []\nvar rows: u32[2][3] = []");
    accepts(&direct);
    refuses_strict(&direct, "KS0210");
    accepts_strict(in_main("type Name = str(16)", "var names: Name[4] = []"));
}

#[test]
fn lf_028_array_literals() {
    accepts_both("", "var a: u32[4] = []\nvar b: u32[4] = [7]\nvar c: u32[4] = [1, 2]");
    has_type("", "", "[1, 2]", "u32[2]");
    refuses_both("", "var a: u32[2] = [1, 2, 3]", "KS0406");
    refuses(in_main("", "var a = []"), "KS0421");
    refuses(in_main("", "var a = [1]"), "KS0421");
}
