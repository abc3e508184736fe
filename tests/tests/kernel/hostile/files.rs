//! Files with malformed or misleading sections, manifests and structure.

use ks_tests::guest::core_module;
use ks_tests::{Folder, Outcome, command, component, finish};
use ks_wit::section;

use super::{contained, function, run_file};

fn plain() -> Vec<u8> {
    component("hostile", &core_module(2, &function("(i32.const 3)")), &[]).expect("it fits the world")
}

/// Appends a section with this id, this length field (right or wrong) and these bytes.
fn with_raw(mut file: Vec<u8>, id: u8, len: &[u8], bytes: &[u8]) -> Vec<u8> {
    file.push(id);
    file.extend_from_slice(len);
    file.extend_from_slice(bytes);
    file
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn with_section(file: Vec<u8>, name: &str, data: &[u8]) -> Vec<u8> {
    let body = [leb(name.len()), name.as_bytes().to_vec(), data.to_vec()].concat();
    with_raw(file, 0, &leb(body.len()), &body)
}

fn record(bytes: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    section::push_record(&mut data, bytes);
    data
}

/// Asserts that the file is refused as no plugin, with all these words.
#[track_caller]
fn refused(file: &[u8], reasons: &[&str]) {
    let outcome = run_file(file, &[]);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (127, ""), "{outcome:#?}");
    for reason in reasons {
        assert!(outcome.stderr.contains(reason), "{reason}: {outcome:#?}");
    }
}

#[test]
fn lengths_that_lie_are_refused() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f];
    refused(&with_raw(plain(), 0, &huge, b"\x04name"), &["not a well-formed component"]);
    refused(&with_raw(plain(), 0, &[0x7f], b"\x04name"), &["not a well-formed component"]);
    refused(&with_raw(plain(), 0, &[0xff; 12], b""), &["not a well-formed component"]);
    // A name longer than its section.
    refused(&with_raw(plain(), 0, &[2], b"\x7fn"), &["not a well-formed component"]);
    refused(&with_raw(plain(), 99, &[0], b""), &["section id"]);
    for name in [section::BPF, section::MANIFEST, section::LINES] {
        for lie in [&[0xff; 4][..], &[1, 0, 0, 0], &[0, 0], &[0, 0, 0, 0x80, 1]] {
            refused(&with_section(plain(), name, lie), &[name]);
        }
        refused(&with_section(plain(), name, &vec![0; 4 * 5000]), &[]);
    }
}

#[test]
fn every_prefix_and_every_changed_byte_is_a_plugin_or_none() {
    use ks_host::plugin::Plugin;
    let manifest = br#"{"format":1,"compiler":"x","project":"x","source":{"file":"x","sha256":""}}"#;
    let small = b"\0asm\x0d\0\x01\0".to_vec();
    let file = with_section(small, section::MANIFEST, &record(manifest));
    let object = [&[1, 1, 0, 0, 0][..], b"n", b"\x7fELF"].concat();
    let file = with_section(file, section::BPF, &record(&object));
    let file = with_section(file, section::LINES, &record(&[1, 0, 0, 0, 1, 0, 0, 0, 5]));
    for at in 0..file.len() {
        let _ = Plugin::from_bytes(&file[..at]);
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = file.clone();
            changed[at] = value;
            if let Ok(plugin) = Plugin::from_bytes(changed) {
                let _ = plugin.object_set();
            }
        }
    }
}

#[test]
fn files_that_are_something_else_are_distinguished() {
    refused(b"", &["not WebAssembly"]);
    refused(b"\x7fELF", &["not WebAssembly"]);
    refused(&wat::parse_str("(module)").expect("a module"), &["core WebAssembly module"]);
    for (component, reason) in [
        ("(component)", "does not export `run`"),
        ("(component (import \"wasi:cli/environment@0.2.0\" (instance)))", "does not"),
        (
            "(component (import \"kernelscript:host/perf@0.2.0\" (instance (export \"steal\" (func)))))",
            "perf",
        ),
        (
            "(component (import \"kernelscript:host/perf@9.0.0\" (instance (export \"open\" (func)))))",
            "kernelscript:host@9.0.0",
        ),
        (
            "(component (core module $m (func (export \"run\"))) (core instance $i (instantiate $m)) \
             (instance (export \"run\")))",
            "run",
        ),
    ] {
        let file = wat::parse_str(component).unwrap_or_else(|error| panic!("{component}: {error}"));
        let outcome = run_file(&file, &[]);
        assert!(
            matches!(outcome.code, 125 | 127) && outcome.stderr.contains(reason),
            "{component}: {outcome:#?}"
        );
    }
}

/// `run` has other types than the world declares: the host detects it at the call, and does not call it.
#[test]
fn a_run_of_another_type_is_not_called() {
    for (core, lifted) in [
        ("(param i32) (result i32)", "(param \"x\" u32) (result s32)"),
        ("(result i64)", "(result s64)"),
        ("", ""),
    ] {
        let text = format!(
            "(component (core module $m (func (export \"run\") {core} unreachable)) (core instance $i \
             (instantiate $m))
             (func (export \"run\") {lifted} (canon lift (core func $i \"run\"))))"
        );
        let outcome = run_file(&wat::parse_str(&text).expect("a component"), &[]);
        assert!(outcome.code == 125 && outcome.stderr.contains("export `run`"), "{outcome:#?}");
    }
}

#[test]
fn components_in_components_have_an_end() {
    for depth in [50, 20_000] {
        let mut file = b"\0asm\x0d\0\x01\0".to_vec();
        for _ in 0..depth {
            let inner = file;
            file = with_raw(b"\0asm\x0d\0\x01\0".to_vec(), 4, &leb(inner.len()), &inner);
        }
        refused(&file, &[]);
    }
}

#[test]
fn many_instances_of_a_large_module_are_refused() {
    let instances: String = (0..200).map(|_| "(core instance (instantiate $m))\n").collect();
    for (pages, limit) in [(1, "--limit instances="), (1024, "--limit memory_bytes=")] {
        let text = format!(
            "(component (core module $m (memory {pages})) {instances}
             (core module $r (func (export \"run\") (result i32) (i32.const 0))) (core instance $i \
             (instantiate $r))
             (func (export \"run\") (result s32) (canon lift (core func $i \"run\"))))"
        );
        let outcome = run_file(&wat::parse_str(&text).expect("a component"), &[]);
        assert!(outcome.code == 125 && outcome.stderr.contains(limit), "{outcome:#?}");
    }
}

#[test]
fn manifests_that_are_none_are_refused() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for json in [
        "",
        "null",
        "{}",
        "{\"format\":-1}",
        "{\"format\":1e400}",
        "{\"format\":18446744073709551616}",
        "{\"format\":1}",
        "{\"format\":1,\"format\":1}",
        "\u{feff}{\"format\":1}",
        deep.as_str(),
    ] {
        refused(&with_section(plain(), section::MANIFEST, &record(json.as_bytes())), &["manifest"]);
    }
    let latin = [b"{\"format\":1,\"compiler\":\"".to_vec(), vec![0xff, 0xfe], b"\"}".to_vec()].concat();
    refused(&with_section(plain(), section::MANIFEST, &record(&latin)), &["manifest"]);
    refused(&with_section(plain(), section::MANIFEST, &record(b"{\"format\":7}")), &["newer ks-host"]);
}

fn manifest_with(members: &str) -> Vec<u8> {
    let json = format!(
        r#"{{"format":1,"compiler":"x","project":"x","source":{{"file":"x","sha256":""}}{members}}}"#
    );
    let text = core_module(2, &function(CONFIG));
    let file = component("hostile", &text, &[]).expect("it fits the world");
    with_section(file, section::MANIFEST, &record(json.as_bytes()))
}

/// Reads the config block `b`, which has 8 bytes here, and returns the first byte.
const CONFIG: &str = "(i32.store8 (i32.const 2048) (i32.const 98))
    (call $args.config (i32.const 2048) (i32.const 1) (i32.const 2056) (i32.const 8) (i32.const 1024))
    (i32.load8_u (i32.load (i32.const 1024)))";

/// The host uses a manifest's config blocks before the run: fields outside of the block are rejected.
#[test]
fn config_blocks_of_a_manifest_that_lies_are_contained() {
    for (ty, offset) in [
        ("u64", u32::MAX),
        ("u64", 4),
        ("u8[4294967295]", 0),
        ("u8[99999999999999999999]", 0),
        ("u64[1000000]", 0),
        ("nonsense", 0),
        ("", 0),
        ("u8[", 0),
    ] {
        let fields = format!("[{{\"name\":\"f\",\"type\":\"{ty}\",\"offset\":{offset}}}]");
        let file = manifest_with(&format!(",\"configs\":[{{\"name\":\"b\",\"fields\":{fields}}}]"));
        for value in ["b.f=1", "b.f=1,2,3", "b.f[4294967294]=1", "b.f[0]=1", "b.g=1", "b=1"] {
            let outcome = run_file(&file, &["--config", value]);
            assert!(matches!(outcome.code, 0 | 1 | 125), "{ty} {offset} {value}: {outcome:#?}");
        }
    }
}

/// The host uses a manifest's maps of stacks after the plugin has ended.
#[test]
fn stacks_of_a_manifest_that_lies_are_contained() {
    let stack = r#"{"kernel_stack":{"map":"m"}}"#;
    let parts = format!(r#"[{{"name":"s","offset":4294967295,"bytes":4294967295,"holds":{stack}}}]"#);
    let map = format!(
        r#"[{{"name":"m","kind":"hash","key":"u64","value":"u64","max_entries":1,"key_parts":{parts}}}]"#
    );
    let outcome = run_file(&manifest_with(&format!(",\"maps\":{map}")), &["--stacks", "tree"]);
    assert!(matches!(outcome.code, 0 | 125 | 127), "{outcome:#?}");
}

/// Text from a file that is shown to a user cannot control the terminal.
#[test]
fn names_of_a_file_do_nothing_on_a_terminal() {
    let folder = Folder::new();
    let evil = "\\u001b[2J\\u001b]0;x\\u0007";
    let file = manifest_with(&format!(",\"programs\":[{{\"name\":\"{evil}\",\"kind\":\"xdp\"}}]"));
    let path = folder.write("hostile.wasm", file);
    let outcome: Outcome = finish(command("ks-host").arg("inspect").arg(path));
    contained(&outcome);
    assert!(!outcome.stdout.contains('\u{1b}') && !outcome.stderr.contains('\u{1b}'), "{outcome:#?}");
}
