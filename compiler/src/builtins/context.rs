//! Contexts: the structs that a program's first parameter points to.

use ks_wit::section::Arch;

use crate::hir::ContextMember;

/// A register of `struct pt_regs` under its name in the language, with its byte offset within `struct
/// bpf_perf_event_data` on x86-64 and on aarch64, where it has one.
///
/// Source: `arch/x86/include/asm/ptrace.h` (`struct pt_regs`), `arch/arm64/include/uapi/asm/ptrace.h`
/// (`struct user_pt_regs`), `include/uapi/asm-generic/bpf_perf_event.h`, v6.12.
pub struct Register {
    /// The name after `ctx->regs.`.
    pub name: &'static str,
    /// Byte offset on x86-64; none if it has no such register.
    pub x86_64: Option<u32>,
    /// Byte offset on aarch64; none if it has no such register.
    pub aarch64: Option<u32>,
}

const fn both(name: &'static str, x86_64: u32, aarch64: u32) -> Register {
    Register { name, x86_64: Some(x86_64), aarch64: Some(aarch64) }
}

const fn x86(name: &'static str, offset: u32) -> Register {
    Register { name, x86_64: Some(offset), aarch64: None }
}

const fn arm(name: &'static str, offset: u32) -> Register {
    Register { name, x86_64: None, aarch64: Some(offset) }
}

/// All registers. `ip`, `sp` and `fp` exist everywhere.
pub const REGISTERS: &[Register] = &[
    both("ip", 128, 256),
    both("sp", 152, 248),
    both("fp", 32, 232),
    x86("r15", 0),
    x86("r14", 8),
    x86("r13", 16),
    x86("r12", 24),
    x86("bp", 32),
    x86("bx", 40),
    x86("r11", 48),
    x86("r10", 56),
    x86("r9", 64),
    x86("r8", 72),
    x86("ax", 80),
    x86("cx", 88),
    x86("dx", 96),
    x86("si", 104),
    x86("di", 112),
    x86("orig_ax", 120),
    x86("cs", 136),
    x86("flags", 144),
    x86("ss", 160),
    arm("x0", 0),
    arm("x1", 8),
    arm("x2", 16),
    arm("x3", 24),
    arm("x4", 32),
    arm("x5", 40),
    arm("x6", 48),
    arm("x7", 56),
    arm("x8", 64),
    arm("x9", 72),
    arm("x10", 80),
    arm("x11", 88),
    arm("x12", 96),
    arm("x13", 104),
    arm("x14", 112),
    arm("x15", 120),
    arm("x16", 128),
    arm("x17", 136),
    arm("x18", 144),
    arm("x19", 152),
    arm("x20", 160),
    arm("x21", 168),
    arm("x22", 176),
    arm("x23", 184),
    arm("x24", 192),
    arm("x25", 200),
    arm("x26", 208),
    arm("x27", 216),
    arm("x28", 224),
    arm("x29", 232),
    arm("x30", 240),
    arm("pc", 256),
    arm("pstate", 264),
];

/// Returns the byte offset of a member of `struct bpf_perf_event_data`, which is read by one 8-byte load.
/// `None` if the architecture has no such register; then the member reads as 0.
pub fn perf_event_offset(member: ContextMember, arch: Arch) -> Option<u32> {
    let arm = arch == Arch::Aarch64;
    match member {
        ContextMember::SamplePeriod => Some(if arm { 272 } else { 168 }),
        ContextMember::Addr => Some(if arm { 280 } else { 176 }),
        ContextMember::Register(index) => {
            let register = REGISTERS.get(index)?;
            if arm { register.aarch64 } else { register.x86_64 }
        }
    }
}
