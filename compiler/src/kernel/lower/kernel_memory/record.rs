//! Members of records that are contexts, which the verifier lets a program read by loads of their own size at their own
//! offset.

use std::sync::Arc;

use super::super::super::mir::core::{CoreField, CoreStep};
use super::super::super::mir::{Op, Size, Type, Value};
use super::super::memory::{Addr, Base, access_size, access_type};
use super::super::{Lower, Lowerer, arithmetic, impossible, int_type};
use super::KernelPart;
use crate::builtins::context::REGISTERS;
use crate::diag::Diagnostic;
use crate::hir::{Lvalue, LvalueKind};
use crate::source::Span;
use crate::types::{IntType, StructOrigin, TypeKind};

/// Records of system calls, which are the same in every kernel and need no relocation.
///
/// Source: include/trace/syscall.h, `struct syscall_trace_enter`, `struct syscall_trace_exit`, v6.12.
const CALL_RECORDS: [(&str, &str, u32); 4] = [
    ("trace_event_raw_sys_enter", "id", 8),
    ("trace_event_raw_sys_enter", "args", 16),
    ("trace_event_raw_sys_exit", "id", 8),
    ("trace_event_raw_sys_exit", "ret", 16),
];

/// The member of such a record that has as many elements as the system call has arguments.
const CALL_ARGUMENTS: (&str, &str) = ("trace_event_raw_sys_enter", "args");

impl Lowerer<'_> {
    /// Reads a scalar member of a record, or an element of one.
    pub(super) fn read_record(
        &mut self,
        base: Value,
        part: &KernelPart<'_>,
        int: IntType,
        span: Span,
    ) -> Lower<Value> {
        let [one] = part.indices.as_slice() else {
            self.check_argument(&part.field, span)?;
            return Ok(self.record_scalar(base, part.field.clone(), part.real, int));
        };
        let mut array = part.field.clone();
        let (Some(CoreStep::Element(_)), Some(len)) = (array.steps.pop(), one.len) else {
            return impossible(span, "an element of a record");
        };
        let bytes = int.bytes() as u32;
        let Some(total) = u32::try_from(len).ok().and_then(|len| len.checked_mul(bytes)) else {
            return impossible(span, "an array of this length");
        };
        let len = self.elements_there(&array, len);
        if len == 0 {
            self.index_value(one.index)?;
            return Ok(self.builder.constant(int_type(int), 0));
        }
        let slot = self.builder.slot(total);
        let to = Addr::of(Base::Slot(slot));
        self.record_elements(base, &array, to, int, len);
        let index = self.index_value(one.index)?;
        let miss = self.builder.block();
        let element = self.checked_element(to, index, len, bytes.into(), miss);
        let value = self.load_scalar(element, int);
        Ok(self.or_zero(value, int, miss))
    }

    /// Of the elements of a record's array, the number that the record has: the kernel refuses a program that reads beyond
    /// the arguments of its system call. Source: kernel/events/core.c, `__perf_event_set_bpf_prog`, v6.12.
    pub(super) fn elements_there(&self, array: &CoreField, len: u64) -> u64 {
        let [CoreStep::Member(member, _)] = array.steps.as_slice() else { return len };
        if (array.root.name.as_str(), member.as_str()) != CALL_ARGUMENTS {
            return len;
        }
        let programs = self.programs_here();
        let counts = programs.iter().filter_map(|program| program.record_arguments);
        counts.min().map_or(len, |count| len.min(count.into()))
    }

    /// Refuses a constant index of an argument that the system call does not have.
    fn check_argument(&self, field: &CoreField, span: Span) -> Lower<()> {
        let [member, CoreStep::Element(at)] = field.steps.as_slice() else { return Ok(()) };
        let array = CoreField { root: field.root.clone(), steps: vec![member.clone()] };
        let count = self.elements_there(&array, u64::MAX);
        if u64::from(*at) < count {
            return Ok(());
        }
        let plural = if count == 1 { "" } else { "s" };
        let text = format!(
            "index {at} is outside the arguments of this system call: it has {count} argument{plural}"
        );
        Err(Box::new(Diagnostic::error(406, span, text)))
    }

    pub(super) fn record_elements(
        &mut self,
        base: Value,
        field: &CoreField,
        to: Addr,
        int: IntType,
        len: u64,
    ) {
        for at in 0..u32::try_from(len).unwrap_or(0) {
            let mut element = field.clone();
            element.steps.push(CoreStep::Element(at));
            let value = self.record_scalar(base, element, None, int);
            self.store_scalar(to.plus(at * int.bytes() as u32), int, value);
        }
    }

    /// Reads a member by one load of its own size at its own offset, as the verifier requires.
    pub(super) fn record_scalar(
        &mut self,
        base: Value,
        field: CoreField,
        real: Option<IntType>,
        int: IntType,
    ) -> Value {
        let real = real.unwrap_or(int);
        let size = access_size(real.bytes());
        let ty = access_type(size);
        let value = match fixed_offset(&field) {
            Some(offset) => self.builder.value(ty, Op::Load { size, base, offset }),
            None => self.builder.value(ty, Op::LoadField { size, base, field: Arc::new(field) }),
        };
        let value = if real.signed && real.bits < 32 {
            self.builder.value(ty, Op::Narrow { value, bits: real.bits, signed: true })
        } else {
            value
        };
        arithmetic::convert(&mut self.builder, real, int, value)
    }

    /// Reads a register of `ctx: *pt_regs`; `None` if the lvalue is something else.
    pub(in super::super) fn read_register(&mut self, lvalue: &Lvalue) -> Lower<Option<Value>> {
        let LvalueKind::Field { base, field } = &lvalue.kind else { return Ok(None) };
        let LvalueKind::Deref(pointer) = &base.kind else { return Ok(None) };
        let TypeKind::Struct(id) = self.types().kind(base.ty) else { return Ok(None) };
        let def = self.types().struct_def(*id);
        if def.origin != StructOrigin::Context || def.name != "pt_regs" {
            return Ok(None);
        }
        let name = def.fields.get(*field).map(|field| field.name.clone()).unwrap_or_default();
        let register = REGISTERS.iter().find(|one| one.name == name);
        let arm = self.program.machine.arch == ks_wit::section::Arch::Aarch64;
        let offset = register.and_then(|one| if arm { one.aarch64 } else { one.x86_64 });
        let base = self.scalar(pointer)?;
        Ok(Some(match offset.and_then(|offset| i16::try_from(offset).ok()) {
            Some(offset) => {
                let size = Size::DW;
                self.builder.value(Type::I64, Op::Load { size, base, offset })
            }
            None => self.builder.constant(Type::I64, 0),
        }))
    }
}

/// The offset of a member that is the same in every kernel; `None` for any other member.
fn fixed_offset(field: &CoreField) -> Option<i16> {
    let (member, index) = match field.steps.as_slice() {
        [CoreStep::Member(name, _)] => (name, 0),
        [CoreStep::Member(name, _), CoreStep::Element(index)] => (name, *index),
        _ => return None,
    };
    let known = CALL_RECORDS.iter().find(|(record, name, _)| *record == field.root.name && name == member);
    known.and_then(|(_, _, offset)| i16::try_from(offset + 8 * index).ok())
}
