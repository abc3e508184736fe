//! Where the command begins when it is linked statically: it applies its own relocations, to 130 pages (`make dist`) that each
//! process then has for itself. The kernel makes a copy of such a page at its first write, one page fault each; asked for all at
//! once it takes a third of the time (0.1 ms instead of 0.3 ms, and a plugin's start is two processes).
//!
//! This has to be before the C library's start, which applies the relocations, and so before any Rust code.

use std::arch::global_asm;

// `.data.rel.ro` ends where `_DYNAMIC` begins, and is behind the arrays of functions. madvise(2) is 28, and
// MADV_POPULATE_WRITE (Linux 5.14) is 23; kernels that do not know it refuse, and copy the pages one by one.
//
// What a process begins with is the stack, which is left alone, and rdx (System V ABI, AMD64 supplement, 3.4.1), which is
// put back; a system call changes rax, rcx and r11. The addresses are relative to the instruction: nothing is relocated yet.
global_asm!(
    ".pushsection .text.ks_host_start, \"ax\", @progbits",
    ".globl ks_host_start",
    ".type ks_host_start, @function",
    "ks_host_start:",
    "mov r8, rdx",
    "lea rdi, [rip + __init_array_start]",
    "and rdi, -4096",
    "lea rsi, [rip + _DYNAMIC]",
    "sub rsi, rdi",
    "mov edx, 23",
    "mov eax, 28",
    "syscall",
    "mov rdx, r8",
    "jmp _start",
    ".size ks_host_start, . - ks_host_start",
    ".popsection",
    ".hidden __init_array_start",
    ".hidden _DYNAMIC",
);
