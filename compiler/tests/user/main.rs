//! The userspace half: scripts become valid components that compute what the language says.
//!
//! The core module runs in an interpreter; what it prints is taken from the arguments of `console.print`. Whatever
//! needs the kernel is tested with the real host, in the crate `tests`.

mod components;
mod machine;
mod programs;

use ks_compiler::diag::{Diagnostic, Diagnostics};
use ks_compiler::source::SourceMap;
use ks_compiler::{check, lex, parse, plugin, split, user};

/// What a script becomes.
struct Compiled {
    core: Vec<u8>,
    manifest: ks_wit::manifest::Manifest,
}

/// Compiles a script whose front end has nothing to say against it.
fn try_compile(text: &str) -> Result<Compiled, Vec<Diagnostic>> {
    let mut sources = SourceMap::default();
    let id = sources.add("dir/test.ks", text).expect("a test script is short");
    let mut diagnostics = Diagnostics::default();
    let tokens = lex::scan(id, sources.file(id).text());
    lex::report(&tokens, sources.file(id).text(), &mut diagnostics);
    let file = parse::parse(&tokens, sources.file(id).text(), &mut diagnostics);
    let Some(hir) = check::check(&file, "test", &mut diagnostics) else {
        let words: Vec<_> =
            diagnostics.sorted().iter().map(|one| (sources.place(one.primary.span), &one.message)).collect();
        panic!("the script is wrong: {words:#?}");
    };
    let split = split::split(&hir);
    let core = user::compile(&hir, &split, &sources)?;
    let manifest = plugin::manifest::build(&hir, &split, &sources, id);
    Ok(Compiled { core, manifest })
}

fn compile(text: &str) -> Compiled {
    try_compile(text).unwrap_or_else(|errors| panic!("the back end refuses: {errors:#?}"))
}
