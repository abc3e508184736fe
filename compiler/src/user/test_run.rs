//! `test(program, input)`: runs the program once on a packet that the test supplies.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::code::{Var, mem};
use super::cx::Lower;
use super::func::FnCx;
use super::runtime::{Routine, push_failed, reset_arena};
use super::scalar::convert;
use crate::hir::{Expr, FuncId};
use crate::plugin::contract::{HostFunction, import};
use crate::source::Span;
use crate::types::{IntType, StructId, TypeId, TypeKind};

/// Size in bytes of a packet whose size is not given (language reference, 6.10).
const USUAL_PACKET_BYTES: u32 = 1500;
/// Size in bytes of the shortest packet, an Ethernet header.
const MIN_PACKET_BYTES: u32 = 14;

impl FnCx<'_, '_> {
    /// Pushes the program's return value. A test that cannot run its program fails, because there is no value
    /// to continue with.
    pub fn test_run(&mut self, program: FuncId, input: &Expr, span: Span) -> Lower<()> {
        // The input keeps its address while the program is loaded.
        let described = self.slot(input.ty);
        self.aggregate(input, described)?;
        let handle = self.temp(ValType::I32);
        let load = self.cx.routine(Routine::Load(program));
        self.push_line(span);
        self.code.call(load).tee(handle).op(I::I32Eqz).if_();
        self.fail_test(span);
        self.code.end();
        let made = self.temp(ValType::I32);
        let new = self.cx.host(import::bpf::TEST_INPUT_NEW);
        let drop_input = self.cx.drop_handle(import::bpf::TEST_INPUT);
        self.code.call(new).set(made);
        match self.cx.hir.types.kind(input.ty) {
            TypeKind::Struct(id) => self.describe(made, *id, described),
            _ => {
                let len = self.packet_bytes(input.ty);
                self.set_data(made, described, len);
                self.set_number(made, import::bpf::TEST_INPUT_SET_PACKET_SIZE, |fcx| {
                    fcx.code.u32(len.max(MIN_PACKET_BYTES));
                });
            }
        }
        let run = self.cx.host(import::bpf::PROGRAM_TEST_RUN);
        let shape = self.cx.abi.result(import::bpf::PROGRAM_TEST_RUN);
        let (ok, err) = (shape.ok().field("return-value").offset, shape.err().offset);
        let returned = self.cx.returned;
        reset_arena(&mut self.code);
        self.code.get(handle).get(made).u32(returned).call(run).get(made).call(drop_input);
        push_failed(self.cx, &mut self.code);
        self.code.if_();
        self.warn_refused(err, span);
        self.fail_test(span);
        self.code.end();
        self.code.u32(returned).op(I::I32Load(mem(ok)));
        Ok(())
    }

    /// Fills a test input from a struct: the packet's first bytes, its size, interface and mark. The kernel takes
    /// the protocol from the packet alone.
    fn describe(&mut self, made: Var, id: StructId, at: Addr) {
        let mut data_len = 0;
        if let Some((addr, ty)) = self.member(id, at, "data") {
            data_len = self.packet_bytes(ty);
            self.set_data(made, addr, data_len);
        }
        for (setter, name, absent) in [
            (import::bpf::TEST_INPUT_SET_PACKET_SIZE, "packet_size", USUAL_PACKET_BYTES.max(data_len)),
            (import::bpf::TEST_INPUT_SET_INGRESS_IFINDEX, "ingress_ifindex", 0),
            (import::bpf::TEST_INPUT_SET_MARK, "mark", 0),
        ] {
            self.set_number(made, setter, |fcx| fcx.push_number(id, at, name, absent));
        }
    }

    fn set_data(&mut self, made: Var, data: Addr, len: u32) {
        let set = self.cx.host(import::bpf::TEST_INPUT_SET_DATA);
        self.code.get(made);
        self.push_addr(data);
        self.code.u32(len).call(set);
    }

    fn set_number(&mut self, made: Var, setter: HostFunction, push: impl FnOnce(&mut Self)) {
        let set = self.cx.host(setter);
        self.code.get(made);
        push(self);
        self.code.call(set);
    }

    /// Pushes a member as 32 bits. A value that does not fit becomes the largest number, which the host
    /// refuses.
    fn push_number(&mut self, id: StructId, at: Addr, name: &str, absent: u32) {
        let Some((addr, ty)) = self.member(id, at, name) else {
            self.code.u32(absent);
            return;
        };
        let int = self.int(ty);
        self.load(int, addr);
        convert(&mut self.code, int, IntType { bits: 64, signed: int.signed });
        let wide = self.temp(ValType::I64);
        self.code.set(wide).i32(-1).get(wide).op(I::I32WrapI64);
        self.code.get(wide).i64(i64::from(u32::MAX)).ops_of([I::I64GtU, I::Select]);
    }

    fn member(&self, id: StructId, at: Addr, name: &str) -> Option<(Addr, TypeId)> {
        let types = &self.cx.hir.types;
        let position = types.struct_def(id).field(name)?;
        Some((at.plus(types.field_offset(id, position) as u32), types.struct_def(id).fields[position].ty))
    }

    /// Returns how many packet bytes a value of this type holds; a string's last byte is its terminator.
    fn packet_bytes(&self, ty: TypeId) -> u32 {
        let size = self.cx.hir.types.size(ty) as u32;
        if matches!(self.cx.hir.types.kind(ty), TypeKind::Str(_)) { size.saturating_sub(1) } else { size }
    }

    fn fail_test(&mut self, span: Span) {
        let message = self.cx.line_prefix(span) + "the program could not be test-run";
        super::abort(self.cx, &mut self.code, &message);
    }
}
