//! Chapter 5: globals, pins, maps, ring buffers, objects, config blocks.

use crate::conformance::scripts::{
    accepts, accepts_both, has_type, in_both, in_main, in_program, refuses, refuses_both, warns,
    with_empty_main,
};

const RING: &str = "struct Rec { n: u32 }\nvar ring : ringbuf<Rec>(4096)";

#[test]
fn lf_084_globals_of_every_type() {
    let globals = "struct S { a: u32, t: str(4) }\nenum E { A, B }\n\
                   var a: u8 = 1\nvar b: i64 = -1\nvar c: bool = true\nvar d: char = 'x'\nvar e: E = B\n\
                   var f: str(8) = \"text\"\nvar g: u32[4] = [1, 2]\nvar h: S\nvar i = 5\n\
                                     var j: S = S { a: 1, t: \"t\" }";
    let use_all =
        "a = 2\nb -= 1\nc = !c\nd = 'y'\ne = A\nf = \"other\"\ng[1] += 1\nh.a = g[0]\ni += 1\nj = h";
    accepts_both(globals, use_all);
    refuses(with_empty_main("fn f() -> u32 { return 1 }\nvar g: u32 = f()"), "KS0619");
    refuses(with_empty_main("var a: u32 = 1\nvar b: u32 = a"), "KS0619");
    refuses(with_empty_main("var g"), "KS0201");
}

#[test]
fn lf_085_local_globals() {
    accepts(in_program("local var hidden: u32 = 1", "hidden += 1"));
    refuses(in_main("local var hidden: u32 = 1", "hidden = 2"), "KS0306");
    refuses(in_main("local var hidden: u32 = 1", "print(\"%u\", hidden)"), "KS0306");
    refuses(with_empty_main("pin local var g: u32 = 1"), "KS0604");
}

#[test]
fn lf_089_deleting_elements() {
    accepts_both("var m : hash<u32, u64>(8)", "delete m[7]");
    for kind in ["array", "percpu_array"] {
        refuses_both(&format!("var m : {kind}<u32, u64>(8)"), "delete m[1]", "KS0607");
    }
    refuses_both("var m : hash<u32, u64>(8)", "delete m", "KS0608|KS0613");
}

#[test]
fn lf_090_maps_are_not_values() {
    let map = "var m : hash<u32, u64>(8)\n@helper\nfn h(n: u32) { }";
    for (wrong, code) in [
        ("var x = m", "KS0608"),
        ("if (m == null) { }", "KS0608"),
        ("m = 1", "KS0212|KS0412|KS0608"),
        ("m.lookup(1)", "KS0304"),
        ("m.update(1, 2)", "KS0304"),
        ("var x = m.contains(1)", "KS0304"),
        ("var n : hash<u32, u64>(8)", "KS0605"),
        ("m[\"x\"] = 1", "KS0401"),
        ("m[1] = \"x\"", "KS0401"),
    ] {
        refuses_both(map, wrong, code);
    }
    refuses(in_program(map, "h(m)"), "KS0608");
    refuses(with_empty_main("struct S { m: hash<u32, u64>(8) }"), "KS0605");
    refuses(with_empty_main("type M = hash<u32, u64>(8)\nvar m: M"), "KS0605");
}

#[test]
fn lf_091_bindings_of_struct_elements() {
    let map = "struct S { a: u32, b: u32[4] }\nvar m : hash<u32, S>(8)";
    let body = "var v = m[1]\nif (v == null) { v = S { a: 1, b: [] } }\nv.a = 2\nv.a += 1\nv.b[1] = 3\n\
                m[1] = v\nv = m[2]";
    accepts_both(map, body);
    has_type(map, "", "m[1]", "S");
    refuses(in_main(map, "var p = &m[1]"), "KS0611");
    accepts(in_program(map, "var v = m[1]\nvar p = &v\np->a = 1\nvar q = &m[1]"));
}

#[test]
fn lf_094_keys_of_maps() {
    for key in ["u8", "u16", "u32", "u64"] {
        accepts_both(&format!("var m : array<{key}, u64>(8)"), "var k: u8 = 3\nm[k] += 1");
    }
    let types = "struct K { a: u8, b: u32 }\nstruct P { p: *u32 }\nenum E { A, B }";
    accepts(in_both(&format!("{types}\nvar m : hash<K, u64>(8)"), "m[K { a: 1, b: 2 }] += 1")[0].clone());
    for good in [
        "hash<bool, u64>",
        "hash<char, u64>",
        "hash<E, u64>",
        "hash<str(16), u64>",
        "hash<u8[6], u64>",
        "array<E, E>",
    ] {
        accepts(with_empty_main(&format!("{types}\nvar m : {good}(8)")));
    }
    for wrong in [
        "array<K, u64>",
        "array<bool, u64>",
        "array<str(4), u64>",
        "hash<*u32, u64>",
        "hash<P, u64>",
        "hash<u8[600], u64>",
    ] {
        refuses(with_empty_main(&format!("{types}\nvar m : {wrong}(8)")), "KS0602");
    }
    for wrong in
        ["@flags(no_common_lru) var m : hash<u32, u64>(8)", "@flags(no_prealloc) var m : array<u32, u64>(8)"]
    {
        refuses(with_empty_main(wrong), "KS0602");
    }
    refuses_both("var m : array<u32, u64>(8)", "m[8] = 1", "KS0406");
}

#[test]
fn lf_095_maps_of_one_direction() {
    let read_only = "@flags(rdonly) pin var m : hash<u32, u64>(8)";
    accepts(in_program(read_only, "m[1] = 2\ndelete m[3]"));
    accepts(in_main(read_only, "var x = m[1]"));
    refuses(in_main(read_only, "m[1] = 2"), "KS0603");
    refuses(in_main(read_only, "m[1] += 2"), "KS0603");
    refuses(in_main(read_only, "delete m[1]"), "KS0603");
    refuses(in_main("@flags(wronly) var m : hash<u32, u64>(8)", "var x = m[1]"), "KS0603");
    accepts(in_main("@flags(wronly) var m : hash<u32, u64>(8)", "m[1] = 1"));
}

#[test]
fn lf_098_shapes_of_ring_buffers() {
    let ring = |record: &str, size: u32| {
        with_empty_main(&format!("struct R {{ a: u32 }}\nvar r : ringbuf<{record}>({size})"))
    };
    for size in [4096, 8192, 134_217_728] {
        accepts(ring("R", size));
    }
    for size in [5000, 2048, 0, 268_435_456] {
        refuses(ring("R", size), "KS0606|KS0610");
    }
    refuses(ring("u32", 4096), "KS0609");
}

#[test]
fn lf_099_records() {
    let body = "var r = ring.reserve()\nif (r == null) { return XDP_DROP }\nr->n = 1\nring.submit(r)\n\
                if (var s = ring.reserve()) { ring.discard(s) } else { }\n\
                var u = ring.reserve()\nring.submit(u)";
    accepts(in_program(RING, body));
    warns(
        in_program(
            RING,
            "var r = ring.reserve()\nif (ctx->rx_queue_index == 1) { return XDP_DROP }\nring.submit(r)",
        ),
        "KS0615",
    );
    refuses(in_program(RING, "var r = ring.reserve()\nring.submit(r)\nr->n = 1"), "KS0616");
    refuses(in_program(RING, "var r = ring.reserve()\nring.discard(r)\nring.submit(r)"), "KS0616");
    accepts(in_program(RING, "var r: *Rec = ring.reserve()\nring.discard(r)"));
}

#[test]
fn lf_100_methods_of_rings() {
    let functions = "fn good(r: *Rec) -> i32 { return 0 }\nfn scalar(n: u32) -> i32 { return 0 }\n\
                     fn truth(r: *Rec) -> bool { return true }\nstruct Other { n: u32 }";
    let all = format!("{RING}\n{functions}");
    accepts(in_main(&all, "ring.on_event(good)"));
    refuses(in_main(&all, "var r = ring.reserve()"), "KS0306");
    refuses(in_main(&all, "ring.on_event(scalar)"), "KS0401");
    refuses(in_main(&all, "ring.on_event(truth)"), "KS0401");
    refuses(in_program(&all, "ring.on_event(good)"), "KS0306");
    refuses(in_program(&all, "var r = ring.reserve(4)\nring.discard(r)"), "KS0404");
    refuses(in_program(&all, "var o = Other { n: 1 }\nring.submit(&o)"), "KS0401");
    refuses(in_program(&all, "ring.push(1)"), "KS0304");
}

#[test]
fn lf_101_default_handlers() {
    let producer = "var r = ring.reserve()\nring.submit(r)";
    let script = |handler: &str| {
        in_main(
            &format!("{RING}\n{handler}\n@helper\nfn make() {{ {producer} }}"),
            "var n: i32 = dispatch(ring)",
        )
    };
    accepts(script("fn ring_callback(r: *Rec) -> i32 { return 0 }"));
    refuses(script(""), "KS0617");
    refuses(in_main("var m : hash<u32, u64>(8)", "dispatch(m)"), "KS0609");
    refuses(in_main("", "dispatch()"), "KS0404|KS0609");
}

#[test]
fn lf_102_objects() {
    let s = "struct S { a: u32 }";
    accepts_both(s, "var p = new S()\np->a = 1\nvar q = new u64()\ndelete q\ndelete p");
    accepts(with_empty_main(&format!(
        "{s}\n@kfunc\nfn k() -> u32 {{ var p = new S(GFP_ATOMIC)\ndelete p\nreturn 1 }}"
    )));
    for (wrong, code) in [
        ("var p = new S(GFP_ATOMIC)\ndelete p", "KS0613"),
        ("var n: u32 = 1\ndelete n", "KS0613"),
        ("var p = new S()\ndelete p\np->a = 1", "KS0616"),
        ("var p = new S\ndelete p", "KS0201"),
    ] {
        refuses_both(s, wrong, code);
    }
    warns(in_program(s, "var p = new S()\np->a = 1"), "KS0615");
}

#[test]
fn lf_103_maps_of_pointers() {
    let map = "struct S { a: u32 }\nvar m : hash<u32, *S>(8)";
    let body = "var p = new S()\nm[1] = p\np->a = 2\nvar q = m[1]\nif (q != null) { q->a += 1 }\n\
                m[2]->a = 3\ndelete m[1]";
    accepts_both(map, body);
}

#[test]
fn lf_104_config_blocks() {
    let config = "config c { a: u32 = 1, b: bool = true, l: char = 'x', ports: u16[4] = [22, 80], \
                  spare: u64 }\nconfig empty { }";
    accepts_both(config, "var x = c.a + c.ports[1]\nif (c.b) { }");
    accepts(in_main(config, "c.a = 5\nc.a += 1\nc.ports[2] = 443\nc.b = false\nc.spare = 7"));
    refuses(in_program(config, "c.a = 5"), "KS0412");
    refuses(in_program(config, "c.ports[1] = 5"), "KS0412");
    refuses_both(config, "var x = c", "KS0608");
    refuses_both(config, "var x = c.missing", "KS0304");
    let types = "struct S { a: u32 }\nenum E { A }";
    for ty in ["str(8)", "S", "E", "*u8"] {
        refuses(with_empty_main(&format!("{types}\nconfig c {{ f: {ty} }}")), "KS0618");
    }
    refuses(with_empty_main("config c { a: u32 = true }"), "KS0401");
    refuses(with_empty_main("config c { a: u32 = 1 + 2 }"), "KS0201");
}
