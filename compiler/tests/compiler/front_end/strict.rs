//! Strict mode: accepts 0.1.1, and reports each extension once.

use crate::front_end::support::{body, only_ours, strict_accepts};

#[test]
fn the_syntax_of_011_is_accepted() {
    strict_accepts("enum E { A = -1 } config c { a: u32 = 1, b: u16[2] = [1, 2], s: bool = true }");
    strict_accepts("@struct_ops(\"s\") impl i { a: 1, fn b() -> r: u32 { } c: \"d\", }");
    strict_accepts(
        "@flags(rdonly | numa_node(1)) pin var m : lru_hash<u32, u64>(8) pin var r : ringbuf<S>(4096)",
    );
    strict_accepts("type F = fn(a: u32, *u8) -> u32 type A = u32[4] struct S { type: A[2] }");
    strict_accepts(&body("(v[1]).f = 4\nm[k].f += 1\nx.f = 1\nx->f = 2\nv[1][2] += 3\nf().g = 5"));
    strict_accepts(&body("for (i in f()..(a + b)) { }\ntry { } catch 1 { } catch _ { }\nconst x: i32 = -1"));
    strict_accepts(&body("if (var v = m[k]) { } else { }\nvar y = match (a) { E: 1, default: S { a: 1 } }"));
}

#[test]
fn newer_syntax_is_refused() {
    for statement in [
        "x.f += 1",
        "x->f -= 1",
        "m[k].f = 1",
        "f(v[1].f)",
        "v[1](2)",
        "v[1]->f = 2",
        "*p = 1",
        "*p += 1",
        "x.type = 1",
        "return S { a: 1 }.a",
        "return S { }",
        "return a & b",
        "return a << b",
        "return ~a",
        "a |= b",
        "return a as u8",
        "for (k, v in m) { }",
        "for (i in 0..a + 1) { }",
        "try { } catch E { }",
        "return match (a) { -1: 2 }",
        "var a = [-1]",
        "var a = [E]",
        "return sizeof(u32)",
        "var a: m.T",
        "return m.S { a: 1 }",
    ] {
        only_ours(&body(statement), "KS0201");
    }
    for item in [
        "const N = 1",
        "counter c : cpu_cycles",
        "struct S { a: u32 = 1 }",
        "config c { a: i32 = -1 }",
        "@struct_ops(\"s\") impl i { a: -1, }",
        "@struct_ops(\"s\") impl i { a: 1 }",
        "var a : u8[N]",
    ] {
        only_ours(item, "KS0201");
    }
    for item in [
        "@tc(\"ingress\", \"lo\") fn f(ctx: *__sk_buff) -> i32 { }",
        "@perf_event(page_faults, period: 1) fn f(ctx: *bpf_perf_event_data) -> i32 { }",
    ] {
        only_ours(item, "KS0208");
    }
    only_ours("@begin { }", "KS0201");
    only_ours("@probe(\"f\") if (x) { }", "KS0201");
    only_ours(&body("m[a, b] = 1"), "KS0201");
    only_ours("var h : linear_hist(0, 10, 4)", "KS0201");
    only_ours("var m : hash<u32, u64>(N)", "KS0204");
    for map in ["queue<u32>(8)", "stack_trace(8)", "task_storage<u32>"] {
        only_ours(&format!("var m : {map}"), "KS0202");
    }
}

#[test]
fn lf_024_members_of_entries_are_ours() {
    only_ours(&body("m[k].f = e"), "KS0201");
    only_ours(&body("return m[k].f"), "KS0201");
}

#[test]
fn lf_027_arrays_of_other_than_names_are_ours() {
    only_ours("struct S { a: str(16)[4] }", "KS0210");
    only_ours("var a : u32[2][3]", "KS0210");
    strict_accepts("type Name = str(16) var names : Name[4]");
}
