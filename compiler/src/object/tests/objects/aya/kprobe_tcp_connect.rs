//! Counts connections by process, and sends the family of each socket.
#![no_std]
use aya_ebpf::{
    helpers::{bpf_ktime_get_ns, bpf_probe_read_kernel},
    macros::{kprobe, kretprobe, map},
    maps::{HashMap, RingBuf},
    programs::{ProbeContext, RetProbeContext},
    EbpfContext as _,
};

#[repr(C)]
pub struct Connection {
    pub nanoseconds: u64,
    pub process: u32,
    pub family: u16,
}
#[map]
static CONNECTIONS: RingBuf = RingBuf::with_byte_size(4096, 0);
#[map]
static BY_PROCESS: HashMap<u32, u64> = HashMap::with_max_entries(1024, 0);
#[map]
static FAILED: HashMap<u32, i64> = HashMap::with_max_entries(1024, 0);

/// Offset of `skc_family` in `struct sock_common`, the first member of `struct sock`.
const FAMILY: usize = 16;

#[inline(always)]
fn connect(ctx: &ProbeContext) -> Result<(), i64> {
    let socket: *const u8 = ctx.arg(0).ok_or(1)?;
    let family = unsafe { bpf_probe_read_kernel(socket.add(FAMILY).cast::<u16>())? };
    let process = ctx.tgid();
    match BY_PROCESS.get_ptr_mut(&process) {
        Some(count) => unsafe { *count += 1 },
        None => BY_PROCESS.insert(&process, &1, 0)?,
    }
    let mut entry = CONNECTIONS.reserve::<Connection>(0).ok_or(1)?;
    entry.write(Connection { nanoseconds: unsafe { bpf_ktime_get_ns() }, process, family });
    entry.submit(0);
    Ok(())
}

#[kprobe(function = "tcp_connect")]
pub fn connects(ctx: ProbeContext) -> u32 {
    connect(&ctx).is_err().into()
}

#[kretprobe(function = "tcp_connect")]
pub fn connected(ctx: RetProbeContext) -> u32 {
    match ctx.ret::<i64>() {
        Some(result) if result != 0 => FAILED.insert(&ctx.tgid(), &result, 0).is_err().into(),
        _ => 0,
    }
}
