//! Objects inside the programs of Debian's `libbpf-tools`: the strict reader accepts them, and libbpf makes
//! the same instructions and maps of the original and of the canonical object.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ks_compiler::object::{read, write};
use ks_tests::prepared::prepare;
use ks_tests::{finish_within, repository};

/// EM_BPF. Source: include/uapi/linux/elf-em.h.
const EM_BPF: u16 = 247;

/// Returns the programs of the package, fetching it first.
pub(crate) fn programs() -> Vec<PathBuf> {
    let outcome =
        finish_within(&mut Command::new(repository().join("scripts/libbpf-tools")), Duration::from_secs(120));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let entries = fs::read_dir(outcome.stdout.trim()).expect("the folder is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// Returns the BPF object inside a program, as its skeleton embeds it: from its magic number to the end of its
/// table of sections, which is last.
pub(crate) fn embedded(program: &[u8]) -> Option<&[u8]> {
    let number = |at: usize, len: usize| {
        let bytes = program.get(at..at + len)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let starts = (1..program.len()).filter(|at| program[*at..].starts_with(b"\x7fELF"));
    let mut objects = starts.filter(|at| number(at + 18, 2) == Some(EM_BPF.into()));
    let at = objects.next()?;
    let end = number(at + 40, 8)? + number(at + 58, 2)? * number(at + 60, 2)?;
    program.get(at..at + usize::try_from(end).ok()?)
}

#[test]
fn root_objects_of_libbpf_tools_are_the_same_after_the_writer() {
    let (mut found, mut accepted, mut prepared) = (0, 0, 0);
    let mut refused = BTreeMap::new();
    for path in programs() {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        let program = fs::read(&path).expect("readable");
        let Some(original) = embedded(&program) else { continue };
        found += 1;
        let object = match read(original) {
            Ok(object) => object,
            Err(error) => {
                refused.insert(name, error.to_string());
                continue;
            }
        };
        accepted += 1;
        let canonical = write(&object).unwrap_or_else(|error| panic!("{name}: {error}"));
        match (prepare("tool", original), prepare("tool", &canonical)) {
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
