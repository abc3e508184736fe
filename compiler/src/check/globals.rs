//! Global variables (language reference, 5.2).

use super::Checker;
use super::items::MAX_OBJECT_BYTES;
use super::names::Symbol;
use super::types::Position;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::visit::{self, Visitor};
use crate::hir::{FuncId, Global, GlobalId, Half, HirFunction, Map, MapId, MapKind, Stmt};
use crate::index::IndexVec;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

impl Checker<'_> {
    pub(super) fn declare_variable(&mut self, global: &ast::Global) {
        if let Some(flags) = &global.flags {
            self.report(Diagnostic::error(203, flags.span, "only a map takes @flags"));
        }
        if let (Some(pin), Some(local)) = (global.pin, global.local) {
            self.report(local_and_pin(local, pin));
        }
        let written = global.ty.as_ref().map(|ty| self.type_expr(ty, Position::Value));
        if global.per_cpu.is_some() {
            self.declare_per_cpu(global, written);
            return;
        }
        let (ty, init) = self.global_init(global, written);
        if self.types.size(ty) > MAX_OBJECT_BYTES {
            let text = format!("size must be at most {MAX_OBJECT_BYTES} bytes");
            self.report(Diagnostic::error(606, global.name.span, text));
            self.declare_name(&global.name, Symbol::Error);
            return;
        }
        if self.types.is_error(ty) {
            self.declare_name(&global.name, Symbol::Error);
            return;
        }
        let column = self.label_of_global(global, ty);
        let id = self.globals.push(Global {
            kernel_only: global.local.is_some(),
            pinned: global.pin.is_some(),
            init,
            column,
            ..Global::new(self.full_name(&global.name), ty, global.name.span)
        });
        self.declare_name(&global.name, Symbol::Global(id));
    }

    /// Declares a variable with a value for each CPU: the entry of a per-CPU array.
    fn declare_per_cpu(&mut self, global: &ast::Global, ty: Option<TypeId>) {
        let unfit = match (&global.init, &global.ty) {
            (Some(init), _) => {
                Some((init.span, "a `percpu` variable starts as zero and has no initial value"))
            }
            (None, None) => Some((global.name.span, "a `percpu` variable needs a type")),
            _ => None,
        };
        if let Some((span, text)) = unfit {
            self.report(Diagnostic::error(619, span, text).help("write `percpu var name: u64`"));
        }
        let (Some(ty), None, Some(written)) = (ty, unfit, &global.ty) else {
            self.declare_name(&global.name, Symbol::Error);
            return;
        };
        self.check_value(MapKind::PercpuArray, ty, written.span);
        if self.types.is_error(ty) {
            self.declare_name(&global.name, Symbol::Error);
            return;
        }
        let name = (self.full_name(&global.name), global.name.span);
        let column = self.label_of_global(global, ty);
        let id = self.maps.push(Map {
            column,
            pinned: global.pin.is_some(),
            kernel_only: global.local.is_some(),
            is_variable: true,
            ..Map::new(name, MapKind::PercpuArray, self.types.common().u32, ty, 1)
        });
        self.declare_name(&global.name, Symbol::PerCpu(id));
    }

    /// Whether a value of a type contains an address.
    pub(super) fn has_pointer(&self, ty: TypeId) -> bool {
        self.any_part(ty, |kind| matches!(kind, TypeKind::Ptr(_) | TypeKind::Fn(..)))
    }

    /// An address is only valid in one half: a variable that contains one belongs to the userspace half.
    pub(super) fn check_pointer_globals(&mut self, functions: &IndexVec<FuncId, HirFunction>) {
        struct Uses(Vec<GlobalId>);
        impl Visitor for Uses {
            fn global(&mut self, id: GlobalId) {
                self.0.push(id);
            }
        }
        let mut wrong: Vec<Option<&HirFunction>> = vec![None; self.globals.len()];
        for function in functions.iter().filter(|function| function.kind.half() == Half::Kernel) {
            let mut uses = Uses(Vec::new());
            visit::block(&mut uses, &function.body);
            for id in uses.0 {
                if self.has_pointer(self.globals[id].ty) {
                    wrong[crate::index::Id::index(id)].get_or_insert(function);
                }
            }
        }
        for (id, user) in self.globals.ids().zip(wrong) {
            let Some(user) = user else { continue };
            let global = &self.globals[id];
            let text = format!("`{}` holds a pointer, which the kernel half cannot use", global.name);
            let error = Diagnostic::error(601, global.span, text)
                .also(user.span, format!("`{}` of the kernel half uses it", user.name))
                .help("keep the value itself, or a map of pointers");
            self.report(error);
        }
    }
}

/// Reports `local` and `pin` before one declaration.
pub(super) fn local_and_pin(local: Span, pin: Span) -> Diagnostic {
    Diagnostic::error(604, local, "`local` and `pin` do not go together")
        .also(pin, "pinned here")
        .note("what is pinned can be opened by others")
}

/// The maps that a function names, with the statement that does.
struct NamedMaps {
    stmt: Option<Span>,
    maps: Vec<(MapId, Option<Span>)>,
}

impl Visitor for NamedMaps {
    fn stmt(&mut self, stmt: &Stmt) {
        self.stmt = Some(stmt.span);
    }

    fn map(&mut self, map: MapId) {
        self.maps.push((map, self.stmt));
    }
}

impl Checker<'_> {
    /// Reports functions of userspace that name a `local` map.
    pub(super) fn check_local_maps(&mut self, functions: &IndexVec<FuncId, HirFunction>) {
        if !self.maps.iter().any(|map| map.kernel_only) {
            return;
        }
        for function in functions.iter().filter(|function| function.kind.half() == Half::User) {
            let mut named = NamedMaps { stmt: None, maps: Vec::new() };
            visit::block(&mut named, &function.body);
            let first = |map: MapId| named.maps.iter().find(|(one, _)| *one == map);
            for (id, map) in self.maps.iter_enumerated().filter(|(_, map)| map.kernel_only) {
                let Some((_, stmt)) = first(id) else { continue };
                let text = format!("`{}` belongs to the kernel half", map.name);
                let error = Diagnostic::error(306, stmt.unwrap_or(function.span), text);
                self.diagnostics.report(error.also(map.span, "declared `local` here"));
            }
        }
    }
}
