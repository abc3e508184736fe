//! Limits of kernel code that concern whole functions: declared locals, stack frames, depth of calls.

use std::collections::{BTreeMap, BTreeSet};

use crate::diag::Diagnostic;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Block, FuncId, Function, Half, Hir, LocalId, Stmt, StmtKind};
use crate::types::Types;

/// Bytes of stack, of one frame and of all frames of a chain of calls together.
/// Source: include/linux/filter.h, `MAX_BPF_STACK`, v6.12.
pub const STACK_BYTES: u32 = 512;
/// Declared locals above this many bytes are worth a warning.
const WARN_BYTES: u64 = 256;
/// Most frames of a chain of calls. Source: include/linux/bpf_verifier.h, `MAX_CALL_FRAMES`, v6.12.
const MAX_FRAMES: u32 = 8;
/// The verifier rounds each frame up to this. Source: kernel/bpf/verifier.c, `round_up_stack_depth`, v6.12.
const FRAME_ROUNDING: u32 = 32;

/// Errors and warnings about the declared locals of kernel functions, used or not.
pub fn declared_locals(hir: &Hir) -> Vec<Diagnostic> {
    let kernel = hir.functions.iter().filter(|function| function.kind.half() == Half::Kernel);
    kernel.filter_map(|function| function_locals(&hir.types, function)).collect()
}

fn function_locals(types: &Types, function: &Function) -> Option<Diagnostic> {
    let mut declared: BTreeSet<LocalId> = function.params.iter().copied().collect();
    let bytes = block_bytes(types, function, &function.body, 0, &mut declared);
    if bytes > u64::from(STACK_BYTES) {
        let message = format!("{bytes} bytes of locals; a kernel function may have {STACK_BYTES}");
        return Some(
            Diagnostic::error(1001, function.span, message)
                .label("declares them")
                .help("keep large values in a map or a global variable"),
        );
    }
    (bytes > WARN_BYTES).then(|| {
        Diagnostic::warning(1002, function.span, format!("{bytes} bytes of locals"))
            .note(format!("a kernel function and all that it calls share {STACK_BYTES} bytes of stack"))
    })
}

/// The end of the locals of a block that start at `start`; sibling blocks overlap.
fn block_bytes(
    types: &Types,
    function: &Function,
    block: &Block,
    start: u64,
    declared: &mut BTreeSet<LocalId>,
) -> u64 {
    let mut own = start;
    let mut most = start;
    for stmt in block {
        let nested: &[&Block] = match &stmt.kind {
            StmtKind::Let { local, .. } | StmtKind::Bind { local, .. } => {
                if declared.insert(*local) {
                    let ty = function.locals[*local].ty;
                    own = own.next_multiple_of(types.align(ty)).saturating_add(types.size(ty));
                }
                &[]
            }
            StmtKind::If { then, otherwise, .. } => &[then, otherwise],
            StmtKind::While { body, .. } | StmtKind::For { body, .. } => &[body],
            _ => &[],
        };
        for block in nested {
            most = most.max(block_bytes(types, function, block, own, declared));
        }
        most = most.max(own);
    }
    most
}

/// Frames as they were allocated: refuses programs whose chain of calls needs more stack or frames than there are.
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
    let own = frames.get(&id).copied().unwrap_or(0).max(1).next_multiple_of(FRAME_ROUNDING);
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
