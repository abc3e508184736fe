//! Chapters 6 and 7: builtins and attributes of the language.

use crate::conformance::scripts::{
    accepts, accepts_both, accepts_without, has_type, in_both, in_main, in_program, refuses, refuses_both,
    refuses_strict, warns, warns_both, with_empty_main,
};

const XDP: &str = "@xdp\nfn watch(ctx: *xdp_md) -> xdp_action { return XDP_PASS }";

#[test]
fn lf_105_formats() {
    let values = "var u: u64 = 5\nvar i: i64 = -5\nvar b: u8 = 1\nvar s: str(8) = \"text\"\n\
                  var c = 'x'\nvar t = true\nvar p = &u";
    let good = "print()\nprint(\"plain %%\")\nprint(\"%d %i %u %x %X %o\", i, u, b, u, u, 8)\nprint(\"%s \
    %c %c %p\", s, c, 65, p)\n\
    print(\"%lld %lu %llu %ld %hu %zu\", b, b, u, i, u, u)\n\
    print(\"%5u|%-5d|%05d|%+d|%#x|%.3s\", u, i, i, i, u, s)\n\
    print(\"%d %u\", t, t)\nprint(s)\nprint(u, i, t, c)";
    accepts_both("", &format!("{values}\n{good}"));
    for (wrong, code) in [
        ("print(\"%f\", u)", "KS0424"),
        ("print(\"%n\", u)", "KS0424"),
        ("print(\"%s\", u)", "KS0424"),
        ("print(\"%d\", s)", "KS0424"),
    ] {
        refuses_both("", &format!("{values}\n{wrong}"), code);
    }
    let whole = "struct S { a: u32 }";
    for wrong in ["var s = S { a: 1 }\nprint(s)", "var a: u32[2] = [1, 2]\nprint(\"%d\", a)"] {
        refuses_both(whole, wrong, "KS0424");
    }
}

#[test]
fn lf_106_values_and_conversions_agree() {
    refuses_both("", "print(\"%d %d\", 1)", "KS0425");
    warns_both("", "print(\"surplus\", 1)", "KS0425");
    for script in in_both("", "var s: str(4) = \"x\"\nprint(\"{} and {}\", 1, s)") {
        accepts_without(script, "KS0425");
    }
    warns_both("", "print(\"%q\")", "KS0425");
}

#[test]
fn lf_107_load_and_handles() {
    accepts(in_main(XDP, "var h = load(watch)\nif (h == null) { return 1 }\nvar p = watch\nvar g = load(p)"));
    let functions =
        format!("{XDP}\n@helper\nfn help() -> u32 {{ return 1 }}\nfn plain() -> u32 {{ return 1 }}");
    for wrong in ["help", "plain", "\"watch\"", "5", "plain()"] {
        refuses(in_main(&functions, &format!("var h = load({wrong})")), "KS0401|KS0426");
    }
    for wrong in ["var x = h + 1", "if (h == 0) { }", "if (h > 1) { }", "m[1] = h", "plain_of(h)", "print(h)"]
    {
        let around = format!("{XDP}\nvar m : hash<u32, u64>(8)\nfn plain_of(n: u32) {{ }}");
        refuses(in_main(&around, &format!("var h = load(watch)\n{wrong}")), "KS0401|KS0402|KS0422|KS0424");
    }
    let chosen =
        format!("{XDP}\n@xdp\nfn other(ctx: *xdp_md) -> xdp_action {{ return XDP_DROP }}\nvar flag: bool");
    refuses(in_main(&chosen, "var p = watch\nif (flag) { p = other }\nvar h = load(p)"), "KS0426");
}

#[test]
fn lf_108_attach() {
    accepts(in_main(
        XDP,
        "var h = load(watch)\nvar target: str(16) = \"lo\"\nvar r: u32 = attach(h, target, 0)\n\
         if (r == 0) { }",
    ));
    refuses(in_main(XDP, "var h = load(watch)\nattach(h, \"lo\")"), "KS0404");
    refuses(in_main(XDP, "attach(\"lo\", 0)"), "KS0401|KS0404");
    refuses(in_main(XDP, "var h = load(watch)\nattach(h, 5, 0)"), "KS0401");
    let perf = "@perf_event\nfn sample(ctx: *bpf_perf_event_data) -> i32 { return 0 }";
    refuses(in_main(perf, "var h = load(sample)\nattach(h, \"lo\", 0)"), "KS0901");
    let probe = "@probe(\"vfs_read\")\nfn p(f: *file) -> i32 { return 0 }";
    accepts(in_main(probe, "var h = load(p)\nattach(h, \"vfs_read\", 0)\nattach(h, \"\", 0)"));
    refuses(in_main(probe, "var h = load(p)\nattach(h, \"vfs_write\", 0)"), "KS0518");
    accepts(in_main(XDP, "var h = load(watch)\ndetach(h)\ndetach(h)"));
    refuses(in_main(XDP, "detach(5)"), "KS0401");
}

#[test]
fn lf_110_exec_and_daemon() {
    warns(in_main("", "exec(\"./analyse.py\")"), "KS0428");
    for wrong in ["exec(\"run.sh\")", "var s: str(8) = \"x.py\"\nexec(s)", "exec(5)"] {
        refuses(in_main("", wrong), "KS0401|KS0427");
    }
    accepts_without(in_main("", "daemon()"), "KS0428");
    warns(in_main("", "daemon()\nprint(\"never\")"), "KS0714");
    refuses(in_main("", "daemon(1)"), "KS0404");
}

#[test]
fn lf_111_test() {
    let input = "struct Input { packet_size: u32 }";
    let tests = format!(
        "{XDP}\n{input}\n@test\nfn t() -> i32 {{\n    \
         var r: u32 = test(watch, Input {{ packet_size: 500 }})\n    return 0\n}}"
    );
    accepts(with_empty_main(&tests));
    refuses(in_main(&format!("{XDP}\n{input}"), "test(watch, Input { packet_size: 500 })"), "KS0306");
    refuses(with_empty_main("@test\nfn t(n: u32) -> i32 { return 0 }"), "KS0503");
    let probe = format!("@probe(\"vfs_read\")\nfn p() -> i32 {{ return 0 }}\n{input}");
    refuses(
        with_empty_main(&format!(
            "{probe}\n@test\nfn t() -> i32 {{ return test(p, Input {{ packet_size: 64 }}) }}"
        )),
        "KS0519",
    );
}

#[test]
fn lf_112_options_of_main() {
    let main = |fields: &str| {
        format!(
            "struct Inner {{ a: u32 }}\nstruct Args {{ {fields} }}\nfn main(args: Args) -> i32 {{ return 0 }}"
        )
    };
    accepts(main("a: u8, b: i64, c: bool, d: char, e: str(16), f: u64"));
    accepts(main("limit: u32 = 10, name: str(8) = \"lo\", quiet: bool = true"));
    for wrong in ["a: Inner", "a: u32[4]", "a: *u8"] {
        refuses(main(wrong), "KS0308");
    }
}

#[test]
fn lf_142_bit_operators_and_casts() {
    let body = "var a: u32 = 0xF0\nvar b = a & 0x0F | a ^ 3\nvar c = ~a << 2 >> 1\na &= 1\na |= 2\na ^= \
    3\na <<= 4\na >>= 1\n\
                var d = 300 as u8\nvar e = -1 as u64\nvar f = 5 as bool\n\
                var g = 65 as char\nvar h = ntohs(htons(1))";
    accepts_both("", body);
    for wrong in ["var a = true & 1", "var a = 'x' << 1", "var s: str(4) = \"x\"\nvar a = s | 1"] {
        refuses_both("", wrong, "KS0402");
    }
    has_type("", "var a: u8 = 1\nvar b: u64 = 2", "a << b", "u8");
    has_type("", "var a: u8 = 1\nvar b: u64 = 2", "a | b", "u64");
    has_type("", "var a: u64 = 1", "a as i16", "i16");
    accepts(in_program(
        "struct Eth { dst: u8[6], src: u8[6], proto: u16 }",
        "var e = ctx->data as *Eth\nvar p = ntohs(e->proto)\nvar d = ctx->data\nd[1] = 2\n*d = 3",
    ));
}

#[test]
fn lf_143_iteration() {
    let map = "struct S { n: u32 }\nvar m : hash<u16, S>(8)\nvar a : array<u32, u64>(4)";
    let body = "for (k, v in m) { if (v.n == 3) { break } }\nfor (i, n in a) { if (n == 0) { continue } }";
    accepts_both(map, body);
    accepts(in_main(map, "for (k, v in m) { delete m[k] }\nclear(m)\nvar n: u32 = count(m)"));
    accepts(in_main(map, "print_map(m)\nprint_map(a)"));
    refuses(in_main("var m : queue<u32>(8)", "print_map(m)"), "KS0401");
    refuses(in_main(map, "for (k, v in 5) { }"), "KS0201|KS0401|KS0402|KS0608");
    refuses(in_main(map, "for (k, v in m) { }\nprint(\"%u\", k)"), "KS0301");
}

#[test]
fn lf_145_a_key_is_given_part_by_part() {
    let map = "struct Key { a: str(16), b: u64 }\nvar m : hash<Key, u64>(8)\nvar n : hash<u32, u64>(8)";
    accepts_both(map, "m[\"x\", 2] += 1\nif (m[\"x\", 2] != null) { delete m[\"x\", 2] }");
    refuses_both(map, "m[\"x\"] = 1", "KS0401");
    refuses_both(map, "m[\"x\", 2, 3] = 1", "KS0401");
    refuses_both(map, "m[2, \"x\"] = 1", "KS0401");
    refuses_both(map, "n[1, 2] = 1", "KS0401");
    refuses_strict(in_main(map, "m[\"x\", 2] = 1"), "KS0201");
}

#[test]
fn lf_146_entries_are_taken() {
    let map = "struct Two { a: u32, b: u32 }\nvar m : hash<u32, u64>(8)\nvar t : lru_hash<u32, Two>(8)\nvar a : array<u32, u64>(8)";
    accepts_both(
        map,
        "if (var x = m.take(1)) { m[2] = x } else if (var y = t.take(1)) { m[3] = y.b as u64 }",
    );
    accepts_both(map, "var x = m.take(1)\nvar y = t.take(2)\nm[3] = x + y.a as u64");
    refuses_both(map, "m[1] = m.take(1)", "KS0608");
    refuses_both(map, "var x = a.take(1)", "KS0304");
    refuses_strict(in_main(map, "var x = m.take(1)"), "KS0211");
}

#[test]
fn lf_148_entries_are_locked() {
    let map = "struct Two { a: u64, b: u64 }\nvar m : hash<u32, Two>(8)\nvar l : lru_hash<u32, Two>(8)";
    accepts(in_program(map, "if (var v = m[1]) { lock (v) { v.a += 1\nv.b = v.a } }"));
    accepts(in_program(map, "var lock: u32 = 1\nlock += 1"));
    refuses(in_program(map, "if (var v = m[1]) { lock (v) { m[2] = v } }"), "KS0720");
    refuses(in_program(map, "if (var v = l[1]) { lock (v) { v.a += 1 } }"), "KS0625");
    refuses(in_main(map, "if (var v = m[1]) { lock (v) { v.a += 1 } }"), "KS0306");
    refuses_strict(in_program(map, "if (var v = m[1]) { lock (v) { v.a += 1 } }"), "KS0201");
}

#[test]
fn lf_149_variables_of_the_kernel() {
    let variables = "extern total_forks: u64\nextern init_task: task_struct\nextern hex_asc: char[16]";
    accepts(in_program(variables, "var n = total_forks + 1\nvar c = hex_asc[3]\nvar p = &total_forks"));
    refuses(in_program(variables, "total_forks = 3"), "KS0612");
    refuses(in_program(variables, "hex_asc[2] = 'x'"), "KS0612");
    refuses(in_main(variables, "var n = total_forks"), "KS0306");
    refuses(in_program("extern a: u64\nextern a: u32", ""), "KS0302");
    refuses_strict(in_program(variables, ""), "KS0201");
}

#[test]
fn lf_152_text_that_cannot_be_read_is_null() {
    let ask = "var p: u64 = 8\nif (var s = str(p)) { n = 1 }\nvar t = str(p, 8)\nif (t == null) { n = 2 }\n\
               if (str(p) != null) { n = 3 }\nvar b: u8[4] = buf(p, 4)\nif (b == null) { n = 4 }";
    accepts(in_program("var n: u32 = 0", ask));
    warns(in_program("var n: u32 = 0", "var s: str(8) = \"a\"\nif (s == null) { n = 1 }"), "KS0420");
    refuses(in_main("", "var p: u64 = 8\nif (var s = str(p)) { }"), "KS0306");
}

#[test]
fn lf_153_variables_of_the_kernel_with_a_value_for_each_cpu() {
    let variables = "percpu extern runqueues: rq\npercpu extern process_counts: u64\nextern total_forks: u64";
    accepts(in_program(
        variables,
        "var n = process_counts\nvar p = per_cpu_ptr(process_counts, 1)\nif (p != null) { n += *p }",
    ));
    refuses(in_program(variables, "process_counts = 3"), "KS0612");
    refuses(in_program(variables, "var p = per_cpu_ptr(total_forks, 1)"), "KS0401");
    refuses(in_main(variables, "var n = process_counts"), "KS0306");
    refuses("percpu extern f(a: u32) -> u32", "KS0201");
    refuses_strict(in_program(variables, ""), "KS0201");
}

#[test]
fn lf_150_entries_of_inner_maps() {
    let maps = "struct S { n: u64, list: u32[4] }\nvar h : hash<str(8), array<u32, S>(4)>(8)\n\
                var a : array<u32, hash<u64, u64>(4)>(8)\nvar l : hash<u32, lru_hash<u32, u64>(4)>(8)";
    accepts_both(
        maps,
        "h[\"one\"][1].n += 2\nh[\"one\"][1].list[2] = 3\na[1][7] = 8\nvar x = a[1][7] + l[2][3]\ndelete a[1][7]\n\
         if (var s = h[\"one\"][2]) { s.n = x }\nif (l[2]) { l[2][3] += 1 }\nvar b = h[\"two\"] == null",
    );
    has_type(maps, "", "a[1][7]", "u64");
    accepts(in_main(
        maps,
        "h.create(\"one\")\ndelete h[\"one\"]\nvar n = count(a)\nfor (k, v in a) { n = k.outer }",
    ));
    for wrong in [
        "var m : hash<u32, hash<u32, array<u32, u64>(2)>(2)>(2)",
        "var m : lru_hash<u32, hash<u32, u64>(2)>(2)",
        "var m : hash<u32, percpu_hash<u32, u64>(2)>(2)",
        "var m : array<u64, hash<u32, u64>(2)>(2)",
        "struct O { n: u32 }\nvar m : hash<u32, hash<u32, *O>(2)>(2)",
        "pin var m : hash<u32, hash<u32, u64>(2)>(2)",
    ] {
        refuses(with_empty_main(wrong), "KS0602");
    }
    refuses(with_empty_main("var m : hash<u32, hash<u32, u64>>(2)"), "KS0204");
    refuses_both(maps, "a[1][\"text\"] = 1", "KS0401");
    refuses_both(maps, "a[8][1] = 1", "KS0406");
    refuses_both(maps, "var x = a[1]", "KS0608");
    refuses_both(maps, "delete a[1]", "KS0607");
    refuses(in_program(maps, "h.create(\"one\")"), "KS0608");
    refuses(in_program(maps, "delete l[1]"), "KS0608");
    refuses(in_program(maps, "for (k, v in a) { }"), "KS0608");
    refuses(in_main(maps, "take(l)"), "KS0401");
    refuses_strict(in_main(maps, ""), "KS0211");
}

#[test]
fn lf_147_statistics_of_integers() {
    let stats = "var s : stats\nvar m : hash<u32, stats>(8)";
    accepts_both(stats, "s.add(3)\nm[1].add(-4 as i16)\nvar z = s.mean + m[1].min + s.max + s.sum");
    for (member, ty) in
        [("count", "u64"), ("sum", "i64"), ("min", "i64"), ("mean", "i64"), ("overflow", "bool")]
    {
        has_type(stats, "", &format!("s.{member}"), ty);
    }
    refuses_both(stats, "s.add(\"text\")", "KS0401");
    refuses_both("var m : percpu_hash<u32, stats>(8)", "", "KS0602");
    refuses_strict(in_main(stats, ""), "KS0211");
}

#[test]
fn lf_151_columns_have_headings_and_units() {
    let field = |column: &str, ty: &str| in_main(&format!("struct S {{ {column} f: {ty} }}"), "");
    accepts(field("@column(\"total\", \"ns\")", "u64"));
    accepts(field("@column(\"COMM\")", "str(16)"));
    accepts(field("/// How long.\n@column(\"took\", \"ns\")", "stats"));
    accepts(field("@column(\"each\", \"By\")", "u32[4]"));
    refuses(field("@column(\"COMM\", \"ns\")", "str(16)"), "KS0626");
    refuses(field("@column(\"\")", "u64"), "KS0626");
    refuses(field("@column(\"total\", \"\\xff\")", "u64"), "KS0626");
    refuses(field("@column(\"bars\")", "log2_hist"), "KS0626");
    refuses(field("@column(\"at\")", "*u64"), "KS0626");
    refuses(field("@column()", "u64"), "KS0201");
    refuses(field("@column(total)", "u64"), "KS0201");
    refuses(field("@column(\"a\", \"b\", \"c\")", "u64"), "KS0201");
    let global = |declaration: &str| in_main(&format!("struct S {{ a: u64 }}\n{declaration}"), "");
    accepts(global("@column(\"wait\", \"ns\") var m : hash<u32, u64>(8)"));
    accepts(global("@flags(no_prealloc) @column(\"wait\") var m : hash<u32, u64>(8)"));
    accepts(global("@column(\"wait\") @flags(no_prealloc)\npin var m : hash<u32, u64>(8)"));
    accepts(global("@column(\"longest\", \"ns\") var longest : u64 = 0"));
    accepts(global("@column(\"hits\") percpu var hits: u64"));
    refuses(global("@column(\"wait\") @column(\"wait\") var m : hash<u32, u64>(8)"), "KS0201");
    refuses(global("@column(\"wait\") var m : hash<u32, S>(8)"), "KS0626");
    refuses(global("@column(\"wait\") local var m : hash<u32, u64>(8)"), "KS0626");
    refuses(global("@column(\"wait\") fn f() -> void {}"), "KS0201");
    let map = "@column(\"wait\", \"ns\") var m : hash<u32, u64>(8)";
    accepts(in_main(map, "print_map(m, by: wait)"));
    refuses(in_main(map, "print_map(m, by: value)"), "KS0401");
    accepts(in_main(map, "var names: str(8)[1]\nprint_map(m, top: 3, headings: names)"));
    refuses(in_main(map, "var names: str(8)[2]\nprint_map(m, headings: names)"), "KS0401");
    refuses(in_main(map, "print_map(m, headings: \"wait\")"), "KS0401");
    refuses(
        in_main("var m : hash<u32, log2_hist>(8)", "var n: str(8)[1]\nprint_map(m, headings: n)"),
        "KS0401",
    );
    refuses_strict(in_main(map, ""), "KS0201");
    refuses_strict(field("@column(\"total\", \"ns\")", "u64"), "KS0201");
}
