//! `for (k, v in m)` over hashes in the kernel half: the results on the running kernel, on an emulated 6.1,
//! whose verifier checks one iteration only, and on 6.12. Needs root.

use ks_compiler::kernel::KernelVersion;
use ks_compiler::pipeline::Target;
use ks_tests::emulated::{Kernel, Machine, inside};
use ks_tests::runs::Loaded;
use ks_tests::try_compile_for;

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_"]);
}

const MAPS: &str = "struct Stat { hits: u64, bytes: u32, flags: u16 }\nstruct Pair { port: u16, peer: u64 }\n\
    var arg: array<u32, u64>(1)\nvar out: array<u32, u64>(8)\n\
    var m: hash<u32, u64>(64)\nvar s: hash<Pair, Stat>(16)\nvar l: lru_hash<u32, u64>(64)\n\
    var p: percpu_hash<u32, u64>(16)\nvar lp: lru_percpu_hash<u16, Stat>(64)\nvar names: hash<str(8), \
                    u32>(8)\n";

fn script(items: &str, body: &str) -> String {
    format!(
        "{MAPS}{items}\n@xdp fn run(ctx: *xdp_md) -> xdp_action {{\nvar n = arg[0]\n{body}\nreturn \
         XDP_PASS\n}}\n\
         fn main() -> i32 {{\nvar program = load(run)\nreturn 0\n}}\n"
    )
}

/// Returns the array that a program fills in, compiled for every kernel and for old ones; `arg` starts with
/// `bound`.
fn results(items: &str, body: &str, bound: u64) -> Vec<u64> {
    // Unbounded loops need features that 5.15 lacks; without a target they need features of 6.4.
    let plain = !body.contains("for (i in");
    let old = [(5, 15), (6, 1)].into_iter().filter(|version| plain || *version != (5, 15));
    let old = old.map(|(major, minor)| Some(KernelVersion::new(major, minor)));
    let newest = [None].into_iter().filter(|_| plain || inside().as_deref() != Some("6.1"));
    let mut found = newest.chain(old).map(|kernel| {
        let loaded = Loaded::with_target(&script(items, body), Target { kernel, ..Target::default() });
        loaded.set("arg", 0, bound);
        loaded.run("run", &[0; 64]);
        loaded.entries("out", 8)
    });
    let first = found.next().expect("a target");
    found.for_each(|other| assert_eq!(other, first));
    first
}

#[test]
fn root_every_entry_is_visited() {
    let body = "m[1] = 10\nm[2] = 20\nm[3] = 30\nm[70000] = 40\n\
        for (k, v in m) {\n  out[0] += k\n  out[1] += v\n  out[2] += 1\n}\n\
        var none: u64 = 5\nfor (k, v in l) { none = v + k }\nout[3] = none\n\
        l[9] = n\nfor (k, v in l) { none = v + k }\nout[4] = none\n\
        names[\"ab\"] = 3\nfor (name, count in names) {\n  if (name == \"ab\") { out[5] = count }\n}";
    assert_eq!(results("", body, 6), [70006, 100, 4, 5, 15, 3, 0, 0]);
}

#[test]
fn root_map_iterations_have_every_kind_of_exit() {
    let items = "@helper fn find(wanted: u64) -> u32 {\n  for (k, v in m) {\n    \
                 if (v == wanted) { return k }\n  }\n  return 99\n}\n\
                 @helper fn fails(limit: u64) -> u64 {\n  var seen: u64 = 0\n\
                 for (k, v in m) {\n    seen += 1\n    if (v > limit) { throw 42 }\n  }\n  return seen\n}\n\
                 @helper fn any() -> bool {\n  for (k, v in m) { return true }\n  return false\n}";
    let body = "if (any()) { out[7] = 1 }\nm[1] = 10\nm[2] = 20\nm[3] = 30\n\
        out[0] = find(20)\nout[1] = find(21)\n\
        try { out[2] = fails(n) } catch 42 { out[2] = 42 }\n\
        for (k, v in m) {\n  if (v == 20) { continue }\n  out[3] += v\n}\n\
        for (k, v in m) {\n  out[4] += 1\n  if (out[4] == 2) { break }\n}\n\
        if (any()) { out[5] = 1 }\n\
        for (i in 0..n) {\n  for (k, v in m) {\n    if (k == 2) { break }\n  }\n  out[6] += 1\n  if (i == \
                40) { break }\n}";
    assert_eq!(results(items, body, 25), [2, 99, 42, 40, 2, 1, 25, 0]);
    assert_eq!(results(items, body, 50), [2, 99, 3, 40, 2, 1, 41, 0]);
}

#[test]
fn root_values_are_bound_to_their_entries() {
    let body = "s[Pair { port: 1, peer: 7 }] = Stat { hits: 1, bytes: 5, flags: 1 }\n\
        s[Pair { port: 2, peer: 8 }] = Stat { hits: 2, bytes: 6, flags: 0 }\n\
        for (k, v in s) {\n  v.hits += 10\n  v.bytes = k.port\n  if (v.flags == 1) {\n    \
        v = Stat { hits: 900, bytes: 0, flags: 0 }\n    v.hits = 901\n  }\n}\n\
        out[0] = s[Pair { port: 1, peer: 7 }].hits\nout[1] = s[Pair { port: 2, peer: 8 }].hits\n\
        out[2] = s[Pair { port: 1, peer: 7 }].bytes + 10 * s[Pair { port: 2, peer: 8 }].bytes\n\
        m[4] = 4\nfor (k, v in m) {\n  v += 1\n  out[3] = v\n}\nout[4] = m[4]\n\
        lp[3] = Stat { hits: n, bytes: 0, flags: 0 }\nfor (k, v in lp) {\n  v.hits += k\n}\n\
        out[5] = lp[3].hits\n\
        p[1] = n\nfor (k, v in p) { out[6] += v }\n\
        for (k, v in s) {\n  var q = v\n  q.hits = 0\n  out[7] += v.hits\n}";
    assert_eq!(results("", body, 100), [11, 12, 21, 5, 4, 103, 100, 23]);
}

#[test]
fn root_iterations_share_variables_and_memory_of_the_function() {
    let body = "m[1] = 10\nm[2] = 20\nm[3] = 30\nm[4] = 40\n\
        var list: u32[4] = [0, 0, 0, 0]\nvar sums = Stat { hits: 0, bytes: 9, flags: 0 }\n\
        var count: u32 = 0\nvar last: u8 = 0\n\
        for (k, v in m) {\n  list[k & 3] = k\n  sums.hits += v\n  \
        if (sums.hits == 100) { sums.bytes = 8 }\n  count += 1\n  last = 3\n}\n\
        if (count == 4) { out[0] = 1 }\nif (count == 0) { out[1] = 1 }\nif (sums.bytes == 8) { out[2] = 1 }\n\
        out[3] = list[0] + 10 * list[1] + 100 * list[2] + 1000 * list[3]\nout[4] = sums.hits + last\n\
        var rounds: u64 = 0\n\
        for (k, v in m) {\n  for (k2, v2 in m) {\n    if (k2 > k) { continue }\n    \
        for (i in 0..n) { rounds += 1 }\n  }\n}\n\
        out[5] = rounds\n\
        for (k, v in m) {\n  var left = v\n  while (left > 0) {\n    left = left / 2\n    \
        out[6] += 1\n  }\n}";
    assert_eq!(results("", body, 7), [1, 0, 1, 3214, 103, 70, 20, 0]);
    let without_loops = body.split("var rounds").next().expect("the first part");
    assert_eq!(results("", without_loops, 7), [1, 0, 1, 3214, 103, 0, 0, 0]);
}

#[test]
fn root_entries_are_removed_and_added_during_the_iteration() {
    let items = "@helper fn again(k: u32) {\n  delete m[k]\n  m[k + 1000] = 1\n}";
    let body = "m[0] = 1\nm[1] = 1\nm[2] = 1\nm[3] = 1\nm[4] = 1\nm[5] = 1\nm[6] = 1\nm[7] = 1\nl[1] = \
                9\nl[2] = 19\n\
        for (k, v in m) {\n  if (k % 2 == 0) { delete m[k] }\n}\nfor (k, v in m) { out[0] += k }\n\
        for (k, v in l) { l[k] = v + 1 }\nfor (k, v in l) { out[1] += v }\n\
        for (k, v in m) {\n  delete m[k]\n  m[k + 100] = 1\n  out[2] = 1\n}\n\
        for (k, v in m) { out[3] += 1 }\nfor (k, v in m) { again(k) }\nfor (k, v in m) { out[4] += v }";
    assert_eq!(results(items, body, 0), [16, 30, 1, 4, 4, 0, 0, 0]);
}

#[test]
fn root_bindings_change_between_iterations() {
    let items = "@helper fn largest() -> u64 {\n  var best = s[Pair { port: 9, peer: 9 }]\n  var most: u64 = 0\n  \
                 for (k, v in s) {\n    if (v.hits > most) {\n      most = v.hits\n      best = s[k]\n    }\n  \
                 }\n  best.bytes += 100\n  return best.hits\n}";
    let body = "out[0] = largest()\n\
        s[Pair { port: 1, peer: 7 }] = Stat { hits: 1, bytes: 5, flags: 1 }\n\
        s[Pair { port: 2, peer: 8 }] = Stat { hits: 20, bytes: 6, flags: 0 }\n\
        s[Pair { port: 3, peer: 9 }] = Stat { hits: 3, bytes: 7, flags: 0 }\n\
        out[1] = largest()\nout[2] = s[Pair { port: 2, peer: 8 }].bytes\n\
        var found = s[Pair { port: 1, peer: 7 }]\n\
        for (k, v in names) { found = s[Pair { port: 2, peer: 8 }] }\nout[3] = found.hits\n\
        m[1] = 10\nm[2] = 20\nm[3] = 30\n\
        for (k, v in m) {\n  found.hits += v\n  found = s[Pair { port: 2, peer: 8 }]\n}\n\
        for (k, v in m) {\n  for (k2, v2 in s) {\n    if (k2.port == k) { found = s[k2] }\n  }\n  \
        found.hits += 1000\n}\n\
        for (k, v in s) { out[5] += v.hits }\n\
        for (k, v in s) {\n  if (k.port == 3) { found = s[k] break }\n}\nout[6] = found.bytes\n\
        for (k, v in s) {\n  if (found.bytes == 7) { found = found } else { found = s[Pair { port: 8, peer: 8 }] }\n}\n\
        out[7] = found.bytes";
    assert_eq!(results(items, body, 0), [0, 20, 106, 1, 0, 1 + 20 + 3 + 60 + 3000, 7, 7]);
}

#[test]
fn root_pointers_change_between_iterations() {
    let body = "m[1] = 10\nm[2] = 20\nm[3] = 30\nvar list: u32[2] = [0, 0]\n\
        var a = &list[0]\nvar b = &list[1]\n\
        for (k, v in m) {\n  var t = a\n  a = b\n  b = t\n  *a += 1\n}\n\
        out[0] = list[0] * 10 + list[1]\n*b = 7\nout[1] = list[0] * 10 + list[1]\n\
        var p: *u64 = null\n\
        for (k, v in m) {\n  if (p != null) { *p += 1 }\n  p = &m[k]\n}\n\
        for (k, v in m) { out[2] += v }\n\
        for (k, v in m) {\n  p = &m[k + 1]\n  if (k == 2) { break }\n}\n\
        if (p != null) { *p = 500 }\nout[3] = m[3]\n\
        var before: *u64 = null\np = null\n\
        for (i in 0..n) {\n  before = p\n  p = &m[i as u32]\n}\n\
        if (p != null) { *p = 1 } else { out[4] = 9 }\nif (before != null) { *before = 2 }\n\
        out[5] = m[3]\n\
        for (i in 0..n) {\n  if (p == null) { p = before } else { p = null }\n  if (p != null) { *p += 1 }\n}\n\
        out[6] = m[3]\n\
        var other: u32[2] = [0, 0]\nvar c = &other[0]\nvar d = &other[1]\n\
        for (k, v in m) {\n  var t = c\n  c = d\n  d = t\n  *c += 1\n  *d += 10\n}\n\
        var e = &other[0]\nfor (k, v in m) {\n  *e += 100\n  e = &other[1]\n}\n\
        m[3] = 0\np = null\nfor (i in 0..n) {\n  if (p == null) {\n    p = &m[3]\n  } else {\n    var t = p\n    \
        p = &m[2]\n    if (p != null) {\n      *p += 1\n      p = t\n    }\n  }\n}\n\
        if (p != null) { *p = 40000 }\nout[7] = m[3] + other[0] * 1000 + other[1]";
    assert_eq!(results("", body, 5), [12, 72, 62, 500, 9, 2, 5, 40000 + 121 * 1000 + 212]);
}

#[test]
fn loops_that_cannot_be_callbacks_are_refused() {
    let items = "var r: ringbuf<Stat>(4096)";
    let body = "var last = r.reserve()\nfor (k, v in m) { last = r.reserve() }\nr.submit(last)";
    let compiled = |body: &str| try_compile_for("walks", &script(items, body), Target::default());
    let Err(errors) = compiled(body) else { panic!("no callback can hand a record on") };
    assert!(errors.contains("KS0719") && errors.contains("no entry of a map"), "{errors}");
    let bindings = |count: u32| {
        let each = |line: fn(u32) -> String| (0..count).map(line).collect::<Vec<_>>().join("\n");
        let declared = each(|one| format!("var b{one} = s[Pair {{ port: {one}, peer: 1 }}]"));
        let changed =
            each(|one| format!("if (v == {one}) {{ b{one} = s[Pair {{ port: {one}, peer: k }}] }}"));
        let used = each(|one| format!("b{one}.hits += 1"));
        format!("{declared}\nfor (k, v in m) {{\n{changed}\n}}\n{used}")
    };
    assert!(compiled(&bindings(4)).is_ok());
    let Err(errors) = compiled(&bindings(5)) else { panic!("the verifier would follow too many") };
    assert!(errors.contains("KS0719") && errors.contains("more than four"), "{errors}");
}
