//! Lowers reads of kernel memory and user memory by helpers, and reads of members of records that are
//! contexts.
//!
//! An address of such memory is a number. Members that the script names are located in the running kernel:
//! the loader corrects offsets and sizes (`mir::core`). The sign of an address says whether it is the
//! kernel's or a user's. Memory that cannot be read is zero, as the helpers leave it.

mod given;
mod record;

use std::sync::Arc;

use super::super::mir::core::{CoreComposite, CoreField, CoreQuestion, CoreStep, CoreType};
use super::super::mir::{BinaryOp, Block, Callee, Condition, Count, Helper, Op, Origin, Size, Type, Value};
use super::memory::{Addr, Base};
use super::{Lower, Lowerer, U64, arithmetic, impossible};
use crate::defect::narrow;
use crate::hir::{
    Expr, ExprKind, FunctionKind, KernelMember, KernelVariableId, Lvalue, LvalueKind, ProgramKind,
};
use crate::source::Span;
use crate::types::{IntType, StructId, TypeId, TypeKind};

/// The address space that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// Kernel memory only, whatever the address.
    Kernel,
    /// Kernel or user memory, depending on the address.
    Either,
    /// User memory only, whatever the address.
    User,
}

/// A part of a kernel struct.
#[derive(Clone)]
pub(super) struct KernelPart<'p> {
    /// The pointer to the struct.
    pub pointer: &'p Expr,
    /// The part; 0 stands for the indices below.
    pub field: CoreField,
    /// The indices that are known only at run time, outermost first.
    pub indices: Vec<PartIndex<'p>>,
    pub ty: TypeId,
    /// The type of a scalar in the kernel, which may differ from the script's.
    real: Option<IntType>,
    /// Whether the kernel's member is a pointer, or an array of pointers.
    is_pointer: bool,
    /// Whether it is a bit-field.
    is_bitfield: bool,
    /// Whether a member of a union is on the path to the part.
    in_union: bool,
    /// Where the struct is.
    source: Source,
}

impl KernelPart<'_> {
    /// Whether the verifier knows the type of the part behind a pointer whose type it knows. It sees only the first member
    /// of a union, and only fixed offsets.
    fn is_typed(&self) -> bool {
        self.indices.is_empty() && !self.in_union && !self.is_bitfield
    }
}

/// An index into an array inside a kernel struct.
#[derive(Clone)]
pub(super) struct PartIndex<'p> {
    index: Index<'p>,
    /// The number of elements; `None` for a flexible array.
    len: Option<u64>,
    /// The first element, whose size the loader knows.
    element: CoreField,
}

#[derive(Clone, Copy)]
enum Index<'p> {
    Expr(&'p Expr),
    /// Evaluated, of 64 bits.
    Value(Value),
}

impl Lowerer<'_> {
    /// Whether the type is a pointer to a kernel struct, whose values are numbers.
    pub(super) fn is_kernel_pointer(&self, ty: TypeId) -> bool {
        let TypeKind::Ptr(to) = self.types().kind(ty) else { return false };
        self.types().kernel_struct(*to).is_some() && !self.is_context(ty)
    }

    /// The whole kernel struct that an lvalue dereferences; `None` for any other lvalue.
    pub(super) fn whole_kernel_struct<'p>(&self, lvalue: &'p Lvalue) -> Option<KernelPart<'p>> {
        let LvalueKind::Deref(pointer) = &lvalue.kind else { return None };
        let id = self.types().kernel_struct(lvalue.ty).filter(|_| !self.is_context(pointer.ty))?;
        Some(self.whole_part(pointer, id, lvalue.ty))
    }

    /// The memory behind an address. What a process passes to a system call or to a function of its own is an address of
    /// the process: one of the kernel's would show what the process may not read.
    pub(super) fn source_of(&self, address: &Expr) -> Source {
        let function = self.active.source;
        let is_of_process = function.system_call.is_some()
            || matches!(
                function.kind,
                FunctionKind::Program(
                    ProgramKind::SyscallEnter | ProgramKind::Uprobe | ProgramKind::Uretprobe
                )
            );
        let mut address = address;
        while let ExprKind::Convert(operand) = &address.kind {
            address = operand;
        }
        match &address.kind {
            ExprKind::Load(Lvalue { kind: LvalueKind::Local(local), .. })
                if is_of_process && function.params.contains(local) =>
            {
                Source::User
            }
            _ => Source::Either,
        }
    }

    fn whole_part<'p>(&self, pointer: &'p Expr, id: StructId, ty: TypeId) -> KernelPart<'p> {
        let is_internal = self.hir.kernel_structs.is_internal(id);
        KernelPart {
            pointer,
            field: CoreField { root: self.composite(id), steps: Vec::new() },
            indices: Vec::new(),
            ty,
            real: None,
            is_pointer: false,
            is_bitfield: false,
            in_union: false,
            source: if is_internal { Source::Kernel } else { self.source_of(pointer) },
        }
    }

    /// The part of a kernel struct that an lvalue denotes.
    pub(super) fn kernel_part<'p>(&self, lvalue: &'p Lvalue) -> Option<KernelPart<'p>> {
        match &lvalue.kind {
            LvalueKind::Field { base, field } => {
                let id = self.types().kernel_struct(base.ty)?;
                let part = match &base.kind {
                    LvalueKind::Deref(pointer) => self.whole_part(pointer, id, base.ty),
                    _ => self.kernel_part(base)?,
                };
                Some(KernelPart { ty: lvalue.ty, ..self.member_of(part, id, *field)? })
            }
            LvalueKind::Index { base, index } => {
                let mut part = self.kernel_part(base)?;
                let TypeKind::Array(_, len) = *self.types().kind(base.ty) else { return None };
                match index.kind {
                    ExprKind::Const(at) if at < len => {
                        part.field.steps.push(CoreStep::Element(u32::try_from(at).ok()?));
                    }
                    _ => {
                        part.field.steps.push(CoreStep::Element(0));
                        let len = (len > 0).then_some(len);
                        let element = part.field.clone();
                        part.indices.push(PartIndex { index: Index::Expr(index), len, element });
                    }
                }
                Some(KernelPart { ty: lvalue.ty, ..part })
            }
            _ => None,
        }
    }

    /// A member of the struct that a part is.
    fn member_of<'p>(&self, mut part: KernelPart<'p>, id: StructId, field: usize) -> Option<KernelPart<'p>> {
        let member = self.types().struct_def(id).fields.get(field)?;
        let real = self.hir.kernel_structs.members.get(&(id, field)).copied().unwrap_or_default();
        let ty = match real.int {
            Some(IntType { bits, signed }) if real.is_enum => {
                CoreType::Enum { bytes: u32::from(bits) / 8, signed }
            }
            Some(int) => CoreType::Int { bytes: int.bytes() as u32, signed: int.signed },
            None => self.core_type(member.ty, real)?,
        };
        part.field.steps.push(CoreStep::Member(member.name.clone(), ty));
        Some(KernelPart {
            ty: member.ty,
            real: real.int,
            is_pointer: real.is_pointer,
            is_bitfield: real.is_bitfield,
            in_union: part.in_union || real.in_union || self.hir.kernel_structs.unions.contains(&id),
            ..part
        })
    }

    fn composite(&self, id: StructId) -> CoreComposite {
        let name = self.types().struct_def(id).name.clone();
        let structs = &self.hir.kernel_structs;
        let (is_union, is_typedef) = (structs.unions.contains(&id), structs.typedefs.contains(&id));
        CoreComposite { name, is_union, is_typedef }
    }

    /// The CO-RE type of a member. The script may declare the member to be a number.
    fn core_type(&self, ty: TypeId, real: KernelMember) -> Option<CoreType> {
        Some(match *self.types().kind(ty) {
            TypeKind::Ptr(_) | TypeKind::Fn(..) => CoreType::Pointer,
            TypeKind::Array(element, len) => {
                // The loader accepts an element of a flexible array only in its last place.
                CoreType::Array(Box::new(self.core_type(element, real)?), u32::try_from(len.max(1)).ok()?)
            }
            TypeKind::Struct(id) => CoreType::Composite(self.composite(id)),
            _ if real.is_pointer => CoreType::Pointer,
            _ => {
                let int = self.types().scalar(ty)?;
                let (bytes, signed) = (int.bytes() as u32, int.signed);
                if real.is_enum { CoreType::Enum { bytes, signed } } else { CoreType::Int { bytes, signed } }
            }
        })
    }

    /// Reads a scalar part as a value of the lvalue's type.
    pub(super) fn read_kernel_scalar(&mut self, part: &KernelPart<'_>, span: Span) -> Lower<Value> {
        let int = self.part_int(part.ty, span)?;
        if let Some(value) = self.read_given(part, int) {
            return Ok(value);
        }
        let base = self.scalar(part.pointer)?;
        self.read_scalar_at(base, part, int, span)
    }

    /// The integer type that a scalar part is read as; a pointer is read as a number.
    fn part_int(&self, ty: TypeId, span: Span) -> Lower<IntType> {
        if self.is_pointer(ty) { Ok(U64) } else { self.int(ty, span) }
    }

    /// Reads a scalar part of the struct at `base`.
    fn read_scalar_at(
        &mut self,
        base: Value,
        part: &KernelPart<'_>,
        int: IntType,
        span: Span,
    ) -> Lower<Value> {
        if self.builder.ty(base) == Type::Ptr(Origin::Context) {
            return self.read_record(base, part, int, span);
        }
        let slot = self.builder.slot(8);
        let to = Addr::of(Base::Slot(slot));
        self.zero(to, 8);
        let join = self.builder.block();
        let there = self.builder.compare_const(Condition::Ne, base, 0);
        self.require(there, join);
        let address = self.part_address(base, part, join)?;
        let field = Arc::new(part.field.clone());
        let bytes = self.builder.value(Type::I64, Op::Core(field.clone(), CoreQuestion::Size));
        self.probe_read(to, bytes, address, part.source);
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        // The loader provides no shifts for array elements.
        if matches!(part.field.steps.last(), Some(CoreStep::Element(_))) {
            return Ok(self.load_scalar(to, int));
        }
        let real = part.real.unwrap_or(int);
        let word = self.load(to, Size::DW);
        let [left, right] = [CoreQuestion::ShiftLeft, CoreQuestion::ShiftRight]
            .map(|question| self.builder.value(Type::I64, Op::Core(field.clone(), question)));
        let high = self.builder.binary(BinaryOp::Shl, word, left);
        let shift = if real.signed { BinaryOp::AShr } else { BinaryOp::LShr };
        let word = self.builder.binary(shift, high, right);
        let wide = IntType { bits: 64, signed: real.signed };
        Ok(arithmetic::convert(&mut self.builder, wide, int, word))
    }

    /// Copies a part that is not a scalar to memory of the part's size.
    pub(super) fn read_kernel_bytes(&mut self, part: &KernelPart<'_>, to: Addr, span: Span) -> Lower<()> {
        let base = self.scalar(part.pointer)?;
        let mut part = part.clone();
        for one in &mut part.indices {
            one.index = Index::Value(self.index_value(one.index)?);
        }
        self.copy_part(base, &part, to, span)
    }

    fn index_value(&mut self, index: Index<'_>) -> Lower<Value> {
        let index = match index {
            Index::Expr(index) => index,
            Index::Value(value) => return Ok(value),
        };
        let int = self.int(index.ty, index.span)?;
        let value = self.scalar(index)?;
        Ok(arithmetic::convert(&mut self.builder, int, IntType { bits: 64, ..int }, value))
    }

    /// Copies a part of the struct at `base`. A struct is copied member by member: its layout in the kernel
    /// differs from the copy, which has only the members that the script names.
    fn copy_part(&mut self, base: Value, part: &KernelPart<'_>, to: Addr, span: Span) -> Lower<()> {
        match *self.types().kind(part.ty) {
            TypeKind::Struct(id) => {
                let bytes = self.size(part.ty, span)?;
                self.zero(to, bytes);
                for field in 0..self.types().struct_def(id).fields.len() {
                    let Some(member) = self.member_of(part.clone(), id, field) else {
                        return impossible(span, "a copy of this member");
                    };
                    let at = narrow(self.types().field_offset(id, field));
                    let mark = self.builder.mark_stack();
                    self.copy_part(base, &member, to.plus(at), span)?;
                    self.builder.release_stack(mark);
                }
                Ok(())
            }
            TypeKind::Array(element, len) if self.builder.ty(base) == Type::Ptr(Origin::Context) => {
                let int = self.part_int(element, span)?;
                let bytes = self.size(part.ty, span)?;
                let there = self.elements_there(&part.field, len);
                if there < len {
                    self.zero(to, bytes);
                }
                self.record_elements(base, &part.field, to, int, there);
                self.written_pointers(to, bytes);
                Ok(())
            }
            TypeKind::Array(element, len) if !self.is_plain(element) => {
                let bytes: u32 = narrow(self.types().size(element));
                for at in 0..u32::try_from(len).unwrap_or(0) {
                    let mut one = KernelPart { ty: element, ..part.clone() };
                    one.field.steps.push(CoreStep::Element(at));
                    let mark = self.builder.mark_stack();
                    self.copy_part(base, &one, to.plus(at * bytes), span)?;
                    self.builder.release_stack(mark);
                }
                Ok(())
            }
            TypeKind::Array(..) => self.copy_array(base, part, to, span),
            _ => {
                let int = self.part_int(part.ty, span)?;
                let value = match self.read_given(part, int) {
                    Some(value) => value,
                    None => self.read_scalar_at(base, part, int, span)?,
                };
                self.store_scalar(to, int, value);
                self.written_pointers(to, int.bytes() as u32);
                Ok(())
            }
        }
    }

    /// Whether the elements of an array have the kernel's layout: all but structs do.
    fn is_plain(&self, element: TypeId) -> bool {
        match *self.types().kind(element) {
            TypeKind::Array(inner, _) => self.is_plain(inner),
            TypeKind::Struct(_) => false,
            _ => true,
        }
    }

    /// Copies an array, as many elements as the running kernel has.
    fn copy_array(&mut self, base: Value, part: &KernelPart<'_>, to: Addr, span: Span) -> Lower<()> {
        let bytes = self.size(part.ty, span)?;
        self.zero(to, bytes);
        self.with_array(base, part, bytes, |this, size, address| {
            this.probe_read(to, size, address, part.source);
        })?;
        self.written_pointers(to, bytes);
        Ok(())
    }

    /// Copies at most so many bytes before the first zero of an array to zeroed memory, which has room for one more.
    pub(super) fn text_of_part(&mut self, part: &KernelPart<'_>, most: u32, to: Addr) -> Lower<()> {
        let base = self.scalar(part.pointer)?;
        let base = self.address_number(base);
        self.with_array(base, part, most, |this, size, address| {
            // The last byte is always zero.
            let room = this.builder.binary_const(BinaryOp::Add, size, 1);
            this.probe_text_length(to, room, address, part.source);
        })
    }

    /// Acts with the size of an array in the running kernel, or `most`, and its address, unless a pointer is null.
    fn with_array(
        &mut self,
        base: Value,
        part: &KernelPart<'_>,
        most: u32,
        act: impl FnOnce(&mut Self, Value, Value),
    ) -> Lower<()> {
        let join = self.builder.block();
        let there = self.builder.compare_const(Condition::Ne, base, 0);
        self.require(there, join);
        let address = self.part_address(base, part, join)?;
        let question = Op::Core(Arc::new(part.field.clone()), CoreQuestion::Size);
        let real = self.builder.value(Type::I64, question);
        let size = self.at_most(real, most.into());
        act(self, size, address);
        self.builder.jump(join);
        self.builder.switch_to_sealed(join);
        Ok(())
    }

    /// Copies the part into a stack slot of its own.
    pub(super) fn kernel_copy(&mut self, part: &KernelPart<'_>, span: Span) -> Lower<Addr> {
        let bytes = self.size(part.ty, span)?;
        let to = Addr::of(Base::Slot(self.builder.slot(bytes)));
        if self.is_scalar(part.ty) {
            let int = self.part_int(part.ty, span)?;
            let value = self.read_kernel_scalar(part, span)?;
            self.store_scalar(to, int, value);
        } else {
            self.read_kernel_bytes(part, to, span)?;
        }
        Ok(to)
    }

    /// The address of a part; the pointer to the struct may be null.
    pub(super) fn kernel_address(&mut self, part: &KernelPart<'_>) -> Lower<Value> {
        let base = self.scalar(part.pointer)?;
        let base = self.address_number(base);
        let (there, miss, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let result = self.builder.param(join, Type::I64);
        let is_there = self.builder.compare_const(Condition::Ne, base, 0);
        self.builder.branch(is_there, there, miss);
        self.builder.switch_to_sealed(there);
        let address = self.part_address(base, part, miss)?;
        self.builder.jump_with(join, address);
        self.builder.switch_to_sealed(miss);
        let null = self.builder.constant(Type::I64, 0);
        self.builder.jump_with(join, null);
        self.builder.switch_to_sealed(join);
        Ok(result)
    }

    /// The address of a part; control goes to `miss` if an index is out of range.
    fn part_address(&mut self, base: Value, part: &KernelPart<'_>, miss: Block) -> Lower<Value> {
        let field = Arc::new(part.field.clone());
        let offset = self.builder.value(Type::I64, Op::Core(field, CoreQuestion::Offset));
        let mut address = self.address_plus(base, offset);
        for one in &part.indices {
            let mut index = self.index_value(one.index)?;
            if let Some(len) = one.len {
                index = self.below(index, len, miss);
            }
            let element = Arc::new(one.element.clone());
            let stride = self.builder.value(Type::I64, Op::Core(element, CoreQuestion::Size));
            let distance = self.builder.binary(BinaryOp::Mul, index, stride);
            address = self.address_plus(address, distance);
        }
        Ok(address)
    }

    /// The address of a variable of the kernel. The verifier knows one with a value for each CPU by its type, and lets
    /// helpers alone say where a value is.
    pub(super) fn variable_address(
        &mut self,
        variable: KernelVariableId,
        of_cpu: Option<&Expr>,
    ) -> Lower<Value> {
        let symbol = self.builder.value(Type::I64, Op::KernelAddr(variable));
        if !self.hir.kernel_variables[variable].per_cpu {
            return Ok(symbol);
        }
        let (helper, args) = match of_cpu {
            None => (Helper::ThisCpuPtr, vec![symbol]),
            Some(cpu) => (Helper::PerCpuPtr, vec![symbol, self.word(cpu)?]),
        };
        let found = self.builder.call(Type::I64, Callee::Helper(helper), args);
        Ok(self.builder.value(Type::I64, Op::Address(found)))
    }

    /// An address as a number.
    pub(super) fn address_number(&mut self, address: Value) -> Value {
        match self.builder.ty(address) {
            Type::Ptr(_) => self.builder.value(Type::I64, Op::Address(address)),
            _ => address,
        }
    }

    /// The smaller of a number and a constant, of which the verifier knows the bound wherever it is used.
    pub(super) fn at_most(&mut self, number: Value, limit: u64) -> Value {
        let limit_value = self.builder.constant(Type::I64, limit);
        let is_smaller = self.builder.compare_const(Condition::Lt, number, limit);
        let value = self.choose(is_smaller, number, limit_value);
        self.builder.value(Type::I64, Op::Below { value, bound: limit + 1 })
    }

    pub(super) fn address_plus(&mut self, address: Value, distance: Value) -> Value {
        match self.builder.ty(address) {
            ty @ Type::Ptr(_) => self.builder.value(ty, Op::PtrAdd(address, distance)),
            _ => self.builder.binary(BinaryOp::Add, address, distance),
        }
    }

    /// The value of an enumerator in the running kernel.
    pub(super) fn enumerator(&mut self, owner: &str, name: &str, value: i64, expr: &Expr) -> Lower<Value> {
        let int = self.int(expr.ty, expr.span)?;
        let root = CoreComposite { name: owner.to_owned(), is_union: false, is_typedef: false };
        let bytes = int.bytes() as u32;
        let step = CoreStep::Enumerator { name: name.to_owned(), value, bytes, signed: int.signed };
        let field = Arc::new(CoreField { root, steps: vec![step] });
        let found = self.builder.value(Type::I64, Op::Core(field, CoreQuestion::Enumerator));
        Ok(arithmetic::convert(&mut self.builder, IntType { bits: 64, ..int }, int, found))
    }

    /// Whether the running kernel has the member whose address this is.
    pub(super) fn member_exists(&mut self, address: &Expr) -> Lower<Value> {
        let Some(part) = self.part_of_address(address) else {
            return impossible(address.span, "a member of a kernel struct");
        };
        let field = Arc::new(part.field);
        let found = self.builder.value(Type::I64, Op::Core(field, CoreQuestion::Exists));
        Ok(self.builder.compare_const(Condition::Ne, found, 0))
    }

    /// The start of the struct whose member has this address, by the address of the same member of a struct
    /// that starts there.
    pub(super) fn container(&mut self, address: &Expr) -> Lower<Value> {
        let Some(part) = self.part_of_address(address) else {
            return impossible(address.span, "a member of a kernel struct");
        };
        let member = self.scalar(part.pointer)?;
        let member = self.address_number(member);
        let null = self.builder.constant(Type::I64, 0);
        let (there, miss, join) = (self.builder.block(), self.builder.block(), self.builder.block());
        let result = self.builder.param(join, Type::I64);
        let is_there = self.builder.compare_const(Condition::Ne, member, 0);
        self.builder.branch(is_there, there, miss);
        self.builder.switch_to_sealed(there);
        let offset = self.part_address(null, &part, miss)?;
        let start = self.builder.binary(BinaryOp::Sub, member, offset);
        self.builder.jump_with(join, start);
        self.builder.switch_to_sealed(miss);
        self.builder.jump_with(join, null);
        self.builder.switch_to_sealed(join);
        Ok(result)
    }

    /// The address of an element of an array of kernel structs; null if the array is.
    pub(super) fn kernel_element(&mut self, pointer: &Expr, index: &Expr) -> Lower<Value> {
        let id = match *self.types().kind(pointer.ty) {
            TypeKind::Ptr(to) => self.types().kernel_struct(to),
            _ => None,
        };
        let Some(id) = id else { return impossible(pointer.span, "an array of these structs") };
        let start = self.scalar(pointer)?;
        let start = self.address_number(start);
        let index = self.index_value(Index::Expr(index))?;
        let whole = Arc::new(CoreField { root: self.composite(id), steps: Vec::new() });
        let stride = self.builder.value(Type::I64, Op::Core(whole, CoreQuestion::TypeSize));
        let distance = self.builder.binary(BinaryOp::Mul, index, stride);
        let address = self.builder.binary(BinaryOp::Add, start, distance);
        let null = self.builder.constant(Type::I64, 0);
        let is_null = self.builder.compare_const(Condition::Eq, start, 0);
        Ok(self.choose(is_null, null, address))
    }

    fn part_of_address<'e>(&self, address: &'e Expr) -> Option<KernelPart<'e>> {
        match &address.kind {
            ExprKind::AddrOf(lvalue) => self.kernel_part(lvalue),
            _ => None,
        }
    }

    /// The kernel struct of an argument that is the address of a part: an object if the verifier tracks the
    /// pointer to it, else a number.
    pub(super) fn part_given<'e>(&mut self, arg: &'e Expr) -> Lower<Option<(Value, KernelPart<'e>)>> {
        let mut arg = arg;
        while let ExprKind::Convert(from) = &arg.kind
            && let TypeKind::Ptr(_) = self.types().kind(from.ty)
        {
            arg = from;
        }
        let ExprKind::AddrOf(lvalue) = &arg.kind else { return Ok(None) };
        let Some(part) = self.kernel_part(lvalue).filter(|_| self.is_kernel_pointer(arg.ty)) else {
            return Ok(None);
        };
        // The verifier follows only fixed offsets into objects.
        let object = if part.indices.is_empty() { self.kernel_object(part.pointer)? } else { None };
        let base = match object {
            Some(object) => self.object_value(object),
            None => self.scalar(part.pointer)?,
        };
        Ok(Some((base, part)))
    }

    /// The address of that part, as the verifier tracks it. Control goes to `refused` if the struct pointer
    /// is null.
    pub(super) fn address_given(
        &mut self,
        base: Value,
        part: &KernelPart<'_>,
        refused: Block,
    ) -> Lower<Value> {
        let base = match self.builder.ty(base) {
            Type::Ptr(_) => self.non_null(base, refused),
            _ => {
                let there = self.builder.compare_const(Condition::Ne, base, 0);
                self.require(there, refused);
                base
            }
        };
        self.part_address(base, part, refused)
    }

    /// Reads bytes into memory of this frame by a helper.
    pub(super) fn probe_read(&mut self, to: Addr, bytes: Value, address: Value, source: Source) -> Value {
        match source {
            Source::Kernel => self.probe(Helper::ProbeReadKernel, to, bytes, address),
            Source::Either => {
                self.probe_either([Helper::ProbeReadKernel, Helper::ProbeReadUser], to, bytes, address)
            }
            Source::User => self.probe(Helper::ProbeReadUser, to, bytes, address),
        }
    }

    /// Reads text up to a zero byte, truncated to what fits together with the zero. The rest of the memory is
    /// unchanged.
    pub(super) fn probe_read_text(&mut self, to: Addr, bytes: Value, address: Value, source: Source) {
        let result = self.probe_text_length(to, bytes, address, source);
        self.count_unread(result);
    }

    /// Counts a helper's result that is an error.
    pub(super) fn count_unread(&mut self, result: Value) {
        let [unread, read] = std::array::from_fn(|_| self.builder.block());
        let failed = self.builder.compare_const(Condition::SLt, result, 0);
        self.builder.branch(failed, unread, read);
        self.builder.switch_to_sealed(unread);
        self.count_one(Count::Unread);
        self.builder.jump(read);
        self.builder.switch_to_sealed(read);
    }

    pub(super) fn probe(&mut self, helper: Helper, to: Addr, bytes: Value, address: Value) -> Value {
        let to = self.pointer(to);
        self.builder.call(Type::I64, Callee::Helper(helper), vec![to, bytes, address])
    }

    /// Like [`Self::probe_read_text`]; returns the helper's result, the length with the terminator or an error.
    pub(super) fn probe_text_length(
        &mut self,
        to: Addr,
        bytes: Value,
        address: Value,
        source: Source,
    ) -> Value {
        match source {
            Source::Kernel => self.probe(Helper::ProbeReadKernelStr, to, bytes, address),
            Source::Either => {
                self.probe_either([Helper::ProbeReadKernelStr, Helper::ProbeReadUserStr], to, bytes, address)
            }
            Source::User => self.probe(Helper::ProbeReadUserStr, to, bytes, address),
        }
    }

    /// Calls the helper for kernel memory or the one for user memory, depending on the sign of the address.
    fn probe_either(&mut self, helpers: [Helper; 2], to: Addr, bytes: Value, address: Value) -> Value {
        // The upper half of the address space is the kernel's. Source: arch/x86/include/asm/processor.h,
        // arch/arm64/include/asm/memory.h.
        let [kernel, user, join] = std::array::from_fn(|_| self.builder.block());
        let is_kernel = self.builder.compare_const(Condition::SLt, address, 0);
        self.builder.branch(is_kernel, kernel, user);
        let result = self.builder.param(join, Type::I64);
        for (block, helper) in [kernel, user].into_iter().zip(helpers) {
            self.builder.switch_to_sealed(block);
            let found = self.probe(helper, to, bytes, address);
            self.builder.jump_with(join, found);
        }
        self.builder.switch_to_sealed(join);
        result
    }

    /// Reads a 64-bit number.
    pub(super) fn read_word(&mut self, address: Value, source: Source) -> Value {
        let slot = self.builder.slot(8);
        let bytes = self.builder.constant(Type::I64, 8);
        self.probe_read(Addr::of(Base::Slot(slot)), bytes, address, source);
        self.load(Addr::of(Base::Slot(slot)), Size::DW)
    }
}
