//! Expressions of struct, array or string type, which are built in memory.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::code::DefinedId;
use super::cx::Lower;
use super::expr::mistake;
use super::func::FnCx;
use super::runtime::Routine;
use super::scalar::{store_op, val_type};
use crate::builtins::perf::options;
use crate::hir::visit::{self, Visitor};
use crate::hir::{Expr, ExprKind, Match, SharedBuiltin, UserBuiltin};
use crate::types::{TypeId, TypeKind};

/// Largest constant, in bytes, that is stored already padded with zeros and copied whole.
const PADDED_CONSTANT: u64 = 256;

impl FnCx<'_, '_> {
    /// Builds a value at `to`, memory that nothing in the expression reads or writes.
    pub fn aggregate(&mut self, expr: &Expr, to: Addr) -> Lower<()> {
        let before = self.code.at(expr.span);
        self.aggregate_value(expr, to)?;
        self.code.back_at(before);
        Ok(())
    }

    fn aggregate_value(&mut self, expr: &Expr, to: Addr) -> Lower<()> {
        match &expr.kind {
            ExprKind::Bytes(bytes) => self.constant(expr.ty, bytes, to),
            ExprKind::Load(lvalue) => {
                let storage = self.storage(lvalue)?;
                let from = self.read_aggregate(&storage, lvalue.span);
                let size = self.cx.hir.types.size(expr.ty);
                self.copy(to, from, size);
            }
            ExprKind::Convert(operand) => self.convert_text(expr, operand, to)?,
            ExprKind::Call { func, args } => {
                self.push_addr(to);
                self.call(*func, args)?;
            }
            ExprKind::Take { map, op } => {
                self.take_into(*map, *op, to, expr.span);
                self.code.op(I::Drop);
            }
            ExprKind::CallValue { callee, args } => {
                self.push_addr(to);
                self.call_value(callee, args, expr.span)?;
            }
            ExprKind::Concat(left, right) => self.concat(expr.ty, left, right, to)?,
            ExprKind::Match(one) => self.match_aggregate(one, expr, to)?,
            ExprKind::Struct(values) => self.struct_(expr.ty, values, to)?,
            ExprKind::Array(values) => self.array(expr.ty, values, to)?,
            ExprKind::Repeat(value) => self.repeat(expr.ty, value, to)?,
            ExprKind::User(UserBuiltin::Attach { program, options, flags }) => {
                self.attach(program.as_deref(), options, flags.as_deref(), to, expr.span)?;
            }
            ExprKind::User(UserBuiltin::Read { attachment, form }) => {
                self.read_counter(attachment, *form, to, expr.span)?;
            }
            ExprKind::User(UserBuiltin::CommOf(pid)) => self.comm_of(pid, expr.ty, to)?,
            ExprKind::User(UserBuiltin::BpfProgram(id)) => self.bpf_program(id, to, expr.span)?,
            ExprKind::User(UserBuiltin::ReadCpu(args)) => {
                self.read_counter_on(args, to, expr.span)?;
            }
            ExprKind::User(UserBuiltin::Symbol { pid, address }) => {
                self.symbol(pid.as_deref(), address, expr.ty, to)?;
            }
            ExprKind::Shared(SharedBuiltin::Display { form, args }) => {
                self.display(form, args, expr.ty, to)?;
            }
            ExprKind::User(UserBuiltin::PerCpu { map, key, cpu }) => {
                self.per_cpu(*map, key, cpu, to, expr.span)?;
            }
            _ => return Err(mistake(expr.span, "a value that is not a scalar is made of this")),
        }
        Ok(())
    }

    /// Returns the address of a value. For an lvalue it is the lvalue's own address, whose content the next
    /// assignment may change.
    pub fn aggregate_addr(&mut self, expr: &Expr) -> Lower<Addr> {
        if let ExprKind::Load(lvalue) = &expr.kind {
            let storage = self.storage(lvalue)?;
            return Ok(self.read_aggregate(&storage, lvalue.span));
        }
        let slot = self.slot(expr.ty);
        self.aggregate(expr, slot)?;
        Ok(slot)
    }

    /// Returns the address of a value that does not change while `later` is evaluated.
    pub fn stable_addr(&mut self, expr: &Expr, later: &[Expr]) -> Lower<Addr> {
        if !later.iter().any(calls) {
            return self.aggregate_addr(expr);
        }
        let slot = self.slot(expr.ty);
        self.aggregate(expr, slot)?;
        Ok(slot)
    }

    /// Builds a value of any type at `to`.
    pub fn value(&mut self, expr: &Expr, to: Addr) -> Lower<()> {
        match self.cx.hir.types.scalar(expr.ty) {
            Some(int) => self.store(int, to, |fcx| fcx.scalar(expr)),
            None => self.aggregate(expr, to),
        }
    }

    /// Writes constant bytes at `to`, followed by zeros.
    pub fn constant(&mut self, ty: TypeId, bytes: &[u8], to: Addr) {
        let size = self.cx.hir.types.size(ty);
        let used = bytes.len().min(size as usize);
        let mut image = bytes[..used].to_vec();
        if size <= PADDED_CONSTANT {
            image.resize(size as usize, 0);
        }
        let len = image.len() as u64;
        let from = self.cx.text(image);
        self.copy(to, Addr::fixed(from.address), len);
        if size > len {
            self.zero(to.plus(len as u32), size - len);
        }
    }

    /// Concatenates the texts of `left` and `right`, truncated to the type's size.
    fn concat(&mut self, ty: TypeId, left: &Expr, right: &Expr, to: Addr) -> Lower<()> {
        let size = |expr: &Expr| self.cx.hir.types.size(expr.ty) as u32;
        let (to_size, left_size, right_size) = (self.cx.hir.types.size(ty) as u32, size(left), size(right));
        if let ExprKind::Concat(first, second) = &left.kind {
            self.concat(ty, first, second, to)?;
        } else {
            let copy = self.cx.routine(Routine::TextCopy);
            let from = self.aggregate_addr(left)?;
            self.append_text(copy, (to, to_size), (from, left_size));
        }
        let append = self.cx.routine(Routine::TextAppend);
        let from = self.aggregate_addr(right)?;
        self.append_text(append, (to, to_size), (from, right_size));
        Ok(())
    }

    fn append_text(&mut self, routine: DefinedId, to: (Addr, u32), from: (Addr, u32)) {
        self.push_addr(to.0);
        self.code.u32(to.1);
        self.push_addr(from.0);
        self.code.u32(from.1).call(routine);
    }

    fn convert_text(&mut self, expr: &Expr, operand: &Expr, to: Addr) -> Lower<()> {
        let types = &self.cx.hir.types;
        if !matches!(types.kind(expr.ty), TypeKind::Str(_)) {
            return Err(mistake(expr.span, "a value that is not a string is made of another type"));
        }
        let (to_size, from_size) = (types.size(expr.ty) as u32, types.size(operand.ty) as u32);
        let copy = self.cx.routine(Routine::TextCopy);
        let from = self.aggregate_addr(operand)?;
        self.append_text(copy, (to, to_size), (from, from_size));
        Ok(())
    }

    fn struct_(&mut self, ty: TypeId, values: &[Expr], to: Addr) -> Lower<()> {
        let TypeKind::Struct(id) = *self.cx.hir.types.kind(ty) else {
            panic!("a struct literal has a struct's type")
        };
        let types = &self.cx.hir.types;
        let size = types.size(ty);
        let used: u64 = values.iter().map(|value| types.size(value.ty)).sum();
        if used < size {
            self.zero(to, size);
        }
        let described = match values.first().map(|first| &first.kind) {
            Some(ExprKind::Event(spec)) => {
                self.event_record(spec, to)?;
                true
            }
            _ => false,
        };
        for (position, value) in values.iter().enumerate() {
            if described && (position == options::EVENT || position >= options::EVENT_TYPE) {
                continue;
            }
            let offset = self.cx.hir.types.field_offset(id, position) as u32;
            self.value(value, to.plus(offset))?;
        }
        Ok(())
    }

    fn array(&mut self, ty: TypeId, values: &[Expr], to: Addr) -> Lower<()> {
        let (element, _) = self.element(ty);
        let size = self.cx.hir.types.size(element);
        for (position, value) in values.iter().enumerate() {
            self.value(value, to.plus(position as u32 * size as u32))?;
        }
        let used = values.len() as u64 * size;
        let rest = self.cx.hir.types.size(ty).saturating_sub(used);
        if rest > 0 {
            self.zero(to.plus(used as u32), rest);
        }
        Ok(())
    }

    /// Evaluates the value once and copies it to each element.
    fn repeat(&mut self, ty: TypeId, value: &Expr, to: Addr) -> Lower<()> {
        let (element, len) = self.element(ty);
        let size = self.cx.hir.types.size(element) as u32;
        let at = self.temp(ValType::I32);
        let end = self.temp(ValType::I32);
        let scalar = match self.cx.hir.types.scalar(element) {
            Some(int) => {
                let var = self.temp(val_type(int));
                self.scalar(value)?;
                self.code.set(var);
                Some((int, var))
            }
            None => {
                self.aggregate(value, to)?;
                None
            }
        };
        self.push_addr(to);
        self.code.tee(at).u32(size * len as u32).op(I::I32Add).set(end);
        let next = self.code.loop_();
        match scalar {
            Some((int, var)) => {
                self.code.get(at).get(var).op(store_op(int, 0));
            }
            None => self.copy(Addr::of(at), to, u64::from(size)),
        }
        self.code.get_plus(at, size).tee(at).get(end).op(I::I32LtU).br_if(next).end();
        Ok(())
    }

    fn element(&self, ty: TypeId) -> (TypeId, u64) {
        let TypeKind::Array(element, len) = *self.cx.hir.types.kind(ty) else {
            panic!("an array literal has an array's type")
        };
        (element, len)
    }
}

/// Returns whether an expression runs code of the script, which may change anything.
fn calls(expr: &Expr) -> bool {
    struct Calls(bool);
    impl Visitor for Calls {
        fn expr(&mut self, expr: &Expr) {
            self.0 |= matches!(
                expr.kind,
                ExprKind::Call { .. }
                    | ExprKind::CallValue { .. }
                    | ExprKind::User(UserBuiltin::Dispatch { .. })
            );
        }
        fn matched(&mut self, one: &Match) -> bool {
            self.0 |= one.bodies().any(|body| !body.block.is_empty());
            true
        }
    }
    let mut found = Calls(false);
    visit::expr(&mut found, expr);
    found.0
}
