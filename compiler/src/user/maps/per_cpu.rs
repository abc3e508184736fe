//! Per-CPU maps: merging the values of all CPUs into one.
//!
//! Integers are summed, also inside structs and arrays; bools are or-ed; any other value is that of the first
//! CPU whose value is not all zero.

use wasm_encoder::{Instruction as I, ValType};

use super::super::code::{Var, WasmCode, mem};
use super::super::cx::Cx;
use super::super::scalar::{load_op, store_op};
use super::{FoundValue, Table, value_size};
use crate::types::{IntType, TypeId, TypeKind, Types};

/// Merges the values of all CPUs into one.
pub fn merge(cx: &Cx<'_>, code: &mut WasmCode, map: Table, to: Var, found: &FoundValue) {
    let ty = map.value(cx.hir);
    let size = value_size(cx, map);
    let at = found.address;
    let end = code.local(ValType::I32);
    // A host that returns no value violates the contract.
    code.get(found.len).u32(size).op(I::I32LtU).if_();
    code.op(I::Unreachable).end();
    code.get(at).get(found.len).op(I::I32Add).set(end);
    if !is_sum(&cx.hir.types, ty) {
        skip_zero_slots(code, at, end, size);
    }
    code.get(to).get(at).u32(size).op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
    let done = code.block();
    let next = code.loop_();
    code.get(at).u32(size).op(I::I32Add).tee(at).get(end).op(I::I32GeU).br_if(done);
    merge_into(&cx.hir.types, code, ty, Pair { to, from: at, offset: 0 });
    code.br(next).end().end();
}

/// Adds to the value of CPU 0, which is at the address `slot`.
pub fn add_to_first(cx: &Cx<'_>, code: &mut WasmCode, map: Table, slot: Var, delta: Var) {
    let int = cx.hir.types.scalar(map.value(cx.hir)).expect("only an integer is added to");
    code.get(slot).get(slot).op(load_op(int, 0)).get(delta);
    add(code, int, |code| {
        code.op(I::I32WrapI64);
    });
    code.op(store_op(int, 0));
}

/// Returns whether a value consists of integers alone, so that an all-zero value needs no special case.
fn is_sum(types: &Types, ty: TypeId) -> bool {
    match types.kind(ty) {
        TypeKind::Int(_) | TypeKind::Bool => true,
        TypeKind::Array(element, _) => is_sum(types, *element),
        TypeKind::Struct(id) => types.struct_def(*id).fields.iter().all(|field| is_sum(types, field.ty)),
        _ => false,
    }
}

/// Advances `at` to the first value that is not all zero, or to the last one.
fn skip_zero_slots(code: &mut WasmCode, at: Var, end: Var, size: u32) {
    let byte = code.local(ValType::I32);
    let found = code.block();
    let next_slot = code.loop_();
    code.get_plus(at, size).get(end).op(I::I32GeU).br_if(found);
    code.i32(0).set(byte);
    let next_byte = code.loop_();
    code.get(at).get(byte).ops_of([I::I32Add, I::I32Load8U(mem(0))]).br_if(found);
    code.get(byte).i32(1).op(I::I32Add).tee(byte).u32(size).op(I::I32LtU).br_if(next_byte).end();
    code.get_plus(at, size).set(at).br(next_slot).end().end();
}

/// Addresses of two values of one type, and their common offset.
#[derive(Clone, Copy)]
struct Pair {
    to: Var,
    from: Var,
    offset: u32,
}

impl Pair {
    fn moved(self, by: u64) -> Pair {
        Pair { offset: self.offset + by as u32, ..self }
    }
}

fn merge_into(types: &Types, code: &mut WasmCode, ty: TypeId, pair: Pair) {
    match types.kind(ty) {
        TypeKind::Int(int) => {
            code.get(pair.to).get(pair.to).op(load_op(*int, pair.offset));
            code.get(pair.from).op(load_op(*int, pair.offset));
            add(code, *int, |_| {});
            code.op(store_op(*int, pair.offset));
        }
        TypeKind::Bool => {
            code.get(pair.to).get(pair.to).op(I::I32Load8U(mem(pair.offset)));
            code.get(pair.from).op(I::I32Load8U(mem(pair.offset))).op(I::I32Or);
            code.op(I::I32Store8(mem(pair.offset)));
        }
        TypeKind::Struct(id) => {
            for (index, field) in types.struct_def(*id).fields.iter().enumerate() {
                merge_into(types, code, field.ty, pair.moved(types.field_offset(*id, index)));
            }
        }
        TypeKind::Array(element, len) if has_sum(types, *element) => {
            merge_elements(types, code, *element, *len, pair);
        }
        _ => {}
    }
}

fn merge_elements(types: &Types, code: &mut WasmCode, element: TypeId, len: u64, pair: Pair) {
    let size = types.size(element) as u32;
    let [to, from, end] = [(); 3].map(|()| code.local(ValType::I32));
    code.get_plus(pair.to, pair.offset).set(to);
    code.get_plus(pair.from, pair.offset).tee(from).u32(size * len as u32).op(I::I32Add).set(end);
    let next = code.loop_();
    merge_into(types, code, element, Pair { to, from, offset: 0 });
    code.get_plus(to, size).set(to);
    code.get_plus(from, size).tee(from).get(end).op(I::I32Ne).br_if(next).end();
}

fn has_sum(types: &Types, ty: TypeId) -> bool {
    match types.kind(ty) {
        TypeKind::Int(_) | TypeKind::Bool => true,
        TypeKind::Array(element, _) => has_sum(types, *element),
        TypeKind::Struct(id) => types.struct_def(*id).fields.iter().any(|field| has_sum(types, field.ty)),
        _ => false,
    }
}

/// Adds the two numbers on the stack. `narrow` converts the upper one to i32 if the integer has at most 32
/// bits.
fn add(code: &mut WasmCode, int: IntType, narrow: impl FnOnce(&mut WasmCode)) {
    if int.bits == 64 {
        code.op(I::I64Add);
        return;
    }
    narrow(code);
    code.op(I::I32Add);
}
