//! A private mount that no other process sees.
#![expect(unsafe_code, reason = "system calls that no safe wrapper offers")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use nix::errno::Errno;
use nix::libc;

/// Mounts a file system of this kind read-only, reachable only through the returned descriptor.
///
/// Errors: EPERM without CAP_SYS_ADMIN, ENODEV if the kernel has no such file system, ENOSYS before 5.2.
pub(super) fn mount(kind: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: `kind` is a NUL-terminated string.
    let context = owned(unsafe { libc::syscall(libc::SYS_fsopen, kind.as_ptr(), libc::FSOPEN_CLOEXEC) })?;
    // SAFETY: this command takes neither key nor value.
    let created = unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            libc::FSCONFIG_CMD_CREATE,
            ptr::null::<libc::c_char>(),
            ptr::null::<libc::c_void>(),
            0,
        )
    };
    if created != 0 {
        return Err(Errno::last());
    }
    // SAFETY: all arguments are numbers.
    owned(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            libc::FSMOUNT_CLOEXEC,
            libc::MOUNT_ATTR_RDONLY
                | libc::MOUNT_ATTR_NODEV
                | libc::MOUNT_ATTR_NOEXEC
                | libc::MOUNT_ATTR_NOSUID,
        )
    })
}

fn owned(answer: libc::c_long) -> Result<OwnedFd, Errno> {
    let fd = RawFd::try_from(answer).map_err(|_| Errno::EBADF)?;
    if fd < 0 {
        return Err(Errno::last());
    }
    // SAFETY: the kernel has just returned this descriptor; nothing else knows it yet.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
