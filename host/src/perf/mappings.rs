//! What processes have mapped while somebody looked: for addresses of those that have ended since.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::pmu::Sysfs;
use super::records::{self, Buffer, Identity, Mapping, Record};
use super::sys::{self, Observed};

/// Pages of records for each CPU: room for some thousand mappings between two looks.
const PAGES: usize = 64;

/// The time between two looks.
const PERIOD: Duration = Duration::from_millis(50);

/// What processes had mapped, the latest last.
#[derive(Debug, Default)]
pub struct Mappings {
    by_process: BTreeMap<i32, Vec<Mapping>>,
    lost: u64,
}

impl Mappings {
    /// The file that a process had at an address, last of all.
    pub fn find(&self, pid: i32, address: u64) -> Option<&Mapping> {
        let mappings = self.by_process.get(&pid)?;
        mappings.iter().rev().find(|mapping| (mapping.start..mapping.end).contains(&address))
    }

    /// How many records of mappings had no room.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Mapped { pid, mapping } => self.by_process.entry(pid).or_default().push(mapping),
            Record::Forked { pid, parent } if pid != parent => {
                let inherited = self.by_process.get(&parent).cloned().unwrap_or_default();
                // What the child has mapped itself is later, even if its CPU was looked at first.
                let own = self.by_process.entry(pid).or_default();
                own.splice(0..0, inherited);
            }
            Record::Lost(number) => self.lost += number,
            Record::Forked { .. } | Record::Throttled => {}
        }
    }

    /// What runs now. A process that ends meanwhile is left out.
    fn add_running(&mut self) {
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
                continue;
            };
            let maps = fs::read(entry.path().join("maps")).unwrap_or_default();
            let before = maps.split(|byte| *byte == b'\n').filter_map(running).collect::<Vec<_>>();
            self.by_process.entry(pid).or_default().splice(0..0, before);
        }
    }
}

/// A line of `/proc/PID/maps` that maps code of a file: `start-end r-xp offset major:minor inode path`.
fn running(line: &[u8]) -> Option<Mapping> {
    let line = String::from_utf8_lossy(line);
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let is_code = words.next()?.as_bytes().get(2) == Some(&b'x');
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let offset = hex(words.next()?)?;
    let (major, minor) = words.next()?.split_once(':')?;
    let inode = words.next()?.parse().ok()?;
    let path = line.get(line.find('/')?..)?;
    let device = |word| u32::try_from(hex(word)?).ok();
    is_code.then_some(Mapping {
        start: hex(start)?,
        end: hex(end)?,
        offset,
        path: PathBuf::from(path),
        identity: Identity::Inode { major: device(major)?, minor: device(minor)?, inode },
    })
}

/// Writes down what processes map, on a thread of its own, until it is asked what that was.
#[derive(Debug)]
pub struct MappingRecorder {
    stop: Sender<()>,
    thread: JoinHandle<Mappings>,
}

impl MappingRecorder {
    /// Begins: with what runs now, and whatever is mapped from now on.
    ///
    /// # Errors
    /// The kernel's: EACCES without CAP_PERFMON.
    pub fn start() -> Result<MappingRecorder, Errno> {
        let cpus = Sysfs::default().online_cpus();
        let mut rings = cpus.into_iter().map(Ring::open).collect::<Result<Vec<Ring>, Errno>>()?;
        let (stop, asked) = mpsc::channel();
        let body = move || {
            let mut mappings = Mappings::default();
            mappings.add_running();
            loop {
                let ended = !matches!(asked.recv_timeout(PERIOD), Err(RecvTimeoutError::Timeout));
                for ring in &mut rings {
                    records::parse(&ring.buffer.take()).into_iter().for_each(|record| mappings.add(record));
                }
                if ended {
                    return mappings;
                }
            }
        };
        let thread = std::thread::Builder::new().name("ks-mappings".into()).spawn(body);
        let thread = thread.map_err(|error| error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw))?;
        Ok(MappingRecorder { stop, thread })
    }

    /// Ends, and gives what was written down.
    pub fn finish(self) -> Mappings {
        // The thread waits for this.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or_default()
    }
}

/// The records of one CPU.
struct Ring {
    buffer: Buffer,
    _event: OwnedFd,
}

impl Ring {
    fn open(cpu: i32) -> Result<Ring, Errno> {
        let observed = Observed { pid: -1, cpu, is_cgroup: false };
        // Build ids: since Linux 5.12.
        let event = sys::open(&attr(true), None, observed, None).or_else(|errno| match errno {
            Errno::EINVAL => sys::open(&attr(false), None, observed, None),
            errno => Err(errno),
        })?;
        let buffer = Buffer::new(event.as_fd(), PAGES)?;
        Ok(Ring { buffer, _event: event })
    }
}

/// An event that counts nothing and tells what processes do.
fn attr(build_ids: bool) -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.type_ = bindings::PERF_TYPE_SOFTWARE;
    attr.config = u64::from(bindings::PERF_COUNT_SW_DUMMY);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_task(1);
    attr.set_build_id(u64::from(build_ids));
    attr
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, path: &str) -> Mapping {
        let identity = Identity::Inode { major: 0, minor: 0, inode: 1 };
        Mapping { start, end: start + 0x1000, offset: 0, path: path.into(), identity }
    }

    fn path(mappings: &Mappings, pid: i32, address: u64) -> Option<&str> {
        mappings.find(pid, address).and_then(|mapping| mapping.path.to_str())
    }

    #[test]
    fn a_child_has_what_its_parent_had_and_what_it_maps_itself() {
        let mut mappings = Mappings::default();
        mappings.add(Record::Mapped { pid: 1, mapping: mapping(0x1000, "/parent") });
        // The child's CPU was looked at first.
        mappings.add(Record::Mapped { pid: 2, mapping: mapping(0x1800, "/child") });
        mappings.add(Record::Forked { pid: 2, parent: 1 });
        mappings.add(Record::Mapped { pid: 1, mapping: mapping(0x1000, "/later") });
        assert_eq!(path(&mappings, 2, 0x1100), Some("/parent"));
        assert_eq!(path(&mappings, 2, 0x1900), Some("/child"));
        assert_eq!(path(&mappings, 1, 0x1100), Some("/later"));
        assert_eq!((path(&mappings, 1, 0x2000), path(&mappings, 3, 0x1100)), (None, None));
    }

    #[test]
    fn a_line_of_code_is_a_mapping_and_data_is_none() {
        let line = b"55d0c8a00000-55d0c8a05000 r-xp 00002000 fe:01 1835042    /usr/bin/two words";
        let found = running(line).expect("it is code");
        assert_eq!((found.start, found.end, found.offset), (0x55d0_c8a0_0000, 0x55d0_c8a0_5000, 0x2000));
        assert_eq!(found.path.to_str(), Some("/usr/bin/two words"));
        assert_eq!(found.identity, Identity::Inode { major: 0xfe, minor: 1, inode: 1_835_042 });
        assert_eq!(running(b"55d0c8a00000-55d0c8a05000 r--p 00002000 fe:01 1835042 /usr/bin/x"), None);
        assert_eq!(running(b"7ffd1000-7ffd3000 r-xp 00000000 00:00 0 [vdso]"), None);
    }
}
