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
mod strategies;
mod verifier;

use std::collections::{BTreeMap, BTreeSet};

pub use crate::kernel_version::KernelVersion;
pub use machine::{Checks, Cpu, Inlining, Listings, Machine};
pub use scratch::SLOTS as SCRATCH_SLOTS;

pub use lower::{MAX_HELD, held_pointers};
pub use pass::{Effort, Watch, names as pass_names, run as run_passes};

use crate::defect;
use crate::diag::Diagnostic;
use crate::hir::{FuncId, Hir};
use crate::source::{SourceMap, Span};
use crate::split::Split;
use limits::Refusal;
use scratch::Plan;
pub use strategies::STRATEGIES_COUNT;
use strategies::Strategies;

/// The kernel half in SSA form, after all passes.
pub struct Mir<'a> {
    hir: &'a Hir,
    machine: Machine,
    program: mir::Program,
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
    let machine = machine.into();
    let silent: Watch<'_> = &mut |_, _| {};
    let lowered = lower::lower(hir, split, machine, None)?;
    let (looping, mut first) = first_attempt(hir, &lowered, machine)?;
    let mut strategies = Strategies::new(&looping);
    let mut errors = Vec::new();
    loop {
        let mir = match first.take() {
            Some(mir) => mir,
            None => {
                let (efforts, plan) = strategies.chosen(&lowered);
                lower_with(hir, split, machine, &efforts, plan.as_ref(), silent)?
            }
        };
        let mut refused = pass::map_iteration_refusals(&mir.program);
        if refused.is_empty() {
            let code = mir.code(split, sources)?;
            refused = mir.refusals(&code);
            if refused.is_empty() && mir.program.scratch_bytes <= scratch::MAX_BYTES {
                let refused = limits::maps(hir, &mir.program);
                return if refused.is_empty() { object(&mir, code) } else { Err(diagnostics(refused)) };
            }
        }
        let functions = refused.iter().map(|(function, _)| *function).collect();
        if !refused.is_empty() {
            errors = refused;
        }
        if !strategies.next(&mir.program.functions, &functions) {
            return Err(diagnostics(errors));
        }
    }
}

/// Finds the programs with large loops, and runs passes as far as that takes. Without such programs the result is
/// the MIR of the first strategy.
///
/// # Errors
/// See [`compile`].
fn first_attempt<'a>(
    hir: &'a Hir,
    lowered: &mir::Program,
    machine: Machine,
) -> Result<(BTreeSet<FuncId>, Option<Mir<'a>>), Vec<Diagnostic>> {
    let silent: Watch<'_> = &mut |_, _| {};
    let whole = BTreeMap::new();
    let are_all = |program: &mir::Program, found: &BTreeSet<FuncId>| {
        let looping =
            programs_with_large_loops(program, |_, function| mir::loop_iterators::has_iterator(function));
        !found.is_empty() && looping.is_subset(found)
    };
    // No pass makes such a loop small.
    let looping = programs_with_large_loops(lowered, verifier::code::has_huge_loop);
    if are_all(lowered, &looping) {
        return Ok((looping, None));
    }
    let mut program = lowered.clone();
    pass::optimise(&mut program, &whole, machine.checks, silent).map_err(|error| broken(&program, &error))?;
    let refused = machine.refusals(hir, &program);
    if !refused.is_empty() && !machine.calls_loops() {
        return Err(diagnostics(refused));
    }
    let looping = programs_with_large_loops(&program, verifier::code::has_large_loop);
    if are_all(&program, &looping) {
        return Ok((looping, None));
    }
    // Loops that cannot become callbacks are known only after outlining.
    pass::finish(&mut program, &whole, machine.checks, silent).map_err(|error| broken(&program, &error))?;
    let looping = programs_with_large_loops(&program, |program, function| {
        let is_kept = program.loops.are_called_in(function.id) && mir::loop_iterators::has_iterator(function);
        is_kept || verifier::code::has_large_loop(program, function)
    });
    let first = looping.is_empty().then_some(Mir { hir, machine, program });
    Ok((looping, first))
}

fn diagnostics(refused: Vec<Refusal>) -> Vec<Diagnostic> {
    refused.into_iter().map(|(_, diagnostic)| diagnostic).collect()
}

/// The programs that run a function with a large loop, according to `has_one`: one that the verifier should check
/// on its own, or that needs stack space in another frame.
fn programs_with_large_loops(
    program: &mir::Program,
    has_one: impl Fn(&mir::Program, &mir::MirFunction) -> bool,
) -> BTreeSet<FuncId> {
    let mut found: BTreeSet<FuncId> = BTreeSet::new();
    // Helpers precede their callers.
    for function in &program.functions {
        let calls_one = scratch::callees(function).any(|callee| found.contains(&callee));
        if calls_one || has_one(program, function) {
            found.insert(function.id);
        }
    }
    let programs = program.functions.iter().filter(|one| one.is_program && found.contains(&one.id));
    programs.map(|one| one.id).collect()
}

fn object(mir: &Mir<'_>, code: KernelCode<'_>) -> Result<Object, Vec<Diagnostic>> {
    let uses_iterators = mir.program.functions.iter().any(machine::uses_iterators);
    let loops = &mir.program.loops;
    let passes_memory = !loops.called && !loops.pointee_bytes.is_empty();
    let (mir, disassembly) = match mir.machine.listings {
        Listings::Text => (mir.text(), code.text()),
        Listings::None => (String::new(), String::new()),
    };
    Ok(Object { elf: code.object()?, mir, disassembly, uses_iterators, passes_memory })
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
    lower_with(hir, split, machine.into(), &BTreeMap::new(), None, watch)
}

/// Like [`lower_watched`], by the strategy of this number below [`STRATEGIES_COUNT`], as [`compile`] does for programs that
/// have large loops or do not fit the stack.
///
/// # Errors
/// See [`compile`].
///
/// # Panics
/// If there are not so many strategies.
pub fn lower_by_watched<'a>(
    hir: &'a Hir,
    split: &Split,
    machine: impl Into<Machine>,
    strategy: usize,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    let machine = machine.into();
    let plain = lower::lower(hir, split, machine, None)?;
    let programs = plain.functions.iter().filter(|one| one.is_program).map(|one| one.id).collect();
    let (efforts, plan) = Strategies::at(&programs, strategy).chosen(&plain);
    lower_with(hir, split, machine, &efforts, plan.as_ref(), watch)
}

fn lower_with<'a>(
    hir: &'a Hir,
    split: &Split,
    machine: Machine,
    efforts: &BTreeMap<FuncId, Effort>,
    plan: Option<&Plan>,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    let mut program = lower::lower(hir, split, machine, plan)?;
    pass::run(&mut program, efforts, machine.checks, watch).map_err(|error| broken(&program, &error))?;
    Ok(Mir { hir, machine, program })
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

    /// The constructs that the machine's kernel would reject.
    fn refusals(&self, code: &KernelCode<'_>) -> Vec<Refusal> {
        let refused = self.machine.refusals(self.hir, &self.program);
        if refused.is_empty() { limits::stack(self.hir, &self.program, &code.frames) } else { refused }
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
