//! Whole plugin files: imports, exports and sections.

use ks_compiler::kernel::Checks;
use ks_compiler::plugin::assemble;
use ks_wit::section::{self, Arch, BpfRecord};
use wasmparser::{Parser, Payload, Validator};

use ks_compiler_testing::user_half::{Compiled, compile, try_compile};

const HELLO: &str = "fn main() -> i32 {\n    print(\"hello\")\n    return 0\n}\n";

const COUNT: &str = include_str!("../scripts/components_count.ks");

fn plugin(compiled: &Compiled, bpf: &[BpfRecord]) -> Vec<u8> {
    let bytes = assemble(&compiled.core, bpf, &compiled.manifest, Checks::EveryStage).expect("a component");
    Validator::new().validate_all(&bytes).expect("a valid component");
    bytes
}

/// Returns the interfaces that a component imports, and the functions of its core module's imports.
fn core_imports(core: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(core) {
        if let Payload::ImportSection(section) = payload.expect("valid") {
            for import in section.into_imports() {
                let import = import.expect("valid");
                found.push(format!("{} {}", import.module, import.name));
            }
        }
    }
    found
}

fn sections<'a>(plugin: &'a [u8], name: &str) -> Vec<&'a [u8]> {
    let payloads = Parser::new(0).parse_all(plugin).map(|payload| payload.expect("valid"));
    let custom = payloads.filter_map(|payload| match payload {
        Payload::CustomSection(section) if section.name() == name => Some(section.data()),
        _ => None,
    });
    custom.collect()
}

#[test]
fn a_component_imports_only_what_its_script_uses() {
    let compiled = compile(HELLO);
    let expected = ["console@0.2.0 print", "args@0.2.0 parse", "args@0.2.0 exit"];
    let imports = core_imports(&compiled.core);
    let expected: Vec<_> = expected.iter().map(|name| format!("kernelscript:host/{name}")).collect();
    assert_eq!(imports, expected);
    let plugin = plugin(&compiled, &[]);
    assert!(plugin.len() < 4096, "{} bytes for one line of output", plugin.len());
    eprintln!("core {} component {}", compiled.core.len(), plugin.len());
}

#[test]
fn a_counting_script_is_a_valid_component() {
    let compiled = compile(COUNT);
    let bytes = plugin(&compiled, &[]);
    eprintln!("core {} component {}", compiled.core.len(), bytes.len());
}

#[test]
fn a_script_with_all_that_needs_a_table_is_a_valid_component() {
    let text =
        include_str!("../scripts/components_a_script_with_all_that_needs_a_table_is_a_valid_component.ks");
    plugin(&compile(text), &[]);
}

#[test]
fn the_sections_hold_objects_and_manifest() {
    let record = BpfRecord { name: "test".into(), arch: Arch::Any, elf: vec![0x7f, b'E', b'L', b'F'] };
    let plugin = plugin(&compile(COUNT), std::slice::from_ref(&record));
    let [bpf] = sections(&plugin, section::BPF)[..] else { panic!("one section of objects") };
    let records = section::records(bpf).expect("records");
    assert_eq!(records, [record.to_bytes()]);
    let [manifest] = sections(&plugin, section::MANIFEST)[..] else { panic!("one manifest") };
    let text = section::records(manifest).expect("records").concat();
    let manifest: ks_wit::manifest::Manifest = serde_json::from_slice(&text).expect("JSON");
    let event = &manifest.events[0];
    assert_eq!(manifest.source.file, "test.ks");
    assert_eq!(
        (event.event.as_deref(), event.pid, event.cpu, event.line),
        (Some("page_faults"), Some(0), Some(-1), 2)
    );
}

#[test]
fn the_same_script_gives_the_same_bytes() {
    let [first, second] = [(); 2].map(|()| plugin(&compile(COUNT), &[]));
    assert_eq!(first, second);
}

#[test]
fn a_script_without_main_only_says_so() {
    let text = "@perf_event\nfn on(ctx: *bpf_perf_event_data) -> i32 {\n    return 0\n}\n";
    let compiled = compile(text);
    assert_eq!(core_imports(&compiled.core), ["kernelscript:host/console@0.2.0 warn"]);
    plugin(&compiled, &[]);
}

#[test]
fn a_frame_larger_than_the_stack_is_an_error_with_a_position() {
    let text = "struct Big {\n    a: u64[1000]\n}\nstruct Bigger {\n    a: Big[200]\n}\n\
                fn main() -> i32 {\n    var b: Bigger\n    print(\"%u\", b.a[0].a[1])\n    return 0\n}\n";
    let errors = try_compile(text).err().expect("1.6 MB of locals");
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].code.0, 1004);
}
