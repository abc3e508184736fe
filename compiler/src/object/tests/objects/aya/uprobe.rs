//! Copies the names that a process looks up, and the results.
#![no_std]
use aya_ebpf::{
    helpers::bpf_probe_read_user_str_bytes,
    macros::{map, uprobe, uretprobe},
    maps::{PerCpuArray, PerfEventArray, Stack},
    programs::{ProbeContext, RetProbeContext},
};

#[map]
static BUFFER: PerCpuArray<[u8; 64]> = PerCpuArray::with_max_entries(1, 0);
#[map]
static NAMES: PerfEventArray<[u8; 64]> = PerfEventArray::new(0);
#[map]
static mut RESULTS: Stack<u64> = Stack::with_max_entries(64, 0);

#[inline(always)]
fn name(ctx: &ProbeContext) -> Result<(), i64> {
    let text: *const u8 = ctx.arg(0).ok_or(1)?;
    let buffer = unsafe { &mut *BUFFER.get_ptr_mut(0).ok_or(1)? };
    unsafe { bpf_probe_read_user_str_bytes(text, buffer)? };
    NAMES.output(ctx, buffer, 0);
    Ok(())
}

#[uprobe(path = "/lib/x86_64-linux-gnu/libc.so.6", function = "getaddrinfo")]
pub fn looks_up(ctx: ProbeContext) -> u32 {
    name(&ctx).is_err().into()
}

#[uretprobe]
pub fn found(ctx: RetProbeContext) -> u32 {
    let results = unsafe { &mut *core::ptr::addr_of_mut!(RESULTS) };
    ctx.ret::<u64>().map_or(1, |result| results.push(&result, 0).is_err().into())
}
