//! Numbers and addresses of the kernel as text. What has no name is the number in decimal.

use alloc::string::String;

use crate::sys::display;

/// Returns an IPv4 address, `10.0.0.1`, of a number whose bytes lie in memory in network byte order.
pub fn ipv4(address: u32) -> String {
    display::ipv4(address)
}

/// Returns an IPv6 address, `2001:db8::1`, in the form of RFC 5952.
pub fn ipv6(address: [u8; 16]) -> String {
    display::ipv6(&address)
}

/// Returns a link-layer address, `52:54:00:12:34:56`.
pub fn mac(address: [u8; 6]) -> String {
    display::mac(&address)
}

/// Returns the name of a system call of the machine's architecture, `openat`.
pub fn system_call(number: i64) -> String {
    display::system_call(number)
}

/// Returns the name of an errno, `ENOENT` of 2 and of -2.
pub fn errno(number: i64) -> String {
    display::errno(number)
}

/// Returns the name of a signal, `SIGKILL`.
pub fn signal(number: i64) -> String {
    display::signal(number)
}

/// Returns the name of a capability, `CAP_SYS_ADMIN`.
pub fn capability(number: i64) -> String {
    display::capability(number)
}

/// Returns the name of a value of an enum of the running kernel, which has the name `of` or an enumerator of this name:
/// `PIDTYPE_TGID`.
pub fn enumerator(of: &str, number: i64) -> String {
    display::enumerator(of, number)
}

/// Returns the local time of day at a moment of [`clock::now`](crate::clock::now), in nanoseconds, in the format of
/// strftime(3): `%H:%M:%S`.
pub fn time_of_day(format: &str, time: u64) -> String {
    display::time_of_day(format.as_bytes(), time)
}

/// Returns a number of bytes with its unit, `1.5 KiB`.
pub fn bytes(number: u64) -> String {
    display::bytes(number)
}

/// Returns a time in nanoseconds with its unit, `20.0 ms`, `3h 12m`.
pub fn duration(time: u64) -> String {
    display::duration(time)
}
