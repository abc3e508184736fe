//! BPF programs and maps that the kernel holds, regardless of the process that loaded them.
#![expect(unsafe_code, reason = "bpf(2) through libbpf's functions")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use libbpf_sys::{
    bpf_map_get_fd_by_id, bpf_map_get_next_id, bpf_map_info, bpf_obj_get_info_by_fd, bpf_prog_get_fd_by_id,
    bpf_prog_get_next_id, bpf_prog_info,
};

/// Returns the names of all programs and maps, which the kernel cuts after 15 bytes: `prog NAME`, `map NAME`.
///
/// # Errors
/// If they cannot be listed: that needs CAP_SYS_ADMIN.
///
/// Source: bpf(2), BPF_PROG_GET_NEXT_ID and BPF_OBJ_GET_INFO_BY_FD.
pub fn names() -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    each(bpf_prog_get_next_id, bpf_prog_get_fd_by_id, |descriptor| {
        let info: bpf_prog_info = info(descriptor)?;
        names.push(format!("prog {}", text(&info.name)));
        Ok(())
    })?;
    each(bpf_map_get_next_id, bpf_map_get_fd_by_id, |descriptor| {
        let info: bpf_map_info = info(descriptor)?;
        names.push(format!("map {}", text(&info.name)));
        Ok(())
    })?;
    Ok(names)
}

/// Calls a function with a descriptor of each program, or of each map.
fn each(
    next: unsafe extern "C" fn(u32, *mut u32) -> i32,
    open: unsafe extern "C" fn(u32) -> i32,
    mut see: impl FnMut(&OwnedFd) -> io::Result<()>,
) -> io::Result<()> {
    let mut id = 0;
    loop {
        // SAFETY: the function writes one number, which lives until it returns.
        if unsafe { next(id, &raw mut id) } != 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) };
        }
        // SAFETY: the function takes a number.
        let descriptor = unsafe { open(id) };
        if descriptor < 0 {
            let error = io::Error::last_os_error();
            // The kernel freed it in the meantime.
            if error.kind() == io::ErrorKind::NotFound {
                continue;
            }
            return Err(error);
        }
        // SAFETY: the descriptor is new and has no other owner.
        see(&unsafe { OwnedFd::from_raw_fd(descriptor) })?;
    }
}

/// Returns the kernel's description of an object. `T` is the kernel's struct for its kind; a pointer that is
/// zero is an empty buffer.
fn info<T>(descriptor: &OwnedFd) -> io::Result<T> {
    // SAFETY: the structs consist of numbers and addresses, for which zero is valid.
    let mut info: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as u32;
    // SAFETY: the kernel writes at most `len` bytes, which `info` has.
    let done =
        unsafe { bpf_obj_get_info_by_fd(descriptor.as_raw_fd(), (&raw mut info).cast(), &raw mut len) };
    if done == 0 { Ok(info) } else { Err(io::Error::last_os_error()) }
}

fn text(name: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = name.iter().map(|letter| letter.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
