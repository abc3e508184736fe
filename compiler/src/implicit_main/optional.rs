//! Programs whose attribute says `optional: true`: they are left out at targets that the kernel lacks. What is known of
//! the kernel decides here, and where the plugin is run the host.

use ks_wit::program_kind::ProgramKind;

use super::Role;
use super::attributes::text;
use crate::ast::{AstFunction, AttributeArg, Block, ExprKind, Item, ItemKind, StrLit};
use crate::diag::{Diagnostic, Diagnostics};
use crate::kernel_types::{KernelLookupError, KernelTypes};

/// The name of the argument.
pub(super) const OPTIONAL: &str = "optional";

/// Returns the argument of a program's attribute that says whether it is optional.
pub(super) fn argument(function: &AstFunction) -> Option<&AttributeArg> {
    let attribute = function.attributes.first().filter(|_| matches!(Role::of(function), Role::Program(_)))?;
    attribute.more.iter().find(|one| is_named(one))
}

fn is_named(argument: &AttributeArg) -> bool {
    argument.name.as_ref().is_some_and(|name| name.name == OPTIONAL)
}

/// Takes that argument out of the attribute.
pub(super) fn take(function: &mut AstFunction, diagnostics: &mut Diagnostics) {
    let Some(found) = argument(function) else { return };
    let mut given = function.attributes[0].more.iter().filter(|one| is_named(one));
    let error = match (&found.value.kind, given.nth(1), Role::of(function)) {
        (_, Some(again), _) => {
            let text = format!("`{OPTIONAL}` is given twice");
            Some(Diagnostic::error(501, again.span(), text).also(found.span(), "first here"))
        }
        (_, _, Role::Program(row)) if row.kind == ProgramKind::PerfEvent => {
            let text = "a program at an event is not optional";
            Some(Diagnostic::error(501, found.span(), text).help("choose an event that this machine has"))
        }
        (ExprKind::Bool(_), ..) => None,
        _ => Some(Diagnostic::error(501, found.value.span, "`optional` is `true` or `false`")),
    };
    let is_optional = error.is_none() && matches!(found.value.kind, ExprKind::Bool(true));
    error.into_iter().for_each(|error| diagnostics.report(error));
    let attribute = &mut function.attributes[0];
    attribute.optional = is_optional;
    attribute.more.retain(|one| !is_named(one));
}

/// Leaves out the targets of optional programs that the kernel lacks, and programs that have no other. Returns the bodies
/// of these.
pub(super) fn leave_out(
    items: &mut Vec<Item>,
    kernel: &KernelTypes,
    diagnostics: &mut Diagnostics,
) -> Vec<Block> {
    let mut left_out = Vec::new();
    items.retain_mut(|item| match &mut item.kind {
        ItemKind::Function(function) if function.attributes.first().is_some_and(|one| one.optional) => {
            let stays = has_target(function, kernel, diagnostics);
            if !stays {
                left_out.push(function.body.clone());
            }
            stays
        }
        _ => true,
    });
    left_out
}

/// Whether a program has a target that the kernel does not lack. The others are removed.
fn has_target(function: &mut AstFunction, kernel: &KernelTypes, diagnostics: &mut Diagnostics) -> bool {
    let Role::Program(row) = Role::of(function) else { return true };
    let attribute = &mut function.attributes[0];
    let mut is_missing = |target: &StrLit| {
        let name = String::from_utf8_lossy(&target.bytes);
        let is_missing = lacks(kernel, row.kind, &name);
        // Nobody can make a call that the kernel does not have: nothing is lost, and nothing is said.
        if is_missing && !(is_call(row.kind) && KernelTypes::knows_syscall(&name)) {
            let what = format!("this kernel has no `{name}`: `@{}` is left out there", row.name);
            diagnostics.report(Diagnostic::warning(526, target.span, what));
        }
        is_missing
    };
    let is_first_missing = attribute.argument.as_ref().is_some_and(&mut is_missing);
    attribute.more.retain(|one| !text(one).is_some_and(|target| is_missing(&target)));
    if !is_first_missing {
        return true;
    }
    attribute.argument = attribute.more.first().and_then(text);
    if attribute.argument.is_some() {
        attribute.more.remove(0);
    }
    attribute.argument.is_some()
}

fn is_call(kind: ProgramKind) -> bool {
    matches!(kind, ProgramKind::SyscallEnter | ProgramKind::SyscallExit)
}

/// Whether the kernel is known to lack a target.
fn lacks(kernel: &KernelTypes, kind: ProgramKind, target: &str) -> bool {
    let found = match kind {
        ProgramKind::SyscallEnter | ProgramKind::SyscallExit => {
            return kernel.has_btf() && !kernel.has_syscall(target);
        }
        ProgramKind::Tracepoint => {
            let Some((category, event)) = target.split_once('/') else { return false };
            kernel.tracepoint(category, event).map(drop)
        }
        ProgramKind::RawTracepoint => kernel.raw_tracepoint(target).map(drop),
        ProgramKind::Probe | ProgramKind::Retprobe => {
            let function = target.split_once('+').map_or(target, |(function, _)| function);
            kernel.function(function).map(drop)
        }
        ProgramKind::Lsm => kernel.lsm_hook(target).map(drop),
        _ => return false,
    };
    matches!(found, Err(KernelLookupError::Missing { .. }))
}
