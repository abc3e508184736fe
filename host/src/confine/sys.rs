//! System calls and functions of the C library about this process, which no safe wrapper offers.
#![expect(
    unsafe_code,
    reason = "setgroups(2) of one thread, dl_iterate_phdr(3), getauxval(3), fcntl(2) on numbers"
)]

use std::ffi::{c_int, c_void};
use std::ops::Range;

use nix::errno::Errno;
use nix::libc;

/// The user and group of files that belong to nobody. Source: include/linux/highuid.h, `DEFAULT_OVERFLOWUID`,
/// v6.18.
const NOBODY: u32 = 65_534;

/// Makes the calling thread access files as nobody. Its other rights stay, except the capabilities about files.
///
/// A user namespace without these ids refuses them; the thread then keeps its own.
///
/// Source: setfsuid(2); setgroups(2), "C library/kernel differences": the system call affects one thread.
pub(super) fn access_files_as_nobody() {
    // SAFETY: prctl with integer arguments writes no memory of this process.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
    // SAFETY: an empty list is not read.
    unsafe { libc::syscall(libc::SYS_setgroups, 0_usize, std::ptr::null::<libc::gid_t>()) };
    // SAFETY: no pointers; the system calls of this thread alone.
    unsafe {
        libc::syscall(libc::SYS_setfsgid, NOBODY);
        libc::syscall(libc::SYS_setfsuid, NOBODY);
    }
    // The kernel takes dumps and traces by its own user from a process that changes its ids: here the ids are
    // those of one thread.
    if let Ok(dumpable @ 1) = Errno::result(dumpable) {
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable, 0, 0, 0) };
    }
}

/// Whether a number is a descriptor that is open for writing.
pub(super) fn is_writable(number: u32) -> bool {
    let Ok(number) = c_int::try_from(number) else { return false };
    // SAFETY: F_GETFL takes no third argument and changes nothing.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_ACCMODE != libc::O_RDONLY
}

/// Returns the address ranges of the program and of its libraries, each from its first to its last segment.
pub(super) fn loaded_objects() -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    // SAFETY: `add` has the type that the function expects, and gets the pointer to `ranges`, which nothing else
    // uses during the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut ranges).cast()) };
    ranges
}

unsafe extern "C" fn add(object: *mut libc::dl_phdr_info, _: libc::size_t, ranges: *mut c_void) -> c_int {
    // SAFETY: the C library passes a valid description of an object, whose headers stay loaded during the call,
    // and the pointer of `loaded_objects`.
    let (base, headers, ranges) = unsafe {
        let object = &*object;
        let headers: &[HeaderOfSegment] = match object.dlpi_phnum {
            0 => &[],
            count => std::slice::from_raw_parts(object.dlpi_phdr, count.into()),
        };
        (object.dlpi_addr, headers, &mut *ranges.cast::<Vec<Range<u64>>>())
    };
    let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let bounds = loaded.map(|header| {
        let start = base.wrapping_add(header.p_vaddr);
        start..start.wrapping_add(header.p_memsz)
    });
    ranges.extend(bounds.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)));
    0
}

#[cfg(target_pointer_width = "64")]
type HeaderOfSegment = libc::Elf64_Phdr;

/// Returns an address in the first stack of this process, above its first frame; none if the kernel tells none.
pub(super) fn first_stack() -> Option<u64> {
    // SAFETY: it has no preconditions.
    let address = unsafe { libc::getauxval(libc::AT_RANDOM) };
    (address != 0).then_some(address)
}
