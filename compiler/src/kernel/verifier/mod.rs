//! A model of the verifier's work. All decisions about the form of the code ask it: whether iterations are
//! followed one by one, unrolled or outlined, whether a function is inlined, whether constants are hidden.
//!
//! The verifier follows each path of a program, and stops where it was in the same state before. It gives up after
//! [`MAX_VERIFIED`] instructions:
//!
//! ```text
//! work = instructions x iterations x states
//! ```
//!
//! - **Instructions** of a static function count at each call, those of a global function once.
//! - **Iterations** of an ordinary loop are all followed. Under an iterator the verifier stops as soon as an
//!   iteration starts in a known state, and a body that is a function of its own is followed once. Source:
//!   kernel/bpf/verifier.c, `is_state_visited` and `process_iter_next_call`, v6.12.
//! - **States**: each branch doubles them until both paths leave the same state. They do not if one path leaves
//!   another constant in a number that is compared later, or on the stack, where it counts even if nobody reads it:
//!   such branches are *decisions*. `n` decisions are up to `2^n` states.
//!
//! There are two views of a program. Lowering chooses the form of loops and the helpers to inline on the typed
//! tree ([`tree`]), and passes choose on MIR ([`code`]). Both count instructions and decisions; the limits for them
//! are here, each as a share of the whole:
//!
//! | decision | instructions | iterations | decisions |
//! |---|---|---|---|
//! | ordinary loop, where there are others | 2,048 parts of all iterations | 64 | 6 in all iterations |
//! | ordinary loop, where there are no others | 32,768 parts of all iterations | 4,096 | 6 in all iterations |
//! | unrolling | 192 of all iterations, 60,000 on all paths of the function | 16 | counted as paths |
//! | loop body that stays in its function | | | 8 in each iteration |
//! | straight code with its constants known | | | 24 |
//! | straight code with the ranges of 8 numbers that grow known | | | 24 |
//! | inlining at the only call, at each call | 400, 16 | | |
//! | inlining of a helper with pointers | 400 parts added | | |

pub mod code;
mod releases;
pub mod rules;
pub mod tree;

/// The limit of instructions that the verifier follows. Source: include/linux/bpf.h,
/// `BPF_COMPLEXITY_LIMIT_INSNS`, v6.12.
const MAX_VERIFIED: u64 = 1_000_000;

/// The limit of MIR instructions on all paths of a function with unrolled loops: each becomes up to a handful of
/// the verifier's, and other functions of the program take their share.
const MAX_ON_ALL_PATHS: u64 = MAX_VERIFIED * 6 / 100;

/// The limit of decisions over all iterations of a loop of which each iteration is followed.
const MAX_DECISIONS_FOLLOWED: u64 = 6;

/// The limit of decisions in an iteration under an iterator. Each may double the work, and a nested loop
/// multiplies it.
const MAX_DECISIONS_ITERATED: usize = 8;

/// The limit of branches in a function of which the verifier may know the constants.
const MAX_BRANCHES_KNOWN: usize = 24;

/// The limit of numbers that grow from merge to merge of which the verifier may know the ranges: the n-th has up to n.
const MAX_GROWN_KNOWN: usize = 1;

/// The limit of steps in which a number grows from merge to merge, in a function with few branches: each doubles the paths,
/// and twelve of an addition are 27,000 verified instructions.
const MAX_STEPS_KNOWN: usize = 12;

/// The limit of checks of a number and its sums with constants that the verifier may link: each leaves two ranges behind.
const MAX_CHECKS_LINKED: usize = 2;

/// The limit of combinations of bytes behind packet pointers of which the verifier may follow those that are there first.
const MAX_PASSED_FIRST: usize = 64;

/// The limit of pointers to entries that iterations of a function's called loops change. Each is another state where it is not
/// changed yet, and mostly was one before the loop: four are 86,000 verified instructions around few of their own.
const MAX_POINTERS_CHANGED: usize = 4;

/// The limit of instructions of an unrolled loop, and of its iterations.
const MAX_UNROLLED: (usize, u64) = (192, 16);

/// The limit of instructions of a function that is inlined at its only call.
const MAX_INLINED_ONCE: usize = 400;

/// The limit of instructions of a function that is inlined at each call: no more than a call and its spills take.
const MAX_INLINED_OFTEN: usize = 16;

/// The limit of parts of the typed tree that inlining may add for one helper with pointers. The constant arguments
/// of smaller helpers fold.
const MAX_PARTS_ADDED: u64 = 400;
