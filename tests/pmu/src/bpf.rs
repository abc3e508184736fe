//! BPF by the bare system call, and two programs of a few instructions: one counts its runs, one reads a
//! counter.
//!
//! libbpf is not built for the emulated machine.
#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper here")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use ks_host::perf::EventArray;
use nix::errno::Errno;
use nix::libc;

// Commands, types and flags of include/uapi/linux/bpf.h.
const MAP_CREATE: libc::c_long = 0;
const MAP_LOOKUP_ELEM: libc::c_long = 1;
const PROG_LOAD: libc::c_long = 5;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const MAP_DELETE_ELEM: libc::c_long = 3;
const LINK_CREATE: libc::c_long = 28;
const MAP_TYPE_ARRAY: u32 = 2;
const MAP_TYPE_PERF_EVENT_ARRAY: u32 = 4;
pub(crate) const PROG_TYPE_TRACEPOINT: u32 = 5;
const PROG_TYPE_PERF_EVENT: u32 = 7;
const PERF_EVENT: u32 = 41;

/// A program that counts its runs, and the one-element array with the count.
pub struct CountingProgram {
    map: OwnedFd,
    program: OwnedFd,
}

impl CountingProgram {
    /// Loads the program. Needs root.
    pub fn load() -> io::Result<CountingProgram> {
        let map = array()?;
        let program = program(PROG_TYPE_PERF_EVENT, &counting(map.as_raw_fd()))?;
        Ok(CountingProgram { map, program })
    }

    /// Links the program to an event.
    pub fn link(&self, event: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        link(&self.program, event)
    }

    /// Returns the number of runs so far.
    pub fn runs(&self) -> io::Result<u64> {
        value(&self.map)
    }
}

/// A tracepoint program that reads the counter of its CPU from an array of events.
pub struct CounterReader {
    name: &'static str,
    map: OwnedFd,
    events: OwnedFd,
    program: OwnedFd,
}

impl CounterReader {
    /// Loads the program, with a name for the array of events. Needs root.
    pub fn load(name: &'static str) -> io::Result<CounterReader> {
        let map = array()?;
        let events = self::map(&[(0, MAP_TYPE_PERF_EVENT_ARRAY), (4, 4), (8, 4), (12, 8)])?;
        let program = program(PROG_TYPE_TRACEPOINT, &looking(events.as_raw_fd(), map.as_raw_fd()))?;
        Ok(CounterReader { name, map, events, program })
    }

    /// Links the program to the event of a tracepoint.
    pub fn link(&self, event: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        link(&self.program, event)
    }

    /// Returns the count that its last run read; 0 if the helper failed.
    pub fn count(&self) -> io::Result<u64> {
        value(&self.map)
    }
}

impl EventArray for CounterReader {
    fn name(&self) -> &str {
        self.name
    }

    fn put(&self, cpu: i32, event: BorrowedFd<'_>) -> Result<(), Errno> {
        put(&self.events, cpu, event)
    }

    fn remove(&self, cpu: i32) {
        remove(&self.events, cpu);
    }
}

/// Puts the event of a CPU into an array of events.
pub(crate) fn put(events: &OwnedFd, cpu: i32, event: BorrowedFd<'_>) -> Result<(), Errno> {
    set(events, cpu.cast_unsigned(), &event.as_raw_fd().to_ne_bytes()).map_err(errno)
}

/// Takes the event of a CPU out of an array of events.
pub(crate) fn remove(events: &OwnedFd, cpu: i32) {
    let key = cpu.cast_unsigned();
    // The element may be empty.
    let _ = bpf(MAP_DELETE_ELEM, &mut element(events, &raw const key as u64, 0));
}

/// Creates a map with these words in its attributes.
pub(crate) fn map(attributes: &[(usize, u32)]) -> io::Result<OwnedFd> {
    Ok(descriptor(bpf(MAP_CREATE, &mut words(attributes))?))
}

/// Creates an array of one 8-byte number.
fn array() -> io::Result<OwnedFd> {
    map(&[(0, MAP_TYPE_ARRAY), (4, 4), (8, 8), (12, 1)])
}

/// Returns the number in an array of one.
fn value(map: &OwnedFd) -> io::Result<u64> {
    entry(map, 0)
}

/// Returns an element of an array of 8-byte numbers.
pub(crate) fn entry(map: &OwnedFd, key: u32) -> io::Result<u64> {
    let mut value = 0_u64;
    bpf(MAP_LOOKUP_ELEM, &mut element(map, &raw const key as u64, &raw mut value as u64))?;
    Ok(value)
}

/// Sets an element of an array; `value` has the size of the array's values.
pub(crate) fn set(map: &OwnedFd, key: u32, value: &[u8]) -> io::Result<()> {
    let mut attr = element(map, &raw const key as u64, value.as_ptr() as u64);
    bpf(MAP_UPDATE_ELEM, &mut attr).map(drop)
}

/// Returns a map's descriptor in the bits of an instruction's immediate.
pub(crate) fn as_immediate(map: &OwnedFd) -> u64 {
    u64::from(map.as_raw_fd().cast_unsigned()) << 32
}

/// Returns attributes with a map and the addresses of a key and a value.
fn element(map: &OwnedFd, key: u64, value: u64) -> [u8; 72] {
    let mut attr = words(&[(0, map.as_raw_fd().cast_unsigned())]);
    attr[8..16].copy_from_slice(&key.to_ne_bytes());
    attr[16..24].copy_from_slice(&value.to_ne_bytes());
    attr
}

/// Loads a program of this type.
pub(crate) fn program(kind: u32, code: &[u64]) -> io::Result<OwnedFd> {
    let mut attr = words(&[(0, kind), (4, code.len() as u32)]);
    attr[8..16].copy_from_slice(&(code.as_ptr() as u64).to_ne_bytes());
    attr[16..24].copy_from_slice(&(c"GPL".as_ptr() as u64).to_ne_bytes());
    Ok(descriptor(bpf(PROG_LOAD, &mut attr)?))
}

/// Links a program to an event.
pub(crate) fn link(program: &OwnedFd, event: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let [program, event] = [program.as_raw_fd(), event.as_raw_fd()].map(i32::cast_unsigned);
    let mut attr = words(&[(0, program), (4, event), (8, PERF_EVENT)]);
    bpf(LINK_CREATE, &mut attr).map(descriptor).map_err(errno)
}

fn errno(error: io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

fn op(code: u64, to: u64, from: u64, offset: i16, value: i32) -> u64 {
    code | to << 8
        | from << 12
        | u64::from(offset.cast_unsigned()) << 16
        | u64::from(value.cast_unsigned()) << 32
}

/// `bpf_perf_event_read_value(events, BPF_F_CURRENT_CPU, r10 - 24, 24); *(u32 *)(r10 - 28) = 0; r0 =
/// lookup(map, r10 - 28); if (r0 != 0) *(u64 *)r0 = *(u64 *)(r10 - 24); return 0`. A helper that fails leaves
/// zeros.
fn looking(events: i32, map: i32) -> [u64; 18] {
    [
        op(0x18, 1, 1, 0, events),
        0,
        op(0xb4, 2, 0, 0, -1),
        op(0xbf, 3, 10, 0, 0),
        op(0x07, 3, 0, 0, -24),
        op(0xb7, 4, 0, 0, 24),
        op(0x85, 0, 0, 0, 55),
        op(0x62, 10, 0, -28, 0),
        op(0xbf, 2, 10, 0, 0),
        op(0x07, 2, 0, 0, -28),
        op(0x18, 1, 1, 0, map),
        0,
        op(0x85, 0, 0, 0, 1),
        op(0x15, 0, 0, 2, 0),
        op(0x79, 1, 10, -24, 0),
        op(0x7b, 0, 1, 0, 0),
        op(0xb7, 0, 0, 0, 0),
        op(0x95, 0, 0, 0, 0),
    ]
}

/// `*(u32 *)(r10 - 4) = 0; r0 = lookup(map, r10 - 4); if (r0 != 0) lock *(u64 *)r0 += 1; return 0`.
fn counting(map: i32) -> [u64; 11] {
    [
        op(0x62, 10, 0, -4, 0),
        op(0xbf, 2, 10, 0, 0),
        op(0x07, 2, 0, 0, -4),
        // An `ld_imm64` of a map's descriptor, in two words.
        op(0x18, 1, 1, 0, map),
        0,
        op(0x85, 0, 0, 0, 1),
        op(0x15, 0, 0, 2, 0),
        op(0xb7, 1, 0, 0, 1),
        op(0xdb, 0, 1, 0, 0),
        op(0xb7, 0, 0, 0, 0),
        op(0x95, 0, 0, 0, 0),
    ]
}

/// Returns a `union bpf_attr` with these words at these offsets.
fn words(words: &[(usize, u32)]) -> [u8; 72] {
    let mut attr = [0; 72];
    for (at, word) in words {
        attr[*at..*at + 4].copy_from_slice(&word.to_ne_bytes());
    }
    attr
}

fn bpf(command: libc::c_long, attr: &mut [u8; 72]) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads `attr.len()` bytes, which exist, and follows the addresses in them, which
    // point to values that live until the call returns.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, attr.as_mut_ptr(), attr.len()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn descriptor(number: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel has just returned this descriptor; nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(number as i32) }
}
