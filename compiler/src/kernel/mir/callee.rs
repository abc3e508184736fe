//! Callees of MIR call instructions: helpers and kernel functions by name and number, functions of the
//! object, and the placeholder operations of map iterations.

use ks_wit::kfunc;

use super::{Origin, Type};
use crate::bpf::helper_number;
use crate::hir::{ExternId, FuncId, MapKind};

/// A kernel helper. Source of signatures: include/uapi/linux/bpf.h, v6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Helper {
    /// `(map, key) -> entry or null`
    MapLookup,
    /// `(map, key, value, flags) -> 0 or -errno`
    MapUpdate,
    /// `(map, key) -> 0 or -errno`
    MapDelete,
    /// `(map, value, flags) -> 0 or -errno`
    MapPush,
    /// `(map, value) -> 0 or -errno`; removes the value
    MapPop,
    /// `(map, value) -> 0 or -errno`
    MapPeek,
    /// `(context, map, flags) -> id or -errno`
    GetStackId,
    /// `(events, BPF_F_CURRENT_CPU, to, 24) -> 0 or -errno`: the count, the time enabled, the time running;
    /// all zero on failure
    ReadEvent,
    /// `(ring, bytes, 0) -> record or null`; every path must pass the record to one of the next two
    RingReserve,
    /// `(record, 0)`
    RingSubmit,
    /// `(record, 0)`
    RingDiscard,
    /// `() -> ns`
    KtimeGetNs,
    /// `() -> number`
    GetPrandom,
    /// `() -> cpu`
    GetSmpProcessorId,
    /// `() -> tgid << 32 | tid`
    GetCurrentPidTgid,
    /// `() -> struct task_struct *`, as a number
    GetCurrentTask,
    /// `() -> gid << 32 | uid`
    GetCurrentUidGid,
    /// `(buffer, bytes) -> 0 or -errno`
    GetCurrentComm,
    /// `(context, bytes) -> 0 or -errno`: pulls the first bytes of the packet into one piece. Invalidates all
    /// packet pointers.
    SkbPullData,
    /// `(context, offset, to, bytes) -> 0 or -errno`: copies bytes of the packet from any of its pieces; all
    /// zero on failure
    SkbLoadBytes,
    /// `(context, programs, index)`: returns only on failure
    TailCall,
    /// `() -> id`
    GetCurrentCgroupId,
    /// `(context) -> number`
    GetAttachCookie,
    /// `(variable of each CPU, CPU) -> pointer to its value there, or null if there is no such CPU`
    PerCpuPtr,
    /// `(variable of each CPU) -> pointer to its value on this CPU`
    ThisCpuPtr,
    /// `(to, bytes, kernel address) -> 0 or -errno`; all zero on failure
    ProbeReadKernel,
    /// `(to, bytes, user address) -> 0 or -errno`; all zero on failure
    ProbeReadUser,
    /// `(to, bytes, kernel address) -> bytes or -errno`: copies up to and including a zero, which is always
    /// written; all zero on failure
    ProbeReadKernelStr,
    /// `(to, bytes, user address) -> bytes or -errno`: copies up to and including a zero, which is always
    /// written; all zero on failure
    ProbeReadUserStr,
    /// `(to, bytes, user address) -> 0 or -errno`: brings pages in, which programs may only do that sleep; all zero on
    /// failure
    CopyFromUser,
    /// `(iterations, function, captured, 0) -> iterations that ran` (Linux 5.17): calls `function(index,
    /// captured)` until it returns 1. The index is a zero-extended 32-bit number; `captured` points to the
    /// stack.
    Loop,
    /// `(map, function, captured, 0) -> entries that were visited` (Linux 5.13): calls `function(map, key,
    /// entry, captured)` until it returns 1; `captured` points to the stack.
    ForEachMapElem,
    /// `(lock)`: waits for the spin lock in an entry. No call may follow but the next one.
    SpinLock,
    /// `(lock)`: releases the spin lock that was taken.
    SpinUnlock,
    /// `(map, object, 0, flags) -> entry or null`
    StorageGet(Storage),
    /// `(map, object) -> 0 or -errno`
    StorageDelete(Storage),
}

/// The kind of kernel object that owns the values of a local storage map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Storage {
    /// BPF_MAP_TYPE_TASK_STORAGE: a task owns the value.
    Task,
    /// BPF_MAP_TYPE_INODE_STORAGE: an inode owns the value.
    Inode,
    /// BPF_MAP_TYPE_SK_STORAGE: a socket owns the value.
    Socket,
    /// BPF_MAP_TYPE_CGRP_STORAGE: a cgroup owns the value.
    Cgroup,
}

impl Storage {
    /// The owner of the values of a map kind; `None` if it is not local storage.
    pub fn of(kind: MapKind) -> Option<Storage> {
        match kind {
            MapKind::TaskStorage => Some(Storage::Task),
            MapKind::InodeStorage => Some(Storage::Inode),
            MapKind::SkStorage => Some(Storage::Socket),
            MapKind::CgroupStorage => Some(Storage::Cgroup),
            _ => None,
        }
    }
}

impl Helper {
    /// The helper's name in the kernel's headers, with `bpf_`.
    pub fn name(self) -> &'static str {
        match self {
            Helper::MapLookup => "bpf_map_lookup_elem",
            Helper::MapUpdate => "bpf_map_update_elem",
            Helper::MapDelete => "bpf_map_delete_elem",
            Helper::MapPush => "bpf_map_push_elem",
            Helper::MapPop => "bpf_map_pop_elem",
            Helper::MapPeek => "bpf_map_peek_elem",
            Helper::GetStackId => "bpf_get_stackid",
            Helper::ReadEvent => "bpf_perf_event_read_value",
            Helper::RingReserve => "bpf_ringbuf_reserve",
            Helper::RingSubmit => "bpf_ringbuf_submit",
            Helper::RingDiscard => "bpf_ringbuf_discard",
            Helper::KtimeGetNs => "bpf_ktime_get_ns",
            Helper::GetPrandom => "bpf_get_prandom_u32",
            Helper::GetSmpProcessorId => "bpf_get_smp_processor_id",
            Helper::GetCurrentPidTgid => "bpf_get_current_pid_tgid",
            Helper::GetCurrentTask => "bpf_get_current_task",
            Helper::GetCurrentUidGid => "bpf_get_current_uid_gid",
            Helper::GetCurrentComm => "bpf_get_current_comm",
            Helper::SkbPullData => "bpf_skb_pull_data",
            Helper::SkbLoadBytes => "bpf_skb_load_bytes",
            Helper::TailCall => "bpf_tail_call",
            Helper::GetCurrentCgroupId => "bpf_get_current_cgroup_id",
            Helper::GetAttachCookie => "bpf_get_attach_cookie",
            Helper::PerCpuPtr => "bpf_per_cpu_ptr",
            Helper::ThisCpuPtr => "bpf_this_cpu_ptr",
            Helper::ProbeReadKernel => "bpf_probe_read_kernel",
            Helper::ProbeReadUser => "bpf_probe_read_user",
            Helper::ProbeReadKernelStr => "bpf_probe_read_kernel_str",
            Helper::ProbeReadUserStr => "bpf_probe_read_user_str",
            Helper::CopyFromUser => "bpf_copy_from_user",
            Helper::Loop => "bpf_loop",
            Helper::ForEachMapElem => "bpf_for_each_map_elem",
            Helper::SpinLock => "bpf_spin_lock",
            Helper::SpinUnlock => "bpf_spin_unlock",
            Helper::StorageGet(Storage::Task) => "bpf_task_storage_get",
            Helper::StorageGet(Storage::Inode) => "bpf_inode_storage_get",
            Helper::StorageGet(Storage::Socket) => "bpf_sk_storage_get",
            Helper::StorageGet(Storage::Cgroup) => "bpf_cgrp_storage_get",
            Helper::StorageDelete(Storage::Task) => "bpf_task_storage_delete",
            Helper::StorageDelete(Storage::Inode) => "bpf_inode_storage_delete",
            Helper::StorageDelete(Storage::Socket) => "bpf_sk_storage_delete",
            Helper::StorageDelete(Storage::Cgroup) => "bpf_cgrp_storage_delete",
        }
    }

    /// The helper's number in `enum bpf_func_id`.
    pub fn number(self) -> u32 {
        match helper_number(self.name()) {
            Some(number) => number,
            None => unreachable!("`{}` is in the table of helpers", self.name()),
        }
    }

    /// The MIR type of the helper's result.
    pub fn result(self) -> Type {
        match self {
            Helper::MapLookup | Helper::StorageGet(_) => Type::Ptr(Origin::EntryOrNull),
            Helper::RingReserve => Type::Ptr(Origin::MemoryOrNull),
            _ => Type::I64,
        }
    }

    /// Whether the helper has side effects or writes memory, so that equal calls must not be merged.
    pub fn has_effects(self) -> bool {
        matches!(
            self,
            Helper::MapUpdate
                | Helper::MapDelete
                | Helper::MapPush
                | Helper::MapPop
                | Helper::MapPeek
                | Helper::GetStackId
                | Helper::ReadEvent
                | Helper::RingReserve
                | Helper::RingSubmit
                | Helper::RingDiscard
                | Helper::GetCurrentComm
                | Helper::SkbPullData
                | Helper::SkbLoadBytes
                | Helper::TailCall
                | Helper::ProbeReadKernel
                | Helper::ProbeReadUser
                | Helper::ProbeReadKernelStr
                | Helper::ProbeReadUserStr
                | Helper::CopyFromUser
                | Helper::Loop
                | Helper::ForEachMapElem
                | Helper::SpinLock
                | Helper::SpinUnlock
                | Helper::StorageGet(_)
                | Helper::StorageDelete(_)
        )
    }

    /// Whether the helper reads the memory that an argument points to, and no more.
    pub fn only_reads(self, argument: usize) -> bool {
        match self {
            Helper::MapLookup | Helper::MapDelete | Helper::MapPush => argument == 1,
            Helper::MapUpdate => matches!(argument, 1 | 2),
            _ => false,
        }
    }

    /// The argument with memory that the helper writes and does not read, and the one with the number of its bytes:
    /// all of them are written, whatever the result is.
    pub fn fills(self) -> Option<(usize, usize)> {
        match self {
            Helper::GetCurrentComm
            | Helper::ProbeReadKernel
            | Helper::ProbeReadUser
            | Helper::CopyFromUser => Some((0, 1)),
            Helper::ReadEvent | Helper::SkbLoadBytes => Some((2, 3)),
            _ => None,
        }
    }

    /// Whether the helper calls a function of the object, with a pointer to the stack.
    pub fn calls_back(self) -> bool {
        matches!(self, Helper::Loop | Helper::ForEachMapElem)
    }
}

/// A kernel function by name: the open-coded number iterator (Linux 6.4). Source: kernel/bpf/bpf_iter.c,
/// v6.12.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kfunc {
    /// `(iterator, start: s32, end: s32) -> 0 or -errno`
    IterNumNew,
    /// `(iterator) -> counter or null`
    IterNumNext,
    /// `(iterator)`
    IterNumDestroy,
}

impl Kfunc {
    /// The function's name in the kernel's BTF.
    pub fn name(self) -> &'static str {
        match self {
            Kfunc::IterNumNew => kfunc::ITER_NUM_NEW.name,
            Kfunc::IterNumNext => kfunc::ITER_NUM_NEXT.name,
            Kfunc::IterNumDestroy => kfunc::ITER_NUM_DESTROY.name,
        }
    }

    /// The MIR type of the function's result; `None` for a void function.
    pub fn result(self) -> Option<Type> {
        match self {
            Kfunc::IterNumNew => Some(Type::I32),
            Kfunc::IterNumNext => Some(Type::Ptr(Origin::IterCounterOrNull)),
            Kfunc::IterNumDestroy => None,
        }
    }
}

/// A step of a map iteration, before `pass::loop_callbacks` replaces the loop by a call of
/// [`Helper::ForEachMapElem`]. The iteration is identified by 8 bytes of the stack that nothing else uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapIter {
    /// `(iteration, map) -> 0`
    New,
    /// `(iteration) -> the next entry or null`
    Next,
    /// `(iteration) -> the key of that entry`, which is only read
    Key,
    /// `(iteration)`
    End,
}

impl MapIter {
    /// The name in listings.
    pub fn name(self) -> &'static str {
        match self {
            MapIter::New => "map_iter_new",
            MapIter::Next => "map_iter_next",
            MapIter::Key => "map_iter_key",
            MapIter::End => "map_iter_end",
        }
    }

    /// The MIR type of the step's result; `None` for [`MapIter::End`].
    pub fn result(self) -> Option<Type> {
        match self {
            MapIter::New => Some(Type::I32),
            MapIter::Next => Some(Type::Ptr(Origin::EntryOrNull)),
            MapIter::Key => Some(Type::Ptr(Origin::Entry)),
            MapIter::End => None,
        }
    }
}

/// An id of the running task in the PID namespace of the host, 0 if the task is outside of it. It is the same in a
/// whole run of a program, and read before `pass::task_ids` has replaced it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskId {
    /// `() -> tid`, or `(task, initial) -> tid` of a task by its address, with its id in the initial PID namespace.
    Thread,
    /// The same of the process.
    Process,
}

impl TaskId {
    /// The name in listings.
    pub fn name(self) -> &'static str {
        match self {
            TaskId::Thread => "tid",
            TaskId::Process => "pid",
        }
    }
}

/// The role of a call in a loop under an iterator of the kernel or a map iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IterStep {
    /// Starts the iteration; the result is 0.
    New,
    /// Fetches the next item; null when there is none.
    Next,
    /// Reads the current item.
    Read,
    /// Releases the iterator; every exit of the loop passes it.
    End,
}

/// The callee of a call instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Callee {
    /// A kernel helper, called by number.
    Helper(Helper),
    /// A kernel function that the compiler itself uses.
    Kfunc(Kfunc),
    /// A step of a map iteration.
    MapIter(MapIter),
    /// A read of an id of the running task.
    TaskId(TaskId),
    /// A helper or function of the kernel that the script names. It may write to memory that its arguments
    /// point to.
    External(ExternId),
    /// A function of this object.
    Function(FuncId),
}

impl Callee {
    /// The role of the call in a loop, whose iterator is the first argument.
    pub fn step(self) -> Option<IterStep> {
        match self {
            Callee::Kfunc(Kfunc::IterNumNew) | Callee::MapIter(MapIter::New) => Some(IterStep::New),
            Callee::Kfunc(Kfunc::IterNumNext) | Callee::MapIter(MapIter::Next) => Some(IterStep::Next),
            Callee::MapIter(MapIter::Key) => Some(IterStep::Read),
            Callee::Kfunc(Kfunc::IterNumDestroy) | Callee::MapIter(MapIter::End) => Some(IterStep::End),
            Callee::Helper(_) | Callee::TaskId(_) | Callee::External(_) | Callee::Function(_) => None,
        }
    }
}
