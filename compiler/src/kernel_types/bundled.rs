//! Tables for use without BTF: the structs of fixed layout, system calls, and the members of two struct_ops
//! types.
//!
//! The tables are text, a line each: `NAME PARAM:TYPE ... [-> TYPE]`, or `NAME = TYPE` for data. `*` alone is
//! a pointer to a type that the language has no name for.

use super::struct_ops::{OpsMember, OpsMemberKind};
use super::types::{KernelType, Member, Param, Pointee, Proto, Spelling, Struct};
use crate::builtins::context::REGISTERS;
use crate::builtins::context_members::{self, MemberType};

/// System calls and their parameters: a stable interface. Calls of 32-bit programs are left out.
///
/// Source: the events `syscalls/sys_enter_*` of a v6.18 kernel for x86-64, with typedefs resolved.
const SYSCALLS: &str = include_str!("syscalls.txt");

/// Size in bytes of `struct pt_regs` on x86-64; all members are registers of 8 bytes.
const PT_REGS_BYTES: u32 = 168;

/// Returns a struct of fixed layout.
pub(super) fn structure(name: &str) -> Option<Struct> {
    match name {
        "pt_regs" => Some(pt_regs()),
        "bpf_perf_event_data" => Some(perf_event_data()),
        _ => {
            let found = context_members::find(name)?;
            let members =
                found.fields.iter().map(|field| member(field.name, member_type(field.ty), field.offset));
            Some(plain(name, found.size, members.collect()))
        }
    }
}

fn plain(name: &str, bytes: u32, members: Vec<Member>) -> Struct {
    Struct { name: name.to_owned(), bytes, is_union: false, members }
}

fn member(name: &str, ty: KernelType, offset: u32) -> Member {
    Member { name: name.to_owned(), ty, offset, bitfield: None, in_union: false }
}

fn member_type(ty: MemberType) -> KernelType {
    let array = |element: KernelType, len| KernelType::Array { element: Box::new(element), len };
    match ty {
        MemberType::U8 => KernelType::unsigned_int(1),
        MemberType::U16 => KernelType::unsigned_int(2),
        // In the kernel's struct, packet pointers are 32-bit numbers.
        MemberType::U32 | MemberType::PacketStart | MemberType::PacketEnd | MemberType::PacketMeta => {
            KernelType::unsigned_int(4)
        }
        MemberType::U64 => KernelType::unsigned_int(8),
        MemberType::I32 => KernelType::signed_int(4),
        MemberType::I64 => KernelType::signed_int(8),
        MemberType::Pointer(to) => KernelType::Pointer(Pointee::Struct(to.to_owned())),
        MemberType::ArrayU32(len) => array(KernelType::unsigned_int(4), len),
        MemberType::ArrayU64(len) => array(KernelType::unsigned_int(8), len),
        MemberType::Chars(len) => {
            array(KernelType::Int { bytes: 1, signed: true, spelling: Spelling::Char }, len)
        }
        MemberType::Struct(name) => KernelType::Struct {
            name: name.to_owned(),
            bytes: context_members::find(name).map_or(0, |found| found.size),
        },
    }
}

/// Returns `struct pt_regs` of x86-64 (4.8).
fn pt_regs() -> Struct {
    // `fp` is the language's own name for `bp`.
    let registers = REGISTERS.iter().filter(|register| register.name != "fp");
    let mut members: Vec<_> = registers
        .filter_map(|register| Some(member(register.name, KernelType::unsigned_int(8), register.x86_64?)))
        .collect();
    members.sort_by_key(|member| member.offset);
    plain("pt_regs", PT_REGS_BYTES, members)
}

/// Returns `struct bpf_perf_event_data` of x86-64 (4.8).
fn perf_event_data() -> Struct {
    let regs = KernelType::Struct { name: "pt_regs".to_owned(), bytes: PT_REGS_BYTES };
    let number = KernelType::unsigned_int(8);
    let members = vec![
        member("regs", regs, 0),
        member("sample_period", number.clone(), PT_REGS_BYTES),
        member("addr", number, PT_REGS_BYTES + 8),
    ];
    plain("bpf_perf_event_data", PT_REGS_BYTES + 16, members)
}

/// Returns the parameters of a system call.
pub(super) fn syscall(name: &str) -> Option<Vec<Param>> {
    let line = SYSCALLS.lines().find(|line| line.split(' ').next() == Some(name))?;
    line.split(' ').skip(1).map(param).collect()
}

/// Returns the names of all system calls of the table.
pub(super) fn syscall_names<'a>() -> impl Iterator<Item = &'a str> {
    SYSCALLS.lines().filter_map(|line| line.split(' ').next())
}

/// Parses a member of a struct_ops type from its line.
pub(super) fn ops_member(line: &str) -> Option<OpsMember> {
    if let Some((name, ty)) = line.split_once(" = ") {
        return Some(OpsMember { name: name.to_owned(), kind: OpsMemberKind::Data(type_of(ty)?) });
    }
    let (front, result) = match line.split_once(" -> ") {
        Some((front, result)) => (front, type_of(result)?),
        None => (line, KernelType::Void),
    };
    let mut tokens = front.split(' ');
    let name = tokens.next()?.to_owned();
    let params = tokens.map(param).collect::<Option<_>>()?;
    Some(OpsMember { name, kind: OpsMemberKind::Function(Proto { params, result, variadic: false }) })
}

fn param(token: &str) -> Option<Param> {
    let (name, ty) = token.split_once(':')?;
    Some(Param { name: name.to_owned(), ty: type_of(ty)? })
}

fn pointee(token: &str) -> Pointee {
    match token {
        "" => Pointee::Other,
        "void" => Pointee::Void,
        "char" => Pointee::Char,
        _ => match token.strip_prefix('*') {
            Some(to) => Pointee::Pointer(Box::new(pointee(to))),
            None => Pointee::Struct(token.to_owned()),
        },
    }
}

fn type_of(token: &str) -> Option<KernelType> {
    if let Some(to) = token.strip_prefix('*') {
        return Some(KernelType::Pointer(pointee(to)));
    }
    if let Some((element, rest)) = token.split_once('[') {
        let len = rest.strip_suffix(']')?.parse().ok()?;
        return Some(KernelType::Array { element: Box::new(type_of(element)?), len });
    }
    Some(match token {
        "u8" => KernelType::unsigned_int(1),
        "u16" => KernelType::unsigned_int(2),
        "u32" => KernelType::unsigned_int(4),
        "u64" => KernelType::unsigned_int(8),
        "i32" => KernelType::signed_int(4),
        "i64" => KernelType::signed_int(8),
        "size_t" => KernelType::Int { bytes: 8, signed: false, spelling: Spelling::Size },
        "char" => KernelType::Int { bytes: 1, signed: true, spelling: Spelling::Char },
        "bool" => KernelType::Bool,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel_types::struct_ops::BUNDLED;

    #[test]
    fn every_line_of_every_table_can_be_read() {
        for line in SYSCALLS.lines() {
            let name = line.split(' ').next().expect("a line has a name");
            assert!(syscall(name).is_some(), "{line}");
        }
        for (_, table) in BUNDLED {
            for line in table.lines() {
                assert!(ops_member(line).is_some(), "{line}");
            }
        }
    }

    #[test]
    fn registers_fill_the_struct() {
        let offsets: Vec<_> = pt_regs().members.iter().map(|member| member.offset).collect();
        assert_eq!(offsets, (0..21).map(|index| index * 8).collect::<Vec<u32>>());
    }
}
