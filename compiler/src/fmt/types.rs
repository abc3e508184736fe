//! Types.

use super::writer::Writer;
use crate::ast::{IntLit, Size, TypeExpr, TypeExprKind};

impl Writer<'_> {
    pub(super) fn ty(&mut self, ty: &TypeExpr) {
        match &ty.kind {
            TypeExprKind::Name(name) => self.name(name),
            TypeExprKind::Qualified { module, name } => {
                self.name(&module.name);
                self.beside(".");
                self.name(&name.name);
            }
            TypeExprKind::Str(size) => {
                self.token("str");
                self.beside("(");
                self.int(size);
                self.beside(")");
            }
            TypeExprKind::Array(of, size) => {
                self.ty(of);
                self.stick("[");
                self.size(size);
                self.beside("]");
            }
            TypeExprKind::Ptr(to) => {
                self.token("*");
                self.ty(to);
            }
            TypeExprKind::Fn(params, ret) => self.fn_type(params, ret),
            TypeExprKind::Map { kind, key, value, size } => {
                self.name(&kind.name);
                self.beside("<");
                self.ty(key);
                self.beside(",");
                self.space();
                self.ty(value);
                self.beside(">");
                self.size_in_parentheses(size);
            }
            TypeExprKind::Keyless { kind, value, size } => {
                self.name(&kind.name);
                if let Some(value) = value {
                    self.beside("<");
                    self.ty(value);
                    self.beside(">");
                }
                size.iter().for_each(|size| self.size_in_parentheses(size));
            }
            TypeExprKind::Ring(record, size) => {
                self.token("ringbuf");
                self.beside("<");
                self.ty(record);
                self.beside(">");
                self.size_in_parentheses(size);
            }
        }
    }

    /// The tree has no names for the parameters of a function type; the source may.
    fn fn_type(&mut self, params: &[TypeExpr], ret: &TypeExpr) {
        self.token("fn");
        self.beside("(");
        self.group(false, |writer| {
            writer.list(params, Writer::soft, false, |writer, param| {
                if writer.ahead_is(1, ":") {
                    writer.name("");
                    writer.beside(":");
                    writer.space();
                }
                writer.ty(param);
            });
            writer.token(")");
        });
        self.space();
        self.beside("->");
        self.space();
        self.ty(ret);
    }

    fn size_in_parentheses(&mut self, size: &Size) {
        self.beside("(");
        self.size(size);
        self.beside(")");
    }

    fn size(&mut self, size: &Size) {
        match size {
            Size::Int(size) => self.int(size),
            Size::Const(name) => self.name(&name.name),
        }
    }

    pub(super) fn int(&mut self, int: &IntLit) {
        if int.negative {
            self.token("-");
        }
        self.word(|| int.value.to_string().into_bytes());
    }

    /// `: type`.
    pub(super) fn of_type(&mut self, ty: &TypeExpr) {
        self.beside(":");
        self.space();
        self.ty(ty);
    }
}
