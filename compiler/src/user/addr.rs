//! Addresses in linear memory, and loads, stores and copies at them.

use wasm_encoder::Instruction as I;

use super::code::Var;
use super::cx::Lower;
use super::func::FnCx;
use super::scalar::{load_op, push_const, store_op};
use crate::types::IntType;

/// An address in linear memory: a base local plus a constant offset.
#[derive(Debug, Clone, Copy)]
pub struct Addr {
    /// Local that holds the base; none means base 0.
    pub base: Option<Var>,
    /// Offset from the base, in bytes.
    pub offset: u32,
}

impl Addr {
    /// Returns the address `bytes` bytes after this one.
    pub fn plus(self, bytes: u32) -> Addr {
        Addr { offset: self.offset + bytes, ..self }
    }

    /// Returns the address held in a local, with offset 0.
    pub fn of(base: Var) -> Addr {
        Addr { base: Some(base), offset: 0 }
    }

    /// Returns an absolute address, without a base.
    pub fn fixed(offset: u32) -> Addr {
        Addr { base: None, offset }
    }
}

impl FnCx<'_, '_> {
    /// Pushes base plus offset as an i32.
    pub fn push_addr(&mut self, addr: Addr) {
        match addr.base {
            Some(base) => self.code.get_plus(base, addr.offset),
            None => self.code.u32(addr.offset),
        };
    }

    /// Loads the scalar at an address and pushes it.
    pub fn load(&mut self, int: IntType, addr: Addr) {
        let offset = self.push_base(addr);
        self.code.op(load_op(int, offset));
    }

    /// Stores the scalar that `value` pushes at an address.
    pub fn store(
        &mut self,
        int: IntType,
        addr: Addr,
        value: impl FnOnce(&mut Self) -> Lower<()>,
    ) -> Lower<()> {
        let offset = self.push_base(addr);
        value(self)?;
        self.code.op(store_op(int, offset));
        Ok(())
    }

    /// Stores the scalar in a local at an address.
    pub fn store_var(&mut self, int: IntType, addr: Addr, value: Var) {
        let offset = self.push_base(addr);
        self.code.get(value).op(store_op(int, offset));
    }

    /// Copies bytes; the two ranges may overlap.
    pub fn copy(&mut self, to: Addr, from: Addr, bytes: u64) {
        self.push_addr(to);
        self.push_addr(from);
        self.code.u32(bytes as u32).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    }

    /// Sets a range of bytes to zero.
    pub fn zero(&mut self, to: Addr, bytes: u64) {
        match u32::try_from(bytes) {
            Ok(bytes @ (1 | 2 | 4 | 8)) => {
                let int = IntType { bits: bytes as u8 * 8, signed: false };
                let offset = self.push_base(to);
                push_const(&mut self.code, int, 0);
                self.code.op(store_op(int, offset));
            }
            _ => {
                self.push_addr(to);
                self.code.i32(0).u32(bytes as u32).op(I::MemoryFill(0));
            }
        }
    }

    /// Pushes the base of an address and returns the rest, for the instruction's immediate offset.
    fn push_base(&mut self, addr: Addr) -> u32 {
        match addr.base {
            Some(base) => {
                self.code.get(base);
                addr.offset
            }
            None => {
                self.code.u32(addr.offset);
                0
            }
        }
    }
}
