//! Ring buffers (language reference, 5.6).

use super::Checker;
use super::names::Symbol;
use super::types::Position;
use crate::ast::{self, Size, TypeExpr};
use crate::diag::Diagnostic;
use crate::hir::{FunctionKind, Ring};
use crate::types::TypeKind;

const LEAST_BYTES: u64 = 4096;
const MOST_BYTES: u64 = 128 << 20;

impl Checker<'_> {
    pub(super) fn declare_ring(&mut self, global: &ast::Global, record: &TypeExpr, size: &Size) {
        if let Some(local) = global.local {
            self.report(Diagnostic::error(604, local, "`local` and a ring buffer do not go together"));
        }
        if let Some(flags) = &global.flags {
            self.report(Diagnostic::error(602, flags.span, "a ring buffer takes no flags"));
        }
        if let Some(init) = &global.init {
            self.report(Diagnostic::error(619, init.span, "a ring buffer has no initial value"));
        }
        let ty = self.type_expr(record, Position::Value);
        let size = self.literal_size(size);
        if !matches!(self.types.kind(ty), TypeKind::Struct(_) | TypeKind::Error) {
            let text = format!("record type must be a struct, not `{}`", self.types.name(ty));
            self.report(Diagnostic::error(609, record.span, text).help("put the value into a struct"));
        }
        if let Some(size) = size
            && (size.negative
                || !size.value.is_power_of_two()
                || !(LEAST_BYTES..=MOST_BYTES).contains(&size.value))
        {
            let mut error =
                Diagnostic::error(610, size.span, "ring size must be a power of two from 4096 to 128 MiB");
            if let Some(near) = size.value.checked_next_power_of_two() {
                let near = near.clamp(LEAST_BYTES, MOST_BYTES);
                error = error.suggest(size.span, near.to_string(), "the next one");
            }
            self.report(error);
        }
        if self.types.is_error(ty) || !matches!(self.types.kind(ty), TypeKind::Struct(_)) {
            self.declare_name(&global.name, Symbol::Error);
            return;
        }
        let id = self.rings.push(Ring {
            name: self.full_name(&global.name),
            span: global.name.span,
            record: ty,
            bytes: size.and_then(|size| u32::try_from(size.value).ok()).unwrap_or(LEAST_BYTES as u32),
            pinned: global.pin.is_some(),
            default_handler: None,
        });
        self.declare_name(&global.name, Symbol::Ring(id));
    }

    /// Makes a userspace function `NAME_callback` the handler of the ring `NAME`. `first` is the first ring
    /// of this unit.
    pub(super) fn find_default_handlers(&mut self, first: usize) {
        let i32 = self.types.common().i32;
        for id in self.rings.ids().skip(first) {
            let record = self.rings[id].record;
            let pointer = self.types.intern(TypeKind::Ptr(record));
            let own_name = self.rings[id].name.rsplit('.').next().unwrap_or_default().to_owned();
            let Some(Symbol::Function(handler)) = self.names.own(&format!("{own_name}_callback")) else {
                continue;
            };
            let signature = &self.signatures[handler];
            if signature.kind == Some(FunctionKind::Plain)
                && signature.params == [pointer]
                && signature.ret == i32
            {
                self.rings[id].default_handler = Some(handler);
            }
        }
    }
}
