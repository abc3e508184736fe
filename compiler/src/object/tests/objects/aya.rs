// The programs of aya.o, for aya-ebpf 0.1.1 and rustc 1.95. rustc writes assembly for `bpfel-unknown-none`
// (`-Z function-sections=no --emit=asm`), in which the calls of the stubs of helpers are replaced by `call
// NUMBER`, as bpf-linker does by inlining them; then `clang-19 -target bpf -c` and `llvm-strip -g`.

#![no_std]
use aya_ebpf::{bindings::xdp_action, helpers::*, macros::*, maps::*, programs::*};
#[map]
static BLOCK: HashMap<u32, u64> = HashMap::with_max_entries(1024, 0);
#[map]
static EVENTS: PerfEventArray<[u8; 16]> = PerfEventArray::new(0);
#[map]
static RING: RingBuf = RingBuf::with_byte_size(4096, 0);
#[map]
static STACKS: StackTrace = StackTrace::with_max_entries(16, 0);
#[map]
static COUNTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(4, 0);
#[map]
static LRU: LruHashMap<[u8; 8], u32> = LruHashMap::with_max_entries(16, 0);
#[map]
static Q: Queue<u32> = Queue::with_max_entries(16, 0);
#[map]
static JUMP: ProgramArray = ProgramArray::with_max_entries(4, 0);
#[no_mangle]
static LEVEL: u32 = 3;
#[no_mangle]
static mut HITS: u64 = 0;
pub struct Pair<T>(pub T, pub u32);
pub enum Choice {
    One(u32),
    Two { a: u64 },
}
#[inline(never)]
fn work(p: &Pair<u64>, c: Choice) -> u64 {
    let k = p.1;
    match c {
        Choice::One(n) => unsafe { BLOCK.get(&(k + n)).copied().unwrap_or(p.0) },
        Choice::Two { a } => a + p.0,
    }
}
#[xdp]
pub fn pass(ctx: XdpContext) -> u32 {
    let n = ctx.data_end() - ctx.data();
    if work(&Pair(n as u64, 3), Choice::One(n as u32)) > 4 {
        xdp_action::XDP_DROP
    } else {
        xdp_action::XDP_PASS
    }
}
#[classifier]
pub fn egress(ctx: TcContext) -> i32 {
    work(&Pair(ctx.len() as u64, 3), Choice::Two { a: 4 }) as i32
}
#[tracepoint]
pub fn tp_open(ctx: TracePointContext) -> u32 {
    unsafe {
        HITS += 1;
        if core::ptr::read_volatile(&LEVEL) > 2 {
            EVENTS.output(&ctx, &[1u8; 16], 0);
        }
    }
    let _ = unsafe { COUNTS.get_ptr_mut(0).map(|p| *p += 1) };
    0
}
#[kprobe]
pub fn kp(ctx: ProbeContext) -> u32 {
    let a: Option<u64> = ctx.arg(0);
    if let Some(mut e) = RING.reserve::<u64>(0) {
        e.write(a.unwrap_or(1));
        e.submit(0);
    }
    0
}
#[kretprobe]
pub fn krp(_ctx: RetProbeContext) -> u32 {
    let _ = LRU.insert(&[1; 8], &2, 0);
    0
}
#[uprobe]
pub fn up(_ctx: ProbeContext) -> u32 {
    let _ = Q.push(&2, 0);
    0
}
#[perf_event]
pub fn pe(ctx: PerfEventContext) -> u32 {
    unsafe {
        let _ = STACKS.get_stackid(&ctx, 0);
    }
    0
}
#[cgroup_skb(egress)]
pub fn cg(_ctx: SkBuffContext) -> i32 {
    unsafe {
        let _ = JUMP.tail_call(&_ctx, 1);
    }
    1
}
#[raw_tracepoint(tracepoint = "sys_enter")]
pub fn rt(_ctx: RawTracePointContext) -> i32 {
    (bpf_get_current_pid_tgid() >> 32) as i32
}
#[lsm(hook = "file_open")]
pub fn lo(_ctx: LsmContext) -> i32 {
    0
}
#[fentry(function = "try_to_wake_up")]
pub fn fe(_ctx: FEntryContext) -> u32 {
    0
}
#[btf_tracepoint(function = "sched_process_fork")]
pub fn bt(_ctx: BtfTracePointContext) -> i32 {
    0
}
#[socket_filter]
pub fn sf(_ctx: SkBuffContext) -> i64 {
    0
}
#[cgroup_sock_addr(connect4)]
pub fn sa(_ctx: SockAddrContext) -> i32 {
    1
}
#[sock_ops]
pub fn so(_ctx: SockOpsContext) -> u32 {
    0
}
#[sk_msg]
pub fn sm(_ctx: SkMsgContext) -> u32 {
    1
}
#[no_mangle]
#[link_section = "license"]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
