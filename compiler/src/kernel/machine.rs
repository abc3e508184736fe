//! The target of the kernel half: an architecture, an instruction set, and the oldest kernel that must accept
//! the object.

use std::collections::BTreeSet;

use ks_wit::helper;
use ks_wit::kfunc::ITER_NUM_NEW;
use ks_wit::section::Arch;

use super::limits::Refusal;
use super::mir::{Callee, Helper, Inst, Kfunc, MirFunction, Op, Program};
use super::scratch::reached;
use crate::diag::Diagnostic;
use crate::hir::{Hir, Target};
use crate::kernel_version::KernelVersion;

/// A version of the BPF instruction set, numbered as compilers do. Source:
/// Documentation/bpf/standardization/instruction-set.rst, v6.12, and `-mcpu` of LLVM's BPF target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Cpu {
    /// 64-bit arithmetic and comparisons; no register comparisons with `<` and `<=`.
    V1,
    /// V1 plus all comparisons (Linux 4.14).
    V2,
    /// V2 plus 32-bit arithmetic and comparisons (Linux 5.1).
    #[default]
    V3,
    /// V3 plus signed division, sign extension and byte swaps (Linux 6.6).
    V4,
}

impl Cpu {
    /// The first kernel version that supports the instruction set.
    pub fn since(self) -> KernelVersion {
        match self {
            Cpu::V1 => KernelVersion::new(3, 18),
            Cpu::V2 => KernelVersion::new(4, 14),
            Cpu::V3 => KernelVersion::new(5, 1),
            Cpu::V4 => KernelVersion::new(6, 6),
        }
    }

    /// Whether the set has 32-bit arithmetic and comparisons.
    pub fn has_32_bits(self) -> bool {
        self >= Cpu::V3
    }
}

/// How thoroughly the compiler verifies its own work. The output is the same either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Checks {
    /// Verifies MIR after every pass, registers by the allocator's own checker, and the component by a Wasm
    /// validator: a bug is found where it is introduced. Takes about as long as compiling. The default, so
    /// that every test runs it.
    #[default]
    EveryStage,
    /// Verifies MIR once, after all passes: no broken function becomes code, but the pass that broke it is
    /// unknown.
    LastStage,
}

/// The textual listings that are produced besides the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Listings {
    /// MIR and BPF instructions as text.
    #[default]
    Text,
    /// No listings; both texts are empty.
    None,
}

/// Where helpers that take pointers are inlined during lowering. The behaviour of a program is the same either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inlining {
    /// At every call.
    Always,
    /// At every call, unless that multiplies much code.
    #[default]
    ByCost,
    /// At their only call.
    Once,
}

/// The target machine of the kernel half, and how to compile for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    /// The CPU architecture; [`Arch::Any`] if no code depends on it (`Split::arch_dependent`).
    pub arch: Arch,
    /// The BPF instruction set that may be used.
    pub cpu: Cpu,
    /// The oldest kernel that must accept the object; `None` for any that has what the script needs.
    pub kernel: Option<KernelVersion>,
    /// How thoroughly the compiler verifies its own work.
    pub checks: Checks,
    /// The listings to produce besides the object.
    pub listings: Listings,
    /// Where helpers that take pointers are inlined.
    pub inlining: Inlining,
}

impl From<Arch> for Machine {
    fn from(arch: Arch) -> Machine {
        Machine {
            arch,
            cpu: Cpu::default(),
            kernel: None,
            checks: Checks::default(),
            listings: Listings::default(),
            inlining: Inlining::default(),
        }
    }
}

impl Machine {
    /// Whether the instruction set has signed division.
    pub(super) fn divides_signed(self) -> bool {
        self.cpu >= Cpu::V4
    }

    /// Whether loops become calls of `bpf_loop`: the kernel has it but no iterators.
    pub(super) fn calls_loops(self) -> bool {
        self.kernel.is_some_and(|kernel| (LOOP_SINCE..ITERATORS_SINCE).contains(&kernel))
    }

    /// Whether only ordinary loops are available, of which the verifier follows each iteration (Linux 5.3).
    pub(super) fn only_bounded_loops(self) -> bool {
        self.kernel.is_some_and(|kernel| kernel < LOOP_SINCE)
    }

    /// Whether probes of user programs may sleep.
    pub(super) fn lets_probes_sleep(self) -> bool {
        self.kernel.is_none_or(|kernel| kernel >= SLEEPING_PROBES_SINCE)
    }

    /// The calls in a program that the target kernel does not support, each source span once.
    pub(super) fn refusals(self, hir: &Hir, program: &Program) -> Vec<Refusal> {
        let Some(kernel) = self.kernel else { return Vec::new() };
        let mut found: Vec<Refusal> = Vec::new();
        for function in &program.functions {
            let refused = function.insts().filter_map(|inst| too_new(inst, kernel, program));
            found.extend(refused.map(|refusal| (function.id, refusal)));
        }
        found.extend(helpers_too_new(hir, program, kernel));
        if kernel < TIMERS_SINCE {
            found.extend(timers(hir, program).map(|timer| {
                let text = format!("a timer needs Linux {TIMERS_SINCE}, and this is compiled for {kernel}");
                (timer.id, Diagnostic::error(1005, timer.span, text))
            }));
        }
        let mut reported = BTreeSet::new();
        found.retain(|(_, one)| reported.insert(one.primary.span));
        found
    }
}

/// Whether a function has a loop under a number iterator.
pub(super) fn uses_iterators(function: &MirFunction) -> bool {
    let mut insts = function.insts();
    insts.any(|inst| matches!(inst.op, Op::Call { callee: Callee::Kfunc(Kfunc::IterNumNew), .. }))
}

/// The calls of helpers that the target kernel does not yet permit in the programs that reach them.
fn helpers_too_new(hir: &Hir, program: &Program, kernel: KernelVersion) -> Vec<Refusal> {
    let mut found = Vec::new();
    for entry in program.functions.iter().filter(|one| one.is_program) {
        let Some(caller) = hir.functions[entry.id].caller() else { continue };
        let reached = reached(&program.functions, [&entry.id]);
        let functions = program.functions.iter().filter(|one| reached.contains(&one.id));
        for inst in functions.flat_map(MirFunction::insts) {
            let Some((number, name)) = called_helper(hir, inst) else { continue };
            let since = helper::numbered(number).map(|helper| KernelVersion::of(helper.since_in(caller)));
            let Some(since) = since.filter(|since| kernel < *since) else { continue };
            let text = format!("this needs Linux {since}, and this is compiled for {kernel}");
            let note = format!("it calls {}, which older kernels refuse to {}", name, caller.plural());
            found.push((entry.id, Diagnostic::error(1005, inst.span, text).note(note)));
        }
    }
    found
}

/// The timer programs of an object.
fn timers<'a>(hir: &'a Hir, program: &'a Program) -> impl Iterator<Item = &'a MirFunction> {
    let functions = program.functions.iter().filter(|one| one.is_program);
    let is_timer = |one: &&MirFunction| matches!(hir.functions[one.id].target, Target::Period { .. });
    functions.filter(is_timer)
}

/// The first kernel with `bpf_for_each_map_elem`.
const FOR_EACH_MAP_ELEM_SINCE: KernelVersion = KernelVersion::of(helper::since("bpf_for_each_map_elem"));
/// The first kernel with `bpf_timer_init` and the other timer helpers.
const TIMERS_SINCE: KernelVersion = KernelVersion::of(helper::since("bpf_timer_init"));
/// The first kernel that lets uprobes sleep. Source: kernel/bpf/verifier.c, `can_be_sleepable`, v6.0.
const SLEEPING_PROBES_SINCE: KernelVersion = KernelVersion::new(6, 0);
/// The first kernel with `bpf_loop`.
const LOOP_SINCE: KernelVersion = KernelVersion::of(helper::since("bpf_loop"));
/// The first kernel with `bpf_iter_num_new` and the other number iterator functions.
const ITERATORS_SINCE: KernelVersion = KernelVersion::of(ITER_NUM_NEW.since);

/// The number and name of the helper that an instruction calls.
fn called_helper<'h>(hir: &'h Hir, inst: &Inst) -> Option<(u32, &'h str)> {
    match inst.op {
        Op::Call { callee: Callee::Helper(helper), .. } => Some((helper.number(), helper.name())),
        Op::Call { callee: Callee::External(id), .. } => {
            let one = &hir.externs[id];
            Some((one.helper?, one.name.as_str()))
        }
        _ => None,
    }
}

/// How a loop becomes one of which the verifier may follow each iteration.
const SMALLER: &str = "give the loop a small constant range, no loop inside, and few comparisons and accesses in all \
                       iterations together, or compile for a newer kernel";

fn too_new(inst: &Inst, kernel: KernelVersion, program: &Program) -> Option<Diagnostic> {
    let headline =
        |what: &str, since| format!("{what} needs Linux {since}, and this is compiled for {kernel}");
    let Op::Call { callee, .. } = inst.op else { return None };
    if callee == Callee::Helper(Helper::ForEachMapElem) && kernel < FOR_EACH_MAP_ELEM_SINCE {
        return Some(
            Diagnostic::error(1005, inst.span, headline("a loop over a map", FOR_EACH_MAP_ELEM_SINCE))
                .note("it calls bpf_for_each_map_elem, which older kernels do not have"),
        );
    }
    // All other helpers here but `bpf_loop` are older than 5.13.
    if callee != Callee::Kfunc(Kfunc::IterNumNew) || kernel >= ITERATORS_SINCE {
        return None;
    }
    let kept = program.loops.kept.iter().find(|(span, _)| *span == inst.span);
    Some(match kept {
        Some((_, kept)) => Diagnostic::error(1005, inst.span, headline("this loop", ITERATORS_SINCE))
            .note(format!(
                "older kernels run it by bpf_loop, which it cannot be called by: {}",
                kept.reason()
            ))
            .help(SMALLER),
        None => Diagnostic::error(1005, inst.span, headline("this loop", LOOP_SINCE))
            .note(
                "the verifier of older kernels follows every iteration, and has neither bpf_loop nor \
                 iterators",
            )
            .help(SMALLER),
    })
}
