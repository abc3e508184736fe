//! The language's tables in editors match the checker's.

use ks_compiler::facts::syntactic::{Project, Unit, collect};
use ks_compiler::facts::tables::builtins::BUILTINS;
use ks_compiler::facts::{Facts, predeclared};
use ks_compiler::lex::TokenKind;
use ks_compiler::pipeline::{self, Options};
use ks_compiler::source::SourceMap;
use ks_compiler::types::{TypeId, TypeKind, Types};

fn facts() -> Facts {
    let mut facts = Facts::on();
    predeclared::define(&mut facts);
    facts
}

/// Returns names and types of the fields that an editor offers.
fn offered(facts: &Facts, name: &str) -> Vec<(String, String)> {
    let fields = facts.members_of(name).iter().filter_map(|id| facts.definition(*id));
    let mut fields: Vec<_> = fields.map(|one| (one.name.clone(), one.ty.to_string())).collect();
    fields.sort();
    fields
}

fn known(types: &Types, ty: TypeId) -> Vec<(String, String)> {
    let TypeKind::Struct(id) = types.kind(ty) else { panic!("a struct") };
    let fields = types.struct_def(*id).fields.iter();
    // Scripts write `cpu: all` and an event with its full description instead of these.
    let hidden = |name: &str| name == "every_cpu" || name.starts_with("event_");
    let written = fields.filter(|field| !hidden(&field.name));
    let mut fields: Vec<_> = written.map(|field| (field.name.clone(), types.name(field.ty))).collect();
    fields.sort();
    fields
}

#[test]
fn structs_have_the_fields_that_the_checker_knows() {
    let parsed =
        pipeline::parse("t.ks", b"fn main() -> i32 { return 0 }\n", Options::new("t")).expect("short");
    let hir = parsed.check().hir.expect("no errors");
    let facts = facts();
    for (name, ty) in [
        ("perf_options", hir.known.perf_options),
        ("perf_attachment", hir.known.perf_attachment),
        ("perf_read", hir.known.perf_read),
        ("bpf_perf_event_data", hir.known.perf_context),
        ("xdp_md", hir.known.xdp_context),
    ] {
        assert_eq!(offered(&facts, name), known(&hir.types, ty), "{name}");
    }
    // Pointers into the kernel are opaque to the checker.
    let names = |fields: Vec<(String, String)>| fields.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(offered(&facts, "__sk_buff")), names(known(&hir.types, hir.known.skb_context)));
}

#[test]
fn every_builtin_is_known_to_the_checker() {
    let unknown: Vec<_> = BUILTINS
        .iter()
        .filter(|builtin| {
            let text = format!(
                "@helper\nfn h() {{ {0}() }}\nfn main() -> i32 {{ {0}()\n return 0 }}\n",
                builtin.name
            );
            let parsed = pipeline::parse("t.ks", text.as_bytes(), Options::new("t")).expect("short");
            let found = parsed.check().diagnostics;
            found.iter().any(|one| [301, 305].contains(&one.code.0))
        })
        .map(|builtin| builtin.name)
        .collect();
    assert_eq!(unknown, Vec::<&str>::new());
}

/// Collects the scripts below a folder.
fn scripts(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        match path.extension() {
            Some(ending) if ending == "ks" => found.push(path),
            None if path.is_dir() => scripts(&path, found),
            _ => {}
        }
    }
}

#[test]
fn every_name_of_the_examples_means_something() {
    let mut found = Vec::new();
    scripts(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples"), &mut found);
    // The kernel's names are known only with its types.
    let typed = ["trace/switches.ks", "trace/runqlat.ks", "net/congestion.ks"];
    found.retain(|path| !typed.iter().any(|name| path.ends_with(name)));
    assert!(!found.is_empty());
    for path in found {
        let text = std::fs::read(&path).expect("readable");
        let file = SourceMap::default().add("t.ks", text.as_slice()).expect("short");
        let unit = Unit::parse(file, text);
        let facts = collect(&Project { main: &unit, headers: Vec::new(), modules: Vec::new() });
        let names = unit.tokens.iter().filter(|token| token.kind == TokenKind::Ident);
        let unknown = names.filter(|token| facts.at(file, token.span.start).is_none());
        let unknown: Vec<_> =
            unknown.map(|token| String::from_utf8_lossy(&unit.text[token.span.range()])).collect();
        // Words that the scanner does not reserve.
        let unknown: Vec<_> = unknown
            .iter()
            .filter(|keyword| !["as", "counter", "group", "all"].contains(&&***keyword))
            .collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", path.display());
    }
}
