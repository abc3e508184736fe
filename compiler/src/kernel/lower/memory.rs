//! Lowers addresses, and loads, stores and copies through them.

use super::super::mir::{BinaryOp, Op, Origin, Size, Slot, Type, Value};
use super::kernel_memory::Source;
use super::{Lowerer, int_type};
use crate::hir::GlobalId;
use crate::types::IntType;

/// The base of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// A stack slot of this frame.
    Slot(Slot),
    /// A global variable of the script.
    Global(GlobalId),
    /// A pointer that was checked for null and bounds.
    Pointer(Value),
}

/// The address of memory that exists on every path.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addr {
    pub base: Base,
    pub offset: u32,
    /// The alignment of the base in bytes, a power of two.
    pub align: u32,
}

/// The alignment in bytes of stack slots, global variables and map values.
pub(super) const BASE_ALIGN: u32 = 8;

/// The alignment of a base that permits loads and stores at any offset.
pub(super) const ANYWHERE: u32 = 1 << 16;

/// The limit of loads and stores in a copy; larger copies use a helper.
const MAX_CHUNKS: u32 = 1024;

impl Addr {
    /// The start of a slot, a global variable, a map value or an aggregate parameter.
    pub(super) fn of(base: Base) -> Addr {
        Addr { base, offset: 0, align: BASE_ALIGN }
    }

    /// The address `bytes` bytes further.
    pub(super) fn plus(self, bytes: u32) -> Addr {
        Addr { offset: self.offset.saturating_add(bytes), ..self }
    }

    /// Whether the address is aligned like the start of a slot, for code that knows nothing but the address.
    pub(super) fn is_aligned(self) -> bool {
        self.align >= BASE_ALIGN && self.align < ANYWHERE && self.offset.is_multiple_of(BASE_ALIGN)
    }

    /// The size of the largest access, up to 8 bytes, at `at` bytes from here.
    fn chunk(self, at: u32, left: u32) -> u32 {
        let offset = self.offset.saturating_add(at);
        let mut size = 8.min(self.align);
        while (self.align < ANYWHERE && !offset.is_multiple_of(size)) || size > left {
            size /= 2;
        }
        size
    }
}

/// The access size for this number of bytes.
pub(super) fn access_size(bytes: u64) -> Size {
    match bytes {
        1 => Size::B,
        2 => Size::H,
        4 => Size::W,
        _ => Size::DW,
    }
}

/// The MIR type of a value that an access reads.
pub(super) fn access_type(size: Size) -> Type {
    if size == Size::DW { Type::I64 } else { Type::I32 }
}

impl Lowerer<'_> {
    /// A pointer to the address's base, and the remaining offset.
    pub(super) fn base_and_offset(&mut self, addr: Addr) -> (Value, i16) {
        match addr.base {
            Base::Slot(slot) => {
                let op = Op::StackAddr { slot, offset: addr.offset };
                (self.builder.value(Type::Ptr(Origin::Stack), op), 0)
            }
            Base::Global(global) => {
                let op = Op::GlobalAddr { global, offset: addr.offset };
                (self.builder.value(Type::Ptr(Origin::Global), op), 0)
            }
            Base::Pointer(pointer) => match i16::try_from(addr.offset) {
                Ok(offset) => (pointer, offset),
                Err(_) => (self.move_pointer(pointer, addr.offset), 0),
            },
        }
    }

    fn move_pointer(&mut self, pointer: Value, bytes: u32) -> Value {
        let bytes = self.builder.constant(Type::I64, u64::from(bytes));
        self.builder.value(self.builder.ty(pointer), Op::PtrAdd(pointer, bytes))
    }

    /// A pointer to the address.
    pub(super) fn pointer(&mut self, addr: Addr) -> Value {
        match self.base_and_offset(addr) {
            (pointer, 0) => pointer,
            (pointer, _) => self.move_pointer(pointer, addr.offset),
        }
    }

    pub(super) fn load(&mut self, addr: Addr, size: Size) -> Value {
        let (base, offset) = self.base_and_offset(addr);
        self.builder.value(access_type(size), Op::Load { size, base, offset })
    }

    pub(super) fn store(&mut self, addr: Addr, size: Size, value: Value) {
        let (base, offset) = self.base_and_offset(addr);
        self.builder.effect(Op::Store { size, base, offset, value });
    }

    pub(super) fn atomic_add(&mut self, addr: Addr, size: Size, value: Value) {
        let (base, offset) = self.base_and_offset(addr);
        self.builder.effect(Op::AtomicAdd { size, base, offset, value });
    }

    /// Reads a scalar. A scalar on the stack is made opaque in a loop under an iterator, because each
    /// iteration may change it.
    pub(super) fn load_scalar(&mut self, addr: Addr, int: IntType) -> Value {
        let loaded = self.load_bytes(addr, int);
        let shared = match addr.base {
            Base::Global(_) => true,
            Base::Slot(_) => false,
            Base::Pointer(pointer) => {
                matches!(
                    self.builder.ty(pointer),
                    Type::Ptr(Origin::Entry | Origin::Global | Origin::InPacket)
                )
            }
        };
        let value = if shared { loaded } else { self.make_opaque(loaded) };
        if int.signed && int.bits < 32 {
            return self.builder.value(int_type(int), Op::Narrow { value, bits: int.bits, signed: true });
        }
        value
    }

    /// Reads a scalar, in pieces if the address may be unaligned.
    fn load_bytes(&mut self, addr: Addr, int: IntType) -> Value {
        let bytes = int.bytes() as u32;
        let pieces = Self::chunks(&[addr], bytes);
        if pieces.len() == 1 {
            return self.load(addr, access_size(int.bytes()));
        }
        let ty = int_type(int);
        let mut value = self.builder.constant(ty, 0);
        for (at, size) in pieces {
            let mut piece = self.load(addr.plus(at), size);
            if ty == Type::I64 && size != Size::DW {
                piece = self.builder.value(Type::I64, Op::ZeroExtend(piece));
            }
            let piece = self.builder.binary_const(BinaryOp::Shl, piece, u64::from(8 * at));
            value = self.builder.binary(BinaryOp::Or, value, piece);
        }
        value
    }

    pub(super) fn store_scalar(&mut self, addr: Addr, int: IntType, value: Value) {
        let bytes = int.bytes() as u32;
        let pieces = Self::chunks(&[addr], bytes);
        if pieces.len() == 1 {
            return self.store(addr, access_size(int.bytes()), value);
        }
        for (at, size) in pieces {
            let mut piece = self.builder.binary_const(BinaryOp::LShr, value, u64::from(8 * at));
            if self.builder.ty(piece) == Type::I64 && size != Size::DW {
                piece = self.builder.value(Type::I32, Op::Truncate(piece));
            }
            self.store(addr.plus(at), size, piece);
        }
    }

    /// The pieces, as offset and size, that cover `bytes` and are aligned at all of the addresses.
    pub(super) fn chunks(addrs: &[Addr], bytes: u32) -> Vec<(u32, Size)> {
        let mut chunks = Vec::new();
        let mut at = 0;
        while at < bytes {
            let size = addrs.iter().map(|addr| addr.chunk(at, bytes - at)).min().unwrap_or(1);
            chunks.push((at, access_size(u64::from(size))));
            at += size;
        }
        chunks
    }

    /// Sets bytes to zero.
    pub(super) fn zero(&mut self, addr: Addr, bytes: u32) {
        if is_large(addr, bytes) {
            // The helper reads an invalid address and so writes zeros.
            let nowhere = self.builder.constant(Type::I64, 0);
            self.copy_by_helper(addr, nowhere, bytes);
            return self.cleared_pointers(addr, bytes);
        }
        for (at, size) in Self::chunks(&[addr], bytes) {
            let zero = self.builder.constant(access_type(size), 0);
            self.store(addr.plus(at), size, zero);
        }
        self.cleared_pointers(addr, bytes);
    }

    /// Copies bytes between addresses that are equal or do not overlap.
    pub(super) fn copy(&mut self, to: Addr, from: Addr, bytes: u32) {
        if is_large(to, bytes) || is_large(from, bytes) {
            let start = self.pointer(from);
            self.copy_by_helper(to, start, bytes);
            return self.copied_pointers(to, from, bytes);
        }
        for (at, size) in Self::chunks(&[to, from], bytes) {
            let value = self.load(from.plus(at), size);
            self.store(to.plus(at), size, value);
        }
        self.copied_pointers(to, from, bytes);
    }

    fn copy_by_helper(&mut self, to: Addr, from: Value, bytes: u32) {
        let bytes = self.builder.constant(Type::I64, bytes.into());
        self.probe_read(to, bytes, from, Source::Kernel);
    }
}

/// Whether a copy would need more than [`MAX_CHUNKS`] loads and stores.
fn is_large(addr: Addr, bytes: u32) -> bool {
    bytes / addr.align.min(8) > MAX_CHUNKS
}
