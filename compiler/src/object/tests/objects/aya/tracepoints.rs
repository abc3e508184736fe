//! Counts system calls and samples: a tracepoint, a raw one, a BTF one, and a perf event.
#![no_std]
use aya_ebpf::{
    macros::{btf_tracepoint, map, perf_event, raw_tracepoint, tracepoint},
    maps::{LruHashMap, PerCpuHashMap, Queue, StackTrace},
    programs::{BtfTracePointContext, PerfEventContext, RawTracePointContext, TracePointContext},
    EbpfContext as _,
};

#[map]
static OPENED: LruHashMap<[u8; 16], u64> = LruHashMap::with_max_entries(256, 0);
#[map]
static CALLS: PerCpuHashMap<u32, u64> = PerCpuHashMap::with_max_entries(512, 0);
#[map]
static FORKED: Queue<u32> = Queue::with_max_entries(64, 0);
#[map]
static STACKS: StackTrace = StackTrace::with_max_entries(128, 0);

#[tracepoint(category = "syscalls", name = "sys_enter_openat")]
pub fn opens(ctx: TracePointContext) -> u32 {
    let Ok(command) = ctx.command() else { return 1 };
    // The flags of the call, which the tracepoint's format has at this offset.
    let Ok(flags) = (unsafe { ctx.read_at::<u64>(32) }) else { return 1 };
    OPENED.insert(&command, &flags, 0).is_err().into()
}

#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn calls(ctx: RawTracePointContext) -> i32 {
    let process = ctx.pid();
    match CALLS.get_ptr_mut(&process) {
        Some(count) => unsafe { *count += 1 },
        None => return CALLS.insert(&process, &1, 0).is_err().into(),
    }
    0
}

#[btf_tracepoint(function = "sched_process_fork")]
pub fn forks(ctx: BtfTracePointContext) -> i32 {
    FORKED.push(&ctx.tgid(), 0).is_err().into()
}

#[perf_event]
pub fn samples(ctx: PerfEventContext) -> u32 {
    unsafe { STACKS.get_stackid(&ctx, 0) }.is_err().into()
}
