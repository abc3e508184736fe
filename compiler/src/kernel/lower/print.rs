//! Lowers `print` in the kernel half to a record for the host, which has the format.

use std::collections::BTreeMap;

use ks_wit::object::{Print, PrintValue};

use super::super::mir::{Callee, Helper, Lost, MapSymbol, Op, Type, Value};
use super::memory::{Addr, Base};
use super::{Lower, Lowerer, arithmetic, impossible};
use crate::diag::Diagnostic;
use crate::hir::format;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, Hir, SharedBuiltin};
use crate::source::{SourceMap, Span};
use crate::split::Split;
use crate::types::{IntType, TypeId, TypeKind, Types};

/// Bytes of a record before the values.
const HEADER: u32 = 8;

/// The limit in bytes of the text that a pointer points to, including its terminating zero (language
/// reference, 6.1).
const TEXT_BYTES: u32 = 64;

/// The limit of numbers of a `print` that are values of their own until its record is written.
const MAX_VALUES: usize = 12;

/// The limit in bytes of a record. The host takes 64 KiB of records at once, each after a header of 8 bytes.
const MAX_RECORD: u32 = (64 << 10) - 8;

/// Every `print` of the kernel half, by its source span, with its position in the table.
pub(in crate::kernel) type Sites = BTreeMap<Span, u64>;

/// The table of `print` formats, and the position of each `print` in it.
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
        // A value that cannot be printed is refused where it is lowered.
        let letters = format::letters(format);
        let value = |(at, arg): (usize, &Expr)| match &arg.kind {
            ExprKind::Shared(SharedBuiltin::Display { form, .. }) => Some(PrintValue::Display(form.clone())),
            _ => value_of(self.types, arg.ty, letters.get(at).copied()),
        };
        let values: Option<Vec<_>> = args.iter().enumerate().map(value).collect();
        let (Some(values), None) = (values, self.sites.get(&expr.span)) else { return };
        self.sites.insert(expr.span, self.table.len() as u64);
        let (file, line) = self.sources.map_or((String::new(), 0), |sources| {
            let (file, line, _) = sources.position(expr.span);
            (file.rsplit('/').next().unwrap_or(file).to_owned(), line)
        });
        self.table.push(Print { file, line, format: format.clone(), values });
    }
}

/// The encoding of a value in a record, for a conversion with this letter; `None` if the type cannot be
/// printed.
fn value_of(types: &Types, ty: TypeId, letter: Option<u8>) -> Option<PrintValue> {
    let common = types.common();
    let number =
        |int: IntType| if int.signed { PrintValue::Signed(int.bits) } else { PrintValue::Unsigned(int.bits) };
    Some(match types.kind(ty) {
        TypeKind::Bool => PrintValue::Boolean,
        TypeKind::Char => PrintValue::Character,
        TypeKind::Int(int) => number(*int),
        TypeKind::Enum(id) => {
            let def = types.enum_def(*id);
            let number = number(def.repr);
            if letter.is_some_and(|letter| letter != b'{') {
                return Some(number);
            }
            let travels = |(name, bits): &(String, u64)| (def.repr.value(*bits) as u64, name.clone());
            PrintValue::Enum {
                number: Box::new(number),
                enumerators: def.enumerators.iter().map(travels).collect(),
            }
        }
        TypeKind::Str(size) => PrintValue::Text(*size),
        TypeKind::Ptr(_) if letter == Some(b's') => PrintValue::Text(TEXT_BYTES),
        TypeKind::Ptr(_) => PrintValue::Pointer,
        TypeKind::Array(element, len) if *element == common.u8 || *element == common.char => {
            PrintValue::Text(u32::try_from(*len).ok()?)
        }
        _ => return None,
    })
}

/// Whether the evaluation of an argument changes no variable.
fn is_plain(arg: &Expr) -> bool {
    match &arg.kind {
        ExprKind::Const(_) | ExprKind::Load(_) | ExprKind::Bytes(_) => true,
        ExprKind::Shared(SharedBuiltin::Display { args, .. }) => args.iter().all(is_plain),
        _ => false,
    }
}

/// An evaluated argument of a `print`.
enum Part<'e> {
    Number(Value),
    Constant(&'e Expr),
    Text(Addr, u32),
}

impl Lowerer<'_> {
    /// Lowers `print(..)`, whose value is 0. It never waits; a line that finds the ring buffer full is lost,
    /// and counted.
    pub(super) fn print(&mut self, format: &[u8], args: &[Expr], span: Span) -> Lower<Value> {
        let Some(position) = self.program.prints.get(&span).copied() else {
            return impossible(span, "a value printed whose type has no conversion");
        };
        let mut parts = Vec::new();
        let letters = format::letters(format);
        for (at, arg) in args.iter().enumerate() {
            let later = &args[at + 1..];
            if let ExprKind::Shared(SharedBuiltin::Display { args: operands, .. }) = &arg.kind {
                self.printed_operands(operands, later, &mut parts)?;
                continue;
            }
            let part = match self.types().kind(arg.ty) {
                TypeKind::Ptr(_) if letters.get(at) == Some(&b's') => self.printed_text(arg)?,
                TypeKind::Ptr(_) => Part::Number(self.printed_address(arg)?),
                _ => self.printed(arg, later.iter().all(is_plain))?,
            };
            self.add_part(part, &mut parts);
        }
        let bytes = self.record_bytes(&parts, span)?;
        let (record, join) = self.reserve_bytes(MapSymbol::Prints, bytes, Lost::Print, |_| {});
        self.fill(record, position, &parts)?;
        let flags = self.builder.constant(Type::I64, 0);
        let submit = Callee::Helper(Helper::RingSubmit);
        self.builder.effect(Op::Call { callee: submit, args: vec![record, flags] });
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        Ok(self.builder.constant(Type::I32, 0))
    }

    /// Evaluates the operands of a text that the host makes.
    fn printed_operands<'e>(
        &mut self,
        operands: &'e [Expr],
        later: &[Expr],
        parts: &mut Vec<Part<'e>>,
    ) -> Lower<()> {
        for (at, operand) in operands.iter().enumerate() {
            let is_stable = operands[at + 1..].iter().chain(later).all(is_plain);
            let part = self.printed(operand, is_stable)?;
            self.add_part(part, parts);
        }
        Ok(())
    }

    /// Adds an evaluated argument. All numbers but the first ones are kept in the frame, which has room for any
    /// number of them, unlike registers and spills.
    fn add_part<'e>(&mut self, part: Part<'e>, parts: &mut Vec<Part<'e>>) {
        let values = parts.iter().filter(|part| matches!(part, Part::Number(_))).count();
        parts.push(match part {
            Part::Number(value) if values >= MAX_VALUES => {
                let kept = Addr::of(Base::Slot(self.builder.slot(8)));
                self.store(kept, super::super::mir::Size::DW, value);
                Part::Text(kept, 8)
            }
            part => part,
        });
    }

    /// The size of a record in bytes.
    fn record_bytes(&self, parts: &[Part<'_>], span: Span) -> Lower<u32> {
        let mut bytes = u64::from(HEADER);
        for part in parts {
            bytes += match part {
                Part::Number(_) => 8,
                Part::Constant(text) => u64::from(self.size(text.ty, text.span)?).next_multiple_of(8),
                Part::Text(_, bytes) => u64::from(*bytes).next_multiple_of(8),
            };
        }
        match u32::try_from(bytes) {
            Ok(bytes) if bytes <= MAX_RECORD => Ok(bytes),
            _ => {
                let text =
                    format!("the values of this `print` have {bytes} bytes; the limit is {MAX_RECORD}");
                Err(Box::new(Diagnostic::error(425, span, text).help("print them with several calls")))
            }
        }
    }

    /// Evaluates an argument; `is_stable`: no later evaluation changes its value.
    fn printed<'e>(&mut self, arg: &'e Expr, is_stable: bool) -> Lower<Part<'e>> {
        if let ExprKind::Bytes(_) = arg.kind {
            return Ok(Part::Constant(arg));
        }
        if self.is_scalar(arg.ty) {
            let int = self.int(arg.ty, arg.span)?;
            let value = self.scalar(arg)?;
            let wide = IntType { bits: 64, ..int };
            return Ok(Part::Number(arithmetic::convert(&mut self.builder, int, wide, value)));
        }
        let bytes = self.size(arg.ty, arg.span)?;
        let addr = if is_stable { self.address_of(arg)? } else { self.temporary(arg)? };
        Ok(Part::Text(addr, bytes))
    }

    /// A pointer as a number.
    fn printed_address(&mut self, arg: &Expr) -> Lower<Value> {
        let pointer = self.any_pointer(arg)?;
        self.address_value(pointer)
    }

    /// The text that a pointer points to.
    fn printed_text(&mut self, arg: &Expr) -> Lower<Part<'static>> {
        let address = self.printed_address(arg)?;
        let text = Addr::of(Base::Slot(self.builder.slot(TEXT_BYTES)));
        self.zero(text, TEXT_BYTES);
        let bytes = self.builder.constant(Type::I64, TEXT_BYTES.into());
        self.probe_read_text(text, bytes, address, self.source_of(arg));
        Ok(Part::Text(text, TEXT_BYTES))
    }

    /// Writes all bytes of a record.
    fn fill(&mut self, record: Value, position: u64, parts: &[Part<'_>]) -> Lower<()> {
        let start = Addr::of(Base::Pointer(record));
        let position = self.builder.constant(Type::I64, position);
        self.store(start, super::super::mir::Size::DW, position);
        let mut at = HEADER;
        for part in parts {
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
                    self.copy(to, *addr, *bytes);
                    *bytes
                }
            };
            let end = bytes.next_multiple_of(8);
            self.zero(to.plus(bytes), end - bytes);
            at += end;
        }
        Ok(())
    }
}
