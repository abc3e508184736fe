//! What the processes of a control group may do: devices, settings, options and kinds of sockets.
#![no_std]
use aya_ebpf::{
    macros::{cgroup_device, cgroup_sock, cgroup_sockopt, cgroup_sysctl, fexit, map},
    maps::Array,
    programs::{DeviceContext, FExitContext, SockContext, SockoptContext, SysctlContext},
};

#[map]
static REFUSED: Array<u32> = Array::with_max_entries(4, 0);

#[inline(always)]
fn refuse(index: u32) -> i32 {
    if let Some(count) = REFUSED.get_ptr_mut(index) {
        unsafe { *count += 1 };
    }
    0
}

#[cgroup_device]
pub fn no_disks(ctx: DeviceContext) -> i32 {
    // The upper half is the access, the lower one the kind: 1 is a block device.
    let kind = unsafe { (*ctx.device).access_type } & 0xffff;
    if kind == 1 {
        refuse(0)
    } else {
        1
    }
}

#[cgroup_sysctl]
pub fn no_settings(_ctx: SysctlContext) -> i32 {
    refuse(1)
}

#[cgroup_sockopt(setsockopt)]
pub fn no_options(_ctx: SockoptContext) -> i32 {
    refuse(2)
}

#[cgroup_sock(sock_create)]
pub fn no_raw_sockets(ctx: SockContext) -> i32 {
    const RAW: u32 = 3;
    if unsafe { (*ctx.sock).type_ } == RAW {
        refuse(3)
    } else {
        1
    }
}

#[fexit(function = "do_unlinkat")]
pub fn unlinked(ctx: FExitContext) -> i32 {
    unsafe { ctx.arg::<i32>(0) }
}
