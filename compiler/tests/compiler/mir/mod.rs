//! MIR passes checked by the interpreter: the result of a function is the same before and after each of them.

mod cases;
mod random;
mod scaling;

use std::path::{Path, PathBuf};

use ks_compiler::hir::Hir;
use ks_compiler::kernel::mir::Program;
use ks_compiler::kernel::{lower_small_watched, lower_watched};
use ks_compiler::pipeline;
use ks_compiler::split::split;
use ks_wit::section::Arch;

/// Returns the scripts of the kernel tests. Large iteration counts are reduced: the interpreter is slow.
fn scripts() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/kernel");
    let entries = std::fs::read_dir(folder).expect("the cases are there");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let script = std::fs::read_to_string(&path).expect("a case is readable");
        (name, script.replace("1000000", "1000").replace("500000", "500").replace("8388608", "2000"))
    };
    paths.into_iter().map(read).collect()
}

/// Checks a script without errors, for the back ends.
fn tree(script: &str) -> Hir {
    let checked = pipeline::parse("case.ks", script.as_bytes(), pipeline::Options::new("case"))
        .expect("cases are short")
        .check();
    let errors: Vec<_> = checked.diagnostics.iter().map(|one| one.message.clone()).collect();
    checked.hir.unwrap_or_else(|| panic!("{errors:?} in\n{script}"))
}

/// Returns the same stages with small frames, as a program has them that does not fit the stack otherwise.
fn stages_with_small_frames(hir: &Hir) -> Vec<(&'static str, Program)> {
    let mut stages = Vec::new();
    let watch = &mut |name: &'static str, program: &Program| stages.push((name, program.clone()));
    lower_small_watched(hir, &split(hir), Arch::X86_64, watch).unwrap_or_else(|errors| panic!("{errors:#?}"));
    stages
}

/// Returns the program before the first pass and after each pass that changed it.
fn stages(hir: &Hir) -> Vec<(&'static str, Program)> {
    let mut stages = Vec::new();
    let watch = &mut |name: &'static str, program: &Program| stages.push((name, program.clone()));
    lower_watched(hir, &split(hir), Arch::X86_64, watch).unwrap_or_else(|errors| panic!("{errors:#?}"));
    stages
}
