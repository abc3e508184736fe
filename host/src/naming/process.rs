//! An observed process in procfs: its identity, its mappings, and the mapped files.
//!
//! Everything is looked up through one descriptor of its directory, which keeps referring to this process
//! even if its pid is reused. Its texts are read in parts and up to a limit, since the process controls their
//! length.

use std::ffi::CString;
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::time::ClockId;

use super::open::{FileKey, FoundFile, MAX_PROGRAM_BYTES, OpenRefusal, OpenedFile, Root};
use crate::maps::{self, MapsEntry};
use crate::{perf, procfs};

/// Largest perf map that is read, in bytes.
pub(super) const MAX_PERF_MAP_BYTES: u64 = 256 << 20;

/// Largest lag of file times, which are those of the last clock tick.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// Limit of the procfs texts of a process other than its mappings, in bytes.
const MAX_FACTS_BYTES: u64 = 64 << 10;

/// A process that existed when its directory was opened.
#[derive(Debug)]
pub(super) struct Process {
    folder: OwnedFd,
    /// The user id with which it accesses files (fsuid).
    user: u32,
    /// The pid in its own PID namespace.
    inner: u32,
    /// Its start time, since boot.
    started: Duration,
}

impl Process {
    /// Opens a process. None if no process has this pid, or procfs does not show it or shows another PID
    /// namespace.
    pub(super) fn open(pid: u32) -> Result<Option<Process>, OpenRefusal> {
        if !procfs::is_own() {
            return Ok(None);
        }
        let path = CString::new(format!("/proc/{pid}")).map_err(|_| OpenRefusal::Missing)?;
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let folder = match nix::fcntl::open(path.as_c_str(), flags, Mode::empty()).map_err(OpenRefusal::from)
        {
            Err(OpenRefusal::Missing) => return Ok(None),
            folder => folder?,
        };
        let mut process = Process { folder, user: u32::MAX, inner: pid, started: Duration::ZERO };
        let facts = process.text("stat").and_then(|stat| Ok((stat, process.text("status")?)));
        let (stat, status) = match facts {
            Err(OpenRefusal::Missing) => return Ok(None),
            facts => facts?,
        };
        let last = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().last()?.parse::<u32>().ok()
        };
        process.user = last("Uid:").unwrap_or(u32::MAX);
        process.inner = last("NSpid:").unwrap_or(pid);
        process.started = perf::started(&stat).unwrap_or(Duration::ZERO);
        Ok(Some(process))
    }

    /// Whether the process started before `time`, which is since boot. A process that started in the same
    /// clock tick counts as earlier: start times are rounded down to ticks.
    pub(super) fn began_before(&self, time: Duration) -> bool {
        self.started <= time
    }

    /// Returns the mapping at each of the addresses, which must ascend.
    pub(super) fn mappings(&self, addresses: &[u64]) -> Result<Vec<Option<Arc<MapsEntry>>>, OpenRefusal> {
        let mut found = vec![None; addresses.len()];
        let mut next = 0;
        maps::each_line(self.file("maps")?, |line| {
            let Some(mapping) = maps::entry(line) else { return true };
            while addresses.get(next).is_some_and(|address| *address < mapping.start) {
                next += 1;
            }
            let mapping = Arc::new(mapping);
            while addresses.get(next).is_some_and(|address| *address < mapping.end) {
                found[next] = Some(Arc::clone(&mapping));
                next += 1;
            }
            next < addresses.len()
        })?;
        Ok(found)
    }

    /// Opens the mapped file itself, even if it was deleted.
    pub(super) fn mapped_file(&self, mapping: &MapsEntry) -> Result<OpenedFile, OpenRefusal> {
        // A magic link that the kernel creates; only some users may follow it.
        let link = format!("map_files/{:x}-{:x}", mapping.start, mapping.end);
        match openat(self.folder.as_fd(), link.as_str(), OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) {
            Ok(found) => FoundFile::of(found)?.open(MAX_PROGRAM_BYTES),
            Err(_) => {
                let found = self.root()?.find(&mapping.name)?;
                let is_same = is_file(&found.key(), mapping.major, mapping.minor, mapping.inode);
                if is_same { found.open(MAX_PROGRAM_BYTES) } else { Err(OpenRefusal::Missing) }
            }
        }
    }

    /// Opens its root directory.
    pub(super) fn root(&self) -> Result<Root, OpenRefusal> {
        Root::of_process(self.folder.as_fd())
    }

    /// Opens the perf map of its just-in-time compiler. None if there is none of its own.
    pub(super) fn perf_map(&self) -> Result<Option<OpenedFile>, OpenRefusal> {
        perf_map(self.root(), self.inner, self.user)
    }

    fn file(&self, name: &str) -> Result<File, OpenRefusal> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        Ok(File::from(openat(self.folder.as_fd(), name, flags, Mode::empty())?))
    }

    fn text(&self, name: &str) -> Result<String, OpenRefusal> {
        let mut bytes = Vec::new();
        self.file(name)?.take(MAX_FACTS_BYTES).read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Opens the perf map of a process that has ended. None if there is none of its own. Its user and root are no
/// longer known: the file must belong to this user or to root, as perf requires, and must have been written
/// since the process started at `began`, a time since boot.
pub(super) fn perf_map_of_ended(pid: u32, began: Duration) -> Result<Option<OpenedFile>, OpenRefusal> {
    let map = perf_map(Root::own(), pid, nix::unistd::geteuid().as_raw())?;
    let now = |clock| nix::time::clock_gettime(clock).map(Duration::from).unwrap_or_default();
    let since_boot = now(ClockId::CLOCK_BOOTTIME).saturating_sub(began);
    let began = now(ClockId::CLOCK_REALTIME).saturating_sub(since_boot).saturating_sub(CLOCK_TICK);
    let changed = |file: &OpenedFile| {
        let (seconds, nanoseconds) = file.key.changed;
        let nanoseconds = u32::try_from(nanoseconds).unwrap_or_default();
        u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanoseconds))
    };
    Ok(map.filter(|file| changed(file) >= began))
}

/// Opens a perf map if it belongs to root or to `user`: anybody may write to `/tmp`.
fn perf_map(root: Result<Root, OpenRefusal>, pid: u32, user: u32) -> Result<Option<OpenedFile>, OpenRefusal> {
    let name = format!("perf-{pid}.map");
    let opened = root.and_then(|root| root.folder(b"tmp")).and_then(|tmp| {
        // A link could point to a file of another user, with names of other functions.
        tmp.entry(name.as_bytes(), MAX_PERF_MAP_BYTES)
    });
    match opened {
        Ok(file) => Ok(Some(file).filter(|file| [0, user].contains(&file.owner) && file.links <= 1)),
        Err(OpenRefusal::Missing | OpenRefusal::NotRegular | OpenRefusal::Denied) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

/// Whether a file has these device and inode numbers of a mapping. File systems with several layers or
/// subvolumes report different devices for a file and for its mappings; these devices have major number 0.
pub(super) fn is_file(key: &FileKey, major: u32, minor: u32, inode: u64) -> bool {
    let device = (nix::sys::stat::major(key.device), nix::sys::stat::minor(key.device));
    let is_device = device == (u64::from(major), u64::from(minor)) || device.0 == 0 && major == 0;
    is_device && key.inode == inode
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_what_it_is() {
        let own = Process::open(std::process::id()).expect("it may be looked at").expect("it runs");
        assert_eq!((own.user, own.inner), (nix::unistd::geteuid().as_raw(), std::process::id()));
        let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).expect("there is one");
        assert!(own.began_before(Duration::from(now)) && !own.began_before(Duration::ZERO));
        let code = this_process_is_what_it_is as fn() as usize as u64;
        let found = own.mappings(&[1, code, u64::MAX]).expect("it may be looked at");
        let mapping = found[1].clone().expect("code is mapped");
        assert!(mapping.is_code && found[0].is_none() && found[2].is_none());
        let file = own.mapped_file(&mapping).expect("a test can be read");
        assert!(is_file(&file.key, mapping.major, mapping.minor, mapping.inode));
        assert!(Process::open(u32::MAX).expect("no failure").is_none());
    }
}
