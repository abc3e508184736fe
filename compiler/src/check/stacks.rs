//! Stacks: `kstack()` and `ustack()`, whose maps nothing declares, and `stack_id(ctx, m)` and `user_stack_id(ctx, m)`
//! with a map of the script (language reference, 11.9).

use std::collections::BTreeMap;

use super::Checker;
use super::expr::Typed;
use super::function::Body;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::{FunctionKind, KernelBuiltin, Map, MapId, MapKind, StackOwner};
use crate::source::Span;
use crate::types::TypeKind;

/// Number of addresses in one stack (include/uapi/linux/perf_event.h, PERF_MAX_STACK_DEPTH).
pub(super) const MAX_DEPTH: u32 = 127;
/// Number of stacks of a map that nothing declares. Two stacks may have the same place in it; the second is lost, and
/// counted.
const ENTRIES: u32 = 16384;

impl Body<'_, '_> {
    /// Checks `stack_id(ctx, m)` and `user_stack_id(ctx, m)`.
    pub(super) fn stack_id_call(&mut self, of: StackOwner, args: &[ast::Expr], span: Span) -> Typed {
        let (ctx, map) = (self.event_context(&args[0]), self.stack_map(&args[1]));
        match (ctx, map) {
            (Some(ctx), Some(map)) => {
                let builtin = KernelBuiltin::StackId { ctx: Box::new(ctx), map, of };
                self.kernel_builtin(builtin, self.common().i64, span)
            }
            _ => self.error_expr(span),
        }
    }

    fn stack_map(&mut self, arg: &ast::Expr) -> Option<MapId> {
        let map = self.map_arg(arg)?;
        let one = &self.checker.maps[map];
        if one.kind == MapKind::StackTrace {
            return Some(map);
        }
        let text = format!("expected a map of stacks, `{}` is of the kind `{}`", one.name, one.kind.name());
        let declared = one.span;
        self.report(
            Diagnostic::error(401, arg.span, text)
                .also(declared, "declared here")
                .help("declare one: `var stacks : stack_trace(16384)`"),
        );
        None
    }

    /// Checks `kstack()`, `ustack()`, and both with a depth.
    pub(super) fn stack_call(&mut self, of: StackOwner, args: &[ast::Expr], span: Span) -> Typed {
        if !matches!(self.kind, FunctionKind::Program(_)) {
            let error = Diagnostic::error(306, span, "this stack is there in a program only")
                .note("a helper may be called by programs of several kinds")
                .help("take the stack in the program, and pass its number as an `i64`");
            self.report(error);
            return self.error_expr(span);
        }
        let depth = match args {
            [depth, ..] => self.stack_depth(depth),
            [] => Some(MAX_DEPTH),
        };
        let Some(depth) = depth else { return self.error_expr(span) };
        let map = self.checker.own_stacks(depth, span);
        let builtin = match of {
            StackOwner::Kernel => KernelBuiltin::KernelStack(map),
            StackOwner::User => KernelBuiltin::UserStack(map),
        };
        self.kernel_builtin(builtin, self.common().i64, span)
    }

    fn stack_depth(&mut self, depth: &ast::Expr) -> Option<u32> {
        let found = self.expr(depth, None);
        if self.checker.types.is_error(found.expr.ty) {
            return None;
        }
        let number = found.constant.and_then(|number| u32::try_from(number).ok());
        let fits = number.filter(|number| (1..=MAX_DEPTH).contains(number));
        if fits.is_none() {
            let text = format!("the depth of a stack is a constant from 1 to {MAX_DEPTH}");
            self.report(Diagnostic::error(401, depth.span, text));
        }
        fits
    }
}

impl Checker<'_> {
    /// Returns the map that keeps stacks of this depth; the first use in the text makes it.
    fn own_stacks(&mut self, depth: u32, span: Span) -> MapId {
        if let Some(map) = self.own_stacks.get(&depth) {
            return *map;
        }
        let common = self.types.common();
        let value = self.types.intern(TypeKind::Array(common.u64, depth.into()));
        let unnamed = (String::new(), span);
        let map = self.maps.push(Map::new(unnamed, MapKind::StackTrace, common.i64, value, ENTRIES));
        self.own_stacks.insert(depth, map);
        map
    }

    /// Names the maps of stacks, when all that the script names is known.
    pub(super) fn name_own_stacks(&mut self) {
        for (depth, map) in std::mem::take(&mut self.own_stacks) {
            let name = if depth == MAX_DEPTH { "stacks".to_owned() } else { format!("stacks_{depth}") };
            let numbered = (2..).map(|number| format!("{name}_of_{number}"));
            let is_free = |name: &String| {
                self.maps.iter().all(|one| one.name != *name)
                    && self.globals.iter().all(|one| one.name != *name)
                    && self.rings.iter().all(|one| one.name != *name)
            };
            let free = std::iter::once(name.clone()).chain(numbered).find(is_free);
            self.maps[map].name = free.expect("some number is free");
        }
    }
}

/// The maps of stacks that nothing declares, by the depth of the stacks.
pub(super) type OwnStacks = BTreeMap<u32, MapId>;
