//! Limits of kernel code that concern whole functions: stack frames, depth of calls. Declared locals: `safety`.

use std::collections::{BTreeMap, BTreeSet};

use crate::diag::Diagnostic;
use crate::hir::visit::{self, Visitor};
use crate::hir::{FuncId, Hir, Stmt};

/// Bytes of stack, of one frame and of all frames of a chain of calls together.
/// Source: include/linux/filter.h, `MAX_BPF_STACK`, v6.12.
pub const STACK_BYTES: u32 = 512;
/// Most frames of a chain of calls. Source: include/linux/bpf_verifier.h, `MAX_CALL_FRAMES`, v6.12.
const MAX_FRAMES: u32 = 8;
/// The verifier rounds each frame up to this. Source: kernel/bpf/verifier.c, `round_up_stack_depth`, v6.12.
const FRAME_ROUNDING: u32 = 32;

/// The programs whose chain of calls needs more stack than there is, frames as they were allocated.
pub fn overfull(hir: &Hir, frames: &BTreeMap<FuncId, u32>) -> BTreeSet<FuncId> {
    let programs = frames.keys().filter(|id| hir.functions[**id].kind.is_program());
    programs.copied().filter(|program| deepest(hir, frames, *program).bytes > STACK_BYTES).collect()
}

/// Refuses programs whose chain of calls needs more stack or frames than there are.
pub fn stack(hir: &Hir, frames: &BTreeMap<FuncId, u32>) -> Vec<Diagnostic> {
    let programs = frames.keys().filter(|id| hir.functions[**id].kind.is_program());
    let mut errors = Vec::new();
    for program in programs {
        let chain = deepest(hir, frames, *program);
        let span = hir.functions[*program].span;
        if chain.bytes > STACK_BYTES {
            let what = format!("a program that needs {} bytes of stack with what it calls is", chain.bytes);
            let hint =
                format!("the kernel allows {STACK_BYTES}; keep large values in a map or a global variable");
            errors.push(Diagnostic::not_yet(span, &what).help(hint));
        } else if chain.frames > MAX_FRAMES {
            let what = format!("a chain of {} calls is", chain.frames);
            let hint = format!("the kernel allows {MAX_FRAMES}");
            errors.push(Diagnostic::not_yet(span, &what).help(hint));
        }
    }
    errors
}

#[derive(Default, Clone, Copy)]
struct Chain {
    bytes: u32,
    frames: u32,
}

/// The most that the function and what it calls may use. There is no recursion: the front end refuses it.
fn deepest(hir: &Hir, frames: &BTreeMap<FuncId, u32>, id: FuncId) -> Chain {
    let mut callees = Callees::default();
    visit::block(&mut callees, &hir.functions[id].body);
    let below = callees.found.iter().map(|callee| deepest(hir, frames, *callee));
    let below = below.fold(Chain::default(), |most, one| Chain {
        bytes: most.bytes.max(one.bytes),
        frames: most.frames.max(one.frames),
    });
    // A function without a frame of its own is part of its callers.
    let Some(own) = frames.get(&id) else { return below };
    let own = (*own).max(1).next_multiple_of(FRAME_ROUNDING);
    Chain { bytes: below.bytes.saturating_add(own), frames: below.frames + 1 }
}

#[derive(Default)]
struct Callees {
    found: BTreeSet<FuncId>,
}

impl Visitor for Callees {
    fn function(&mut self, id: FuncId) {
        self.found.insert(id);
    }

    fn stmt(&mut self, _stmt: &Stmt) {}
}
