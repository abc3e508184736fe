//! Lowers maps without keys: queues and stacks, bloom filters, and stack traces.

use super::super::mir::{
    BinaryOp, Callee, Condition, Helper, MapSymbol, Op, Origin, Size, TaskId, Type, Value,
};
use super::memory::{Addr, Base};
use super::{Home, Lower, Lowerer, impossible};
use crate::hir::{Expr, LocalId, MapId, StackOwner, TakeOp};
use crate::source::Span;

/// BPF_F_USER_STACK. Source: include/uapi/linux/bpf.h, v6.12.
const USER_STACK: u64 = 1 << 8;

/// -EFAULT of bpf_get_stackid: the task has no stack of this kind. Source: kernel/bpf/stackmap.c, v6.12.
const NO_STACK: u64 = -14_i64 as u64;

impl Lowerer<'_> {
    pub(super) fn map_addr(&mut self, map: MapId) -> Value {
        let (Some(buffer), Some(active)) =
            (self.hir.maps[map].double_buffer, self.active_buffers.get(&map).copied())
        else {
            return self.builder.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Map(map)));
        };
        let [first, second, join] = std::array::from_fn(|_| self.builder.block());
        let chosen = self.builder.param(join, Type::Ptr(Origin::Map));
        let is_second = self.builder.compare_const(Condition::Ne, active, 0);
        self.builder.branch(is_second, second, first);
        for (block, map) in [(first, map), (second, buffer.second)] {
            self.builder.switch_to_sealed(block);
            let address = self.builder.value(Type::Ptr(Origin::Map), Op::MapAddr(MapSymbol::Map(map)));
            self.builder.jump_with(join, address);
        }
        self.builder.switch_to_sealed(join);
        chosen
    }

    /// Reads which of two maps that userspace exchanges this run uses, from its start to its end.
    pub(super) fn load_active_buffers(&mut self) {
        for (map, buffer) in &self.program.double_buffers {
            let active = self.load(Addr::of(Base::Global(buffer.active)), Size::W);
            self.active_buffers.insert(*map, active);
        }
    }

    /// `q.push(v)` and `b.add(v)`: 0 or errno.
    pub(super) fn push(&mut self, map: MapId, value: &Expr) -> Lower<Value> {
        let value = self.temporary(value)?;
        let value = self.pointer(value);
        let flags = self.builder.constant(Type::I64, 0);
        let args = vec![self.map_addr(map), value, flags];
        let outcome = self.builder.call(Type::I64, Callee::Helper(Helper::MapPush), args);
        self.count_if_failed(map, outcome);
        let zero = self.builder.constant(Type::I64, 0);
        let errno = self.builder.binary(BinaryOp::Sub, zero, outcome);
        Ok(self.builder.value(Type::I32, Op::Truncate(errno)))
    }

    /// `b.has(v)`: 1 or 0.
    pub(super) fn has(&mut self, map: MapId, value: &Expr) -> Lower<Value> {
        let value = self.temporary(value)?;
        let value = self.pointer(value);
        let args = vec![self.map_addr(map), value];
        let outcome = self.builder.call(Type::I64, Callee::Helper(Helper::MapPeek), args);
        Ok(self.builder.compare_const(Condition::Eq, outcome, 0))
    }

    /// Lowers `q.pop()` and `q.peek()` into memory, which is zeroed if the map is empty. Returns whether
    /// there was a value: 1 or 0.
    pub(super) fn take_into(&mut self, map: MapId, op: TakeOp, to: Addr, span: Span) -> Lower<Value> {
        let bytes = self.size(self.hir.maps[map].value, span)?;
        self.zero(to, bytes);
        let helper = match op {
            TakeOp::Pop => Helper::MapPop,
            TakeOp::Peek => Helper::MapPeek,
        };
        let value = self.pointer(to);
        let args = vec![self.map_addr(map), value];
        let outcome = self.builder.call(Type::I64, Callee::Helper(helper), args);
        self.written_pointers(to, bytes);
        Ok(self.builder.compare_const(Condition::Eq, outcome, 0))
    }

    fn take_slot(&mut self, map: MapId, span: Span) -> Lower<Addr> {
        let bytes = self.size(self.hir.maps[map].value, span)?;
        Ok(Addr::of(Base::Slot(self.builder.slot(bytes))))
    }

    /// `q.pop()` and `q.peek()` of a scalar.
    pub(super) fn take_scalar(&mut self, map: MapId, op: TakeOp, span: Span) -> Lower<Value> {
        let slot = self.take_slot(map, span)?;
        self.take_into(map, op, slot, span)?;
        let int = self.int(self.hir.maps[map].value, span)?;
        Ok(self.load_scalar(slot, int))
    }

    /// Whether `q.pop()` or `q.peek()` finds a value: 1 or 0.
    pub(super) fn taken(&mut self, map: MapId, op: TakeOp, span: Span) -> Lower<Value> {
        let slot = self.take_slot(map, span)?;
        self.take_into(map, op, slot, span)
    }

    /// Lowers `x = q.pop()` with a presence bit.
    pub(super) fn take(&mut self, local: LocalId, map: MapId, op: TakeOp, span: Span) -> Lower<()> {
        let home = self.declare(local)?;
        let taken = match home.home {
            Home::Scalar(variable) => {
                let slot = self.take_slot(map, span)?;
                let taken = self.take_into(map, op, slot, span)?;
                let int = self.int(self.hir.maps[map].value, span)?;
                let value = self.load_scalar(slot, int);
                self.builder.set(variable, value);
                taken
            }
            Home::Memory(base) => self.take_into(map, op, Addr::of(base), span)?,
            Home::Alias(alias) => {
                let taken = self.take_into(map, op, Addr::of(alias.own), span)?;
                self.unbind(alias);
                taken
            }
            Home::Fixed(_) | Home::Pointer(_) => return impossible(span, "a queue of these"),
        };
        if let Some(present) = home.present {
            self.builder.set(present, taken);
        }
        Ok(())
    }

    /// Lowers `stack_id(ctx, m)`: the id, or a negative errno. A stack whose id collides with another one is
    /// lost, and counted.
    pub(super) fn stack_id(&mut self, ctx: &Expr, map: MapId, of: StackOwner) -> Lower<Value> {
        let ctx = self.context_argument(ctx)?;
        Ok(self.stack_of(ctx, map, of))
    }

    /// Lowers `kstack()` and `ustack()`: the id that `stack_id` returns; that of a process's stack with the process in the
    /// upper half.
    pub(super) fn own_stack(&mut self, map: MapId, of: StackOwner, span: Span) -> Lower<Value> {
        let Some(ctx) = self.entry_context else { return impossible(span, "a stack outside of a program") };
        let id = self.stack_of(ctx, map, of);
        if of == StackOwner::Kernel {
            return Ok(id);
        }
        let process = self.builder.call(Type::I32, Callee::TaskId(TaskId::Process), Vec::new());
        let process = self.builder.value(Type::I64, Op::ZeroExtend(process));
        let process = self.builder.binary_const(BinaryOp::Shl, process, 32);
        let both = self.builder.binary(BinaryOp::Or, process, id);
        let is_error = self.builder.compare_const(Condition::SLt, id, 0);
        Ok(self.choose(is_error, id, both))
    }

    fn stack_of(&mut self, ctx: Value, map: MapId, of: StackOwner) -> Value {
        let flags = match of {
            StackOwner::Kernel => 0,
            StackOwner::User => USER_STACK,
        };
        let flags = self.builder.constant(Type::I64, flags);
        let args = vec![ctx, self.map_addr(map), flags];
        let id = self.builder.call(Type::I64, Callee::Helper(Helper::GetStackId), args);
        // A task without the stack loses none: a kernel thread has no user stack.
        let none = self.builder.compare_const(Condition::Eq, id, NO_STACK);
        let (some, join) = (self.builder.block(), self.builder.block());
        self.builder.branch(none, join, some);
        self.builder.switch_to_sealed(some);
        self.count_if_failed(map, id);
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        id
    }

    /// Lowers `attachment_id(ctx)`: the cookie that the host set for the link.
    pub(super) fn attachment_id(&mut self, ctx: &Expr) -> Lower<Value> {
        let ctx = self.context_argument(ctx)?;
        Ok(self.builder.call(Type::I64, Callee::Helper(Helper::GetAttachCookie), vec![ctx]))
    }
}
