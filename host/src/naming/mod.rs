//! Names of functions of observed processes, without trusting those processes.
//!
//! An observed process controls the data that names are derived from: the files that it maps, their symbols
//! and debug information, the map that its just-in-time compiler writes, and all paths. So the work is split:
//!
//! ```text
//! stacks, world::symbols
//!   |  pid, addresses, recorded mappings               (on the plugin's or the viewer's thread)
//!   v
//! Naming -- a thread of the host, `namer`: /proc/PID -> mappings -> files
//!   |         process: one descriptor of /proc/PID, texts up to a limit
//!   |         open: in the process's root, O_PATH and fstat first; regular files of bounded length;
//!   |               never blocks
//!   |         debug_files: below /usr/lib/debug only
//!   |  descriptors and offsets over a socket (channel, protocol): bounded, parsed strictly on both sides
//!   v
//! the naming process (reader): ELF, DWARF, perf maps, demangling
//!   |         no rights, no files, limits of memory and time
//!   |  names of at most 4 KiB
//!   v
//! namer: one line for each location, hidden characters made visible
//! ```
//!
//! - The host itself parses none of these files. It opens them, checks their type, and passes the descriptors
//!   on.
//! - The naming process ([`NamingProcess`], `confine`) copies what it reads, so that the data cannot change
//!   while it is parsed. It may fail: if it ends, takes longer than 10 s or sends a malformed answer, another
//!   process is asked for the names of the symbol table alone. If that fails too, the file has no names: its
//!   frames show the file's name and an offset, with one line of warning.
//! - All files that are not root's have 60 s together. Files of root come first, so that names of system
//!   libraries do not depend on which other processes are observed.
//! - A file system that does not answer (FUSE, NFS) blocks only this thread: callers stop waiting after 15 s
//!   without progress.
//!
//! Names of the kernel come from elsewhere: `symbols` reads them from kallsyms.

mod child;
mod confine;
mod debug_files;
mod namer;
pub(crate) mod open;
pub(crate) mod process;
mod protocol;
mod reader;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use self::child::{NamingProcess, confine_like_the_naming_process, serve_if_asked};
pub(crate) use self::protocol::{MAX_LOCATIONS, MAX_TEXT_BYTES};
pub(crate) use self::reader::demangled;

use self::namer::Namer;
use crate::perf::Mapping;

/// Time limit of one request about one file.
const FILE_TIME: Duration = Duration::from_secs(10);

/// Time limit for all files that are not root's, together.
const FOREIGN_TIME: Duration = Duration::from_secs(60);

/// Callers stop waiting after this time without progress; longer than [`FILE_TIME`].
const SILENCE: Duration = Duration::from_secs(15);

/// Interval at which a waiting caller checks for progress.
const LOOK: Duration = Duration::from_millis(100);

/// A request for the names of some addresses of one process.
#[derive(Debug, Clone)]
pub(crate) struct WantedLocations {
    /// The process id, in the host's PID namespace.
    pub(crate) pid: u32,
    /// Addresses of the process, in any order; at most [`MAX_LOCATIONS`], to bound the size of the answer.
    pub(crate) locations: Vec<WantedLocation>,
    /// Whether to look up inlined functions, source lines and perf maps.
    pub(crate) in_detail: bool,
    /// Whether to inspect the live process, rather than only its recorded mappings.
    pub(crate) lives: bool,
    /// A time since boot; a process that started later has reused the pid. None accepts any process.
    pub(crate) until: Option<Duration>,
    /// Earliest start of the process, since boot; None if it was not recorded.
    pub(crate) began: Option<Duration>,
}

/// An address, and the mapping that was recorded there.
#[derive(Debug, Clone)]
pub(crate) struct WantedLocation {
    pub(crate) address: u64,
    pub(crate) recorded: Option<Mapping>,
}

/// The answer to [`WantedLocations`].
#[derive(Debug, Default)]
pub(crate) struct NamedLocations {
    /// In the order of [`WantedLocations::locations`].
    pub(crate) locations: Vec<NamedLocation>,
    /// One line for each file or map that could not be read.
    pub(crate) warnings: Vec<String>,
    /// Whether this user may not inspect the process.
    pub(crate) denied: bool,
}

/// The names found for one address.
#[derive(Debug, Clone, Default)]
pub(crate) struct NamedLocation {
    /// The functions, the outermost first; empty if none is known.
    pub(crate) frames: Vec<NamedFrame>,
    /// The file that is mapped at the address.
    pub(crate) file: Option<FileLocation>,
}

/// A function at an address. Texts are visible, and have at most [`MAX_TEXT_BYTES`] bytes.
pub(crate) type NamedFrame = protocol::NamedFrame;

/// An offset in a file. Texts are visible.
#[derive(Debug, Clone)]
pub(crate) struct FileLocation {
    /// The file's path, as the process names it.
    pub(crate) path: Arc<str>,
    /// Offset in the file, in bytes.
    pub(crate) offset: u64,
    /// The recorded build id, if the file is gone or was replaced; None otherwise.
    pub(crate) build_id: Option<String>,
}

/// A request, and the channel for its answer.
type Question = (WantedLocations, Sender<NamedLocations>);

/// A thread that names functions on behalf of others, which may be confined. It ends when all senders are
/// dropped.
#[derive(Debug, Clone)]
pub(crate) struct Naming {
    requests: Arc<Mutex<Sender<Question>>>,
    progress: Arc<AtomicU64>,
}

impl Naming {
    /// Starts the thread. The naming process is started by the first request.
    ///
    /// # Errors
    /// Of starting a thread.
    pub(crate) fn start(process: NamingProcess) -> io::Result<Naming> {
        let (requests, asked) = mpsc::channel::<Question>();
        let progress = Arc::new(AtomicU64::new(0));
        let mut namer = Namer::new(process, Arc::clone(&progress));
        std::thread::Builder::new().name("ks-naming".into()).spawn(move || {
            for (wanted, answer) in asked {
                // The caller may have stopped waiting.
                let _ = answer.send(namer.name(&wanted));
            }
        })?;
        Ok(Naming { requests: Arc::new(Mutex::new(requests)), progress })
    }

    /// Sends a request and waits for the answer. None after [`SILENCE`] without progress: the thread is then
    /// unusable.
    pub(crate) fn name(&self, wanted: WantedLocations) -> Option<NamedLocations> {
        let (answer, answered) = mpsc::channel();
        self.requests.lock().ok()?.send((wanted, answer)).ok()?;
        let (mut seen, mut since) = (self.progress.load(Ordering::Relaxed), Instant::now());
        loop {
            match answered.recv_timeout(LOOK) {
                Ok(named) => return Some(named),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    let now = self.progress.load(Ordering::Relaxed);
                    if now != seen {
                        (seen, since) = (now, Instant::now());
                    } else if since.elapsed() > SILENCE {
                        return None;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::LazyLock;

    use super::*;
    use crate::perf::Identity;

    #[inline(never)]
    fn marker() -> u64 {
        std::hint::black_box(11)
    }

    fn address() -> u64 {
        marker as fn() -> u64 as usize as u64
    }

    /// Returns the request for the names of one address of this process, which lives.
    fn wanted(recorded: Option<Mapping>) -> WantedLocations {
        WantedLocations {
            pid: std::process::id(),
            locations: vec![WantedLocation { address: address(), recorded }],
            in_detail: true,
            lives: true,
            until: None,
            began: None,
        }
    }

    fn ask(wanted: WantedLocations) -> NamedLocation {
        // Shared by all tests: it reads the test's own program once.
        static NAMING: LazyLock<Naming> =
            LazyLock::new(|| Naming::start(NamingProcess::in_a_thread()).expect("threads can be started"));
        let mut named = NAMING.name(wanted).expect("it answers");
        assert!(!named.denied && named.warnings.is_empty(), "{named:?}");
        named.locations.remove(0)
    }

    fn is_marker(location: &NamedLocation) -> bool {
        location.frames.first().is_some_and(|frame| frame.function.contains("marker"))
    }

    /// Returns a recorded mapping at the address of one of this process's functions.
    fn recorded(path: &str, identity: impl Fn(&crate::maps::MapsEntry) -> Identity) -> Option<Mapping> {
        let mut found = None;
        let maps = std::fs::File::open("/proc/self/maps").expect("procfs is mounted");
        crate::maps::each_line(maps, |line| {
            let entry =
                crate::maps::entry(line).filter(|entry| (entry.start..entry.end).contains(&address()));
            found = entry.map(|entry| Mapping {
                start: entry.start,
                end: entry.end,
                offset: entry.offset,
                path: Path::new(path).into(),
                identity: identity(&entry),
            });
            found.is_none()
        })
        .expect("they can be read");
        found
    }

    #[test]
    fn a_process_that_lives_is_asked_unless_it_is_another_one() {
        assert!(is_marker(&ask(wanted(None))));
        let ended = WantedLocations { lives: false, ..wanted(None) };
        let reused = WantedLocations { until: Some(Duration::ZERO), ..wanted(None) };
        for other in [ended, reused] {
            let found = ask(other);
            assert!(found.frames.is_empty() && found.file.is_none(), "{found:?}");
        }
        assert_eq!(marker(), 11);
    }

    #[test]
    fn of_a_process_that_has_ended_the_same_file_is_read_and_no_other() {
        let own = std::env::current_exe().expect("a test knows its own path");
        let own = own.to_str().expect("text");
        let inode = |entry: &crate::maps::MapsEntry| Identity::Inode {
            major: entry.major,
            minor: entry.minor,
            inode: entry.inode,
        };
        let other = |entry: &crate::maps::MapsEntry| Identity::Inode {
            major: entry.major,
            minor: entry.minor,
            inode: entry.inode + 1,
        };
        let ask = |recorded| ask(WantedLocations { lives: false, ..wanted(recorded) });
        assert!(is_marker(&ask(recorded(own, inode))));
        let found = ask(recorded(own, other));
        assert!(found.frames.is_empty() && found.file.is_some_and(|file| &*file.path == own));
        let found = ask(recorded(own, |_| Identity::BuildId(vec![1, 2, 0xab])));
        assert_eq!(found.file.and_then(|file| file.build_id).as_deref(), Some("0102ab"));
        for path in ["/dev/zero", "/no/such/file", "/proc/self/exe", "/"] {
            let found = ask(recorded(path, inode));
            assert!(found.frames.is_empty() && found.file.is_some(), "{path}");
        }
    }

    /// A program that cannot be started, and one that is not a naming process.
    #[test]
    fn without_a_process_that_names_there_are_offsets_and_a_warning() {
        for program in ["/no/such/program", "/bin/true", "/bin/false"] {
            let naming = Naming::start(NamingProcess::of(program)).expect("threads can be started");
            for in_detail in [true, false] {
                let wanted = WantedLocations { in_detail, ..wanted(None) };
                let named = naming.name(wanted).expect("it answers");
                assert!(
                    named.locations[0].frames.is_empty() && named.locations[0].file.is_some(),
                    "{named:?}"
                );
                assert!(
                    named.warnings.len() == 1 && named.warnings[0].contains("naming process"),
                    "{named:?}"
                );
            }
        }
    }

    #[test]
    fn the_code_of_the_kernel_in_each_process_has_names() {
        let mut vdso = None;
        let maps = std::fs::File::open("/proc/self/maps").expect("procfs is mounted");
        crate::maps::each_line(maps, |line| {
            vdso = crate::maps::entry(line).filter(|entry| entry.name == b"[vdso]");
            vdso.is_none()
        })
        .expect("they can be read");
        let Some(vdso) = vdso else { return };
        // Some of it is code of functions, usually most of the first page after the tables.
        let named = (vdso.start..vdso.end).step_by(256).any(|address| {
            let locations = vec![WantedLocation { address, recorded: None }];
            let found = ask(WantedLocations { locations, ..wanted(None) });
            found.frames.first().is_some_and(|frame| frame.function.contains("vdso"))
        });
        assert!(named);
    }
}
