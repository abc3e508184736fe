//! Records other than samples in an event's ring: mappings of processes, forks and exits, lost records and
//! throttling.
//!
//! Source: perf_event_open(2), "MMAP layout"; `enum perf_event_type` in `include/uapi/linux/perf_event.h`,
//! v6.12.

mod sys;

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use perf_event_open_sys::bindings;

pub(crate) use self::sys::Buffer;

/// Pages of the ring of an event that runs a program. Its samples are not written there, so hundreds of
/// throttling records fit.
const THROTTLE_PAGES: usize = 2;

/// Counts how often the kernel stopped an event until the next clock tick because it occurred too often.
#[derive(Debug)]
pub(crate) struct Throttling {
    buffer: Buffer,
    times: u64,
}

impl Throttling {
    /// Maps a ring of the event. None if the kernel refuses: it offers none for inherited events on any CPU,
    /// and limits the locked memory of a user.
    pub(crate) fn of(event: BorrowedFd<'_>) -> Option<Throttling> {
        Some(Throttling { buffer: Buffer::new(event, THROTTLE_PAGES).ok()?, times: 0 })
    }

    /// Returns the number of throttlings so far. Lost records are included: every second one begins a
    /// throttling.
    pub(crate) fn times(&mut self) -> u64 {
        for record in parse(&self.buffer.take()) {
            match record {
                Record::Throttled => self.times += 1,
                Record::Lost(records) => self.times += records / 2,
                Record::Mapped { .. } | Record::Forked { .. } | Record::Ended { .. } => {}
            }
        }
        self.times
    }
}

/// Name of the code that the kernel maps into every process, in records and in `/proc/PID/maps`.
pub(crate) const VDSO: &[u8] = b"[vdso]";

/// Size of `struct perf_event_header`, in bytes.
const HEADER: usize = 8;

/// A parsed record; other types are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// A process mapped code of a file, or the kernel mapped its own ([`VDSO`]).
    #[doc(alias = "PERF_RECORD_MMAP2")]
    Mapped { pid: i32, mapping: Mapping },
    /// A process has a new child, which inherits its mappings.
    #[doc(alias = "PERF_RECORD_FORK")]
    Forked { pid: i32, parent: i32 },
    /// The first thread of a process has ended, and usually the process with it.
    #[doc(alias = "PERF_RECORD_EXIT")]
    Ended { pid: i32 },
    /// Number of records that were lost because the ring was full.
    #[doc(alias = "PERF_RECORD_LOST")]
    Lost(u64),
    /// The event occurred too often and is stopped until the next clock tick.
    #[doc(alias = "PERF_RECORD_THROTTLE")]
    Throttled,
}

/// A file mapped into the memory of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The first mapped address.
    pub start: u64,
    /// The address after the last mapped one.
    pub end: u64,
    /// Offset in the file of the first address, in bytes.
    pub offset: u64,
    /// The file's path as the process names it. All mappings of one path share it.
    pub path: Arc<Path>,
    /// Distinguishes the file from others with the same path.
    pub identity: Identity,
}

/// Distinguishes a file from others with the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The build id that the linker assigned to the file.
    BuildId(Vec<u8>),
    /// Device and inode numbers.
    Inode {
        /// Major number of the device.
        major: u32,
        /// Minor number of the device.
        minor: u32,
        /// Inode number on that device.
        inode: u64,
    },
}

/// Parses the records in bytes from a [`Buffer`].
pub(crate) fn parse(bytes: &[u8]) -> Vec<Record> {
    let mut found = Vec::new();
    for_each(bytes, |_, record| found.push(record));
    found
}

/// As [`parse`], with the time of each record by the event's clock. The event has `sample_id_all` and the sample type
/// `PERF_SAMPLE_TIME` alone, so the time is the last word of each record.
pub(crate) fn parse_with_times(bytes: &[u8]) -> Vec<(Duration, Record)> {
    let mut found = Vec::new();
    for_each(bytes, |body, record| {
        let at = body.len().checked_sub(8).map_or(0, |at| number(body, at, 8));
        found.push((Duration::from_nanos(at), record));
    });
    found
}

/// Calls a function with the body of each record and the record.
fn for_each(bytes: &[u8], mut see: impl FnMut(&[u8], Record)) {
    let mut rest = bytes;
    while let Some(header) = rest.get(..HEADER) {
        let (ty, misc) = (number(header, 0, 4), number(header, 4, 2));
        let size = number(header, 6, 2) as usize;
        let Some(body) = rest.get(HEADER..size) else { break };
        if let Some(record) = record(ty as u32, misc as u32, body) {
            see(body, record);
        }
        rest = &rest[size..];
    }
}

fn record(ty: u32, misc: u32, body: &[u8]) -> Option<Record> {
    match ty {
        bindings::PERF_RECORD_MMAP2 => mapped(misc, body),
        bindings::PERF_RECORD_FORK => {
            Some(Record::Forked { pid: number(body, 0, 4) as i32, parent: number(body, 4, 4) as i32 })
        }
        bindings::PERF_RECORD_EXIT => {
            let (pid, thread) = (number(body, 0, 4) as i32, number(body, 8, 4) as i32);
            (pid == thread).then_some(Record::Ended { pid })
        }
        bindings::PERF_RECORD_LOST => Some(Record::Lost(number(body, 8, 8))),
        bindings::PERF_RECORD_THROTTLE => Some(Record::Throttled),
        _ => None,
    }
}

fn mapped(misc: u32, body: &[u8]) -> Option<Record> {
    let name = body.get(64..)?;
    let name = &name[..name.iter().position(|byte| *byte == 0)?];
    // Anonymous memory has a name in brackets, or one that begins with two slashes. The vDSO is the same in
    // all processes of one kind.
    if name != VDSO && (!name.starts_with(b"/") || name.starts_with(b"//")) {
        return None;
    }
    let identity = if misc & bindings::PERF_RECORD_MISC_MMAP_BUILD_ID != 0 {
        let len = usize::from(body[32]).min(20);
        Identity::BuildId(body[36..36 + len].to_vec())
    } else {
        Identity::Inode {
            major: number(body, 32, 4) as u32,
            minor: number(body, 36, 4) as u32,
            inode: number(body, 40, 8),
        }
    };
    let start = number(body, 8, 8);
    Some(Record::Mapped {
        pid: number(body, 0, 4) as i32,
        mapping: Mapping {
            start,
            end: start.saturating_add(number(body, 16, 8)),
            offset: number(body, 24, 8),
            path: PathBuf::from(OsString::from_vec(name.to_vec())).into(),
            identity,
        },
    })
}

/// Reads an integer of `len` bytes; 0 if the bytes are missing.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut value = [0; 8];
    if let Some(bytes) = bytes.get(at..at + len) {
        value[..len].copy_from_slice(bytes);
    }
    u64::from_le_bytes(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(ty: u32, misc: u16, body: &[u8]) -> Vec<u8> {
        let size = u16::try_from(HEADER + body.len()).expect("short");
        [&ty.to_le_bytes()[..], &misc.to_le_bytes(), &size.to_le_bytes(), body].concat()
    }

    fn mmap2(identity: [u8; 24], name: &[u8]) -> Vec<u8> {
        let ids = [7_u32, 8].map(u32::to_le_bytes).concat();
        let location = [0x1000_u64, 0x500, 0x200].map(u64::to_le_bytes).concat();
        [&ids[..], &location, &identity, &[0; 8], name].concat()
    }

    #[test]
    fn records_are_read_one_after_the_other() {
        let fork = [9_u32, 7, 9, 7].map(u32::to_le_bytes).concat();
        let end = |thread: u32| [9, 7, thread, 7].map(u32::to_le_bytes).concat();
        let lost = [1_u64, 33].map(u64::to_le_bytes).concat();
        let bytes = [
            raw(bindings::PERF_RECORD_FORK, 0, &fork),
            raw(bindings::PERF_RECORD_COMM, 0, &[0; 16]),
            // The exit of another thread of the process.
            raw(bindings::PERF_RECORD_EXIT, 0, &end(11)),
            raw(bindings::PERF_RECORD_EXIT, 0, &end(9)),
            raw(bindings::PERF_RECORD_LOST, 0, &lost),
            raw(bindings::PERF_RECORD_THROTTLE, 0, &[0; 24]),
        ]
        .concat();
        let expected = [
            Record::Forked { pid: 9, parent: 7 },
            Record::Ended { pid: 9 },
            Record::Lost(33),
            Record::Throttled,
        ];
        assert_eq!(parse(&bytes), expected);
        // A truncated record is ignored.
        assert_eq!(parse(&bytes[..bytes.len() - 1]), expected[..3]);
        let times: Vec<u64> = parse_with_times(&bytes).iter().map(|(at, _)| at.as_nanos() as u64).collect();
        assert_eq!(times, [7 << 32 | 9, 7 << 32 | 9, 33, 0]);
    }

    #[test]
    fn a_mapping_has_its_file_and_its_identity() {
        let mut inode = [0; 24];
        inode[..16].copy_from_slice(&[8, 0, 0, 0, 1, 0, 0, 0, 99, 0, 0, 0, 0, 0, 0, 0]);
        let mut build_id = [0; 24];
        build_id[..6].copy_from_slice(&[2, 0, 0, 0, 0xab, 0xcd]);
        let with = bindings::PERF_RECORD_MISC_MMAP_BUILD_ID as u16;
        let found = parse(
            &[
                raw(bindings::PERF_RECORD_MMAP2, 0, &mmap2(inode, b"/bin/a\0\0")),
                raw(bindings::PERF_RECORD_MMAP2, with, &mmap2(build_id, b"/bin/b\0\0")),
                raw(bindings::PERF_RECORD_MMAP2, 0, &mmap2(inode, b"//anon\0\0")),
                raw(bindings::PERF_RECORD_MMAP2, 0, &mmap2(inode, b"[stack]\0\0")),
                raw(bindings::PERF_RECORD_MMAP2, 0, &mmap2(inode, b"[vdso]\0\0")),
            ]
            .concat(),
        );
        let identities = [
            ("/bin/a", Identity::Inode { major: 8, minor: 1, inode: 99 }),
            ("/bin/b", Identity::BuildId(vec![0xab, 0xcd])),
            ("[vdso]", Identity::Inode { major: 8, minor: 1, inode: 99 }),
        ];
        let expected = identities.map(|(path, identity)| Record::Mapped {
            pid: 7,
            mapping: Mapping {
                start: 0x1000,
                end: 0x1500,
                offset: 0x200,
                path: Path::new(path).into(),
                identity,
            },
        });
        assert_eq!(found, expected);
    }
}
