//! Chapter 8: loops, match, errors, tail calls, stack.

use crate::conformance::scripts::{
    accepts, accepts_both, accepts_both_strict, accepts_without, has_type, in_both, in_main, in_program,
    refuses, refuses_both, refuses_saying, refuses_strict, warns, warns_both, with_empty_main,
};

const OTHER: &str = "@xdp\nfn other(ctx: *xdp_md) -> xdp_action { return XDP_DROP }";

#[test]
fn lf_113_ranges() {
    accepts_both("", "var n: u32 = 5\nfor (i in 2..5) { }\nfor (i in n..n) { }\nfor (i in 0..n + 1) { }");
    for wrong in ["for (i in 5..5) { }", "for (i in 9..2) { }"] {
        refuses_both("", wrong, "KS0701");
    }
    refuses(in_main("", "for (i in 0...3) { }"), "KS0201");
    refuses(in_main("", "for (i in 0..true) { }"), "KS0401|KS0402");
    accepts_both("", "var n: u64 = 3\nfor (i in 0..n) { var p: *u64 = &i }");
    accepts(in_program("", "for (i in 0..8388608) { }"));
    refuses(in_program("", "for (i in 0..100000000) { }"), "KS0705");
}

#[test]
fn lf_114_nested_loops() {
    for script in in_both("", "for (i in 0..3) { for (j in 0..3) { } }") {
        accepts(&script);
        refuses_strict(&script, "KS0702");
    }
    for script in in_both("", "var n: u32 = 2\nwhile (n > 0) { for (j in 0..3) { } n -= 1 }") {
        accepts(&script);
        refuses_strict(&script, "KS0702");
    }
    accepts_both_strict("", "for (i in 0..3) { var n: u32 = 2\nwhile (n > 0) { n -= 1 } }");
}

#[test]
fn lf_115_long_loops_with_outer_variables() {
    let body = "var bound: u32 = 1000\nvar sum: u64 = 0\n\
                for (i in 0..bound) { if (i == 900) { break } if (i % 2 == 0) { continue } sum += i }";
    accepts_both("", body);
}

#[test]
fn lf_116_break_and_endless_loops() {
    for wrong in ["break", "continue", "if (true) { break }"] {
        refuses_both("", wrong, "KS0704");
    }
    accepts_both("", "while (1) { break }");
    for endless in
        ["true", "(true)", "1 == 1", "!false", "true || 1 > 2", "2 - 1 > 0", "\"a\" == \"a\"", "N > 6"]
    {
        let body = format!("const N: u32 = 7\nwhile ({endless}) {{ break }}");
        refuses(in_program("", &body), "KS0703");
        accepts(in_main("", &body));
        // The code after it is unreachable, so no return is needed there.
        let helper = format!("fn f() -> u32 {{\nconst N: u32 = 7\nwhile ({endless}) {{ sleep(1) }}\n}}");
        accepts(in_main(&helper, "f()"));
    }
    // Neither an integer nor a condition that may change makes the loop endless.
    for ends in ["1", "2 - 1", "n == n", "false", "1 > 2", "!true"] {
        accepts_both("", &format!("var n: u32 = 1\nwhile ({ends}) {{ n = 2\nbreak }}"));
    }
    refuses_strict(in_main("", "while (true) { break }"), "KS0211|KS0703");
}

#[test]
fn lf_117_match() {
    let all = "enum E { A, B, C }";
    let body = "var n: u32 = 1\nvar e: E = B\nvar s: str(8) = \"x\"\nvar c = 'c'\n\
                var a = match (n) { A: 1, 7: 2, default: 3 }\nvar b = match (e) { A: 1, B: 2, C: 3 }\n\
                var d = match (s) { \"x\": 1, \"yy\": 2, default: 3 }\nvar f = match (c) { 'c': 1, \
                default: 2 }\n\
                var g = match (true) { true: 1, false: 2 }\nvar h = match (n) { default: 1, 2: 5 }\n\
                var i = match (n) { 1: { var t = 2\nt + 1 }, default: match (e) { A: 1, default: 2 } }\n\
                match (n) { 1: { }, default: { n = 3 } }\nvar j = match (n) { -1: 1, default: 2 }";
    accepts_both(all, body);
    warns_both(all, "var n: u32 = 1\nvar a = match (n) { 1: 2, B: 3, default: 4 }", "KS0706");
    warns_both(all, "var e: E = A\nvar a = match (e) { A: 1, B: 2 }", "KS0707");
    accepts_without(in_main(all, "var e: E = A\nvar a = match (e) { A: 1, B: 2, C: 3 }"), "KS0707");
    has_type("", "var n: u32 = 1", "match (n) { 1: \"a\", default: \"longer\" }", "str(7)");
    has_type("", "var n: u32 = 1\nvar w: u64 = 2", "match (n) { 1: n, default: w }", "u64");
    refuses(in_main("", "var n: u32 = 1\nmatch (n) { }"), "KS0201");
}

#[test]
fn lf_118_wrong_patterns_and_arms() {
    for (wrong, codes) in [
        ("var one: u32 = 1\nvar a = match (n) { one: 1, default: 2 }", "KS0429"),
        ("const ONE = 1\nvar a = match (n) { ONE: 1, default: 2 }", "KS0429"),
        ("var a = match (n) { 1: 1, _: 2 }", "KS0301|KS0429"),
        ("var a = match (n) { 1: 1, default: \"x\" }", "KS0418"),
        ("var a = match (n) { 1: true, default: 2 }", "KS0418"),
        ("var a = match (n) { \"x\": 1, default: 2 }", "KS0418"),
        ("var a = match (n) { 'x': 1, default: 2 }", "KS0418"),
        ("var a = match (n) { 1: { var t = 2 }, default: 2 }", "KS0708"),
        ("var a = match (n) { 1: { }, default: 2 }", "KS0708"),
    ] {
        refuses_both("", &format!("var n: u32 = 1\n{wrong}"), codes);
    }
}

#[test]
fn lf_119_tail_calls() {
    accepts(in_program(
        OTHER,
        "if (ctx->rx_queue_index == 1) { return other(ctx) }\n\
         return match (ctx->ingress_ifindex) { 1: other(ctx), default: XDP_PASS }",
    ));
    for wrong in ["other(ctx)", "var r = other(ctx)", "if (other(ctx) == XDP_DROP) { }"] {
        refuses(in_program(OTHER, wrong), "KS0716");
    }
    refuses(
        in_program(
            &format!("{OTHER}\n@helper\nfn h(ctx: *xdp_md) -> xdp_action {{ return other(ctx) }}"),
            "h(ctx)",
        ),
        "KS0716",
    );
    refuses(in_main(OTHER, "other(null)"), "KS0306|KS0716");
    let tc = "@tc(\"ingress\")\nfn t(ctx: *__sk_buff) -> i32 { return 0 }";
    refuses(in_program(tc, "return t(ctx)"), "KS0715");
    accepts(with_empty_main(&format!(
        "{tc}\n@tc(\"egress\")\nfn u(ctx: *__sk_buff) -> i32 {{ return t(ctx) }}"
    )));
}

#[test]
fn lf_120_thrown_codes() {
    let helper = "enum E { Small = 1, Big = 2 }\n@helper\n\
                  fn h(n: u32) -> u32 { if (n == 0) { throw Small } if (n > 9) { throw 2 } return n }";
    accepts(in_program(helper, "try { h(3) } catch Small { return XDP_DROP } catch 2 { }"));
    accepts(in_program(helper, "try { h(3) } catch _ { }\ntry { throw ctx->rx_queue_index } catch _ { }"));
    accepts(in_program(helper, "try { h(3) } catch code { var c: i32 = code }"));
    for wrong in [
        "h(3)",
        "try { h(3) } catch 1 { }",
        "throw 4",
        "try { throw 4 } catch 5 { }",
        "try { throw 4 } catch _ { throw 5 }",
    ] {
        refuses(in_program(helper, wrong), "KS0710");
    }
    refuses_saying(in_program(helper, "throw ctx->rx_queue_index"), "KS0710", "catch _");
    warns(in_main("", "throw 4"), "KS0711");
    for wrong in ["throw \"text\"", "throw true"] {
        refuses_both("", &format!("try {{ {wrong} }} catch _ {{ }}"), "KS0709");
    }
    refuses(in_main("", "try { throw 1 } catch -1 { } catch _ { }"), "KS0201");
}

#[test]
fn lf_121_defer() {
    let functions = "struct Rec { n: u32 }\nvar ring : ringbuf<Rec>(4096)\n@helper\nfn h(n: u32) { }\n\
                     @helper\nfn local_only() { var x = 1 }";
    accepts(in_program(
        functions,
        "defer h(1)\ndefer local_only()\nvar r = ring.reserve()\ndefer ring.discard(r)",
    ));
    accepts(in_main("fn f() -> u32 { return 1 }", "defer f()\nfor (i in 0..3) { defer f() }"));
    refuses_both("", "var a: u32 = 1\ndefer a + 1", "KS0713");
    refuses(in_main("fn f() { throw 3 }", "defer f()"), "KS0713");
    refuses(in_program(functions, "for (i in 0..3) { defer h(i) }"), "KS0712");
}

#[test]
fn lf_122_locals_of_kernel_functions() {
    let helper = |bytes: u32| {
        with_empty_main(&format!("@helper\nfn h() -> u8 {{ var a: u8[{bytes}] = []\nreturn a[0] }}"))
    };
    accepts(helper(512));
    refuses(helper(513), "KS1001");
    refuses(helper(600), "KS1001");
    warns(helper(300), "KS1002");
    let deep = "@helper\nfn h() -> u8 { var a: u8[500] = []\nreturn a[0] }";
    accepts(in_program(deep, "var b: u8[400] = []\nif (h() == b[0]) { return XDP_DROP }"));
    refuses(in_program("", "var a: u8[300] = []\nvar b: u8[300] = []"), "KS1001");
    accepts(in_program("", "if (true) { var a: u8[300] = [] } else { var b: u8[300] = [] }"));
    accepts(in_main("", "var a: u8[1000] = []"));
    refuses_both("", "var a: u8[1001] = []", "KS0606|KS1001");
}

#[test]
fn lf_123_defined_results_instead_of_faults() {
    let globals = "var g: u32[4] = [1]\nstruct S { a: u32 }";
    let body = "var l: u32[4] = [1]\nvar i: u32 = 9\nvar x = l[i] + g[i]\nl[i] = 1\ng[i] += 1";
    accepts_both(globals, body);
    accepts(in_program(globals, "var p = ctx->data + 5000\nvar b = *p\nvar first = *ctx->data"));
    for wrong in ["var x = g[4]", "g[4] = 1", "var l: u32[2] = [1]\nl[2] += 1"] {
        refuses_both(globals, wrong, "KS0406");
    }
    refuses_both(globals, "var p: *S = null\nvar x = p->a", "KS1003");
}
