//! Formats types of all forms.

use super::layout::Break;
use super::writer::{Brackets, Writer};
use crate::ast::{IntLit, Size, TypeExpr, TypeExprKind};

impl Writer<'_> {
    pub(super) fn ty(&mut self, ty: &TypeExpr) {
        match &ty.kind {
            TypeExprKind::Name(name) => self.name(name),
            TypeExprKind::Qualified { module, name } => {
                self.name(&module.name);
                self.same_line(".");
                self.name(&name.name);
            }
            TypeExprKind::Str(size) => {
                self.token("str");
                self.same_line("(");
                self.int(size);
                self.same_line(")");
            }
            TypeExprKind::Array(of, size) => {
                self.ty(of);
                self.stick("[");
                self.size(size);
                self.same_line("]");
            }
            TypeExprKind::Ptr(to) => {
                self.token("*");
                self.ty(to);
            }
            TypeExprKind::Fn(params, ret) => self.fn_type(params, ret),
            TypeExprKind::Map { kind, key, value, size } => {
                self.name(&kind.name);
                self.same_line("<");
                self.ty(key);
                self.same_line(",");
                self.space();
                self.ty(value);
                self.same_line(">");
                size.iter().for_each(|size| self.size_in_parentheses(size));
            }
            TypeExprKind::Keyless { kind, value, size } => {
                self.name(&kind.name);
                if let Some(value) = value {
                    self.same_line("<");
                    self.ty(value);
                    self.same_line(">");
                }
                size.iter().for_each(|size| self.size_in_parentheses(size));
            }
            TypeExprKind::LinearHist { low, step, slots } => {
                self.name("linear_hist");
                self.same_line("(");
                for (at, number) in [low, step, slots].into_iter().enumerate() {
                    if at > 0 {
                        self.same_line(",");
                        self.space();
                    }
                    self.int(number);
                }
                self.same_line(")");
            }
            TypeExprKind::Ring(record, size) => {
                self.token("ringbuf");
                self.same_line("<");
                self.ty(record);
                self.same_line(">");
                self.size_in_parentheses(size);
            }
        }
    }

    /// Writes a function type. The tree has no names for its parameters; the source may.
    fn fn_type(&mut self, params: &[TypeExpr], ret: &TypeExpr) {
        self.token("fn");
        self.same_line("(");
        self.group(Break::IfTooLong, |writer| {
            writer.list(params, Brackets::Round, |writer, param| {
                if writer.ahead_is(1, ":") {
                    writer.name("");
                    writer.same_line(":");
                    writer.space();
                }
                writer.ty(param);
            });
            writer.token(")");
        });
        self.space();
        self.same_line("->");
        self.space();
        self.ty(ret);
    }

    fn size_in_parentheses(&mut self, size: &Size) {
        self.same_line("(");
        self.size(size);
        self.same_line(")");
    }

    fn size(&mut self, size: &Size) {
        match size {
            Size::Int(size) => self.int(size),
            Size::Const(name) => self.name(&name.name),
            Size::Option { options, field } => {
                self.name(&options.name);
                self.same_line(".");
                self.name(&field.name);
            }
        }
    }

    pub(super) fn int(&mut self, int: &IntLit) {
        if int.negative {
            self.token("-");
        }
        self.verbatim(|| int.value.to_string().into_bytes());
    }

    /// Writes a type after a colon: `: type`.
    pub(super) fn of_type(&mut self, ty: &TypeExpr) {
        self.same_line(":");
        self.space();
        self.ty(ty);
    }
}
