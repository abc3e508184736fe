//! `ks init`: every program type produces a script that compiles unchanged, and a wrong one an error with a
//! remedy.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use ks_compiler::ast::{Item, ItemKind};
use ks_compiler::diag::Diagnostics;
use ks_compiler::init::{self, InitError, KINDS, Options};
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline;
use ks_compiler::source::{Files, SourceMap};
use ks_compiler::{fmt, headers, lex, parse};

static KERNEL: LazyLock<Arc<KernelTypes>> = LazyLock::new(|| {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux")
        .expect("these tests need a kernel with CONFIG_DEBUG_INFO_BTF and /sys/kernel/btf/vmlinux");
    Arc::new(KernelTypes::from_btf(bytes).expect("the kernel's BTF is well-formed"))
});

/// Every kind of the help text, with each form of target, and a struct_ops type that the help does not name.
fn kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().flat_map(|kind| kind.examples).copied().chain(["bpf_dummy_ops"])
}

/// The files of a new script, which the pipeline can include.
#[derive(Debug)]
struct InMemory(BTreeMap<String, String>);

impl Files for InMemory {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.0.get(path).map(|text| text.clone().into_bytes())
    }
}

fn starter(kind: &str, kernel: &KernelTypes, kfuncs: bool) -> Vec<(String, String)> {
    init::starter(kind, "fresh", kernel, Options { kfuncs }).unwrap_or_else(|error| panic!("{kind}: {error}"))
}

/// Parses the declarations of a file, which must be free of errors.
fn items(name: &str, text: &str) -> Vec<Item> {
    let parsed = pipeline::parse(name, text.as_bytes(), pipeline::Options::new("fresh")).expect("short");
    let found: Vec<_> =
        parsed.diagnostics.iter().map(|one| format!("{} {}", one.code, one.message)).collect();
    assert!(found.is_empty(), "{name}: {found:?}\n{text}");
    parsed.ast.items
}

fn check(files: &[(String, String)]) -> Diagnostics {
    let (script, text) = files.first().expect("a script");
    let files_in_memory = Arc::new(InMemory(files.iter().cloned().collect()));
    let options = pipeline::Options {
        files: files_in_memory,
        kernel: Arc::clone(&KERNEL),
        ..pipeline::Options::new("fresh")
    };
    pipeline::parse(script, text.as_bytes(), options).expect("short").check().diagnostics
}

#[test]
fn every_kind_parses() {
    let bundled = KernelTypes::bundled();
    let without_btf =
        ["xdp", "perf_event", "tracepoint/sched/sched_switch", "tcp_congestion_ops", "sched_ext_ops"];
    let with = kinds().map(|kind| (kind, &**KERNEL));
    for (kind, kernel) in with.chain(without_btf.map(|kind| (kind, &bundled))) {
        let files = starter(kind, kernel, true);
        let names: Vec<_> = files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names[0], names[names.len() - 1]), ("fresh.ks", "README.md"), "{kind}");
        for (name, text) in &files[..files.len() - 1] {
            assert!(!items(name, text).is_empty(), "{kind}: {name}");
            let long = text.lines().find(|line| line.len() > 110 && !line.starts_with("extern"));
            assert_eq!(long, None, "{kind}: {name}");
        }
        let included: Vec<_> = items("fresh.ks", &files[0].1)
            .iter()
            .filter_map(|item| match &item.kind {
                ItemKind::Include(path) => String::from_utf8(path.bytes.clone()).ok(),
                _ => None,
            })
            .collect();
        assert_eq!(
            included,
            &names[1..names.len() - 1],
            "{kind}: every header is included, and nothing else"
        );
    }
}

#[test]
fn every_kind_compiles_as_it_is() {
    let mut wrong = Vec::new();
    for kind in kinds() {
        let diagnostics = check(&starter(kind, &KERNEL, false));
        let errors = diagnostics.error_count();
        if errors > 0 {
            let first = diagnostics.sorted().first().map(|one| format!("{} {}", one.code, one.message));
            wrong.push(format!("{kind}: {}", first.unwrap_or_default()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_script_is_in_the_one_style() {
    for kind in kinds() {
        for (name, text) in starter(kind, &KERNEL, true) {
            if !name.ends_with(".ks") && !name.ends_with(".kh") {
                continue;
            }
            let file = SourceMap::default().add(name.clone(), text.clone()).expect("short");
            let mut diagnostics = Diagnostics::default();
            let tokens = lex::scan(file, text.as_bytes());
            let ast = parse::parse(&tokens, text.as_bytes(), &mut diagnostics);
            let formatted = fmt::format(&tokens, text.as_bytes(), &ast).expect("it has no errors");
            assert_eq!(String::from_utf8_lossy(&formatted), text, "{kind}: {name}");
        }
    }
}

#[test]
fn bundled_headers_parse_and_declare_only() {
    for (name, text) in headers::BUNDLED {
        for item in items(name, text) {
            assert!(
                matches!(
                    item.kind,
                    ItemKind::Struct { .. }
                        | ItemKind::Enum { .. }
                        | ItemKind::Alias { .. }
                        | ItemKind::Extern { .. }
                ),
                "{name}"
            );
        }
        assert_eq!(headers::bundled(name), Some(*text));
    }
    assert_eq!(headers::bundled("nothing.kh"), None);
}

#[test]
fn a_probe_has_the_signature_of_its_function() {
    let script = &starter("probe/vfs_read", &KERNEL, false)[0].1;
    let signature =
        "@probe(\"vfs_read\")\nfn on_call(file: *file, buf: *u8, count: size_t, pos: *u8) -> i32 {\n";
    assert!(script.contains(signature), "{script}");
    let header = &starter("tracepoint/sched/sched_switch", &KERNEL, false)[1];
    assert_eq!(header.0, "tracepoint.kh");
    assert!(
        header.1.contains("    ent: trace_entry,\n    prev_comm: char[16],\n    prev_pid: i32,\n"),
        "{}",
        header.1
    );
    assert!(header.1.contains("struct trace_entry {\n    type: u16,\n"), "{}", header.1);
}

#[test]
fn an_impl_block_takes_no_name_that_is_taken() {
    let script = |name| {
        let files = init::starter("tcp_congestion_ops", name, &KERNEL, Options::default()).expect("a kind");
        files[0].1.clone()
    };
    assert!(script("my-tcp").contains("impl my_tcp {\n    name: \"my_tcp\",\n"));
    for taken in ["tcp_congestion_ops", "ssthresh", "cpu_cycles", "match", "main"] {
        assert!(script(taken).contains(&format!("impl {taken}_impl {{\n")), "{taken}");
    }
}

#[test]
fn kernel_functions_are_declared_once() {
    let files = starter("tcp_congestion_ops", &KERNEL, true);
    let all: String = files.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(all.matches("extern tcp_reno_ssthresh(").count(), 1);
}

#[test]
fn a_wrong_kind_is_an_error_that_helps() {
    let error = |kind: &str| init::starter(kind, "fresh", &KERNEL, Options::default()).expect_err(kind);
    let error_text = |kind: &str| error(kind).to_string();
    assert_eq!(error_text("xpd"), "there is no kind of program `xpd`; did you mean `xdp`?");
    assert_eq!(error_text("xdp/eth0"), "there is no kind of program `xdp/eth0`; did you mean `xdp`?");
    assert!(error_text("kprobe/vfs_read").contains("`probe/FUNCTION`"));
    assert!(error_text("probe/vfs_raed").contains("`vfs_read`"));
    assert!(error_text("retprobe/vfs_raed").contains("`vfs_read`"));
    assert!(error_text("tracepoint/sched/sched_swich").contains("`sched/sched_switch`"));
    assert!(error_text("raw_tracepoint/sched_swich").contains("`sched_switch`"));
    assert!(error_text("syscall_enter/opennat").contains("`openat`"));
    assert!(error_text("lsm/file_opne").contains("`file_open`"));
    assert!(error_text("cgroup/conect4").contains("`cgroup/connect4`"));
    assert!(error_text("tcp_congestion_op").contains("`tcp_congestion_ops`"));
    for kind in [
        "tc",
        "tc/sideways",
        "probe/",
        "probe",
        "tracepoint/sched",
        "tracepoint//x",
        "lsm",
        "uprobe/bash",
        "cgroup",
    ] {
        assert!(matches!(error(kind), InitError::Incomplete { .. }), "{kind}");
    }
    for offset in ["", "x", "0x", "0xg", "+1", "0x+1", "-1", "99999999999999999999"] {
        assert!(
            matches!(error(&format!("probe/vfs_read+{offset}")), InitError::Incomplete { .. }),
            "{offset}"
        );
    }
    for kind in ["", "/", "nonsense", "uprobe/a\"b:c"] {
        assert!(init::starter(kind, "fresh", &KERNEL, Options::default()).is_err(), "{kind}");
    }
    for name in ["", "9a", "a b", "a/b", "..", "é"] {
        let error = init::starter("xdp", name, &KERNEL, Options::default()).expect_err(name);
        assert!(matches!(error, InitError::Name(_)), "{name}");
    }
}

#[test]
fn without_btf_what_needs_it_says_so() {
    let bundled = KernelTypes::bundled();
    for kind in [
        "probe/vfs_read",
        "retprobe/vfs_read",
        "lsm/file_open",
        "raw_tracepoint/sched_switch",
        "syscall_enter/brand_new",
        "tracepoint/block/block_rq_issue",
        "bpf_iter_ops",
    ] {
        let error = init::starter(kind, "fresh", &bundled, Options::default()).expect_err(kind);
        assert!(matches!(error, InitError::NeedsBtf(_)), "{kind}: {error}");
    }
}
