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
mod lasting;
pub mod limits;
mod lower;
mod machine;
pub mod mir;
mod object;
mod pass;
mod regalloc;
mod scratch;
mod section;

use std::collections::{BTreeMap, BTreeSet};

pub use crate::kernel_version::KernelVersion;
pub use machine::{Checks, Cpu, Listings, Machine};
pub use scratch::SLOTS as SCRATCH_SLOTS;

pub use pass::{Apart, Bodies, Effort, Watch, names as pass_names, run as run_passes};

use crate::diag::Diagnostic;
use crate::hir::{FuncId, Hir};
use crate::source::{SourceMap, Span};
use crate::split::Split;
use scratch::Plan;

/// The kernel half in SSA form, after all passes.
pub struct Mir<'a> {
    hir: &'a Hir,
    machine: Machine,
    program: mir::Program,
}

/// The kernel half as BPF instructions.
struct Code<'a> {
    assembly: object::Assembly<'a>,
    /// Bytes of each function's stack frame.
    frames: BTreeMap<FuncId, u32>,
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

    /// All functions in SSA form, after all passes; empty without [`Listings::Text`].
    pub fn mir(&self) -> &str {
        &self.mir
    }

    /// All functions as BPF instructions; empty without [`Listings::Text`].
    pub fn disassembly(&self) -> &str {
        &self.disassembly
    }
}

/// What is tried in turn where the frames are too large: slots from so many bytes on go to scratch memory, first those
/// that are worth it; in the end also functions within others and values kept for later, which take more of a frame, are
/// given up.
const WITH_SCRATCH: &[(u32, Effort)] =
    &[(128, Effort::Full), (32, Effort::Full), (1, Effort::Full), (1, Effort::SmallFrames)];

/// What is tried in turn where programs have large loops, until the frames have room for it; each first with functions
/// within others.
const BODIES_APART: [Bodies; 5] =
    [Bodies::All, Bodies::NoWalks, Bodies::EveryOther, Bodies::Innermost, Bodies::None];

/// Compiles the kernel half for a machine.
///
/// # Errors
/// What kernels do not let a program have (KS0621 and the like, KS1007), or not the machine's (KS1005).
pub fn compile(
    hir: &Hir,
    split: &Split,
    sources: &SourceMap,
    machine: impl Into<Machine>,
) -> Result<Object, Vec<Diagnostic>> {
    let machine = machine.into();
    let mir = lower_with(hir, split, machine, Effort::Full, None, &mut |_, _| {})?;
    let refused = machine.refusals(hir, &mir.program);
    if !refused.is_empty() && !machine.calls_loops() {
        return Err(refused);
    }
    let looping = programs_with_large_loops(&mir.program);
    // Where they are refused, the loops around them are apart below: more of the frame is elsewhere then.
    let mut errors = pass::walks_refused(&mir.program);
    let no_walk_is_refused = errors.is_empty();
    if !looping.is_empty() {
        let plain = lower::lower(hir, split, machine, None)?.functions;
        let plan = Plan::whole(&plain, &looping);
        let tries = BODIES_APART
            .into_iter()
            .flat_map(|bodies| [false, true].map(|functions| Apart { bodies, functions }));
        for apart in tries {
            let apart = lower_with(hir, split, machine, Effort::Apart(apart), Some(&plan), &mut |_, _| {})?;
            let refused = pass::walks_refused(&apart.program);
            if !refused.is_empty() {
                errors = refused;
                continue;
            }
            let code = apart.code(split, sources)?;
            let refused = apart.refusals(&code);
            if refused.is_empty() && apart.program.scratch_bytes <= scratch::MAX_BYTES {
                return object(&apart, code);
            }
            if errors.is_empty() {
                errors = refused;
            }
        }
    }
    if !no_walk_is_refused {
        return Err(errors);
    }
    let code = mir.code(split, sources)?;
    let own = mir.refusals(&code);
    if own.is_empty() {
        return object(&mir, code);
    }
    if errors.is_empty() {
        errors = own;
    }
    let overfull = limits::overfull(hir, &mir.program.functions, &code.frames);
    let plain = lower::lower(hir, split, machine, None)?;
    for (least, effort) in WITH_SCRATCH {
        let Some(plan) = Plan::new(&plain.functions, &overfull, *least) else { continue };
        let mir = lower_with(hir, split, machine, *effort, Some(&plan), &mut |_, _| {})?;
        if !pass::walks_refused(&mir.program).is_empty() {
            continue;
        }
        let code = mir.code(split, sources)?;
        let left = mir.refusals(&code);
        if left.is_empty() && mir.program.scratch_bytes <= scratch::MAX_BYTES {
            return object(&mir, code);
        }
        if !left.is_empty() {
            errors = left;
        }
    }
    Err(errors)
}

/// The programs that run a loop which the verifier should look at on its own, or one that needs the frame elsewhere.
fn programs_with_large_loops(program: &mir::Program) -> BTreeSet<FuncId> {
    let mut found: BTreeSet<FuncId> = BTreeSet::new();
    // Helpers come before those that call them.
    for function in &program.functions {
        let calls_one = scratch::callees(function).any(|callee| found.contains(&callee));
        let is_kept = program.loops.are_called_in(function.id) && pass::has_iterator(function);
        if calls_one || is_kept || pass::has_large_loop(program, function) {
            found.insert(function.id);
        }
    }
    let programs = program.functions.iter().filter(|one| one.is_program && found.contains(&one.id));
    programs.map(|one| one.id).collect()
}

fn object(mir: &Mir<'_>, code: Code<'_>) -> Result<Object, Vec<Diagnostic>> {
    let (mir, disassembly) = match mir.machine.listings {
        Listings::Text => (mir.text(), code.text()),
        Listings::None => (String::new(), String::new()),
    };
    Ok(Object { elf: code.object()?, mir, disassembly })
}

/// Lowers the kernel half and runs all passes, with a look at the program before the first pass and after each that
/// changed it.
///
/// # Errors
/// See [`compile`].
pub fn lower_watched<'a>(
    hir: &'a Hir,
    split: &Split,
    machine: impl Into<Machine>,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    lower_with(hir, split, machine.into(), Effort::Full, None, watch)
}

/// The same with the bodies of all large loops as functions of their own, as [`compile`] does it where there are some.
///
/// # Errors
/// See [`compile`].
pub fn lower_apart_watched<'a>(
    hir: &'a Hir,
    split: &Split,
    machine: impl Into<Machine>,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    let machine = machine.into();
    let plain = lower::lower(hir, split, machine, None)?.functions;
    let programs = plain.iter().filter(|one| one.is_program).map(|one| one.id).collect();
    let plan = Plan::whole(&plain, &programs);
    let apart = Apart { bodies: Bodies::All, functions: false };
    lower_with(hir, split, machine, Effort::Apart(apart), Some(&plan), watch)
}

fn lower_with<'a>(
    hir: &'a Hir,
    split: &Split,
    machine: Machine,
    effort: Effort,
    plan: Option<&Plan>,
    watch: Watch<'_>,
) -> Result<Mir<'a>, Vec<Diagnostic>> {
    let mut program = lower::lower(hir, split, machine, plan)?;
    pass::run(&mut program, effort, machine.checks, watch).map_err(|error| {
        let broken = program.functions.iter().find(|one| one.name == error.function);
        mistake(broken.map(|one| one.span), &error)
    })?;
    Ok(Mir { hir, machine, program })
}

impl<'a> Mir<'a> {
    /// As text.
    pub fn text(&self) -> String {
        mir::print::program(&self.program, self.hir)
    }

    /// What the machine's kernel would not take.
    fn refusals(&self, code: &Code<'_>) -> Vec<Diagnostic> {
        let refused = self.machine.refusals(self.hir, &self.program);
        if refused.is_empty() { limits::stack(self.hir, &self.program, &code.frames) } else { refused }
    }

    /// Selects instructions and registers.
    fn code(&self, split: &Split, sources: &SourceMap) -> Result<Code<'a>, Vec<Diagnostic>> {
        let mut assembly = object::Assembly::new(self.hir, split, &self.program, self.machine.arch);
        let (prints, _) = lower::print::table(self.hir, split, Some(sources));
        // A list of numbers and texts cannot fail to be JSON.
        assembly.print_table(serde_json::to_vec(&prints).unwrap_or_default());
        if self.program.scratch_bytes > 0 {
            assembly.add_scratch(self.program.scratch_bytes);
        }
        self.program.arrays.iter().for_each(|programs| assembly.add_programs(programs));
        let mut frames = BTreeMap::new();
        for function in &self.program.functions {
            let mut selected = isel::select(function, self.machine.cpu);
            lasting::copy_at_fixed(&mut selected);
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
        Ok(Code { assembly, frames })
    }
}

impl Code<'_> {
    /// As text, with the names of maps, variables and functions.
    fn text(&self) -> String {
        self.assembly.text()
    }

    /// The ELF file.
    ///
    /// # Errors
    /// What the file format cannot express.
    fn object(self) -> Result<Vec<u8>, Vec<Diagnostic>> {
        let span = self.assembly.any_span();
        self.assembly.finish().map_err(|error| mistake(span, &error))
    }
}

/// A stage broke its promise.
fn mistake(span: Option<Span>, error: &dyn std::error::Error) -> Vec<Diagnostic> {
    span.map(|span| Diagnostic::mistake(span, error.to_string())).into_iter().collect()
}
