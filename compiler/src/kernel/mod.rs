//! The kernel half: typed tree in, BPF object out.
//!
//! ```text
//! Hir + Split -> lower -> Mir (passes) -> isel -> regalloc -> emit -> MachineCode -> Object
//! ```
//!
//! In: a tree without errors. Out: an ELF object that libbpf loads and the kernel's verifier accepts, or
//! diagnostics. Not here: attaching of programs, anything of the userspace half.

mod call_clobbers;
mod commute;
mod emit;
mod frames;
mod isel;
pub mod limits;
mod liveness;
mod lower;
mod machine;
pub mod mir;
mod object;
mod pass;
mod regalloc;
mod scratch;
mod section;
mod verifier;

use std::collections::{BTreeMap, BTreeSet};

pub use crate::kernel_version::KernelVersion;
pub use machine::{Checks, Cpu, Inlining, Listings, Machine};
pub use scratch::SLOTS as SCRATCH_SLOTS;

pub use lower::{MAX_HELD, held_pointers};
pub use pass::{Watch, names as pass_names, run as run_passes};

use crate::defect;
use crate::diag::Diagnostic;
use crate::hir::{FuncId, Hir};
use crate::source::{SourceMap, Span};
use crate::split::Split;
use limits::Refusal;

/// The kernel half in SSA form, after all passes.
pub struct Mir<'a> {
    hir: &'a Hir,
    machine: Machine,
    program: mir::Program,
    /// Why it was compiled a second time, with small frames.
    again: Option<String>,
}

/// The kernel half as BPF instructions.
struct KernelCode<'a> {
    assembly: object::Assembly<'a>,
    /// The size in bytes of each function's stack frame.
    frames: BTreeMap<FuncId, u32>,
}

/// The kernel half as an ELF object, with its earlier stages as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    elf: Vec<u8>,
    mir: String,
    disassembly: String,
    uses_iterators: bool,
    passes_memory: bool,
}

impl Object {
    /// The bytes of the ELF object.
    pub fn elf(&self) -> &[u8] {
        &self.elf
    }

    /// All functions in SSA form, after all passes; empty without [`Listings::Text`].
    pub fn mir(&self) -> &str {
        &self.mir
    }

    /// All functions as BPF instructions; empty without [`Listings::Text`].
    pub fn disassembly(&self) -> &str {
        &self.disassembly
    }

    /// Whether a loop body is a function that is verified on its own and works on memory of its caller.
    /// Before Linux 6.2 no part of that memory can be the key or the value of a map operation.
    pub fn passes_memory(&self) -> bool {
        self.passes_memory
    }

    /// Whether a loop runs under a number iterator, which needs Linux 6.4.
    pub fn uses_iterators(&self) -> bool {
        self.uses_iterators
    }
}

/// Compiles the kernel half for a machine.
///
/// # Errors
/// Reports constructs that no kernel accepts (KS0621 and similar, KS1007), and those that the machine's
/// kernel does not accept (KS1005).
pub fn compile(
    hir: &Hir,
    split: &Split,
    sources: &SourceMap,
    machine: impl Into<Machine>,
) -> Result<Object, Vec<Diagnostic>> {
    let (machine, mut silent) = (machine.into(), |_: &'static str, _: &mir::Program| ());
    let first = lower_with(hir, split, machine, &BTreeSet::new(), &mut silent)?;
    let refused = match first.object(split, sources)? {
        Ok(object) => return Ok(object),
        Err(refused) => refused,
    };
    let small = first.programs_with(&refused);
    let mut second = lower_with(hir, split, machine, &small, &mut silent)?;
    second.again = refused.first().map(|(_, reason)| reason.message.clone());
    second.object(split, sources)?.map_err(diagnostics)
}

/// Fails with what no frames change.
fn definitive(refused: Vec<Refusal>) -> Result<(), Vec<Diagnostic>> {
    if refused.is_empty() { Ok(()) } else { Err(diagnostics(refused)) }
}

fn diagnostics(refused: Vec<Refusal>) -> Vec<Diagnostic> {
    refused.into_iter().map(|(_, diagnostic)| diagnostic).collect()
}

/// Lowers the kernel half and runs all passes. `watch` sees the program before the first pass and after each
/// pass that changed it.
///
/// # Errors
/// See [`compile`].
pub fn lower_watched<'a>(
    hir: &'a Hir,
    split: &Split,
    machine: impl Into<Machine>,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    lower_with(hir, split, machine.into(), &BTreeSet::new(), watch)
}

/// Like [`lower_watched`], with small frames, as [`compile`] does for programs that exceed the kernel's limits otherwise.
///
/// # Errors
/// See [`compile`].
pub fn lower_small_watched<'a>(
    hir: &'a Hir,
    split: &Split,
    machine: impl Into<Machine>,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    let small = split.kernel.iter().copied().filter(|id| hir.is_entry(*id)).collect();
    lower_with(hir, split, machine.into(), &small, watch)
}

/// Lowers the kernel half and runs all passes; all functions of the programs in `small` get small frames.
fn lower_with<'a>(
    hir: &'a Hir,
    split: &Split,
    machine: Machine,
    small: &BTreeSet<FuncId>,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    let mut program = lower::lower(hir, split, machine, &BTreeSet::new())?;
    let small = scratch::reached(&program.functions, small);
    if !small.is_empty() {
        program = lower::lower(hir, split, machine, &small)?;
    }
    pass::run(&mut program, &small, machine.checks, watch).map_err(|error| broken(&program, &error))?;
    Ok(Mir { hir, machine, program, again: None })
}

/// The diagnostic for a pass that broke a function.
fn broken(program: &mir::Program, error: &mir::verify::VerifyError) -> Vec<Diagnostic> {
    let function = program.functions.iter().find(|one| one.name == error.function);
    mistake(function.map(|one| one.span), error)
}

impl<'a> Mir<'a> {
    /// All functions as text.
    pub fn text(&self) -> String {
        mir::print::program(&self.program, self.hir)
    }

    /// The object, or what the machine's kernel would reject with these frames.
    ///
    /// # Errors
    /// Reports what it would reject in any case, mistakes of this compiler, and sizes that the file format cannot express.
    fn object(
        &self,
        split: &Split,
        sources: &SourceMap,
    ) -> Result<Result<Object, Vec<Refusal>>, Vec<Diagnostic>> {
        let program = &self.program;
        let mut refused = self.machine.refusals(self.hir, program);
        if !self.machine.calls_loops() {
            definitive(std::mem::take(&mut refused))?;
        }
        refused.extend(pass::map_iteration_refusals(program));
        refused.extend(limits::scratch(program));
        if !refused.is_empty() {
            return Ok(Err(refused));
        }
        let code = self.code(split, sources)?;
        let refused = limits::stack(program, &code.frames);
        if !refused.is_empty() {
            return Ok(Err(refused));
        }
        definitive(limits::maps(self.hir, program))?;
        self.finish(code).map(Ok)
    }

    fn finish(&self, code: KernelCode<'_>) -> Result<Object, Vec<Diagnostic>> {
        let uses_iterators = self.program.functions.iter().any(machine::uses_iterators);
        let loops = &self.program.loops;
        let passes_memory = !loops.called && !loops.pointee_bytes.is_empty();
        let again = self.again.as_ref().map(|why| format!("// compiled again, with small frames: {why}\n"));
        let (mir, disassembly) = match self.machine.listings {
            Listings::Text => (self.text(), code.text()),
            Listings::None => (String::new(), String::new()),
        };
        let [mir, disassembly] = [mir, disassembly].map(|text| again.clone().unwrap_or_default() + &text);
        Ok(Object { elf: code.object()?, mir, disassembly, uses_iterators, passes_memory })
    }

    /// The programs that reach a refused function.
    fn programs_with(&self, refused: &[Refusal]) -> BTreeSet<FuncId> {
        let functions = &self.program.functions;
        let is_refused = |id: &FuncId| refused.iter().any(|(function, _)| function == id);
        let programs = functions.iter().filter(|one| one.is_program).map(|one| one.id);
        programs.filter(|program| scratch::reached(functions, [program]).iter().any(is_refused)).collect()
    }

    /// Selects instructions, allocates registers and emits the code.
    fn code<'s>(&'s self, split: &Split, sources: &'s SourceMap) -> Result<KernelCode<'s>, Vec<Diagnostic>> {
        let arch = self.machine.arch;
        let mut assembly = object::Assembly::new(self.hir, split, &self.program, arch, sources);
        let (prints, _) = lower::print::table(self.hir, split, Some(sources));
        // Numbers and strings always serialize to JSON.
        assembly.print_table(serde_json::to_vec(&prints).unwrap_or_default());
        if self.program.scratch_bytes > 0 {
            assembly.add_scratch(self.program.scratch_bytes);
        }
        self.program.arrays.iter().for_each(|programs| assembly.add_programs(programs));
        let mut frames = BTreeMap::new();
        for function in &self.program.functions {
            defect::at(function.span);
            let mut selected = isel::select(function, self.machine.cpu);
            let liveness = liveness::Liveness::new(&selected);
            commute::swap_operands(&mut selected, &liveness);
            call_clobbers::copy_at_fixed(&mut selected, &liveness);
            let span = Some(function.span);
            let registers =
                regalloc::allocate(&selected, self.machine.checks).map_err(|error| mistake(span, &error))?;
            let code = emit::emit(&selected, &registers, self.machine.cpu, function.span, &mut assembly)
                .map_err(|error| mistake(span, &error))?;
            frames.insert(function.id, code.frame_bytes);
            assembly
                .define(function.id, &function.name, code, sources)
                .map_err(|error| mistake(span, &error))?;
        }
        Ok(KernelCode { assembly, frames })
    }
}

impl KernelCode<'_> {
    /// The instructions as text, with the names of maps, variables and functions.
    fn text(&self) -> String {
        self.assembly.text()
    }

    /// Writes the ELF object.
    ///
    /// # Errors
    /// Reports sizes that the file format cannot express.
    fn object(self) -> Result<Vec<u8>, Vec<Diagnostic>> {
        let span = self.assembly.any_span();
        self.assembly.finish().map_err(|error| mistake(span, &error))
    }
}

/// The diagnostic for a stage that violated its contract: a bug of this compiler.
fn mistake(span: Option<Span>, error: &dyn std::error::Error) -> Vec<Diagnostic> {
    span.map(|span| Diagnostic::mistake(span, error.to_string())).into_iter().collect()
}
