//! Compiles scripts by the userspace back end.

use ks_compiler::diag::Diagnostic;
use ks_compiler::hir::Hir;
use ks_compiler::{pipeline, plugin, split, user};

/// The compiled userspace half of a script.
pub struct Compiled {
    pub core: Vec<u8>,
    pub hir: Hir,
    pub manifest: ks_wit::manifest::Manifest,
}

/// Compiles a script that the front end accepts.
pub fn try_compile(text: &str) -> Result<Compiled, Vec<Diagnostic>> {
    let checked = pipeline::parse("dir/test.ks", text.as_bytes(), pipeline::Options::new("test"))
        .expect("a test script is short")
        .check();
    let Some(hir) = checked.hir else {
        let messages: Vec<_> = checked.diagnostics.sorted().iter().map(|one| one.message.clone()).collect();
        panic!("the script is wrong: {messages:#?}");
    };
    let (sources, id) = (checked.sources, checked.file);
    let split = split::split(&hir);
    let core = user::compile(&hir, &split, &sources)?;
    let manifest = plugin::manifest::build(&hir, &split, &sources, id);
    Ok(Compiled { core, hir, manifest })
}

pub fn compile(text: &str) -> Compiled {
    try_compile(text).unwrap_or_else(|errors| panic!("the back end refuses: {errors:#?}"))
}
