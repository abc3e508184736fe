//! The PID namespace of this process, for programs that read task ids.
//!
//! Kernel helpers return ids of the initial namespace. `bpf_get_ns_current_pid_tgid` answers only for tasks
//! whose own namespace is the given one, not for descendants. Programs therefore read the task's entry for
//! this namespace themselves, with offsets that the host provides ([`ks_wit::object::PID_NAMESPACE`]).

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use ks_compiler::bpf::{self, Insn, Operand, Reg, Size};
use ks_compiler::object::btf::{Btf, LookupError, TypeId};
use ks_wit::object::{PID_NAMESPACE_BYTES, PID_NAMESPACE_WORD_BYTES, PidNamespaceWord as Word};

use super::feature;
use super::kernel_types;

/// Inode number of the initial PID namespace. Source: include/linux/proc_ns.h, `PROC_PID_INIT_INO`, v6.18.
const FIRST: u64 = 0xefff_fffc;

/// Size of the variable in 8-byte words.
pub(super) const WORDS: usize = PID_NAMESPACE_BYTES / PID_NAMESPACE_WORD_BYTES;

/// Returns the inode number of this process's PID namespace. None in the initial one, and if procfs cannot be
/// read.
pub fn number() -> Option<u64> {
    let number = fs::metadata("/proc/self/ns/pid").ok()?.ino();
    (number != FIRST).then_some(number)
}

/// Returns the value of the variable; none in the initial namespace.
///
/// # Errors
/// The reason why it cannot be determined, as text.
pub(super) fn words() -> Result<Option<[u64; WORDS]>, String> {
    let Some(number) = number() else { return Ok(None) };
    let types = kernel_types::running()?;
    let offsets = TaskOffsets::of(types)?;
    let level = level(&offsets)?;
    let entry = offsets.numbers + level * offsets.entry_bytes;
    let mut words = [0; WORDS];
    for (word, value) in [
        (Word::Number, number),
        (Word::Level, level),
        (Word::GroupLeader, offsets.group_leader),
        (Word::ThreadPid, offsets.thread_pid),
        (Word::PidLevel, offsets.level),
        (Word::EntryNumber, entry + offsets.nr),
        (Word::EntryNamespace, entry + offsets.ns),
        (Word::NamespaceNumber, offsets.inum),
    ] {
        words[word as usize] = value;
    }
    Ok(Some(words))
}

/// Offsets and sizes in kernel structs that programs read of a task, in bytes.
struct TaskOffsets {
    group_leader: u64,
    thread_pid: u64,
    level: u64,
    numbers: u64,
    entry_bytes: u64,
    nr: u64,
    ns: u64,
    inum: u64,
}

impl TaskOffsets {
    /// Source: include/linux/sched.h, include/linux/pid.h, include/linux/pid_namespace.h,
    /// include/linux/ns_common.h, v6.18.
    fn of(types: &Btf) -> Result<TaskOffsets, String> {
        let composite = |name: &str| {
            types.find_struct(name).ok_or_else(|| format!("the kernel's types have no `struct {name}`"))
        };
        let member = |of: TypeId, name: &str| match types.field(of, name) {
            Ok(Some(field)) => Ok(field),
            Ok(None) => Err(format!("the kernel's types have no member `{name}` where it is looked for")),
            Err(error) => Err(unreadable(&error)),
        };
        let offset = |of: TypeId, name: &str| Ok::<u64, String>(u64::from(member(of, name)?.bit_offset) / 8);
        let (task, pid, upid) = (composite("task_struct")?, composite("pid")?, composite("upid")?);
        let namespace = composite("pid_namespace")?;
        let common = member(namespace, "ns")?;
        Ok(TaskOffsets {
            group_leader: offset(task, "group_leader")?,
            thread_pid: offset(task, "thread_pid")?,
            level: offset(pid, "level")?,
            numbers: offset(pid, "numbers")?,
            entry_bytes: types.size_of(upid).map_err(|error| unreadable(&error))?,
            nr: offset(upid, "nr")?,
            ns: offset(upid, "ns")?,
            inum: u64::from(common.bit_offset) / 8 + offset(common.ty, "inum")?,
        })
    }
}

fn unreadable(error: &LookupError) -> String {
    format!("cannot read the kernel's types: {error}")
}

/// Returns the nesting level of this process's namespace. No file contains it, so a BPF program reads it from
/// the task that runs the program.
fn level(offsets: &TaskOffsets) -> Result<u64, String> {
    const CURRENT_TASK: u32 = 35;
    const PROBE_READ_KERNEL: u32 = 113;
    const SLOT: i16 = -8;
    let (task, pid) = (Reg::R6, Reg::R7);
    let offset =
        |bytes: u64| i32::try_from(bytes).map_err(|_| "the kernel's structs are too large".to_owned());
    let read = |from: Reg, bytes: i32| {
        [
            Insn::mov(Reg::R1, Reg::R10),
            Insn::alu(bpf::AluOp::Add, Reg::R1, Operand::Imm(SLOT.into())),
            Insn::mov(Reg::R2, Operand::Imm(8)),
            Insn::mov(Reg::R3, from),
            Insn::alu(bpf::AluOp::Add, Reg::R3, Operand::Imm(bytes)),
            Insn::call_helper(PROBE_READ_KERNEL),
        ]
    };
    let mut code = vec![Insn::call_helper(CURRENT_TASK), Insn::mov(task, Reg::R0)];
    code.extend(read(task, offset(offsets.thread_pid)?));
    code.push(Insn::load(Size::DW, pid, Reg::R10, SLOT));
    code.extend(read(pid, offset(offsets.level)?));
    code.extend([Insn::load(Size::W, Reg::R0, Reg::R10, SLOT), Insn::Exit]);
    let bytes = bpf::encode(&code).map_err(|error| error.to_string())?;
    let (slots, _) = bytes.as_chunks::<8>();
    let level = feature::run_once(slots).map_err(|(call, errno)| format!("{call}: {errno}"))?;
    // The initial namespace has level 0; the kernel's limit is 32 (`MAX_PID_NS_LEVEL`).
    if (1..=32).contains(&level) {
        Ok(level.into())
    } else {
        Err(format!("PID namespaces have no level {level}"))
    }
}
