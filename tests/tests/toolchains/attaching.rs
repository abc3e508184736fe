//! A plugin that knows nothing of an object but its names loads and attaches the programs of Debian's
//! `libbpf-tools`. These tests need root.

use std::collections::BTreeMap;
use std::fs;

use ks_compiler::object::model::Object;
use ks_compiler::object::read;
use ks_compiler::object::table::{MapKind, ProgramType};
use ks_tests::plugins::with_object;
use ks_tests::tools::{embedded, programs};
use ks_tests::{Folder, allowed, finish, guests, repository};

/// What the running kernel does with a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Expected {
    /// It has the kind and the target.
    Attached,
    /// The kernel of these machines lacks the kind: kprobes, trampolines, hooks of security modules.
    Lacking,
    /// The object says no place: an event that is opened, a function in a file, an interface.
    Nowhere,
}

/// Returns what is expected of a program by its kind and target.
fn expected(ty: ProgramType, section: &str, target: &str) -> Expected {
    match ty {
        ProgramType::Tracepoint | ProgramType::RawTracepoint if !target.is_empty() => Expected::Attached,
        ProgramType::Tracing if section == "tp_btf" => Expected::Attached,
        ProgramType::Tracing | ProgramType::Lsm => Expected::Lacking,
        ProgramType::Kprobe if section.starts_with('k') => Expected::Lacking,
        _ => Expected::Nowhere,
    }
}

/// Sizes of the maps that a tool sets itself: the entries, and the bytes of a stack of 127 frames.
fn sized(object: &Object) -> Vec<String> {
    let open = object.maps.iter().filter(|map| map.shape.entries == 0);
    let entries = |kind: MapKind| match kind {
        MapKind::RingBuf => Some(1 << 18),
        MapKind::PerfEventArray => None,
        _ => Some(1024),
    };
    let argument = |map: &ks_compiler::object::model::Map| {
        entries(map.shape.kind).map(|entries| format!("{}={entries}", map.name.as_str()))
    };
    let stacks = object.maps.iter().filter(|map| map.shape.kind == MapKind::StackTrace);
    let unsized_stacks = stacks.filter(|map| map.shape.value.bytes() == 0);
    let frames = unsized_stacks.map(|map| format!("{}:{}", map.name.as_str(), 127 * 8));
    open.filter_map(argument).chain(frames).collect()
}

#[test]
fn root_programs_of_libbpf_tools_attach_wherever_the_kernel_has_the_kind() {
    let folder = Folder::new();
    let guest = guests::rust(&repository().join("tests/guests/attach"), "guest_attach.wasm", None);
    let (mut tried, mut attached) = (0, 0);
    let mut wrong = BTreeMap::new();
    for path in programs() {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let file = fs::read(&path).expect("readable");
        let Some(elf) = embedded(&file) else { continue };
        let object = read(elf).unwrap_or_else(|error| panic!("{name}: {error}"));
        let plugin = folder.write(&format!("{name}.wasm"), with_object(guest.clone(), elf.to_vec()));
        let outcome = finish(allowed().arg("--no-cache").arg(plugin).arg("--").args(sized(&object)));
        for program in &object.programs {
            let (section, target) = (program.section.kind.section, program.section.target.to_string());
            let said =
                outcome.stdout.lines().find(|line| line.split(' ').nth(1) == Some(program.name.as_str()));
            let is_attached = said.is_some_and(|line| line.starts_with("attached "));
            tried += 1;
            attached += usize::from(is_attached);
            let expected = expected(program.section.kind.program, section, &target);
            if is_attached != (expected == Expected::Attached) {
                let said = said.map_or_else(|| format!("{outcome:#?}"), str::to_owned);
                wrong.insert(format!("{name} {section}/{target}"), said);
            }
        }
    }
    println!("{attached} of {tried} programs attached");
    assert!(wrong.is_empty(), "{attached} of {tried} programs attached: {wrong:#?}");
}
