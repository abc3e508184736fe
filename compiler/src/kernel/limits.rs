//! Checks limits of kernel code that concern whole programs: stack frames, depth of calls, and maps. Declared locals:
//! `safety`.

use std::collections::{BTreeMap, BTreeSet};

use crate::diag::Diagnostic;
use crate::hir::{FuncId, Hir};
use crate::kernel::mir::iterator_loops::{heights, loops};
use crate::kernel::mir::{Callee, Inst, MapSymbol, MirFunction, Op, Origin, Program, Type};
use crate::kernel::object::variables::{section_of, section_of_count};
use crate::kernel::scratch::{MAX_BYTES, callees, reached};

/// The limit of stack in bytes, for one frame and for all frames of a call chain together. Source:
/// include/linux/filter.h, `MAX_BPF_STACK`, v6.12.
pub const STACK_BYTES: u32 = 512;
/// Bytes of a frame that are left to spilled registers and the verifier's rounding, where these are not known yet.
pub const SPILLS: u32 = 64;
/// The limit of frames in a call chain. Source: include/linux/bpf_verifier.h, `MAX_CALL_FRAMES`, v6.12.
const MAX_FRAMES: u32 = 8;
/// The multiple to which the verifier rounds each frame up. Source: kernel/bpf/verifier.c,
/// `round_up_stack_depth`, v6.12.
const FRAME_ROUNDING: u32 = 32;

/// The limit of maps in a program, sections of variables among them. Source: include/linux/bpf_verifier.h, `MAX_USED_MAPS`,
/// v6.12.
const MAX_MAPS: usize = 64;

/// A refused construct, and the function that contains it.
pub type Refusal = (FuncId, Diagnostic);

/// Refuses programs whose call chain exceeds the limit of stack bytes or frames.
pub fn stack(program: &Program, frames: &BTreeMap<FuncId, u32>) -> Vec<Refusal> {
    let functions = &program.functions;
    let calls = Calls::new(functions, frames);
    let mut errors = Vec::new();
    for one in functions.iter().filter(|one| one.is_program) {
        let chain = calls.whole(one);
        if chain.bytes > STACK_BYTES {
            let (bytes, iterates_map) = (chain.bytes, program.loops.with_map_iteration.contains(&one.id));
            let error = if iterates_map {
                let what = format!("calls and loops need {bytes} bytes of stack; the limit is {STACK_BYTES}");
                Diagnostic::error(719, one.span, what).note(CALLED_LOOPS)
            } else {
                let what = format!(
                    "this program and its callees need {bytes} bytes of stack; the limit is {STACK_BYTES}"
                );
                Diagnostic::error(1007, one.span, what)
            };
            errors.push((one.id, error.help("keep large values in a map or a global variable")));
        } else if chain.frames > MAX_FRAMES {
            errors.push((one.id, too_deep(one, chain.frames, program)));
        }
    }
    errors
}

/// The bytes of the deepest call chain of each program, from the sizes of the functions' frames.
pub fn deepest_chains(functions: &[MirFunction], frames: &BTreeMap<FuncId, u32>) -> BTreeMap<FuncId, u32> {
    let calls = Calls::new(functions, frames);
    let programs = functions.iter().filter(|one| one.is_program);
    programs.map(|one| (one.id, calls.whole(one).bytes)).collect()
}

/// The frames that are left for bodies of loops of a function, in each program that reaches it.
pub fn free_frames(program: &Program, id: FuncId) -> u32 {
    let functions = &program.functions;
    let mut frames: BTreeMap<FuncId, u32> = BTreeMap::new();
    let mut most = 0;
    // Helpers precede their callers.
    for function in functions {
        let below = callees(function).filter_map(|callee| frames.get(&callee)).max().copied().unwrap_or(0);
        let is_called = program.loops.are_called_in(function.id);
        let nested = if is_called { heights(&loops(function)).into_values().max() } else { None };
        let own = 1 + nested.unwrap_or(0) + below;
        if function.is_program && reached(functions, [&function.id]).contains(&id) {
            most = most.max(own + u32::from(function.is_called));
        }
        frames.insert(function.id, own);
    }
    MAX_FRAMES.saturating_sub(most)
}

/// Refuses programs whose functions need more scratch memory than a slot has.
pub fn scratch(program: &Program) -> Vec<Refusal> {
    let bytes = program.scratch_bytes;
    if bytes <= MAX_BYTES {
        return Vec::new();
    }
    let error = |one: &MirFunction| {
        let what = format!(
            "large values of this program and its callees need {bytes} bytes; the limit is {MAX_BYTES}"
        );
        let error =
            Diagnostic::error(1007, one.span, what).help("keep large values in a map or a global variable");
        (one.id, error)
    };
    let users = program.functions.iter().filter(|one| one.is_program && one.insts().any(claims_scratch));
    users.map(error).collect()
}

fn claims_scratch(inst: &Inst) -> bool {
    inst.op == Op::MapAddr(MapSymbol::Scratch)
}

/// Refuses programs that use more maps than the kernel lets one use.
pub fn maps(hir: &Hir, program: &Program) -> Vec<Refusal> {
    let mut errors = Vec::new();
    for one in program.functions.iter().filter(|one| one.is_program) {
        let parts = reached(&program.functions, [&one.id]);
        let functions = program.functions.iter().filter(|function| parts.contains(&function.id));
        let (mut maps, mut sections) = (BTreeSet::new(), BTreeSet::new());
        for inst in functions.flat_map(MirFunction::insts) {
            match &inst.op {
                Op::MapAddr(map) => drop(maps.insert(*map)),
                Op::GlobalAddr { global, .. } => drop(sections.insert(section_of(&hir.globals[*global]))),
                Op::CountAddr(count) => drop(sections.insert(section_of_count(*count))),
                _ => {}
            }
        }
        let used = maps.len() + sections.len();
        if used > MAX_MAPS {
            let what = format!("this program and its callees use {used} maps; the limit is {MAX_MAPS}");
            let error = Diagnostic::error(1007, one.span, what)
                .note(
                    "global variables are in maps, too: one for those that begin as zero, one for the others",
                )
                .help("use one map with a larger key, or several programs");
            errors.push((one.id, error));
        }
    }
    errors
}

/// Why a program with a map iteration needs more frames than its source suggests.
const CALLED_LOOPS: &str = "in a program that loops over a map it calls a function for each loop";

fn too_deep(one: &MirFunction, frames: u32, program: &Program) -> Diagnostic {
    let hint = format!("the kernel allows {MAX_FRAMES}");
    if program.loops.with_map_iteration.contains(&one.id) {
        let what = format!("the kernel cannot run {frames} calls and loops within each other");
        return Diagnostic::error(719, one.span, what).note(CALLED_LOOPS).help(hint);
    }
    if program.loops.called {
        let what = format!("{frames} calls and loops within each other need Linux 6.4");
        let note = "older kernels call a function for each loop";
        return Diagnostic::error(1005, one.span, what).note(note).help(hint);
    }
    let what = format!("this program makes {frames} calls within each other");
    Diagnostic::error(1007, one.span, what).help(hint)
}

#[derive(Default, Clone, Copy)]
struct Chain {
    bytes: u32,
    frames: u32,
}

/// The call graph, with the frame size of each function.
struct Calls<'a> {
    frames: &'a BTreeMap<FuncId, u32>,
    callees: BTreeMap<FuncId, BTreeSet<FuncId>>,
    /// The bytes of the slots of functions that pass memory of their frames to others. Spilled registers are below them.
    shared: BTreeMap<FuncId, u32>,
}

impl Calls<'_> {
    fn new<'a>(functions: &[MirFunction], frames: &'a BTreeMap<FuncId, u32>) -> Calls<'a> {
        let callees = functions.iter().map(|one| (one.id, callees(one).collect())).collect();
        let sharing = functions.iter().filter(|one| shares_frame(one));
        let shared = sharing.map(|one| (one.id, one.slot_bytes)).collect();
        Calls { frames, callees, shared }
    }

    /// The deepest call chain of a program, including its caller: the kernel calls a timer's function through
    /// another one.
    fn whole(&self, program: &MirFunction) -> Chain {
        let own = self.deepest(program.id, program.is_called);
        if !program.is_called {
            return own;
        }
        let caller = rounded(self.counted_for_caller(program.id));
        Chain { bytes: own.bytes.saturating_add(caller), frames: own.frames + 1 }
    }

    /// The deepest call chain from a function. There is no recursion: the front end refuses it.
    ///
    /// In a callback of a timer the verifier of 6.18 counts what a function writes to memory of its caller's frame for the
    /// function that called that one (seen in its `stack depth`; `timer_frames`).
    fn deepest(&self, id: FuncId, in_timer: bool) -> Chain {
        let callees = || self.callees.get(&id).into_iter().flatten().copied();
        let below = callees().map(|callee| self.deepest(callee, in_timer));
        let below = below.fold(Chain::default(), |most, one| Chain {
            bytes: most.bytes.max(one.bytes),
            frames: most.frames.max(one.frames),
        });
        let own = self.frames.get(&id).copied().unwrap_or(0);
        let counted = callees().filter(|_| in_timer).map(|callee| self.counted_for_caller(callee)).max();
        let own = rounded(own.max(counted.unwrap_or(0)));
        Chain { bytes: below.bytes.saturating_add(own), frames: below.frames + 1 }
    }

    /// The bytes of a function's frame that may be counted for its caller.
    fn counted_for_caller(&self, id: FuncId) -> u32 {
        self.shared.get(&id).copied().unwrap_or(0)
    }
}

/// The bytes of a frame as the verifier counts them.
fn rounded(bytes: u32) -> u32 {
    bytes.max(1).next_multiple_of(FRAME_ROUNDING)
}

/// Whether a function passes memory of its frame to another one.
fn shares_frame(function: &MirFunction) -> bool {
    function.insts().any(|inst| match &inst.op {
        Op::Call { callee: Callee::Function(_), args } => {
            args.iter().any(|arg| function.values[*arg] == Type::Ptr(Origin::Stack))
        }
        _ => false,
    })
}
