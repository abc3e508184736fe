//! Records the files that processes map, to resolve addresses of processes that have ended since.
//!
//! All processes of the machine are recorded, since it is not yet known which of them a plugin counts. So
//! every user influences the amount of data. A path is stored once, a child shares its parent's list until
//! one of them maps more, and all lists together have a limit, at which the longest are dropped first.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};
use perf_event_open_sys::bindings::{self, perf_event_attr};

use super::locations::Surroundings;
use super::online::Online;
use super::pmu::Sysfs;
use super::records::{self, Buffer, Identity, Mapping, Record};
use super::sys::{self, Observed};
use crate::{maps, procfs};

/// Pages of records for each CPU: room for some thousand mappings between two reads.
const PAGES: usize = 64;

/// Interval between two reads of the rings.
const PERIOD: Duration = Duration::from_millis(50);

/// Limit of the wait for an answer and for the last read at the end; longer than `BEGIN`.
const FINISH: Duration = Duration::from_secs(5);

/// Time limit for reading the mappings of processes that run already.
const BEGIN: Duration = Duration::from_secs(3);

/// Largest number of code mappings of one process; browsers have a thousand.
const MAX_MAPPINGS: usize = 16 << 10;

/// Bytes of `/proc/PID/maps` that are read of a process that runs already: ten thousand mappings with usual
/// paths.
const MAX_MAPS_BYTES: u64 = 1 << 20;

/// Largest number of processes, including ended ones.
const MAX_PROCESSES: usize = 256 << 10;

/// Largest size of lists and paths, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// Size of a mapping in a list, in bytes.
const MAPPING_BYTES: usize = size_of::<Mapping>();

/// The mappings of processes, the latest last.
#[derive(Debug, Default)]
pub struct Mappings {
    by_process: HashMap<i32, Mapped>,
    paths: HashSet<Arc<Path>>,
    /// Upper bound of the size of lists and paths, in bytes.
    bytes: usize,
    /// Number of processes seen so far; the source of `Mapped::order`.
    seen: u64,
    lost: u64,
    forgotten: u64,
}

/// The mappings of one process.
#[derive(Debug, Default)]
struct Mapped {
    /// Shared with its children until one of them maps more.
    list: Arc<Vec<Mapping>>,
    ended: bool,
    /// Position in the order in which processes were first seen.
    order: u64,
    /// A time since boot at which the process had not started yet, or had just started.
    began: Option<Duration>,
}

impl Mappings {
    /// Returns the latest mapping of a process at an address.
    pub fn find(&self, pid: i32, address: u64) -> Option<&Mapping> {
        let mappings = &self.by_process.get(&pid)?.list;
        mappings.iter().rev().find(|mapping| (mapping.start..mapping.end).contains(&address))
    }

    /// Number of mapping records that were lost for lack of room, in the kernel or here.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Number of processes whose mappings were dropped because of the size limits.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Whether the process has ended, so that a process with this number is another one.
    pub fn has_ended(&self, pid: i32) -> bool {
        self.by_process.get(&pid).is_some_and(|mapped| mapped.ended)
    }

    /// Returns a time since boot at which the process had not started yet, or had just started: older files
    /// belong to another process. None if its start was not recorded.
    pub fn began(&self, pid: i32) -> Option<Duration> {
        self.by_process.get(&pid)?.began
    }

    /// Returns what is recorded of a process and at an address of it.
    pub(crate) fn process_at(&self, pid: i32, address: u64) -> RecordedProcess {
        RecordedProcess {
            mapping: self.find(pid, address).cloned(),
            has_ended: self.has_ended(pid),
            began: self.began(pid),
        }
    }

    /// Applies a record of a time since boot.
    fn add(&mut self, record: Record, at: Duration) {
        match record {
            Record::Mapped { pid, mapping } => self.map(pid, mapping),
            Record::Forked { pid, parent } if pid != parent => {
                let inherited = self.by_process.get(&parent).map(|parent| Arc::clone(&parent.list));
                let inherited = inherited.unwrap_or_default();
                let own = std::mem::take(&mut self.process(pid).list);
                // What /proc said of the child is later, even if it was read first. Mappings of an earlier process
                // with the same number are discarded.
                let ended = std::mem::take(&mut self.process(pid).ended);
                self.process(pid).began = Some(at);
                self.process(pid).list = if ended || own.is_empty() {
                    inherited
                } else {
                    let both: Vec<Mapping> = inherited.iter().chain(own.iter()).cloned().collect();
                    self.bytes += both.len() * MAPPING_BYTES;
                    Arc::new(both)
                };
            }
            Record::Ended { pid } => {
                if let Some(mapped) = self.by_process.get_mut(&pid) {
                    mapped.ended = true;
                }
            }
            Record::Lost(number) => self.lost += number,
            Record::Forked { .. } | Record::Throttled => {}
        }
        self.forget();
    }

    fn map(&mut self, pid: i32, mapping: Mapping) {
        let path = match self.paths.get(&mapping.path) {
            Some(path) => Arc::clone(path),
            None => {
                self.bytes += mapping.path.as_os_str().len() + MAPPING_BYTES;
                self.paths.insert(Arc::clone(&mapping.path));
                Arc::clone(&mapping.path)
            }
        };
        let process = self.process(pid);
        if process.list.len() >= MAX_MAPPINGS {
            self.lost += 1;
            return;
        }
        let copied = if Arc::strong_count(&process.list) > 1 { process.list.len() } else { 0 };
        Arc::make_mut(&mut process.list).push(Mapping { path, ..mapping });
        // A list grows to twice its length.
        self.bytes += (copied + 2) * MAPPING_BYTES;
    }

    fn process(&mut self, pid: i32) -> &mut Mapped {
        self.by_process.entry(pid).or_insert_with(|| {
            self.seen += 1;
            Mapped { order: self.seen, ..Mapped::default() }
        })
    }

    /// Enforces the size limits: drops the processes that ended first, and the longest lists. Drops down to
    /// half the limit, so that this is rare.
    fn forget(&mut self) {
        if self.by_process.len() > MAX_PROCESSES {
            let mut order: Vec<(bool, u64, i32)> =
                self.by_process.iter().map(|(pid, one)| (!one.ended, one.order, *pid)).collect();
            order.sort_unstable();
            for (.., pid) in order.into_iter().take(MAX_PROCESSES / 2) {
                self.by_process.remove(&pid);
                self.forgotten += 1;
            }
        }
        if self.bytes <= MAX_BYTES {
            return;
        }
        self.bytes = self.measured();
        if self.bytes > MAX_BYTES / 2 {
            let mut longest: Vec<(usize, i32)> =
                self.by_process.iter().map(|(pid, one)| (one.list.capacity(), *pid)).collect();
            longest.sort_unstable_by(|one, other| other.cmp(one));
            for (capacity, pid) in longest {
                if self.bytes <= MAX_BYTES / 2 {
                    break;
                }
                // A list is freed with the last process that shares it.
                let gone =
                    self.by_process.remove(&pid).is_some_and(|one| Arc::into_inner(one.list).is_some());
                let freed = if gone { capacity * MAPPING_BYTES } else { 0 };
                self.bytes = self.bytes.saturating_sub(freed);
                self.forgotten += 1;
            }
        }
        self.paths.retain(|path| Arc::strong_count(path) > 1);
        self.bytes = self.measured();
    }

    /// Computes the size of lists and paths, in bytes.
    fn measured(&self) -> usize {
        let mut lists = HashSet::new();
        let unique = self.by_process.values().filter(|one| lists.insert(Arc::as_ptr(&one.list)));
        let lists: usize = unique.map(|one| one.list.capacity() * MAPPING_BYTES).sum();
        lists + self.paths.iter().map(|path| path.as_os_str().len() + MAPPING_BYTES).sum::<usize>()
    }

    /// Adds the mappings of a process that runs already, before its recorded ones. A process that ends
    /// meanwhile is left out.
    fn add_running(&mut self, pid: i32) {
        let Ok(maps) = File::open(format!("/proc/{pid}/maps")) else { return };
        let mut text = Vec::new();
        // If the text exceeds the limit, only its first part is used.
        if maps.take(MAX_MAPS_BYTES).read_to_end(&mut text).is_err() {
            return;
        }
        // A process that started while this thread runs has a fork record.
        if self.process(pid).began.is_none() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            self.process(pid).began = started(&stat);
        }
        let later = std::mem::take(&mut self.process(pid).list);
        for line in text.split(|byte| *byte == b'\n') {
            if let Some(mapping) = running(line) {
                self.map(pid, mapping);
            }
        }
        for mapping in later.iter() {
            self.map(pid, mapping.clone());
        }
        self.forget();
    }
}

/// Returns the start time of a process since boot: the 22nd word of `/proc/PID/stat`. The second word is its
/// name in parentheses, which may contain any characters.
pub(crate) fn started(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let ticks: u64 = after_name.split_whitespace().nth(19)?.parse().ok()?;
    let per_second = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok()??;
    let per_second = u64::try_from(per_second).ok().filter(|ticks| *ticks > 0)?;
    Some(
        Duration::from_secs(ticks / per_second)
            + Duration::from_secs(ticks % per_second) / u32::try_from(per_second).ok()?,
    )
}

/// Parses a line of `/proc/PID/maps` that maps code of a file or of the kernel itself.
fn running(line: &[u8]) -> Option<Mapping> {
    let line = maps::entry(line)?;
    let is_known = line.is_code && (line.name.starts_with(b"/") || line.name == records::VDSO);
    is_known.then(|| Mapping {
        start: line.start,
        end: line.end,
        offset: line.offset,
        path: Path::new(std::ffi::OsStr::from_bytes(&line.name)).into(),
        identity: Identity::Inode { major: line.major, minor: line.minor, inode: line.inode },
    })
}

/// What is recorded of a process.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedProcess {
    /// The latest mapping at the address that was asked about.
    pub(crate) mapping: Option<Mapping>,
    /// Whether the process has ended ([`Mappings::has_ended`]).
    pub(crate) has_ended: bool,
    /// The earliest start of the process ([`Mappings::began`]).
    pub(crate) began: Option<Duration>,
}

/// A question to the recording thread, which reads the rings before it answers.
#[derive(Debug)]
enum Asked {
    /// What is recorded of a process, and at an address of it.
    Process { pid: i32, address: u64, to: Sender<RecordedProcess> },
    /// Everything, which ends the thread.
    All(Sender<Mappings>),
}

/// Records the mappings of all processes, on a thread of its own, until it is dropped or
/// [finished](MappingRecorder::finish).
#[derive(Debug)]
pub struct MappingRecorder {
    asks: Sender<Asked>,
}

impl MappingRecorder {
    /// Starts recording: existing mappings, and everything that is mapped from now on.
    ///
    /// # Errors
    /// The kernel's errno: EACCES without CAP_PERFMON.
    pub fn start() -> Result<MappingRecorder, Errno> {
        // Read before the CPUs are listed, so that the first check sees every later change.
        let surroundings = Surroundings::default();
        let mut online = Online::of(&surroundings);
        let cpus = surroundings.sysfs.online_cpus();
        let open = cpus.into_iter().map(Ring::open).collect::<Result<Vec<Ring>, Errno>>()?;
        let mut rings = Rings { open, early: Vec::new() };
        let (asks, asked) = mpsc::channel();
        let body = move || {
            let mut mappings = Mappings::default();
            begin(&mut mappings, &mut rings);
            loop {
                let question = asked.recv_timeout(PERIOD);
                rings.take(&mut mappings);
                if let Some(online) = &mut online
                    && online.has_changed()
                    && rings.follow(&online.cpus(), &surroundings.sysfs)
                {
                    // Mappings on the new CPUs that were created before their rings were opened.
                    begin(&mut mappings, &mut rings);
                }
                // The owner may have stopped waiting.
                match question {
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(Asked::Process { pid, address, to }) => {
                        let _ = to.send(mappings.process_at(pid, address));
                    }
                    Ok(Asked::All(to)) => {
                        let _ = to.send(mappings);
                        return;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        let thread = thread::Builder::new().name("ks-mappings".into()).spawn(body);
        thread.map_err(|error| error.raw_os_error().map_or(Errno::EAGAIN, Errno::from_raw))?;
        Ok(MappingRecorder { asks })
    }

    /// Returns what is recorded up to now of a process and at an address of it. None if the thread does not
    /// answer, as for [`MappingRecorder::finish`].
    pub(crate) fn process_at(&self, pid: i32, address: u64) -> Option<RecordedProcess> {
        let (to, answer) = mpsc::channel();
        self.asks.send(Asked::Process { pid, address, to }).ok()?;
        answer.recv_timeout(FINISH).ok()
    }

    /// Stops recording and returns the mappings. None if the thread does not answer: a process can block the
    /// reader of its mappings with memory of a file system that does not answer.
    pub fn finish(self) -> Option<Mappings> {
        let (to, answer) = mpsc::channel();
        self.asks.send(Asked::All(to)).ok()?;
        answer.recv_timeout(FINISH).ok()
    }
}

/// Reads the mappings of processes that run already, and empties the rings meanwhile. Stops after [`BEGIN`];
/// the remaining processes have no names.
fn begin(mappings: &mut Mappings, rings: &mut Rings) {
    if !procfs::is_own() {
        return;
    }
    let began = Instant::now();
    let mut looked = began;
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        mappings.add_running(pid);
        // A plugin starts by several processes that wait for each other: none should wait here for the end of a time slice.
        thread::yield_now();
        if looked.elapsed() > PERIOD {
            rings.take(mappings);
            looked = Instant::now();
        }
        if began.elapsed() > BEGIN {
            return;
        }
    }
}

fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// The rings of all CPUs that are online, and the records that were read of them too early.
struct Rings {
    open: Vec<Ring>,
    /// Records from after the start of the last read: older ones of another ring may follow.
    early: Vec<(Duration, Record)>,
}

impl Rings {
    /// Applies the records up to now in the order of their times: a process may end on another CPU than it started on.
    fn take(&mut self, mappings: &mut Mappings) {
        let now = since_boot();
        let mut records = std::mem::take(&mut self.early);
        records.extend(self.open.iter_mut().flat_map(|ring| records::parse_with_times(&ring.buffer.take())));
        records.sort_by_key(|(at, _)| *at);
        self.early = records.split_off(records.partition_point(|(at, _)| *at <= now));
        records.into_iter().for_each(|(at, record)| mappings.add(record, at));
    }

    /// Closes the rings of CPUs that went offline and opens those of CPUs that came online. Returns whether any
    /// were opened. A CPU that was offline in between gets a new ring.
    fn follow(&mut self, online: &[i32], sysfs: &Sysfs) -> bool {
        let rings = &mut self.open;
        rings.retain(|ring| online.contains(&ring.cpu) && ring.incarnation == sysfs.incarnation(ring.cpu));
        let before = rings.len();
        let is_new = |cpu: &&i32| !rings.iter().any(|ring| ring.cpu == **cpu);
        // A CPU that accepts no events yet, or goes offline again, is handled at the next change.
        let new: Vec<Ring> = online.iter().filter(is_new).filter_map(|cpu| Ring::open(*cpu).ok()).collect();
        rings.extend(new);
        rings.len() > before
    }
}

/// The ring of records of one CPU.
struct Ring {
    cpu: i32,
    incarnation: Option<u64>,
    buffer: Buffer,
    _event: OwnedFd,
}

impl Ring {
    fn open(cpu: i32) -> Result<Ring, Errno> {
        let incarnation = Sysfs::default().incarnation(cpu);
        let observed = Observed { pid: -1, cpu, is_cgroup: false };
        // Build ids are supported since Linux 5.12.
        let event = sys::open(&attr_with_build_ids(), None, observed, None).or_else(|errno| match errno {
            Errno::EINVAL => sys::open(&attr(), None, observed, None),
            errno => Err(errno),
        })?;
        let buffer = Buffer::new(event.as_fd(), PAGES)?;
        Ok(Ring { cpu, incarnation, buffer, _event: event })
    }
}

/// Returns the attributes of an event that counts nothing and records what processes map.
fn attr() -> perf_event_attr {
    let mut attr = perf_event_attr::default();
    attr.size = size_of::<perf_event_attr>() as u32;
    attr.type_ = bindings::PERF_TYPE_SOFTWARE;
    attr.config = u64::from(bindings::PERF_COUNT_SW_DUMMY);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_task(1);
    // Each record has its time since boot.
    attr.set_sample_id_all(1);
    attr.sample_type = bindings::PERF_SAMPLE_TIME.into();
    attr.set_use_clockid(1);
    attr.clockid = ClockId::CLOCK_BOOTTIME.as_raw();
    attr
}

/// As [`attr`], with the build ids of the mapped files instead of their inodes.
fn attr_with_build_ids() -> perf_event_attr {
    let mut attr = attr();
    attr.set_build_id(1);
    attr
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(start: u64, path: &str) -> Mapping {
        let identity = Identity::Inode { major: 0, minor: 0, inode: 1 };
        Mapping { start, end: start + 0x1000, offset: 0, path: Path::new(path).into(), identity }
    }

    fn path(mappings: &Mappings, pid: i32, address: u64) -> Option<&str> {
        mappings.find(pid, address).and_then(|mapping| mapping.path.to_str())
    }

    #[test]
    fn a_child_has_what_its_parent_had_and_what_it_maps_itself() {
        let mut mappings = Mappings::default();
        mappings.add(Record::Mapped { pid: 1, mapping: mapping(0x1000, "/parent") }, Duration::ZERO);
        // The child's CPU was read first.
        mappings.add(Record::Mapped { pid: 2, mapping: mapping(0x1800, "/child") }, Duration::ZERO);
        mappings.add(Record::Forked { pid: 2, parent: 1 }, Duration::ZERO);
        mappings.add(Record::Mapped { pid: 1, mapping: mapping(0x1000, "/later") }, Duration::ZERO);
        assert_eq!(path(&mappings, 2, 0x1100), Some("/parent"));
        assert_eq!(path(&mappings, 2, 0x1900), Some("/child"));
        assert_eq!(path(&mappings, 1, 0x1100), Some("/later"));
        assert_eq!((path(&mappings, 1, 0x2000), path(&mappings, 3, 0x1100)), (None, None));
    }

    #[test]
    fn a_name_with_parentheses_does_not_move_the_start() {
        let fields: Vec<String> = (3..=52).map(|order| (order * 100).to_string()).collect();
        let stat = format!("7 (a) R 1 (b) {}", fields.join(" "));
        assert_eq!(started(&stat), Some(Duration::from_secs(22)));
        assert_eq!(started("7 (a"), None);
    }

    #[test]
    fn code_of_files_is_a_mapping_and_nothing_else() {
        let line = b"55d0c8a00000-55d0c8a05000 r-xp 00002000 fe:01 1835042    /usr/bin/two words";
        let found = running(line).expect("it is code");
        assert_eq!((found.start, found.end, found.offset), (0x55d0_c8a0_0000, 0x55d0_c8a0_5000, 0x2000));
        assert_eq!(found.path.to_str(), Some("/usr/bin/two words"));
        assert_eq!(found.identity, Identity::Inode { major: 0xfe, minor: 1, inode: 1_835_042 });
        assert_eq!(running(b"55d0c8a00000-55d0c8a05000 r--p 00002000 fe:01 1835042 /usr/bin/x"), None);
        assert_eq!(running(b"7ffd1000-7ffd3000 r-xp 00000000 00:00 0 [vsyscall]"), None);
        let vdso = running(b"7ffd1000-7ffd3000 r-xp 00000000 00:00 0 [vdso]").expect("it is code");
        assert_eq!(vdso.path.to_str(), Some("[vdso]"));
    }

    /// 20,000 mappings of a path of 4,000 bytes, and as many children as a user can start in some seconds.
    #[test]
    fn children_share_what_their_parent_had() {
        let mut mappings = Mappings::default();
        let path = format!("/{}", "d".repeat(4000));
        for number in 0..20_000 {
            mappings.add(Record::Mapped { pid: 1, mapping: mapping(number * 0x1000, &path) }, Duration::ZERO);
        }
        assert_eq!(mappings.lost(), 20_000 - MAX_MAPPINGS as u64);
        for pid in 2..100_000 {
            mappings.add(Record::Forked { pid, parent: 1 }, Duration::ZERO);
            mappings.add(Record::Ended { pid }, Duration::ZERO);
        }
        assert!(mappings.measured() < 8 << 20, "{}", mappings.measured());
        assert_eq!(self::path(&mappings, 99_999, 0x1100), Some(path.as_str()));
        assert!(mappings.has_ended(2) && !mappings.has_ended(1) && mappings.forgotten() == 0);
    }

    #[test]
    fn of_too_many_the_longest_lists_are_forgotten() {
        let mut mappings = Mappings::default();
        mappings.add(Record::Mapped { pid: 1, mapping: mapping(0x1000, "/honest") }, Duration::ZERO);
        for pid in 2..2000 {
            for number in 0..1000 {
                mappings
                    .add(Record::Mapped { pid, mapping: mapping(number * 0x1000, "/many") }, Duration::ZERO);
            }
            assert!(mappings.measured() <= MAX_BYTES);
        }
        assert_eq!(path(&mappings, 1, 0x1100), Some("/honest"));
        assert!(mappings.forgotten() > 100);
    }

    #[test]
    fn of_too_many_processes_those_that_ended_are_forgotten() {
        let mut mappings = Mappings::default();
        mappings.add(Record::Mapped { pid: 1, mapping: mapping(0x1000, "/honest") }, Duration::ZERO);
        for pid in 2..MAX_PROCESSES as i32 + 100 {
            mappings.add(Record::Forked { pid, parent: 1 }, Duration::ZERO);
            mappings.add(Record::Ended { pid }, Duration::ZERO);
        }
        assert!(mappings.by_process.len() <= MAX_PROCESSES && mappings.forgotten() > 0);
        assert_eq!(path(&mappings, 1, 0x1100), Some("/honest"));
    }

    /// A process number that is used again.
    #[test]
    fn a_process_inherits_nothing_from_one_that_had_its_number() {
        let mut mappings = Mappings::default();
        mappings.add(Record::Mapped { pid: 7, mapping: mapping(0x1000, "/before") }, Duration::ZERO);
        mappings.add(Record::Ended { pid: 7 }, Duration::ZERO);
        assert!(mappings.has_ended(7));
        mappings.add(Record::Mapped { pid: 1, mapping: mapping(0x5000, "/parent") }, Duration::ZERO);
        mappings.add(Record::Forked { pid: 7, parent: 1 }, Duration::ZERO);
        assert_eq!((path(&mappings, 7, 0x1100), path(&mappings, 7, 0x5100)), (None, Some("/parent")));
        assert!(!mappings.has_ended(7));
    }

    #[test]
    fn a_process_began_after_the_last_look_before_its_record() {
        let mut mappings = Mappings::default();
        mappings.add(Record::Forked { pid: 7, parent: 1 }, Duration::from_secs(5));
        mappings.add(Record::Ended { pid: 7 }, Duration::from_secs(6));
        assert_eq!((mappings.began(7), mappings.began(1)), (Some(Duration::from_secs(5)), None));
        mappings.add(Record::Forked { pid: 7, parent: 1 }, Duration::from_secs(8));
        assert_eq!(mappings.began(7), Some(Duration::from_secs(8)));
        mappings.add_running(std::process::id() as i32);
        let own = mappings.began(std::process::id() as i32).expect("it may be looked at");
        assert!(own > Duration::ZERO && own <= since_boot());
    }
}
