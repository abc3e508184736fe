use super::{Module, Project, Unit, collect};
use crate::facts::Facts;
use crate::source::{FileId, SourceMap};

struct Seen {
    facts: Facts,
    file: FileId,
    text: String,
}

fn look(text: &str) -> Seen {
    let file = SourceMap::default().add("t.ks", text).expect("short");
    let unit = Unit::parse(file, text.into());
    let facts = collect(&Project { main: &unit, headers: Vec::new(), modules: Vec::new() });
    Seen { facts, file, text: text.to_owned() }
}

impl Seen {
    /// Returns the byte offset of the `nth` occurrence of `name`.
    fn offset(&self, name: &str, nth: usize) -> u32 {
        self.text.match_indices(name).nth(nth).expect("the text has it").0 as u32
    }

    /// Returns the line of a definition's name and its detail, for the `nth` occurrence of `name`.
    fn at(&self, name: &str, nth: usize) -> String {
        let Some(found) = self.facts.at(self.file, self.offset(name, nth)) else { return "nothing".into() };
        let one = self.facts.definition(found.def).expect("defined");
        let line = one.span.map_or(0, |span| self.text[..span.start as usize].matches('\n').count() + 1);
        format!("{line}: {}", one.detail)
    }

    fn visible(&self, at: u32) -> Vec<String> {
        let visible = self.facts.visible_at(self.file, at);
        let own = visible.iter().filter_map(|id| self.facts.definition(*id)).filter(|one| one.span.is_some());
        own.map(|one| one.detail.clone()).collect()
    }
}

#[test]
fn an_inner_name_hides_an_outer_one() {
    let seen = look(
        "var x : u64 = 1\n\
         fn main() -> i32 {\n\
             var a = x\n\
             var x = true\n\
             if (x) {\n\
                 var x = \"abc\"\n\
                 print(x)\n\
             }\n\
             print(x)\n\
             return 0\n\
         }\n",
    );
    assert_eq!(seen.at("x\nvar x = true", 0), "1: var x: u64");
    assert_eq!(seen.at("x) {", 0), "4: var x: bool");
    assert_eq!(seen.at("x)\n}", 0), "6: var x: str(4)");
    assert_eq!(seen.at("x)\nreturn", 0), "4: var x: bool");
    assert_eq!(seen.at("a = x", 0), "3: var a: u64");
}

#[test]
fn a_binding_lives_in_its_block_only() {
    let seen = look(
        "var m : hash<u32, u64>(4)\n\
         fn main() -> i32 {\n\
             if (var v = m[1]) { print(v) } else { print(v) }\n\
             for (i in 0..4) { print(i) }\n\
             for (k, n in m) { print(k, n) }\n\
             try { throw 2 } catch code { print(code) } catch _ { }\n\
             return i\n\
         }\n",
    );
    assert_eq!(seen.at("v) }", 0), "3: var v: u64");
    assert_eq!(seen.at("v) }", 1), "nothing");
    assert_eq!(seen.at("i) }", 0), "4: var i: u32");
    assert_eq!(seen.at("k, n)", 0), "5: var k: u32");
    assert_eq!(seen.at("n) }", 0), "5: var n: u64");
    assert_eq!(seen.at("code) }", 0), "6: var code: i32");
    assert_eq!(seen.at("i\n}", 0), "nothing");
}

#[test]
fn fields_are_found_through_values_pointers_maps_and_calls() {
    let seen = look(
        "struct In { deep: u8 }\n\
         struct S { a: u32, n: In[3] }\n\
         type Alias = S\n\
         var m : hash<u32, Alias>(4)\n\
         var ring : ringbuf<S>(4096)\n\
         config c { limit: u32 = 7 }\n\
         fn make() -> S { return S { a: 1, n: [] } }\n\
         @helper\n\
         fn h(p: *S) -> u32 { return p->a + m[1].a + make().n[0].deep + c.limit }\n\
         @helper\n\
         fn g() { var r = ring.reserve() \n r->n[1].deep = 1 \n ring.submit(r) }\n",
    );
    assert_eq!(seen.at("a: 1", 0), "2: a: u32");
    assert_eq!(seen.at("a + m", 0), "2: a: u32");
    assert_eq!(seen.at("a + make", 0), "2: a: u32");
    assert_eq!(seen.at("deep", 1), "1: deep: u8");
    assert_eq!(seen.at("limit }", 0), "6: limit: u32 = 7");
    assert_eq!(seen.at("r = ring", 0), "11: var r: *S");
    assert_eq!(seen.at("deep = 1", 0), "1: deep: u8");
    assert_eq!(seen.at("submit", 0), "0: submit(record: *T) -> i32");
}

#[test]
fn predeclared_names_are_known_and_may_be_hidden() {
    let seen = look(
        "enum mine { bus_cycles = 9 }\n\
         @perf_event\n\
         fn p(ctx: *bpf_perf_event_data) -> i32 { return ctx->regs.ip as i32 }\n\
         fn main() -> i32 {\n\
             var a = attach(load(p), perf_options { event: page_faults, pid: 0 }, 0)\n\
             var n = read(a).values[1] + bus_cycles\n\
             return n\n\
         }\n",
    );
    assert_eq!(seen.at("page_faults", 0), "0: page_faults = 0x100000002");
    assert_eq!(seen.at("pid", 0), "0: pid: i32");
    assert_eq!(seen.at("perf_event\n", 0), "0: @perf_event\nfn name(ctx: *bpf_perf_event_data) -> i32");
    assert_eq!(seen.at("ip as", 0), "0: ip: u64");
    assert_eq!(seen.at("a = attach", 0), "5: var a: perf_attachment");
    assert_eq!(seen.at("values", 0), "0: values: i64[16]");
    assert_eq!(seen.at("bus_cycles\nreturn", 0), "1: bus_cycles = 9");
}

#[test]
fn methods_belong_to_their_impl_block() {
    let seen = look(
        "@struct_ops(\"a\")\nimpl one { fn size(s: *u8) -> u32 { return 1 } fn twice(s: *u8) -> \
         u32 { return size(s) } }\n\
         @struct_ops(\"a\")\nimpl two { fn size(s: *u8) -> u32 { return 2 } fn thrice(s: *u8) -> \
         u32 { return size(s) } }\n\
         fn main() -> i32 { return register(two) }\n",
    );
    assert_eq!(seen.at("size(s)", 0), "2: fn size(s: *u8) -> u32");
    assert_eq!(seen.at("size(s)", 1), "4: fn size(s: *u8) -> u32");
    assert_eq!(seen.at("two) }", 0), "4: impl two");
}

#[test]
fn comments_document_what_follows_them() {
    let seen = look(
        "/// Counts.\n/// Since the start.\nvar n : u64 = 0\n\n// Far away.\n\nvar m : u64 = 0\n\
         struct S {\n    a: u32, // the first\n    /// the second\n    b: u32,\n}\n",
    );
    let docs = |name: &str| {
        let found = seen.facts.at(seen.file, seen.offset(name, 0)).expect("defined");
        seen.facts.definition(found.def).expect("defined").docs.clone()
    };
    assert_eq!(docs("n : u64"), "Counts.\nSince the start.");
    assert_eq!(docs("m : u64"), "");
    assert_eq!(docs("a: u32"), "the first");
    assert_eq!(docs("b: u32"), "the second");
}

#[test]
fn references_are_by_meaning_not_by_name() {
    let seen = look(
        "var n : u64 = 0\nfn f() { n = n + 1 }\nfn g(n: u32) { print(n) }\nfn main() -> i32 { return 0 }\n",
    );
    let found = seen.facts.at(seen.file, 4).expect("defined");
    let lines: Vec<_> = seen.facts.references(found.def).iter().map(|span| span.start).collect();
    assert_eq!(lines, [4, seen.offset("n = n", 0), seen.offset("n + 1", 0)]);
}

#[test]
fn names_are_visible_from_their_declaration_on() {
    let seen =
        look("fn f(p: u32) {\n    var a = 1\n    \n    var b = 2\n    if (a == 1) { var c = 3 }\n    \n}\n");
    let between = seen.offset("\n    \n    var b", 0) + 3;
    assert_eq!(seen.visible(between), ["fn f(p: u32)", "p: u32", "var a: u32"]);
    let end = seen.offset("\n    \n}", 0) + 3;
    assert_eq!(seen.visible(end), ["fn f(p: u32)", "p: u32", "var a: u32", "var b: u32"]);
}

#[test]
fn members_of_modules_and_headers_are_found_where_they_are_declared() {
    let mut sources = SourceMap::default();
    let texts = [
        (
            "main.ks",
            "include \"h.kh\"\nimport m from \"m.ks\"\nfn main() -> i32 { return m.make().left + size(K) }\n",
        ),
        ("h.kh", "enum E { K = 3 }\nextern size(e: E) -> u32\n"),
        (
            "m.ks",
            "// Makes pairs.\nstruct Pair { left: i32 }\nfn make() -> Pair { return Pair { left: 1 } }\n",
        ),
    ];
    let units = texts.map(|(name, text)| {
        let file = sources.add(name, text).expect("short");
        Unit::parse(file, text.into())
    });
    let [main, header, module] = &units;
    let facts = collect(&Project {
        main,
        headers: vec![header],
        modules: vec![Module { name: "m", units: vec![module] }],
    });
    let target = |name: &str| {
        let at = texts[0].1.rfind(name).expect("there") as u32;
        let found = facts.at(main.file, at)?;
        let span = facts.definition(found.def)?.span?;
        let (name, line, _) = sources.position(span);
        Some((name.to_owned(), line))
    };
    assert_eq!(target("make"), Some(("m.ks".into(), 3)));
    assert_eq!(target("left"), Some(("m.ks".into(), 2)));
    assert_eq!(target("size"), Some(("h.kh".into(), 2)));
    assert_eq!(target("K"), Some(("h.kh".into(), 1)));
    let module = facts.definitions().find(|(_, one)| one.name == "m").expect("imported").1;
    assert_eq!(module.docs, "Makes pairs.");
}

#[test]
fn nothing_is_recorded_where_recording_is_off() {
    let mut facts = Facts::off();
    let id = facts.define(|| unreachable!("no text is made"));
    facts.typed(
        SourceMap::default()
            .add("t", "x")
            .map(|file| crate::source::Span { file, start: 0, end: 1 })
            .expect("short"),
        || unreachable!("no text is made"),
    );
    assert_eq!(facts.definitions().count(), 0);
    assert!(facts.definition(id).is_none());
}
