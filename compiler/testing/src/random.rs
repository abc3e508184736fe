//! The kernel half of a script as an object, or why there is none.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};

use ks_compiler::diag::{Diagnostic, Severity};
use ks_compiler::kernel::{self, Machine};
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::{pipeline, refused, split};

/// What is no defect of the compiler.
const REFUSALS: [&str; 2] = ["KS0719", "KS1005"];

/// Why a script failed: the same kind of reason is the same defect while a script is made smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: String,
    pub text: String,
}

/// What a script becomes.
pub enum Compiled {
    Object(Vec<u8>),
    /// Refused with this code: the target's kernel lacks what it would need (KS1005), or no kernel runs a walk through a map
    /// that leaves a pointer behind (KS0719).
    Refused(String),
}

/// The kernel half of a script as an object.
pub fn compile(script: &str, machine: Machine) -> Result<Compiled, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(|| object(script, machine))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_default();
        Err(Failure { kind: format!("panic: {}", without_numbers(&text)), text })
    })
}

fn object(script: &str, machine: Machine) -> Result<Compiled, Failure> {
    let options = pipeline::Options { kernel: types(), ..pipeline::Options::new("random") };
    let checked =
        pipeline::parse("random.ks", script.as_bytes(), options).expect("scripts are short").check();
    let errors: Vec<_> =
        checked.diagnostics.iter().filter(|one| one.severity == Severity::Error).cloned().collect();
    let Some(hir) = checked.hir else { return Err(refused("check", &errors)) };
    let split = split::split(&hir);
    let hidden = refused::hidden_pointers(&hir, &split);
    if !hidden.is_empty() {
        return Err(refused("hidden pointers", &hidden));
    }
    match kernel::compile(&hir, &split, &checked.sources, machine) {
        Ok(object) => Ok(Compiled::Object(object.elf().to_vec())),
        Err(errors) => {
            let codes: Vec<String> = errors.iter().map(|one| one.code.to_string()).collect();
            match codes.iter().all(|code| REFUSALS.contains(&code.as_str())) {
                true => Ok(Compiled::Refused(codes[0].clone())),
                false => Err(refused("compile", &errors)),
            }
        }
    }
}

/// The running kernel's types, read once.
fn types() -> Arc<KernelTypes> {
    static TYPES: LazyLock<Arc<KernelTypes>> = LazyLock::new(|| {
        let btf = std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has types");
        Arc::new(KernelTypes::from_btf(btf).expect("the kernel's types can be read"))
    });
    TYPES.clone()
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
