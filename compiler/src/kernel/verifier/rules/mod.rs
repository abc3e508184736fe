//! Rules of the verifier that code must be written for, one file each: what the verifier does, in which kernels and
//! functions of kernel/bpf/verifier.c, and what is changed so that it accepts the program. They run after all passes
//! that only improve code: what they hide must stay hidden.

pub mod backtracked_addresses;
pub mod checked_sums;
pub mod dead_slots;
pub mod linked_scalars;
pub mod loop_carried;
pub mod missing_first;
pub mod precise_constants;
pub mod return_ranges;
