//! Compiles the kernel half of a random script, and classifies failures.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, LazyLock};

use ks_compiler::diag::{Diagnostic, Severity};
use ks_compiler::kernel::{self, Machine, Object};
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{Checked, KernelHalf, Target};
use ks_compiler::{pipeline, refused, split};
use ks_wit::section::Arch;

use crate::kernel_half::configs_of;

/// Codes of errors that are not defects of the compiler.
const REFUSALS: [&str; 2] = ["KS0719", "KS1005"];

/// Why a script failed: reasons of the same kind count as the same defect while a script is shrunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: String,
    pub text: String,
}

/// The result of compiling a script.
pub enum Compiled {
    Object(Vec<u8>),
    /// Refused with this code and message: the target's kernel lacks a required feature (KS1005), or no kernel can run
    /// a map iteration like it (KS0719).
    Refused(String),
}

/// Compiles the kernel half of a script to an object.
pub fn compile(script: &str, machine: Machine) -> Result<Compiled, Failure> {
    caught(|| object(script, machine))
}

/// Compiles the kernel half of a script as `ks build` does without flags, for this machine: the object for
/// kernels with all features that the best code uses, and the one for older kernels if there is one.
pub fn compile_by_default(script: &str) -> Result<Defaults, Failure> {
    caught(|| {
        let mut checked = check(script);
        let half = checked.build_kernel(Target::from(Arch::X86_64).for_users());
        let errors = errors(&checked);
        match half {
            Ok(KernelHalf { objects, older, .. }) => {
                let elf = |objects: &[(Arch, Object)]| objects.first().map(|(_, one)| one.elf().to_vec());
                let uses_iterators = objects.iter().any(|(_, one)| one.uses_iterators());
                Ok(Defaults::Objects { newest: elf(&objects), older: elf(&older), uses_iterators })
            }
            Err(_) => match refusal(&errors) {
                Some(code) => Ok(Defaults::Refused(code)),
                None => Err(refused("build", &errors)),
            },
        }
    })
}

/// The result of `ks build` without flags.
pub enum Defaults {
    Objects {
        /// The object for kernels with all features; none if the script has no programs.
        newest: Option<Vec<u8>>,
        /// The object for kernels without some of them; none if there is only one object.
        older: Option<Vec<u8>>,
        /// Whether the newest object has loops over number iterators, which kernels have since 6.4.
        uses_iterators: bool,
    },
    /// Refused with this code and message: no kernel can run it.
    Refused(String),
}

/// Converts a panic to a failure.
fn caught<T>(compile: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    std::panic::catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        let text = text.unwrap_or_default();
        Err(Failure { kind: format!("panic: {}", without_numbers(&text)), text })
    })
}

/// Returns the map of each config block of a script, with its default values.
pub fn configs(script: &str) -> Vec<(String, Vec<u8>)> {
    configs_of(&check(script).hir.expect("the script was compiled"))
}

fn check(script: &str) -> Checked {
    let options = pipeline::Options { kernel: types(), ..pipeline::Options::new("random") };
    pipeline::parse("random.ks", script.as_bytes(), options).expect("scripts are short").check()
}

fn errors(checked: &Checked) -> Vec<Diagnostic> {
    checked.diagnostics.iter().filter(|one| one.severity == Severity::Error).cloned().collect()
}

/// Returns the code and the message of the first error if all errors are not defects of the compiler.
fn refusal(errors: &[Diagnostic]) -> Option<String> {
    let is_refusal = |one: &Diagnostic| REFUSALS.contains(&one.code.to_string().as_str());
    let first = errors.first().filter(|_| errors.iter().all(is_refusal))?;
    Some(format!("{} {}", first.code, without_numbers(&first.message)))
}

fn object(script: &str, machine: Machine) -> Result<Compiled, Failure> {
    let checked = check(script);
    let errors = errors(&checked);
    let Some(hir) = checked.hir else { return Err(refused("check", &errors)) };
    let split = split::split(&hir);
    let hidden = refused::hidden_pointers(&hir, &split);
    if !hidden.is_empty() {
        return Err(refused("hidden pointers", &hidden));
    }
    match kernel::compile(&hir, &split, &checked.sources, machine) {
        Ok(object) => Ok(Compiled::Object(object.elf().to_vec())),
        Err(errors) => match refusal(&errors) {
            Some(code) => Ok(Compiled::Refused(code)),
            None => Err(refused("compile", &errors)),
        },
    }
}

/// Returns the running kernel's types, which are read once.
fn types() -> Arc<KernelTypes> {
    static TYPES: LazyLock<Arc<KernelTypes>> = LazyLock::new(|| {
        let btf = std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has types");
        Arc::new(KernelTypes::from_btf(btf).expect("the kernel's types can be read"))
    });
    TYPES.clone()
}

fn refused(stage: &str, errors: &[Diagnostic]) -> Failure {
    let kind = errors.first().map(|one| without_numbers(&format!("{:?} {}", one.code, one.message)));
    // A violated invariant of the compiler is described in a note.
    let text = |one: &Diagnostic| format!("{:?} {}\n{}", one.code, one.message, one.notes.join("\n"));
    let texts: Vec<String> = errors.iter().map(text).collect();
    Failure { kind: format!("{stage}: {}", kind.unwrap_or_default()), text: texts.join("\n") }
}

/// Removes numbers, so that the same defect has the same text.
pub fn without_numbers(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_ascii_digit()).collect()
}
