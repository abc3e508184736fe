//! The userspace half: scripts become valid components that compute what the language says.
//!
//! The core module runs in an interpreter; what it prints is taken from the arguments of `console.print`. Whatever
//! needs the kernel is tested with the real host, in the crate `tests`.

mod components;
mod leaving;
mod machine;
mod maps;
mod memory;
mod outside;
mod programs;
mod shared;

use ks_compiler::diag::Diagnostic;
use ks_compiler::hir::Hir;
use ks_compiler::{pipeline, plugin, split, user};

/// What a script becomes.
struct Compiled {
    core: Vec<u8>,
    hir: Hir,
    manifest: ks_wit::manifest::Manifest,
}

/// Compiles a script whose front end has nothing to say against it.
fn try_compile(text: &str) -> Result<Compiled, Vec<Diagnostic>> {
    let checked = pipeline::parse("dir/test.ks", text.as_bytes(), pipeline::Options::new("test"))
        .expect("a test script is short")
        .check();
    let Some(hir) = checked.hir else {
        let words: Vec<_> = checked.diagnostics.sorted().iter().map(|one| one.message.clone()).collect();
        panic!("the script is wrong: {words:#?}");
    };
    let (sources, id) = (checked.sources, checked.file);
    let split = split::split(&hir);
    let core = user::compile(&hir, &split, &sources)?;
    let manifest = plugin::manifest::build(&hir, &split, &sources, id);
    Ok(Compiled { core, hir, manifest })
}

fn compile(text: &str) -> Compiled {
    try_compile(text).unwrap_or_else(|errors| panic!("the back end refuses: {errors:#?}"))
}
