//! `print` in the kernel half: a record for the host, which has the format.

use std::collections::BTreeMap;

use ks_wit::object::{Print, PrintValue};

use super::super::mir::{Callee, Helper, Lost, MapSymbol, Op, Type, Value};
use super::memory::{Addr, Base};
use super::{Lower, Lowerer, arithmetic, not_yet};
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, Hir, SharedBuiltin};
use crate::source::{SourceMap, Span};
use crate::split::Split;
use crate::types::{IntType, TypeId, TypeKind, Types};

/// Bytes before the values of a record.
const HEADER: u32 = 8;

/// Every `print` of the kernel half, by its place, with its position in the table.
pub(in crate::kernel) type Sites = BTreeMap<Span, u64>;

/// The table of printed lines, and the positions in it.
pub(in crate::kernel) fn table(hir: &Hir, split: &Split, sources: Option<&SourceMap>) -> (Vec<Print>, Sites) {
    let mut prints = Prints { types: &hir.types, sources, table: Vec::new(), sites: Sites::new() };
    split.kernel.iter().for_each(|id| visit::block(&mut prints, &hir.functions[*id].body));
    (prints.table, prints.sites)
}

struct Prints<'a> {
    types: &'a Types,
    sources: Option<&'a SourceMap>,
    table: Vec<Print>,
    sites: Sites,
}

impl Visitor for Prints<'_> {
    fn expr(&mut self, expr: &Expr) {
        let ExprKind::Shared(SharedBuiltin::Print { format, args }) = &expr.kind else { return };
        // What cannot be printed is refused where it is lowered.
        let values: Option<Vec<_>> = args.iter().map(|arg| value_of(self.types, arg.ty)).collect();
        let (Some(values), None) = (values, self.sites.get(&expr.span)) else { return };
        self.sites.insert(expr.span, self.table.len() as u64);
        let (file, line) = self.sources.map_or((String::new(), 0), |sources| {
            let (file, line, _) = sources.place(expr.span);
            (file.rsplit('/').next().unwrap_or(file).to_owned(), line)
        });
        self.table.push(Print { file, line, format: format.clone(), values });
    }
}

/// How a value of a type travels; none if it does not.
fn value_of(types: &Types, ty: TypeId) -> Option<PrintValue> {
    let common = types.common();
    let number = |int: IntType| match int.signed {
        true => PrintValue::Signed(int.bits),
        false => PrintValue::Unsigned(int.bits),
    };
    Some(match types.kind(ty) {
        TypeKind::Bool => PrintValue::Boolean,
        TypeKind::Char => PrintValue::Character,
        TypeKind::Int(int) => number(*int),
        TypeKind::Enum(id) => number(types.enum_def(*id).repr),
        TypeKind::Str(size) => PrintValue::Text(*size),
        TypeKind::Array(element, len) if *element == common.u8 || *element == common.char => {
            PrintValue::Text(u32::try_from(*len).ok()?)
        }
        _ => return None,
    })
}

/// A value that was evaluated.
enum Part<'e> {
    Number(Value),
    Constant(&'e Expr),
    Text(Addr, u32),
}

impl Lowerer<'_> {
    /// `print(..)`: 0. Never waits; a line that has no room is lost, and counted.
    pub(super) fn print(&mut self, args: &[Expr], span: Span) -> Lower<Value> {
        let Some(position) = self.program.prints.get(&span).copied() else {
            return not_yet(span, "printing a value of this type in the kernel half is");
        };
        let mut parts = Vec::new();
        let mut bytes = HEADER;
        for (at, arg) in args.iter().enumerate() {
            let part = self.printed(arg, &args[at + 1..])?;
            bytes += match part {
                Part::Number(_) => 8,
                Part::Constant(_) | Part::Text(..) => self.size(arg.ty, arg.span)?.next_multiple_of(8),
            };
            parts.push((part, arg));
        }
        let (record, join) = self.reserve_bytes(MapSymbol::Prints, bytes, Lost::Print, |_| {});
        self.fill(record, position, &parts)?;
        let flags = self.builder.constant(Type::I64, 0);
        let submit = Callee::Helper(Helper::RingSubmit);
        self.builder.effect(Op::Call { callee: submit, args: vec![record, flags] });
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        Ok(self.builder.constant(Type::I32, 0))
    }

    /// Evaluates a value; what is behind it must not change it.
    fn printed<'e>(&mut self, arg: &'e Expr, later: &[Expr]) -> Lower<Part<'e>> {
        if let ExprKind::Bytes(_) = arg.kind {
            return Ok(Part::Constant(arg));
        }
        if self.is_scalar(arg.ty) {
            let int = self.int(arg.ty, arg.span)?;
            let value = self.scalar(arg)?;
            let wide = IntType { bits: 64, ..int };
            return Ok(Part::Number(arithmetic::convert(&mut self.builder, int, wide, value)));
        }
        let plain =
            |one: &Expr| matches!(one.kind, ExprKind::Const(_) | ExprKind::Load(_) | ExprKind::Bytes(_));
        let bytes = self.size(arg.ty, arg.span)?;
        let addr = if later.iter().all(plain) { self.address_of(arg)? } else { self.temporary(arg)? };
        Ok(Part::Text(addr, bytes))
    }

    /// Writes a record, all of its bytes.
    fn fill(&mut self, record: Value, position: u64, parts: &[(Part<'_>, &Expr)]) -> Lower<()> {
        let start = Addr::of(Base::Pointer(record));
        let position = self.builder.constant(Type::I64, position);
        self.store(start, super::super::mir::Size::DW, position);
        let mut at = HEADER;
        for (part, arg) in parts {
            let to = start.plus(at);
            let bytes = match part {
                Part::Number(value) => {
                    self.store(to, super::super::mir::Size::DW, *value);
                    8
                }
                Part::Constant(text) => {
                    self.lower_into(text, to)?;
                    self.size(text.ty, text.span)?
                }
                Part::Text(addr, bytes) => {
                    self.copy(to, *addr, *bytes, arg.span)?;
                    *bytes
                }
            };
            let end = bytes.next_multiple_of(8);
            self.zero(to.plus(bytes), end - bytes, arg.span)?;
            at += end;
        }
        Ok(())
    }
}
