//! Refuses to raise the priority of processes, if the loader sets a variable.
#![no_std]
use aya_ebpf::{macros::lsm, programs::LsmContext};

#[no_mangle]
static PROTECTED: u32 = 0;

#[lsm(hook = "task_setnice")]
pub fn keep_nice(ctx: LsmContext) -> i32 {
    let (nice, before): (i32, i32) = unsafe { (ctx.arg(1), ctx.arg(2)) };
    let protected = unsafe { core::ptr::read_volatile(&PROTECTED) };
    // Not `before`: the verifier asks for an errno, and does not know the answers of other programs.
    if before != 0 || (protected != 0 && nice < 0) {
        -1
    } else {
        0
    }
}
