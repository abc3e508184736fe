//! Command-line arguments: the host parses them by the fields of `main`'s parameter, and the plugin stores
//! the values.
//!
//! A script without this parameter still has the host parse the arguments, so that a surplus one is an error
//! and `--help` is answered.

use wasm_encoder::{Instruction as I, ValType};

use super::abi::{LIST_LEN, Shape};
use super::code::{WasmCode, mem};
use super::cx::{Cx, Lower};
use super::expr::mistake;
use super::runtime::{Routine, reset_arena};
use super::scalar::store_op;
use crate::plugin::contract::import;
use crate::source::Span;
use crate::types::{Field, StructId, TypeId, TypeKind};

/// Type of an option. The cases of the contract's `option-type` and `option-value` have the same names.
struct OptionKind {
    case: &'static str,
    /// Bits of a number or bytes of a text; none for a boolean.
    size: Option<u32>,
}

/// Parses the arguments into a struct at a fixed address, or ends the plugin.
pub fn parse(
    cx: &mut Cx<'_>,
    code: &mut WasmCode,
    options: Option<(StructId, u32)>,
    span: Span,
) -> Lower<()> {
    let fields = options.map_or(&[][..], |(id, _)| &cx.hir.types.struct_def(id).fields);
    let kinds = fields.iter().map(|field| kind(cx, field, span)).collect::<Lower<Vec<_>>>()?;
    let specs = specs(cx, fields, &kinds);
    let parse = cx.host(import::args::PARSE);
    let exit = cx.host(import::args::EXIT);
    let parsed = cx.abi.result(import::args::PARSE);
    let (exit_case, exit_code) = parsed.case("exit");
    let exit_code = exit_code.expect("an exit has a code").offset;
    reset_arena(code);
    code.u32(specs).u32(fields.len() as u32).u32(cx.returned).call(parse);
    code.u32(cx.returned).op(I::I32Load8U(mem(0))).u32(exit_case).op(I::I32Eq).if_();
    code.u32(cx.returned).op(I::I32Load8U(mem(exit_code))).call(exit).op(I::Unreachable).end();
    if let Some((id, to)) = options {
        store_values(cx, code, id, &kinds, to);
    }
    Ok(())
}

fn kind(cx: &Cx<'_>, field: &Field, span: Span) -> Lower<OptionKind> {
    let of = |case, size| Ok(OptionKind { case, size });
    match cx.hir.types.kind(field.ty) {
        TypeKind::Int(int) if int.signed => of("signed", Some(int.bits.into())),
        TypeKind::Int(int) => of("unsigned", Some(int.bits.into())),
        TypeKind::Char => of("unsigned", Some(8)),
        TypeKind::Bool => of("boolean", None),
        TypeKind::Str(size) => of("text", Some(size - 1)),
        _ => Err(mistake(span, &format!("no option has the type of `--{}`", field.name))),
    }
}

/// Returns the address of the option specs, which are constants.
fn specs(cx: &mut Cx<'_>, fields: &[Field], kinds: &[OptionKind]) -> u32 {
    let abi = cx.abi;
    let spec = abi.named("args", "option-spec");
    let mut bytes = vec![0; spec.size() as usize * fields.len()];
    for (position, (field, kind)) in fields.iter().zip(kinds).enumerate() {
        let name = cx.text(&field.name);
        let one = &mut bytes[spec.size() as usize * position..];
        put(one, spec.field("name").offset, &name.address.to_le_bytes());
        put(one, spec.field("name").offset + LIST_LEN, &name.len.to_le_bytes());
        put_case(one, spec.field("type"), kind.case, kind.size);
        put_default(cx, one, spec.field("default"), field, kind);
        let help = help(&field.docs);
        let help = cx.text(help);
        put(one, spec.field("help").offset, &help.address.to_le_bytes());
        put(one, spec.field("help").offset + LIST_LEN, &help.len.to_le_bytes());
    }
    cx.module.statics.constant(&bytes)
}

/// Writes a variant's case, with its payload of 1 or 4 bytes, if any.
fn put_case(spec: &mut [u8], variant: Shape, case: &str, payload: Option<u32>) {
    let (number, shape) = variant.case(case);
    put(spec, variant.offset, &[number as u8]);
    if let (Some(shape), Some(payload)) = (shape, payload) {
        put(spec, shape.offset, &payload.to_le_bytes()[..shape.size() as usize]);
    }
}

/// Writes the default of an option: the struct's default, else zero, false or empty.
fn put_default(cx: &mut Cx<'_>, spec: &mut [u8], variant: Shape, field: &Field, kind: &OptionKind) {
    put_case(spec, variant, kind.case, None);
    let (Some(default), Some(payload)) = (&field.default, variant.case(kind.case).1) else { return };
    if let TypeKind::Str(_) = cx.hir.types.kind(field.ty) {
        let end = default.iter().position(|byte| *byte == 0).unwrap_or(default.len());
        let text = cx.text(&default[..end]);
        put(spec, payload.offset, &text.address.to_le_bytes());
        put(spec, payload.offset + LIST_LEN, &text.len.to_le_bytes());
        return;
    }
    let int = cx.hir.types.scalar(field.ty).expect("an option that is not text is a number");
    let bits = default.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    // The host reads a number as 64 bits and a boolean as one byte.
    let value = (int.value(bits) as u64).to_le_bytes();
    put(spec, payload.offset, &value[..(payload.size() as usize).min(8)]);
}

/// Joins the lines of a doc comment to one line of help.
fn help(docs: &str) -> String {
    docs.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn put(bytes: &mut [u8], offset: u32, value: &[u8]) {
    bytes[offset as usize..offset as usize + value.len()].copy_from_slice(value);
}

/// Stores the values that the host returned into the struct. Their cases are those of the specs.
fn store_values(cx: &mut Cx<'_>, code: &mut WasmCode, id: StructId, kinds: &[OptionKind], to: u32) {
    let abi = cx.abi;
    let values = abi.result(import::args::PARSE).case("values").1.expect("the values are a list");
    let value = values.element();
    let list = code.local(ValType::I32);
    code.u32(cx.returned).op(I::I32Load(mem(values.offset))).set(list);
    for (position, kind) in kinds.iter().enumerate() {
        let ty = cx.hir.types.struct_def(id).fields[position].ty;
        let to = to + cx.hir.types.field_offset(id, position) as u32;
        let payload = value.case(kind.case).1.expect("an option's value has a payload").offset;
        let from = value.size() * position as u32 + payload;
        if let TypeKind::Str(size) = *cx.hir.types.kind(ty) {
            let copy = cx.routine(Routine::TextCopy);
            code.u32(to).u32(size).get(list).op(I::I32Load(mem(from)));
            code.get(list).op(I::I32Load(mem(from + LIST_LEN))).call(copy);
        } else {
            store_number(cx, code, ty, to, list, (from, kind));
        }
    }
}

fn store_number(
    cx: &Cx<'_>,
    code: &mut WasmCode,
    ty: TypeId,
    to: u32,
    list: super::code::Var,
    (from, kind): (u32, &OptionKind),
) {
    let int = cx.hir.types.scalar(ty).expect("an option that is not text is a number");
    code.u32(to).get(list);
    if kind.case == "boolean" {
        code.op(I::I32Load8U(mem(from)));
    } else if int.bits == 64 {
        code.op(I::I64Load(mem(from)));
    } else {
        code.op(I::I32Load(mem(from)));
    }
    code.op(store_op(int, 0));
}
