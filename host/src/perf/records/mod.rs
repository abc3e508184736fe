//! What the kernel writes into the ring of an event beside samples: what processes map, who their parents are, what was
//! lost and throttled.
//!
//! Source: perf_event_open(2), "MMAP layout"; `enum perf_event_type` in `include/uapi/linux/perf_event.h`, v6.12.

mod sys;

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perf_event_open_sys::bindings;

pub(crate) use self::sys::Buffer;

/// Pages of the ring of an event that runs a program: its samples do not get there, so that there is room for hundreds of
/// records of throttling.
const THROTTLE_PAGES: usize = 2;

/// How often the kernel stopped an event until the next tick of the clock, because it came too often.
#[derive(Debug)]
pub(crate) struct Throttling {
    buffer: Buffer,
    times: u64,
}

impl Throttling {
    /// Maps a ring of the event. None if the kernel refuses: it has none for events that children inherit on whichever CPU
    /// they run, and a user may lock only so much memory.
    pub(crate) fn of(event: BorrowedFd<'_>) -> Option<Throttling> {
        Some(Throttling { buffer: Buffer::new(event, THROTTLE_PAGES).ok()?, times: 0 })
    }

    /// How often up to now. Records that found no room are counted too: each second one begins a throttling.
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

/// The name of the code that the kernel maps into every process, in records and in `/proc/PID/maps`.
pub(crate) const VDSO: &[u8] = b"[vdso]";

/// Bytes of `struct perf_event_header`.
const HEADER: usize = 8;

/// A record, as far as it is of interest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    /// A process mapped code of a file, or the kernel mapped its own ([`VDSO`]).
    #[doc(alias = "PERF_RECORD_MMAP2")]
    Mapped { pid: i32, mapping: Mapping },
    /// A process has a child, which has its mappings.
    #[doc(alias = "PERF_RECORD_FORK")]
    Forked { pid: i32, parent: i32 },
    /// The first thread of a process has ended, and with it, as a rule, the process.
    #[doc(alias = "PERF_RECORD_EXIT")]
    Ended { pid: i32 },
    /// So many records had no room.
    #[doc(alias = "PERF_RECORD_LOST")]
    Lost(u64),
    /// The event came too often, and is stopped until the next tick of the clock.
    #[doc(alias = "PERF_RECORD_THROTTLE")]
    Throttled,
}

/// A file in the memory of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// The first address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    /// Bytes of the file before the first address.
    pub offset: u64,
    /// The file, as the process names it. All mappings of one path share it.
    pub path: Arc<Path>,
    /// Which file it was.
    pub identity: Identity,
}

/// What tells a file from another of its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// The build id that its linker gave it.
    BuildId(Vec<u8>),
    /// Its file system, as major and minor number, and its number there.
    Inode {
        /// Of the device.
        major: u32,
        /// Of the device.
        minor: u32,
        /// On it.
        inode: u64,
    },
}

/// The records in bytes that a [`Buffer`] gave.
pub(crate) fn parse(bytes: &[u8]) -> Vec<Record> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let Some(header) = rest.get(..HEADER) {
        let (ty, misc) = (number(header, 0, 4), number(header, 4, 2));
        let size = number(header, 6, 2) as usize;
        let Some(body) = rest.get(HEADER..size) else { break };
        found.extend(record(ty as u32, misc as u32, body));
        rest = &rest[size..];
    }
    found
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
    // Memory without a file has a name in brackets, or one that begins with two slashes. The kernel's own code in a
    // process is the same in all of one kind.
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

/// An integer of so many bytes; 0 if they are not there.
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
            // Another thread of it.
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
        // What is cut off is no record.
        assert_eq!(parse(&bytes[..bytes.len() - 1]), expected[..3]);
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
