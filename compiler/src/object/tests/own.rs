//! Objects of this compiler.

use std::path::Path;

use ks_wit::section::Arch;

use super::{read, written};
use crate::kernel::{Cpu, Machine, compile};
use crate::pipeline;
use crate::split::split;

/// Returns the kernel half of every n-th case of the compiler's tests, because the compiler is slow in this
/// build. In tests/kernel/load.rs, all cases go through reader and writer, with the kernel's verifier.
pub fn own(cpu: Cpu, nth: usize) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../compiler/tests/cases/kernel");
    let entries = std::fs::read_dir(folder).expect("the cases are there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a case is readable").path()).collect();
    paths.sort();
    let compiled = paths.iter().step_by(nth).map(|path| {
        let script = std::fs::read(path).expect("a case is readable");
        let options = pipeline::Options::new("case");
        let checked = pipeline::parse("case.ks", &script, options).expect("cases are short").check();
        let hir = checked.hir.expect("cases are correct");
        let machine = Machine { cpu, ..Arch::X86_64.into() };
        let object = compile(&hir, &split(&hir), &checked.sources, machine).expect("cases compile");
        (path.display().to_string(), object.elf().to_vec())
    });
    compiled.collect()
}

#[test]
fn objects_of_this_compiler_are_accepted() {
    for (name, bytes) in own(Cpu::V3, 7).into_iter().chain(own(Cpu::V4, 40)) {
        let object = read(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!object.programs.is_empty(), "{name}");
        written(&object);
    }
}
