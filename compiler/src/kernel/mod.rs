//! The kernel half: typed tree in, BPF object out.
//!
//! ```text
//! Hir + Split -> lower -> Mir (passes) -> isel -> regalloc -> emit -> Code -> Object
//! ```
//!
//! In: a tree without errors. Out: an ELF object that libbpf loads and the kernel's verifier accepts, or diagnostics. Not
//! here: how programs get attached, anything of the userspace half.

mod emit;
mod isel;
pub mod limits;
mod lower;
pub mod mir;
mod object;
mod pass;
mod regalloc;

use std::collections::BTreeMap;

use ks_wit::section::Arch;

pub use pass::{Effort, Watch, names as pass_names, run as run_passes};

use crate::diag::{self, Diagnostic};
use crate::hir::{FuncId, Hir};
use crate::source::{SourceMap, Span};
use crate::split::Split;

/// The kernel half in SSA form, after all passes.
pub struct Mir<'a> {
    hir: &'a Hir,
    program: mir::Program,
}

/// The kernel half as BPF instructions.
pub struct Code<'a> {
    assembly: object::Assembly<'a>,
    /// Bytes of each function's stack frame.
    pub frames: BTreeMap<FuncId, u32>,
}

/// The kernel half as a file, with its earlier stages as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    elf: Vec<u8>,
    mir: String,
    disassembly: String,
}

impl Object {
    /// The ELF file.
    pub fn elf(&self) -> &[u8] {
        &self.elf
    }

    /// All functions in SSA form, after all passes.
    pub fn mir(&self) -> &str {
        &self.mir
    }

    /// All functions as BPF instructions.
    pub fn disassembly(&self) -> &str {
        &self.disassembly
    }
}

/// Compiles the kernel half for an architecture; [`Arch::Any`] if no code depends on it (`Split::arch_dependent`).
///
/// # Errors
/// What this version cannot compile (KS9901).
pub fn compile(hir: &Hir, split: &Split, sources: &SourceMap, arch: Arch) -> Result<Object, Vec<Diagnostic>> {
    let mir = lower(hir, split, arch)?;
    match mir.generate(split, sources) {
        Ok(code) => object(&mir, code),
        Err(errors) if errors.iter().any(|error| error.code == MISTAKE) => Err(errors),
        // Functions within others and values that are kept for later take more of a frame.
        Err(_) => {
            let apart = lower_with(hir, split, arch, Effort::SmallFrames, &mut |_, _| {})?;
            object(&apart, apart.generate(split, sources)?)
        }
    }
}

fn object(mir: &Mir<'_>, code: Code<'_>) -> Result<Object, Vec<Diagnostic>> {
    let disassembly = code.text();
    Ok(Object { elf: code.object()?, mir: mir.text(), disassembly })
}

/// Lowers the kernel half and runs all passes.
///
/// # Errors
/// See [`compile`].
pub fn lower<'a>(hir: &'a Hir, split: &Split, arch: Arch) -> Result<Mir<'a>, Vec<Diagnostic>> {
    lower_watched(hir, split, arch, &mut |_, _| {})
}

/// The same, with a look at the program before the first pass and after each that changed it.
///
/// # Errors
/// See [`compile`].
pub fn lower_watched<'a>(
    hir: &'a Hir,
    split: &Split,
    arch: Arch,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    lower_with(hir, split, arch, Effort::Full, watch)
}

fn lower_with<'a>(
    hir: &'a Hir,
    split: &Split,
    arch: Arch,
    effort: Effort,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    let mut program = lower::lower(hir, split, arch)?;
    pass::run(&mut program, effort, watch).map_err(|error| {
        let broken = program.functions.iter().find(|one| one.name == error.function);
        mistake(broken.map(|one| one.span), &error)
    })?;
    Ok(Mir { hir, program })
}

impl<'a> Mir<'a> {
    /// As text.
    pub fn text(&self) -> String {
        mir::print::program(&self.program, self.hir)
    }

    /// Selects instructions and registers.
    ///
    /// # Errors
    /// Programs that need more stack than the kernel gives.
    pub fn generate(&self, split: &Split, sources: &SourceMap) -> Result<Code<'a>, Vec<Diagnostic>> {
        let mut assembly =
            object::Assembly::new(self.hir, split, self.program.functions.iter().map(|one| one.id));
        let mut frames = BTreeMap::new();
        for function in &self.program.functions {
            let selected = isel::select(function);
            let span = Some(function.span);
            let registers = regalloc::allocate(&selected).map_err(|error| mistake(span, &error))?;
            let code = emit::emit(&selected, &registers, function.span, &mut assembly)
                .map_err(|error| mistake(span, &error))?;
            frames.insert(function.id, code.frame_bytes);
            assembly.define(function.id, code, sources);
        }
        let errors = limits::stack(self.hir, &frames);
        if errors.is_empty() { Ok(Code { assembly, frames }) } else { Err(errors) }
    }
}

impl Code<'_> {
    /// As text, with the names of maps, variables and functions.
    pub fn text(&self) -> String {
        self.assembly.text()
    }

    /// The ELF file.
    ///
    /// # Errors
    /// What the file format cannot express.
    pub fn object(self) -> Result<Vec<u8>, Vec<Diagnostic>> {
        let span = self.assembly.any_span();
        self.assembly.finish().map_err(|error| mistake(span, &error))
    }
}

/// The code of [`mistake`].
const MISTAKE: diag::Code = diag::Code(9902);

/// A stage broke its promise: no fault of the script, but its author is the one who must hear of it.
fn mistake(span: Option<Span>, error: &dyn std::error::Error) -> Vec<Diagnostic> {
    let report = |span| {
        Diagnostic::error(9902, span, "ks made a mistake while compiling this")
            .note(error.to_string())
            .help("please report it with the script")
    };
    span.map(report).into_iter().collect()
}
