//! Objects inside the programs of Debian's `libbpf-tools`, and of rustc for Aya: the strict reader accepts them,
//! and libbpf makes the same instructions and maps of the original and of the canonical object.

use std::collections::BTreeMap;

use ks_compiler::object::{read, write};
use ks_tests::prepared::prepare;
use ks_tests::{aya, tools};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionKind, SymbolKind};

#[test]
fn root_objects_of_libbpf_tools_are_the_same_after_the_writer() {
    let (mut found, mut accepted, mut prepared) = (0, 0, 0);
    let mut refused = BTreeMap::new();
    for (name, original) in tools::objects() {
        found += 1;
        let object = match read(&original) {
            Ok(object) => object,
            Err(error) => {
                refused.insert(name, error.to_string());
                continue;
            }
        };
        accepted += 1;
        let canonical = write(&object).unwrap_or_else(|error| panic!("{name}: {error}"));
        match (prepare("tool", &original), prepare("tool", &canonical)) {
            (Ok(before), Ok(after)) => {
                assert!(before == after, "{name}:\n{before:#?}\n{after:#?}");
                prepared += usize::from(!before.programs.is_empty());
            }
            // The running kernel lacks a function or a type that the object needs.
            (Err(before), Err(after)) => assert_eq!(before, after, "{name}"),
            (before, after) => panic!("{name}: {before:?} {after:?}"),
        }
    }
    println!("{found} objects, {accepted} accepted, {prepared} prepared; refused: {refused:#?}");
    assert!(found >= 61 && accepted >= 58, "{found} objects, {accepted} accepted: {refused:#?}");
    assert!(prepared * 2 > found, "{prepared} of {found} prepared");
}

/// Returns the instructions of each function of an object whose programs call no function of it, with maps as
/// [`prepare`] numbers them. Aya's own loader reads definitions of maps that libbpf refuses since 1.0, so libbpf
/// cannot prepare the original.
fn relocated(elf: &[u8], maps: &[&String]) -> BTreeMap<String, Vec<[u8; 8]>> {
    let file = object::File::parse(elf).expect("it is ELF");
    let mut functions = BTreeMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0) {
        let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
        let section = section.expect("a function is in a section");
        let mut bytes = section.data().expect("it has content").to_vec();
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(target) = relocation.target() else { panic!("{relocation:?}") };
            let target = file.symbol_by_index(target).expect("it exists");
            let name = target.name().expect("text");
            let of = target.section_index().and_then(|index| file.section_by_index(index).ok());
            let of = of.expect("nothing is of the kernel");
            let at = usize::try_from(offset).expect("it is in the section");
            let is_map = of.name() == Ok("maps");
            // Source: libbpf 1.7, `internal_map_name`.
            let map = match of.name().expect("text") {
                "maps" => name.to_owned(),
                section @ (".data" | ".rodata" | ".bss") => format!("aya{section}"),
                section => section.to_owned(),
            };
            let index = maps.iter().position(|known| **known == map);
            let index = u32::try_from(index.unwrap_or_else(|| panic!("{map}: {maps:?}"))).expect("few");
            assert!(is_map || of.kind() == SectionKind::ReadOnlyData, "{map}");
            let addend = [bytes[at + 4], bytes[at + 5], bytes[at + 6], bytes[at + 7]];
            let value = u32::from_le_bytes(addend) + u32::try_from(target.address()).expect("small");
            // BPF_PSEUDO_MAP_FD, or BPF_PSEUDO_MAP_VALUE with an offset in the second half.
            bytes[at + 1] |= if is_map { 1 << 4 } else { 2 << 4 };
            bytes[at + 4..at + 8].copy_from_slice(&index.to_le_bytes());
            if !is_map {
                bytes[at + 12..at + 16].copy_from_slice(&value.to_le_bytes());
            }
        }
        let start = usize::try_from(symbol.address()).expect("it is in the section");
        let end = start + usize::try_from(symbol.size()).expect("it is in the section");
        let (slots, _) = bytes[start..end].as_chunks::<8>();
        functions.insert(symbol.name().expect("text").to_owned(), slots.to_vec());
    }
    functions
}

#[test]
fn root_objects_for_aya_are_the_same_after_the_writer() {
    for (name, original) in aya::OBJECTS {
        let canonical = write(&read(original).unwrap_or_else(|error| panic!("{name}: {error}")));
        let after = prepare("aya", &canonical.unwrap_or_else(|error| panic!("{name}: {error}")));
        let after = after.unwrap_or_else(|error| panic!("{name}: {error}"));
        let maps: Vec<_> = after.maps.keys().collect();
        assert_eq!(relocated(original, &maps), after.programs, "{name}");
        // The one without maps is an object that libbpf takes as it is.
        if let Ok(before) = prepare("aya", original) {
            assert_eq!((name, before), ("lsm_nice", after));
        }
    }
}
