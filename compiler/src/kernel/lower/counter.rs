//! Lowers counters: the event of the CPU that the program runs on, read as a `perf_read` (language reference,
//! 11.5).
//!
//! Only the used fields of a reading are computed: `read(cycles).raw` is one helper call and one load. A
//! scaled count is computed in 128 bits, eight bits of the count at a time, because BPF has only 64-bit
//! multiplication and division.

use super::super::mir::{BinaryOp, Callee, Condition, Helper, MapSymbol, Op, Origin, Size, Type, Value};
use super::memory::{Addr, Base};
use super::{Lower, Lowerer};
use crate::builtins::perf::reading;
use crate::defect::narrow;
use crate::hir::visit::{self, Visitor};
use crate::hir::{
    CounterId, Expr, ExprKind, Hir, HirFunction, KernelBuiltin, Lvalue, LvalueKind, Stmt, StmtKind,
};
use crate::types::{TypeId, TypeKind};

/// BPF_F_CURRENT_CPU. Source: include/uapi/linux/bpf.h, v6.12.
const CURRENT_CPU: u64 = 0xffff_ffff;

/// Bytes of `struct bpf_perf_event_value`; the offsets of its members follow. The count comes first. Source:
/// include/uapi/linux/bpf.h, v6.12.
const VALUE_BYTES: u32 = 24;
const ENABLED: u32 = 8;
const RUNNING: u32 = 16;

/// The count of a failed reading.
const FAILED: u64 = -1_i64 as u64;
/// The largest count that a script can see; larger ones saturate.
const LARGEST: u64 = i64::MAX as u64;
/// The number of bits of a count that are scaled in one step.
const STEP: u32 = 8;
/// Times below 2^55 are scaled exactly: 417 days in nanoseconds. A step makes them longer by [`STEP`] bits,
/// and adds two of them.
const EXACT_BITS: u64 = 55;
/// The number of lowest bits that are dropped from longer times.
const LEFT_OUT: u64 = 64 - EXACT_BITS;

/// The kernel's answer to a read of an event.
struct EventValue {
    /// 0, or a negative errno; all values are zero then.
    outcome: Value,
    count: Value,
    values: Addr,
}

impl Lowerer<'_> {
    /// A field of `read(NAME)`; `None` if the lvalue is something else.
    pub(super) fn reading_field(&mut self, lvalue: &Lvalue) -> Lower<Option<Value>> {
        let LvalueKind::Field { base, field } = &lvalue.kind else { return Ok(None) };
        let LvalueKind::Value(value) = &base.kind else { return Ok(None) };
        let ExprKind::Kernel(KernelBuiltin::ReadCounter(counter)) = value.kind else { return Ok(None) };
        Ok(Some(match *field {
            reading::RAW => {
                let event = self.read_event(counter);
                self.unless_failed(&event, |_, event| event.count)
            }
            reading::SCALED => {
                let event = self.read_event(counter);
                self.unless_failed(&event, Self::scaled_count)
            }
            reading::TIME_ENABLED => {
                let event = self.read_event(counter);
                self.load(event.values.plus(ENABLED), Size::DW)
            }
            reading::TIME_RUNNING => {
                let event = self.read_event(counter);
                self.load(event.values.plus(RUNNING), Size::DW)
            }
            reading::COUNT => self.builder.constant(Type::I32, 0),
            _ => return Ok(None),
        }))
    }

    /// Writes all fields of `read(NAME)` to memory.
    pub(super) fn reading_into(&mut self, counter: CounterId, to: Addr, expr: &Expr) -> Lower<()> {
        let bytes = self.size(expr.ty, expr.span)?;
        self.zero(to, bytes);
        let event = self.read_event(counter);
        let raw = self.unless_failed(&event, |_, event| event.count);
        let enabled = self.load(event.values.plus(ENABLED), Size::DW);
        let running = self.load(event.values.plus(RUNNING), Size::DW);
        let mut fields =
            vec![(reading::RAW, raw), (reading::TIME_ENABLED, enabled), (reading::TIME_RUNNING, running)];
        if uses_scaled(self.hir, self.active.source, expr.ty) {
            fields.push((reading::SCALED, self.unless_failed(&event, Self::scaled_count)));
        }
        for (field, value) in fields {
            let at = to.plus(self.reading_offset(expr.ty, field));
            self.store(at, Size::DW, value);
        }
        Ok(())
    }

    fn reading_offset(&self, ty: TypeId, field: usize) -> u32 {
        let TypeKind::Struct(id) = self.types().kind(ty) else { return 0 };
        narrow(self.types().field_offset(*id, field))
    }

    fn read_event(&mut self, counter: CounterId) -> EventValue {
        let events = Op::MapAddr(MapSymbol::Counter(counter));
        let events = self.builder.value(Type::Ptr(Origin::Map), events);
        let values = Addr::of(Base::Slot(self.builder.slot(VALUE_BYTES)));
        let cpu = self.builder.constant(Type::I64, CURRENT_CPU);
        let to = self.pointer(values);
        let bytes = self.builder.constant(Type::I64, VALUE_BYTES.into());
        let args = vec![events, cpu, to, bytes];
        let outcome = self.builder.call(Type::I64, Callee::Helper(Helper::ReadEvent), args);
        let count = self.load(values, Size::DW);
        EventValue { outcome, count, values }
    }

    /// A value computed from a reading, or [`FAILED`] if the reading failed.
    fn unless_failed(
        &mut self,
        event: &EventValue,
        of: impl FnOnce(&mut Self, &EventValue) -> Value,
    ) -> Value {
        let fine = self.builder.compare_const(Condition::Eq, event.outcome, 0);
        self.either(fine, |this| of(this, event), |this| this.builder.constant(Type::I64, FAILED))
    }

    /// `count * enabled / running`; the count if both times are equal, [`FAILED`] if the event never ran.
    fn scaled_count(&mut self, event: &EventValue) -> Value {
        let enabled = self.load(event.values.plus(ENABLED), Size::DW);
        let running = self.load(event.values.plus(RUNNING), Size::DW);
        let scaled = |this: &mut Self| {
            let (product, is_too_large) = this.scale(event.count, enabled, running);
            let too_large = this.builder.compare_const(Condition::Ne, is_too_large, 0);
            this.either(too_large, |this| this.builder.constant(Type::I64, LARGEST), |_| product)
        };
        let unless_never = |this: &mut Self| {
            let never = this.builder.compare_const(Condition::Eq, running, 0);
            this.either(never, |this| this.builder.constant(Type::I64, FAILED), scaled)
        };
        let equal = self.builder.compare(Condition::Eq, enabled, running);
        self.either(equal, |_| event.count, unless_never)
    }

    /// Selects between two numbers by a branch; only the chosen one is computed.
    fn either(
        &mut self,
        condition: Value,
        then: impl FnOnce(&mut Self) -> Value,
        otherwise: impl FnOnce(&mut Self) -> Value,
    ) -> Value {
        let [one, other, join] = std::array::from_fn(|_| self.builder.block());
        let result = self.builder.param(join, Type::I64);
        self.builder.branch(condition, one, other);
        self.builder.switch_to_sealed(one);
        let value = then(self);
        self.builder.jump_with(join, value);
        self.builder.switch_to_sealed(other);
        let value = otherwise(self);
        self.builder.jump_with(join, value);
        self.builder.switch_to_sealed(join);
        result
    }

    /// Scales a count: `count * enabled / running` for nonzero times with `enabled >= running`, and a number
    /// that is nonzero if the result exceeds [`LARGEST`].
    ///
    /// Long division: the remainder that passes from byte to byte of the count is below `running`. So the sum
    /// of a step stays below 2^64 for times below 2^55.
    fn scale(&mut self, count: Value, enabled: Value, running: Value) -> (Value, Value) {
        use BinaryOp::{Add, And, LShr, Mul, Or, Shl, UDiv, URem};
        let b = &mut self.builder;
        let long = b.binary_const(LShr, enabled, EXACT_BITS);
        let is_long = b.compare_const(Condition::Ne, long, 0);
        let is_long = b.value(Type::I64, Op::ZeroExtend(is_long));
        let left_out = b.binary_const(Mul, is_long, LEFT_OUT);
        let enabled = b.binary(LShr, enabled, left_out);
        let running = b.binary(LShr, running, left_out);
        // A running time that was shifted to zero counts as 1, the shortest.
        let none_left = b.compare_const(Condition::Eq, running, 0);
        let none_left = b.value(Type::I64, Op::ZeroExtend(none_left));
        let running = b.binary(Or, running, none_left);
        let mut remainder = b.constant(Type::I64, 0);
        let mut quotient = b.constant(Type::I64, 0);
        let mut too_large = b.constant(Type::I64, 0);
        for shift in (0..u64::BITS).step_by(STEP as usize).rev() {
            let byte = b.binary_const(LShr, count, shift.into());
            let byte = b.binary_const(And, byte, (1 << STEP) - 1);
            let part = b.binary(Mul, byte, enabled);
            let rest = b.binary_const(Shl, remainder, STEP.into());
            let sum = b.binary(Add, rest, part);
            let digit = b.binary(UDiv, sum, running);
            remainder = b.binary(URem, sum, running);
            // The quotient is about to grow by a byte: bits above the 55th would be lost.
            let lost = b.binary_const(LShr, quotient, u64::from(u64::BITS - STEP - 1));
            let high = b.binary_const(LShr, digit, 63);
            let lost = b.binary(Or, lost, high);
            too_large = b.binary(Or, too_large, lost);
            quotient = b.binary_const(Shl, quotient, STEP.into());
            quotient = b.binary(Add, quotient, digit);
        }
        let sign = b.binary_const(LShr, quotient, 63);
        (quotient, b.binary(Or, too_large, sign))
    }
}

/// Whether the scaled count of a stored reading may be used: the function reads it, or the reading escapes
/// from this analysis.
fn uses_scaled(hir: &Hir, function: &HirFunction, reading: TypeId) -> bool {
    if function.ret == reading {
        return true;
    }
    let mut uses = Uses { hir, reads: 0, kept: 0, looked_at: false };
    visit::block(&mut uses, &function.body);
    uses.looked_at || uses.reads != uses.kept
}

struct Uses<'a> {
    hir: &'a Hir,
    /// The number of readings.
    reads: usize,
    /// The number of readings that are assigned to a local variable, or of which one field is used directly.
    kept: usize,
    looked_at: bool,
}

impl Visitor for Uses<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { init: Some(value), .. }
            | StmtKind::Assign { lvalue: Lvalue { kind: LvalueKind::Local(_), .. }, value } => {
                self.kept += usize::from(is_reading(value));
            }
            _ => {}
        }
    }

    fn expr(&mut self, expr: &Expr) {
        self.reads += usize::from(is_reading(expr));
        // A copy of a whole reading lets it escape.
        let copies = matches!(expr.kind, ExprKind::Load(_) | ExprKind::AddrOf(_));
        self.looked_at |= copies && expr.ty == self.hir.known.perf_read;
    }

    fn lvalue(&mut self, lvalue: &Lvalue) {
        if let LvalueKind::Field { base, field } = &lvalue.kind
            && base.ty == self.hir.known.perf_read
        {
            let one_read = matches!(&base.kind, LvalueKind::Value(value) if is_reading(value));
            self.kept += usize::from(one_read);
            self.looked_at |= !one_read && *field == reading::SCALED;
        }
    }
}

fn is_reading(expr: &Expr) -> bool {
    matches!(expr.kind, ExprKind::Kernel(KernelBuiltin::ReadCounter(_)))
}
