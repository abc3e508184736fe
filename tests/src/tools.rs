//! The BPF objects inside the programs of Debian's `libbpf-tools`.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::{finish_within, repository};

/// EM_BPF. Source: include/uapi/linux/elf-em.h.
const EM_BPF: u16 = 247;

/// Returns the programs of the package, fetching it first.
pub fn programs() -> Vec<PathBuf> {
    let outcome =
        finish_within(&mut Command::new(repository().join("scripts/libbpf-tools")), Duration::from_secs(120));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let entries = fs::read_dir(outcome.stdout.trim()).expect("the folder is there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// Returns the name of each program with an object, and the object.
pub fn objects() -> Vec<(String, Vec<u8>)> {
    let object = |path: PathBuf| {
        let program = fs::read(&path).expect("readable");
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        embedded(&program).map(|object| (name, object.to_vec()))
    };
    programs().into_iter().filter_map(object).collect()
}

/// Returns the BPF object inside a program, as its skeleton embeds it: from its magic number to the end of its
/// table of sections, which is last.
pub fn embedded(program: &[u8]) -> Option<&[u8]> {
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
