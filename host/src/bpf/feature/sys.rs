//! libbpf calls that query kernel features. Each function is safe to call and leaves nothing behind in the
//! kernel.
#![expect(unsafe_code, reason = "calls into libbpf")]

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::errno::Errno;

/// Size in bytes of the verifier log for a program of three instructions.
const LOG_BYTES: usize = 16 << 10;

/// Load attributes of a test program.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Like {
    /// Program type, a number of `enum bpf_prog_type`.
    pub(super) kind: u32,
    /// Attach type, a number of `enum bpf_attach_type`.
    pub(super) attach_type: u32,
    /// BTF id of the attach target in the kernel's BTF; 0 for none.
    pub(super) target: u32,
    /// `prog_flags` of the load: 0 or BPF_F_SLEEPABLE.
    pub(super) flags: u32,
}

/// Loads instructions as a program and unloads it. Returns the result of the load, and the verifier log.
///
/// Source: bpf(2), BPF_PROG_LOAD.
pub(super) fn try_program(like: Like, insns: &[[u8; 8]]) -> (Result<(), Errno>, String) {
    let (loaded, said) = load(like, insns);
    (loaded.map(drop), said)
}

/// Loads instructions as a raw tracepoint program, runs it once on the calling thread and unloads it. Returns
/// the program's result.
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
    // SAFETY: the program is open; the options contain their own size and no pointers.
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
    // SAFETY: name and license are zero-terminated; the instructions have the kernel's layout, for which all
    // bit patterns are valid, and their count is right; the log has the passed size. All live until the call
    // returns.
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
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it. Dropping it unloads the
    // program.
    (Ok(unsafe { OwnedFd::from_raw_fd(answer) }), said)
}

/// Returns the program type and attach type that libbpf derives from a section name.
pub(super) fn program_type(section: &str) -> Option<(u32, u32)> {
    let section = CString::new(section).ok()?;
    let (mut kind, mut attach) = (0, 0);
    // SAFETY: the name is zero-terminated; libbpf writes one number to each pointer.
    let answer =
        unsafe { libbpf_sys::libbpf_prog_type_by_name(section.as_ptr(), &raw mut kind, &raw mut attach) };
    (answer >= 0).then_some((kind, attach))
}

/// Tests whether maps of a kind can be created: libbpf creates one and closes it.
///
/// Source: bpf(2), BPF_MAP_CREATE.
pub(super) fn has_map_kind(kind: u32) -> Result<bool, Errno> {
    // SAFETY: the call takes a number; there are no options.
    match unsafe { libbpf_sys::libbpf_probe_bpf_map_type(kind, ptr::null()) } {
        answer if answer < 0 => Err(Errno::from_raw(answer.saturating_neg())),
        answer => Ok(answer == 1),
    }
}

/// Tests whether the kernel can list the programs of the first interface (`lo`) for this attach type.
///
/// Source: bpf(2), BPF_PROG_QUERY.
pub(super) fn asks_interface(attach_type: u32) -> Result<(), Errno> {
    let mut options = libbpf_sys::bpf_prog_query_opts {
        sz: size_of::<libbpf_sys::bpf_prog_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: the options contain their own size and no pointers.
    match unsafe { libbpf_sys::bpf_prog_query_opts(1, attach_type, &raw mut options) } {
        answer if answer < 0 => Err(Errno::from_raw(answer.saturating_neg())),
        _ => Ok(()),
    }
}
