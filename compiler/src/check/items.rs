//! Declarations: types first, then all else but the bodies of functions, which come later.

use super::Checker;
use super::names::{Symbol, Taken};
use crate::ast::{self, Item, ItemKind, TypeExprKind};
use crate::diag::Diagnostic;
use crate::hir::{FuncId, Half};
use crate::kernel_types::KernelTypes;
use crate::source::Span;

/// Most bytes of a global or of a value in a map: far above what makes sense, far below what overflows.
pub(super) const MAX_OBJECT_BYTES: u64 = 16 << 20;

impl<'a> Checker<'a> {
    /// Declares all items. Gives the functions whose bodies are to be checked.
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

    /// A variable, map or ring buffer.
    fn declare_shared(&mut self, global: &ast::Global) {
        match global.ty.as_ref().map(|ty| &ty.kind) {
            Some(TypeExprKind::Map { kind, key, value, size }) => {
                self.declare_map(global, kind, (key, value), size);
            }
            Some(TypeExprKind::Keyless { kind, value, size }) => {
                self.declare_keyless(global, kind, value.as_deref(), size.as_ref());
            }
            Some(TypeExprKind::Ring(record, size)) => self.declare_ring(global, record, size),
            _ => self.declare_variable(global),
        }
    }

    /// What is known of the kernel; opened at the first question.
    pub(super) fn kernel(&self) -> &'a KernelTypes {
        &self.options.kernel
    }

    /// Whether a place lies in a header.
    pub(super) fn in_header(&self, span: Span) -> bool {
        self.file.is_some_and(|file| file != span.file)
    }

    /// Declares what a header of another unit has declared before: it is the same thing here.
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
            // Generated headers repeat each other: the same meaning again is no second one.
            Err(Taken::At(first))
                if self.names.own(&name.name) == Some(symbol)
                    && (self.in_header(name.span) || self.in_header(first)) => {}
            Err(Taken::At(first)) => self.report_duplicate(name, first),
        }
    }

    pub(super) fn report_duplicate(&mut self, name: &ast::Ident, other: Span) {
        // Declarations are not met in their order.
        let later = other.file == name.span.file && other.start > name.span.start;
        let (first, second) = if later { (name.span, other) } else { (other, name.span) };
        self.report(
            Diagnostic::error(302, second, format!("`{}` is already defined", name.name))
                .also(first, "first defined here"),
        );
    }
}

/// The name of a declaration that has no value before the script runs.
fn run_time_name(item: &Item) -> Option<String> {
    match &item.kind {
        ItemKind::Global(global) => Some(global.name.name.clone()),
        ItemKind::Function(function) => Some(function.name.name.clone()),
        ItemKind::Config { name, .. }
        | ItemKind::Counter { name, .. }
        | ItemKind::Extern { name, .. }
        | ItemKind::Impl { name, .. } => Some(name.name.clone()),
        _ => None,
    }
}
