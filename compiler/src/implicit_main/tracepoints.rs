//! Which targets of one attribute a single program serves.
//!
//! The kernel runs a program at any number of tracepoints, and does not care for which it was loaded. What the program
//! reads must mean the same at all of them: what its body names decides.

use ks_wit::program_kind::ProgramKind;

use super::attributes::record;
use super::{Role, options};
use crate::ast::{AstFunction, Block, StrLit};
use crate::kernel_types::{KernelTypes, Param};

/// The builtin whose value is the target.
const PROBE: &str = "probe";
/// The context of a program without a head.
const CONTEXT: &str = "ctx";
/// The records whose size differs between events of the same struct: each has as many arguments as its call.
const CALLS: &str = "syscalls/sys_enter_";

/// Returns the tracepoint (`category/event`) of the second target if a program for the first one serves it, too.
pub(super) fn served(function: &AstFunction, targets: [&StrLit; 2], kernel: &KernelTypes) -> Option<String> {
    let Role::Program(row) = Role::of(function) else { return None };
    let body = &function.body;
    let [first, second] = targets.map(|target| std::str::from_utf8(&target.bytes));
    let (first, second) = (first.ok()?, second.ok()?);
    if first == second || options::names(body, PROBE) {
        return None;
    }
    let is_known = |call| kernel.has_syscall(call);
    match row.kind {
        ProgramKind::SyscallEnter => {
            let fits = is_known(first) && is_known(second) && {
                let (ours, theirs) = (kernel.syscall(first)?, kernel.syscall(second)?);
                agree(body, &ours, &theirs) && agree(body, &theirs, &ours)
            };
            fits.then(|| format!("{CALLS}{second}"))
        }
        ProgramKind::SyscallExit => {
            (is_known(first) && is_known(second)).then(|| format!("syscalls/sys_exit_{second}"))
        }
        ProgramKind::Tracepoint => {
            let exists = |target: &str| {
                target
                    .split_once('/')
                    .is_some_and(|(category, event)| kernel.tracepoint(category, event).is_ok())
            };
            let is_alike = || record(first, kernel) == record(second, kernel) && !second.starts_with(CALLS);
            let fits = exists(first) && exists(second) && (!options::names(body, CONTEXT) || is_alike());
            fits.then(|| second.to_owned())
        }
        _ => None,
    }
}

/// Whether each of our parameters that the body names is theirs, too, and at the same position.
fn agree(body: &Block, ours: &[Param], theirs: &[Param]) -> bool {
    let named = ours.iter().enumerate().filter(|(_, param)| options::names(body, &param.name));
    named.into_iter().all(|(at, param)| theirs.get(at) == Some(param))
}
