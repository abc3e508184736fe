//! The calls of libbpf that ask the kernel what it has. Each function is safe to call, and leaves nothing in the kernel.
#![expect(unsafe_code, reason = "calls into libbpf")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;

/// Room for what the verifier says of a program of three instructions.
const LOG_BYTES: usize = 16 << 10;

/// A program that asks whether the kernel would take one like it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Like {
    /// A number of `enum bpf_prog_type`.
    pub(super) kind: u32,
    /// A number of `enum bpf_attach_type`.
    pub(super) attach_type: u32,
    /// The type that it is attached to, in the BTF of the kernel; 0 for none.
    pub(super) target: u32,
    /// Whether it may sleep.
    pub(super) flags: u32,
}

/// Loads instructions as a program and unloads it: 0 or the errno, and what the verifier said.
///
/// Source: bpf(2), BPF_PROG_LOAD.
pub(super) fn try_program(like: Like, insns: &[[u8; 8]]) -> (Result<(), Errno>, String) {
    let (loaded, said) = load(like, insns);
    (loaded.map(drop), said)
}

/// Loads instructions as a program of a raw tracepoint, runs it once on the calling thread, and unloads it: its result.
///
/// Source: bpf(2), BPF_PROG_TEST_RUN; net/bpf/test_run.c, `bpf_prog_test_run_raw_tp`, since 5.10.
///
/// # Errors
/// The call that failed, and its errno.
pub(crate) fn run_once(insns: &[[u8; 8]]) -> Result<u32, (&'static str, Errno)> {
    let like = Like { kind: libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT, ..Like::default() };
    let program = load(like, insns).0.map_err(|errno| ("bpf(BPF_PROG_LOAD)", errno))?;
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the program is open; the options say their own size and hold no pointers.
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) } {
        answer if answer < 0 => Err(("bpf(BPF_PROG_TEST_RUN)", Errno::from_raw(answer.saturating_neg()))),
        _ => Ok(options.retval),
    }
}

fn load(like: Like, insns: &[[u8; 8]]) -> (Result<OwnedFd, Errno>, String) {
    let mut log = vec![0_u8; LOG_BYTES];
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t,
        attempts: 1,
        expected_attach_type: like.attach_type,
        attach_btf_id: like.target,
        prog_flags: like.flags,
        log_level: 1,
        log_size: LOG_BYTES as u32,
        log_buf: log.as_mut_ptr().cast(),
        ..Default::default()
    };
    // SAFETY: the name and the license end in a zero; the instructions have the size of the kernel's, of which any bytes are
    // some, and there are as many as is said; the log has the size that is said. All live until the call returns.
    let answer = unsafe {
        libbpf_sys::bpf_prog_load(
            like.kind,
            ptr::null(),
            c"GPL".as_ptr(),
            insns.as_ptr().cast(),
            insns.len() as libbpf_sys::size_t,
            &raw mut options,
        )
    };
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let said = String::from_utf8_lossy(&log[..end]).into_owned();
    if answer < 0 {
        return (Err(Errno::from_raw(answer.saturating_neg())), said);
    }
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it. Dropping it unloads the program.
    (Ok(unsafe { OwnedFd::from_raw_fd(answer) }), said)
}

/// The type and the attach type of programs of a section, as libbpf knows them.
pub(super) fn program_type(section: &str) -> Option<(u32, u32)> {
    let section = CString::new(section).ok()?;
    let (mut kind, mut attach) = (0, 0);
    // SAFETY: the name ends in a zero; libbpf writes one number to each pointer.
    let answer =
        unsafe { libbpf_sys::libbpf_prog_type_by_name(section.as_ptr(), &raw mut kind, &raw mut attach) };
    (answer >= 0).then_some((kind, attach))
}

/// Whether maps of a kind can be made: libbpf makes one and closes it.
///
/// Source: bpf(2), BPF_MAP_CREATE.
pub(super) fn has_map_kind(kind: u32) -> Result<bool, Errno> {
    // SAFETY: the call takes a number; there are no options.
    match unsafe { libbpf_sys::libbpf_probe_bpf_map_type(kind, ptr::null()) } {
        answer if answer < 0 => Err(Errno::from_raw(answer.saturating_neg())),
        answer => Ok(answer == 1),
    }
}

/// Whether the kernel knows which programs are attached to the first interface (`lo`) this way.
///
/// Source: bpf(2), BPF_PROG_QUERY.
pub(super) fn asks_interface(attach_type: u32) -> Result<(), Errno> {
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options say their own size and hold no pointers.
    match unsafe { libbpf_sys::bpf_prog_query_opts(1, attach_type, &raw mut options) } {
        answer if answer < 0 => Err(Errno::from_raw(answer.saturating_neg())),
        _ => Ok(()),
    }
}
