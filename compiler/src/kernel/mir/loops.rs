//! How the loops of an object run whose turns the verifier does not walk one by one.

use std::collections::{BTreeMap, BTreeSet};

use crate::hir::FuncId;
use crate::source::Span;

/// The loops of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loops {
    /// The kernel has no iterators: each loop becomes a call of `bpf_loop` (`pass::callbacks`).
    pub called: bool,
    /// The functions of programs that walk through a map, where each loop becomes such a call too (`pass::callbacks`).
    pub with_map_iteration: BTreeSet<FuncId>,
    /// The functions that those calls name, which are static.
    pub callbacks: BTreeSet<FuncId>,
    /// For bodies of loops and helpers, how many bytes there are behind each pointer that they are given last.
    pub pointee_bytes: BTreeMap<FuncId, Vec<u32>>,
    /// Loops that could not become such a call.
    pub kept: Vec<(Span, KeptReason)>,
}

impl Loops {
    /// Whether each loop of a function becomes a call of `bpf_loop`.
    pub fn are_called_in(&self, function: FuncId) -> bool {
        self.called || self.with_map_iteration.contains(&function)
    }
}

/// Why a loop stays under an iterator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeptReason {
    /// A pointer or binding is another one in the next turn, or behind the loop.
    Pointer,
    /// Memory on the stack is written in the loop and used outside of it. A kernel before 6.8 looks at one turn only, and
    /// would believe behind the loop that the stack holds what this one turn has left.
    /// Source: kernel/bpf/verifier.c, `prepare_func_exit`, v6.1.
    Stack,
    /// A loop inside of it stays.
    Inner,
    /// Its code has not the shape of a loop any more.
    Shape,
    /// It needs more of the stack than there is.
    Size,
}

impl KeptReason {
    /// In words, behind "the loop cannot become a call of bpf_loop:".
    pub fn reason(self) -> &'static str {
        match self {
            KeptReason::Pointer => {
                "a pointer or binding changes from turn to turn, or is made in the loop and used behind it"
            }
            KeptReason::Stack => "the loop writes to memory on the stack that is used outside of it",
            KeptReason::Inner => "a loop inside of it cannot",
            KeptReason::Shape => "its parts are entered in more than one place",
            KeptReason::Size => "it changes more values than fit the stack",
        }
    }
}
