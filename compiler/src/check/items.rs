//! Declarations: types first, then all others but the bodies of functions, which are checked later.

use super::Checker;
use super::names::{Symbol, Taken};
use crate::ast::{self, Item, ItemKind, TypeExprKind};
use crate::diag::Diagnostic;
use crate::hir::{FuncId, Half};
use crate::kernel_types::KernelTypes;
use crate::source::Span;

/// Maximum size in bytes of a global or of a map value: far above any useful size, far below overflow.
pub(super) const MAX_OBJECT_BYTES: u64 = 16 << 20;

impl<'a> Checker<'a> {
    /// Declares all items and returns the functions whose bodies have to be checked.
    pub(super) fn declare<'f>(&mut self, file: &'f ast::File) -> Vec<(FuncId, &'f ast::AstFunction)> {
        self.half = Half::Kernel;
        self.not_constant = file.items.iter().filter_map(run_time_name).collect();
        self.declare_types(&file.items);
        let first_ring = self.rings.len();
        let mut functions = Vec::new();
        for item in &file.items {
            match &item.kind {
                ItemKind::Function(function) => functions.push((self.declare_function(function), function)),
                ItemKind::Impl { attributes, name, methods, fields } => {
                    self.declare_impl((attributes, name), methods, fields, &mut functions);
                }
                ItemKind::Config { name, fields } => self.declare_config(name, fields),
                ItemKind::Extern { name, params, ret } => self.declare_extern(name, params, ret.as_ref()),
                ItemKind::ExternVariable { per_cpu, name, ty } => {
                    self.declare_kernel_variable(*per_cpu, name, ty);
                }
                ItemKind::Global(global) => self.declare_shared(global),
                ItemKind::Counter { name, event, leader } => {
                    self.declare_counter(name, event, leader.as_ref());
                }
                _ => {}
            }
        }
        self.find_default_handlers(first_ring);
        functions
    }

    /// Declares a variable, map or ring buffer at top level.
    fn declare_shared(&mut self, global: &ast::Global) {
        if let (Some(per_cpu), Some(ty)) = (global.per_cpu, &global.ty)
            && let TypeExprKind::Map { .. } | TypeExprKind::Keyless { .. } | TypeExprKind::Ring(..) = ty.kind
        {
            self.report(
                Diagnostic::error(602, per_cpu, "`percpu` stands before a variable, not before a map")
                    .help("`percpu_array<K, V>(N)` and `percpu_hash<K, V>(N)` have a value for each CPU"),
            );
        }
        match global.ty.as_ref().map(|ty| &ty.kind) {
            Some(TypeExprKind::Map { kind, key, value, size })
                if matches!(
                    value.kind,
                    TypeExprKind::Map { .. } | TypeExprKind::Ring(..) | TypeExprKind::Keyless { .. }
                ) =>
            {
                self.declare_nested_map(global, kind, (key, value), size.as_ref());
            }
            Some(TypeExprKind::Map { kind, key, value, size }) => {
                self.declare_map(global, kind, (key, value), size.as_ref());
            }
            Some(TypeExprKind::Keyless { kind, value, size }) => {
                self.declare_keyless(global, kind, value.as_deref(), size.as_ref());
            }
            Some(TypeExprKind::Ring(record, size)) => self.declare_ring(global, record, size),
            _ => self.declare_variable(global),
        }
    }

    /// Returns the kernel's types, which are read at the first query.
    pub(super) fn kernel(&self) -> &'a KernelTypes {
        &self.options.kernel
    }

    /// Whether a source range is in a header.
    pub(super) fn in_header(&self, span: Span) -> bool {
        self.file.is_some_and(|file| file != span.file)
    }

    /// Declares an item of a header that another unit includes, too: it is the same item here.
    pub(super) fn declared_by_header(&mut self, name: &ast::Ident) -> bool {
        let Some(symbol) = self.from_headers.get(&name.span).copied() else { return false };
        self.declare_name(name, symbol);
        true
    }

    pub(super) fn declare_name(&mut self, name: &ast::Ident, symbol: Symbol) {
        if self.in_header(name.span) {
            self.from_headers.insert(name.span, symbol);
        }
        match self.names.declare(&name.name, symbol, name.span) {
            Ok(()) => {}
            Err(Taken::Predeclared) => self.report(
                Diagnostic::error(310, name.span, format!("`{}` is predeclared", name.name))
                    .help("choose another name"),
            ),
            // Generated headers repeat each other: repeating a declaration with the same meaning is not an
            // error.
            Err(Taken::At(first))
                if self.names.own(&name.name) == Some(symbol)
                    && (self.in_header(name.span) || self.in_header(first)) => {}
            Err(Taken::At(first)) => self.report_duplicate(name, first),
        }
    }

    pub(super) fn report_duplicate(&mut self, name: &ast::Ident, other: Span) {
        // Declarations are not visited in source order.
        let later = other.file == name.span.file && other.start > name.span.start;
        let (first, second) = if later { (name.span, other) } else { (other, name.span) };
        self.report(
            Diagnostic::error(302, second, format!("`{}` is already defined", name.name))
                .also(first, "first defined here"),
        );
    }
}

/// Returns the name of a declaration whose value is only known at run time.
fn run_time_name(item: &Item) -> Option<String> {
    match &item.kind {
        ItemKind::Global(global) => Some(global.name.name.clone()),
        ItemKind::Function(function) => Some(function.name.name.clone()),
        ItemKind::Config { name, .. }
        | ItemKind::Counter { name, .. }
        | ItemKind::Extern { name, .. }
        | ItemKind::ExternVariable { name, .. }
        | ItemKind::Impl { name, .. } => Some(name.name.clone()),
        _ => None,
    }
}
