//! How the large loops of an object run, of which the verifier does not follow every iteration.

use std::collections::{BTreeMap, BTreeSet};

use crate::hir::FuncId;
use crate::source::Span;

/// The facts about an object's loops that passes share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loops {
    /// Whether every loop becomes a call of `bpf_loop` because the kernel has no iterators
    /// (`pass::loop_callbacks`).
    pub called: bool,
    /// The functions of programs with a map iteration, where each loop becomes a callback loop too
    /// (`pass::loop_callbacks`).
    pub with_map_iteration: BTreeSet<FuncId>,
    /// For loop bodies and helpers, the pointee size in bytes of each of their last parameters, which are
    /// pointers.
    pub pointee_bytes: BTreeMap<FuncId, Vec<u32>>,
    /// Loops that could not become a call of `bpf_loop`, by source span.
    pub kept: Vec<(Span, KeptReason)>,
}

impl Loops {
    /// Whether each loop of a function becomes a call of `bpf_loop`.
    pub fn are_called_in(&self, function: FuncId) -> bool {
        self.called || self.with_map_iteration.contains(&function)
    }
}

/// The reason why a loop stays under an iterator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptReason {
    /// A pointer that is no entry of a map changes between iterations, or more than four change, or one that the loop defines
    /// is used after it.
    Pointer,
    /// Memory on the stack is written in the loop and used outside of it. A kernel before 6.8 verifies one
    /// iteration only, and would assume after the loop that the stack holds the contents of that iteration.
    /// Source: kernel/bpf/verifier.c, `prepare_func_exit`, v6.1.
    Stack,
    /// An inner loop stays under its iterator.
    Inner,
    /// Passes have changed the loop's control flow, so that it no longer has a single entry.
    Shape,
    /// The loop-carried values exceed the stack.
    Size,
}

impl KeptReason {
    /// The text of the reason, to follow "the loop cannot become a call of bpf_loop:".
    pub fn reason(self) -> &'static str {
        match self {
            KeptReason::Pointer => {
                "iterations change a pointer that is no entry of a map, or more than four of them, or code after the \
                 loop uses one that the loop defines"
            }
            KeptReason::Stack => "the loop writes to memory on the stack that is used outside of it",
            KeptReason::Inner => "a loop inside of it cannot",
            KeptReason::Shape => "it is entered at more than one point",
            KeptReason::Size => "it changes more values than fit the stack",
        }
    }
}
