//! The kernel half of a script as an object, or why there is none.

use std::panic::AssertUnwindSafe;

use ks_compiler::diag::{Diagnostic, Severity};
use ks_compiler::kernel::{self, Machine};
use ks_compiler::{pipeline, refused, split};

/// What is no defect of the compiler.
const REFUSALS: [&str; 2] = ["KS0719", "KS1005"];

/// Why a script failed: the same kind of reason is the same defect while a script is made smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: String,
    pub text: String,
}

/// The kernel half of a script as an object.
///
/// `None`: the compiler says that the target's kernel lacks what it would need (KS1005), or that no kernel runs a walk
/// through a map that leaves a pointer behind (KS0719).
pub fn compile(script: &str, machine: Machine) -> Result<Option<Vec<u8>>, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(|| object(script, machine))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_default();
        Err(Failure { kind: format!("panic: {}", without_numbers(&text)), text })
    })
}

fn object(script: &str, machine: Machine) -> Result<Option<Vec<u8>>, Failure> {
    let checked = pipeline::parse("random.ks", script.as_bytes(), pipeline::Options::new("random"))
        .expect("scripts are short")
        .check();
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|one| one.severity == Severity::Error).cloned().collect();
    let Some(hir) = checked.hir else { return Err(refused("check", &errors)) };
    let split = split::split(&hir);
    let hidden = refused::hidden_pointers(&hir, &split);
    if !hidden.is_empty() {
        return Err(refused("hidden pointers", &hidden));
    }
    match kernel::compile(&hir, &split, &checked.sources, machine) {
        Ok(object) => Ok(Some(object.elf().to_vec())),
        Err(errors) if errors.iter().all(|one| REFUSALS.contains(&one.code.to_string().as_str())) => Ok(None),
        Err(errors) => Err(refused("compile", &errors)),
    }
}

fn refused(stage: &str, errors: &[Diagnostic]) -> Failure {
    let texts: Vec<String> = errors.iter().map(|one| format!("{:?} {}", one.code, one.message)).collect();
    let kind = texts.first().map_or(String::new(), |text| without_numbers(text));
    Failure { kind: format!("{stage}: {kind}"), text: texts.join("\n") }
}

/// The same text for the same defect.
pub fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
