//! `bpf_program_info`: what a script sees of a BPF program of the machine.

/// Size in bytes of a program's name, terminator included.
pub const NAME: u32 = 16;
/// Size in bytes of the name of its type, terminator included.
pub const KIND: u32 = 32;

/// Positions of the fields.
pub mod info {
    /// `name`.
    pub const NAME: usize = 0;
    /// `kind`.
    pub const KIND: usize = 1;
    /// `runs`.
    pub const RUNS: usize = 2;
    /// `time_ns`.
    pub const TIME_NS: usize = 3;
}
