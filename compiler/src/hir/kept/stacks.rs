//! Columns of keys that are stacks: the functions of the stack stand there instead of its number.

use ks_wit::manifest::{Holds, KeyPart};
use ks_wit::object::DisplayForm;

use super::columns::{Column, Step};
use super::{Expr, ExprKind, Hir, SharedBuiltin};
use crate::hir::BinaryOp;
use crate::source::Span;
use crate::types::{TypeId, TypeKind};

/// Bytes of a string with the functions of a stack.
pub(super) const TEXT_BYTES: u32 = 8 << 10;

/// A column that shows a stack.
pub(super) enum StackColumn {
    /// Of the kernel, in this map.
    Kernel(String),
    /// Of a process, whose number is in another column of the key, if there is one.
    User(String, Option<usize>),
    /// Of a process, whose number is in the upper half.
    Process(String),
}

/// Returns which of a key's columns are stacks.
pub(super) fn stack_columns(
    hir: &Hir,
    key: TypeId,
    columns: &[Column],
    parts: &[KeyPart],
) -> Vec<Option<StackColumn>> {
    let holds = |column: &Column| {
        let offset = offset_of(hir, key, &column.path);
        parts.iter().find(|part| u64::from(part.offset) == offset).map(|part| &part.holds)
    };
    let process_of = |column: &Column| {
        let shared = |other: &Column| {
            other.path.iter().zip(&column.path).take_while(|(one, other)| one == other).count()
        };
        let of_process =
            columns.iter().enumerate().filter(|(_, other)| holds(other) == Some(&Holds::Process));
        // Of several tasks, the one whose struct the stack is in.
        of_process.max_by_key(|(_, other)| shared(other)).map(|(at, _)| at)
    };
    let column = |column: &Column| match holds(column)? {
        Holds::KernelStack { map } => Some(StackColumn::Kernel(map.clone())),
        Holds::UserStack { map } => Some(StackColumn::User(map.clone(), process_of(column))),
        Holds::ProcessStack { map } => Some(StackColumn::Process(map.clone())),
        _ => None,
    };
    columns.iter().map(column).collect()
}

/// Returns the offset of a part of a value in bytes.
fn offset_of(hir: &Hir, ty: TypeId, path: &[Step]) -> u64 {
    let types = &hir.types;
    let (mut ty, mut offset) = (ty, 0);
    for step in path {
        (ty, offset) = match (*step, types.kind(ty)) {
            (Step::Field(field), TypeKind::Struct(id)) => {
                (types.struct_def(*id).fields[field].ty, offset + types.field_offset(*id, field))
            }
            (Step::Element(at), TypeKind::Array(element, _)) => {
                (*element, offset + at * types.size(*element))
            }
            _ => unreachable!("a path has the steps of its type"),
        };
    }
    offset
}

impl StackColumn {
    /// Returns the functions of a stack as a string of type `text`. `values` are what the columns of the key hold, of which
    /// that at `at` is the stack.
    pub(super) fn text(&self, hir: &Hir, text: TypeId, values: &[Expr], at: usize) -> Expr {
        let common = hir.types.common();
        let value = &values[at];
        let convert = |value: Expr, ty: TypeId| {
            let span = value.span;
            if value.ty == ty { value } else { Expr { kind: ExprKind::Convert(Box::new(value)), ty, span } }
        };
        // A number has 31 bits, an errno fewer: the lower half has the sign.
        let id = convert(convert(value.clone(), common.i32), common.i64);
        let (form, args) = match self {
            StackColumn::Kernel(map) => (DisplayForm::KernelStack(map.clone()), vec![id]),
            StackColumn::User(map, process) => {
                let process = process.map_or_else(
                    || constant(0, common.i32, value.span),
                    |at| convert(values[at].clone(), common.i32),
                );
                (DisplayForm::ProcessStack(map.clone()), vec![process, id])
            }
            StackColumn::Process(map) => {
                let upper = ExprKind::Binary(
                    BinaryOp::Shr,
                    Box::new(value.clone()),
                    Box::new(constant(32, value.ty, value.span)),
                );
                let upper = Expr { kind: upper, ty: value.ty, span: value.span };
                (DisplayForm::ProcessStack(map.clone()), vec![convert(upper, common.i32), id])
            }
        };
        let kind = ExprKind::Shared(SharedBuiltin::Display { form, args });
        Expr { kind, ty: text, span: value.span }
    }
}

fn constant(value: u64, ty: TypeId, span: Span) -> Expr {
    Expr { kind: ExprKind::Const(value), ty, span }
}
