//! `print`: passes the format and the values, each with its own width, to the host.

use wasm_encoder::Instruction as I;

use super::abi::{LIST_LEN, Shape};
use super::addr::Addr;
use super::code::{Var, WasmCode, mem};
use super::cx::{Cx, Lower};
use super::expr::mistake;
use super::func::FnCx;
use super::memory::PAGE;
use super::runtime::Routine;
use super::scalar::{convert, val_type};
use crate::hir::{Expr, format};
use crate::plugin::contract::import;
use crate::types::{EnumId, IntType, TypeId, TypeKind};

const U8: IntType = IntType { bits: 8, signed: false };
const U32: IntType = IntType { bits: 32, signed: false };

impl FnCx<'_, '_> {
    /// Prints, and pushes 0.
    pub fn print(&mut self, format: &[u8], args: &[Expr]) -> Lower<()> {
        let print = self.cx.host(import::console::PRINT);
        let values = self.printed(format, args)?;
        let format = self.cx.text(format);
        self.push_text(format);
        self.push_addr(values);
        self.code.u32(args.len() as u32).call(print).i32(0);
        Ok(())
    }

    /// Builds the list of values for the host.
    pub fn printed(&mut self, format: &[u8], args: &[Expr]) -> Lower<Addr> {
        let abi = self.cx.abi;
        let value = abi.named("console", "value");
        let values = self.slot_bytes(u64::from(value.size()) * args.len() as u64, 8);
        let letters = format::letters(format);
        for (position, arg) in args.iter().enumerate() {
            let to = values.plus(value.size() * position as u32);
            let pointer = matches!(self.cx.hir.types.kind(arg.ty), TypeKind::Ptr(_));
            let natural = letters.get(position).is_none_or(|letter| *letter == b'{');
            if pointer && letters.get(position) == Some(&b's') {
                self.print_text_at(value, arg, to)?;
            } else if natural && let TypeKind::Enum(id) = *self.cx.hir.types.kind(arg.ty) {
                self.print_enum(value, arg, id, to)?;
            } else {
                self.print_value(value, arg, &args[position + 1..], to)?;
            }
        }
        Ok(values)
    }

    /// Builds one value at `to`; `later` are the values after it.
    fn print_value(&mut self, value: Shape, arg: &Expr, later: &[Expr], to: Addr) -> Lower<()> {
        let Some(case) = self.value_case(arg.ty) else {
            return Err(mistake(arg.span, "a value of this type is printed"));
        };
        let (number, payload) = value.case(case);
        let payload = to.plus(payload.expect("every printed value has a payload").offset);
        let tag = |fcx: &mut Self| {
            fcx.store(U8, to, |fcx| {
                fcx.code.u32(number);
                Ok(())
            })
        };
        if let Some(int) = self.cx.hir.types.scalar(arg.ty) {
            self.store(int, payload, |fcx| fcx.scalar(arg))?;
            return tag(self);
        }
        let text = self.stable_addr(arg, later)?;
        tag(self)?;
        let length = self.cx.routine(Routine::TextLength);
        let size = self.cx.hir.types.size(arg.ty) as u32;
        self.store(U32, payload, |fcx| {
            fcx.push_addr(text);
            Ok(())
        })?;
        self.push_addr(payload);
        self.push_addr(text);
        self.code.u32(size).call(length).op(I::I32Store(mem(LIST_LEN)));
        Ok(())
    }

    /// Builds the default form of an enum: its name, or the number if no enumerator has it.
    fn print_enum(&mut self, value: Shape, arg: &Expr, id: EnumId, to: Addr) -> Lower<()> {
        let name = self.cx.routine(Routine::EnumName(id));
        let int = self.cx.hir.types.enum_def(id).repr;
        let (text, text_payload) = value.case("text");
        let (number, payload) = value.case(number_case(int));
        let text_payload = to.plus(text_payload.expect("a text has a payload").offset);
        let payload = to.plus(payload.expect("a number has a payload").offset);
        let var = self.temp(val_type(int));
        self.scalar(arg)?;
        self.code.tee(var);
        convert(&mut self.code, int, IntType { bits: 64, signed: int.signed });
        self.push_addr(text_payload);
        self.code.call(name).if_();
        self.store(U8, to, |fcx| {
            fcx.code.u32(text);
            Ok(())
        })?;
        self.code.else_();
        self.store(U8, to, |fcx| {
            fcx.code.u32(number);
            Ok(())
        })?;
        self.store_var(int, payload, var);
        self.code.end();
        Ok(())
    }

    /// Builds the value of the text that a pointer points to, which ends at a zero byte or at the end of the
    /// memory.
    fn print_text_at(&mut self, value: Shape, pointer: &Expr, to: Addr) -> Lower<()> {
        let (number, payload) = value.case("text");
        let payload = to.plus(payload.expect("a text has a payload").offset);
        let length = self.cx.routine(Routine::TextLength);
        let text = self.pointee(pointer, self.cx.hir.types.common().u8)?;
        self.store(U8, to, |fcx| {
            fcx.code.u32(number);
            Ok(())
        })?;
        self.store(U32, payload, |fcx| {
            fcx.push_addr(text);
            Ok(())
        })?;
        self.push_addr(payload);
        self.push_addr(text);
        // The memory is smaller than 4 GiB, so its end fits an i32.
        self.code.op(I::MemorySize(0)).u32(PAGE).op(I::I32Mul);
        self.push_addr(text);
        self.code.op(I::I32Sub).call(length).op(I::I32Store(mem(LIST_LEN)));
        Ok(())
    }

    /// Returns the case of the contract's `value` for a type; none for types that cannot be printed.
    fn value_case(&self, ty: TypeId) -> Option<&'static str> {
        let types = &self.cx.hir.types;
        let common = types.common();
        Some(match types.kind(ty) {
            TypeKind::Bool => "boolean",
            TypeKind::Char => "character",
            TypeKind::Int(int) => number_case(*int),
            TypeKind::Enum(id) => number_case(types.enum_def(*id).repr),
            TypeKind::Str(_) => "text",
            TypeKind::Array(element, _) if *element == common.u8 || *element == common.char => "text",
            TypeKind::Ptr(_) => "pointer",
            _ => return None,
        })
    }
}

/// Emits the body of [`Routine::EnumName`]. The first of several enumerators with the same value counts.
pub fn enum_name(cx: &mut Cx<'_>, code: &mut WasmCode, id: EnumId) {
    let (value, to) = (Var(0), Var(1));
    let hir = cx.hir;
    let def = hir.types.enum_def(id);
    for (name, bits) in &def.enumerators {
        let name = cx.text(name);
        code.get(value).i64(def.repr.value(*bits) as i64).op(I::I64Eq).if_();
        code.get(to).u32(name.address).op(I::I32Store(mem(0)));
        code.get(to).u32(name.len).op(I::I32Store(mem(LIST_LEN)));
        code.i32(1).op(I::Return).end();
    }
    code.i32(0);
}

fn number_case(int: IntType) -> &'static str {
    match (int.bits, int.signed) {
        (8, false) => "unsigned8",
        (16, false) => "unsigned16",
        (32, false) => "unsigned32",
        (_, false) => "unsigned64",
        (8, true) => "signed8",
        (16, true) => "signed16",
        (32, true) => "signed32",
        (_, true) => "signed64",
    }
}
