//! What Rust's standard library for wasm32-wasip2 asks of a C library, and Debian's, which is one for WASI's
//! preview 1, has not: sockets, names of hosts, threads. A plugin has none of them. Every function fails.
#![no_std]
#![feature(thread_local)]

use core::ffi::{CStr, c_char, c_int, c_void};

/// Source of both: wasi-libc, `__errno_values.h`.
const EACCES: c_int = 2;
const ENOSYS: c_int = 52;
/// Source: wasi-libc, `netdb.h`.
const EAI_FAIL: c_int = -4;

unsafe extern "C" {
    #[thread_local]
    static mut errno: c_int;
}

fn refused() -> c_int {
    // SAFETY: the variable is this thread's own.
    unsafe { errno = EACCES };
    -1
}

#[unsafe(no_mangle)]
extern "C" fn socket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    refused()
}

#[unsafe(no_mangle)]
extern "C" fn bind(_socket: c_int, _address: *const c_void, _bytes: u32) -> c_int {
    refused()
}

#[unsafe(no_mangle)]
extern "C" fn connect(_socket: c_int, _address: *const c_void, _bytes: u32) -> c_int {
    refused()
}

#[unsafe(no_mangle)]
extern "C" fn listen(_socket: c_int, _waiting: c_int) -> c_int {
    refused()
}

#[unsafe(no_mangle)]
extern "C" fn setsockopt(_: c_int, _level: c_int, _name: c_int, _value: *const c_void, _bytes: u32) -> c_int {
    refused()
}

#[unsafe(no_mangle)]
extern "C" fn getaddrinfo(
    _: *const c_char,
    _: *const c_char,
    _: *const c_void,
    _: *mut *mut c_void,
) -> c_int {
    EAI_FAIL
}

#[unsafe(no_mangle)]
extern "C" fn freeaddrinfo(_: *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn gai_strerror(_error: c_int) -> *const c_char {
    const TEXT: &CStr = c"plugins look up no names";
    TEXT.as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_init(_: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_destroy(_: *mut c_void) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_attr_setstacksize(_: *mut c_void, _bytes: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn pthread_create(_: *mut c_void, _: *const c_void, _: *const c_void, _: *mut c_void) -> c_int {
    ENOSYS
}

#[unsafe(no_mangle)]
extern "C" fn pthread_detach(_thread: usize) -> c_int {
    ENOSYS
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
