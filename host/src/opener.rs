//! Files that a plugin's thread may not open itself.
//!
//! ```text
//! a confined thread -- Question --> the opener, a thread with the rights of the host
//!                  <-- answer -----/ a descriptor, a number or a path
//! ```
//!
//! A confined thread opens only what every user of the machine may read. Of the rest it needs few things, each
//! of which is a question of its own here, and which of them the opener answers is settled before the plugin
//! starts ([`Openable`]). A thread that is not confined has no opener and opens files itself.
//!
//! Functions ask through the calling thread: what they open is the same on any thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

#[cfg(feature = "plugins")]
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

#[cfg(feature = "plugins")]
use libbpf_rs::MapHandle;

#[cfg(feature = "plugins")]
use crate::bpf::statistics::{self, CountedRuns, Statistics};
#[cfg(feature = "plugins")]
use crate::bpf::{BpfError, pin};
use crate::files::{NoProgram, RegularFile};
use crate::tracefs::{self, TracefsError};

/// What the opener of a plugin may be asked for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Openable {
    /// Names and ids of tracepoints.
    pub(crate) tracepoints: bool,
    /// Programs and libraries to probe.
    pub(crate) programs: bool,
    /// Paths of processes' executables.
    pub(crate) processes: bool,
    /// Paths of pinned maps.
    pub(crate) pins: Vec<PathBuf>,
    /// BPF programs of the machine, and what they cost.
    pub(crate) loaded_programs: bool,
}

impl Openable {
    /// Whether the opener would answer no question.
    fn is_nothing(&self) -> bool {
        let opens = self.tracepoints || self.programs || self.processes || self.loaded_programs;
        !opens && self.pins.is_empty()
    }
}

/// A question, with the sender of its answer.
enum Question {
    Tracepoints {
        answer: Sender<Result<Vec<String>, TracefsError>>,
    },
    Tracepoint {
        category: String,
        event: String,
        answer: Sender<Result<u64, TracefsError>>,
    },
    Program {
        path: PathBuf,
        answer: Sender<Result<RegularFile, NoProgram>>,
    },
    Executable {
        pid: i32,
        answer: Sender<io::Result<PathBuf>>,
    },
    #[cfg(feature = "plugins")]
    Pinned {
        path: PathBuf,
        answer: Sender<Result<Option<MapHandle>, BpfError>>,
    },
    #[cfg(feature = "plugins")]
    Pin {
        path: PathBuf,
        map: OwnedFd,
        answer: Sender<Result<bool, BpfError>>,
    },
    #[cfg(feature = "plugins")]
    Statistics {
        answer: Sender<io::Result<Statistics>>,
    },
    #[cfg(feature = "plugins")]
    NextProgram {
        after: u32,
        answer: Sender<io::Result<Option<u32>>>,
    },
    #[cfg(feature = "plugins")]
    ProgramRuns {
        id: u32,
        answer: Sender<io::Result<CountedRuns>>,
    },
}

/// Connection to an opener, which ends with it.
#[derive(Debug)]
pub(crate) struct Opener {
    questions: Sender<Question>,
    /// Ids of tracepoints, by category and name, that were asked for before they are needed.
    ahead: HashMap<(String, String), Receiver<Result<u64, TracefsError>>>,
}

thread_local! {
    /// The opener of this thread; none if the thread may open files itself.
    static OPENER: RefCell<Option<Opener>> = const { RefCell::new(None) };
}

#[cfg_attr(not(feature = "plugins"), expect(dead_code, reason = "only plugins' threads are confined"))]
impl Opener {
    /// Starts an opener with the rights of the calling thread. None if it would answer no question.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(crate) fn start(openable: Openable) -> io::Result<Option<Opener>> {
        if openable.is_nothing() {
            return Ok(None);
        }
        let (questions, asked) = mpsc::channel::<Question>();
        let serve = move || asked.into_iter().for_each(|question| question.serve(&openable));
        thread::Builder::new().name("opener".into()).spawn(serve)?;
        Ok(Some(Opener { questions, ahead: HashMap::new() }))
    }

    /// Asks for the id of a tracepoint that is needed later: those of an object are needed one after another.
    pub(crate) fn ask_ahead(&mut self, (category, event): (String, String)) {
        let (answer, answered) = mpsc::channel();
        let question = Question::Tracepoint { category: category.clone(), event: event.clone(), answer };
        // An opener that is gone is noticed by the question that needs it.
        if self.questions.send(question).is_ok() {
            self.ahead.insert((category, event), answered);
        }
    }

    /// Makes functions on the calling thread ask this opener.
    pub(crate) fn serve_this_thread(self) {
        OPENER.set(Some(self));
    }
}

/// Asks the opener of the calling thread. None if there is none, or if it has ended.
fn ask<R>(question: impl FnOnce(Sender<R>) -> Question) -> Option<R> {
    let questions = OPENER.with_borrow(|opener| opener.as_ref().map(|opener| opener.questions.clone()))?;
    let (answer, answered) = mpsc::channel();
    questions.send(question(answer)).ok()?;
    answered.recv().ok()
}

/// Returns the id of a tracepoint: see [`tracefs::tracepoint_id`].
pub(crate) fn tracepoint_id(category: &str, event: &str) -> Option<Result<u64, TracefsError>> {
    let tracepoint = (category.to_owned(), event.to_owned());
    let ahead =
        OPENER.with_borrow_mut(|opener| opener.as_mut().and_then(|one| one.ahead.remove(&tracepoint)));
    if let Some(found) = ahead.and_then(|answered| answered.recv().ok()) {
        return Some(found);
    }
    let (category, event) = tracepoint;
    ask(|answer| Question::Tracepoint { category, event, answer })
}

/// Returns the names of all tracepoints: see [`tracefs::tracepoints`].
pub(crate) fn tracepoints() -> Option<Result<Vec<String>, TracefsError>> {
    ask(|answer| Question::Tracepoints { answer })
}

/// Opens a program or library: see [`RegularFile::program`].
pub(crate) fn program(path: &Path) -> Option<Result<RegularFile, NoProgram>> {
    let path = path.to_owned();
    ask(|answer| Question::Program { path, answer })
}

/// Returns the path of a process's executable.
///
/// # Errors
/// Those of readlink(2).
pub(crate) fn executable(pid: i32) -> io::Result<PathBuf> {
    ask(|answer| Question::Executable { pid, answer }).unwrap_or_else(|| read_executable(pid))
}

/// Opens a pinned map: see [`pin::open_map`].
///
/// # Errors
/// [`BpfError::Kernel`].
#[cfg(feature = "plugins")]
pub(crate) fn pinned(path: &Path) -> Result<Option<MapHandle>, BpfError> {
    let asked = path.to_owned();
    ask(|answer| Question::Pinned { path: asked, answer }).unwrap_or_else(|| pin::open_map(path))
}

/// Pins a map: see [`pin::create`].
///
/// # Errors
/// [`BpfError::Kernel`].
#[cfg(feature = "plugins")]
pub(crate) fn pin(path: &Path, map: BorrowedFd<'_>) -> Result<bool, BpfError> {
    let asked = map.try_clone_to_owned().ok().and_then(|map| {
        let path = path.to_owned();
        ask(|answer| Question::Pin { path, map, answer })
    });
    asked.unwrap_or_else(|| pin::create(path, map))
}

/// Has the kernel count runs of programs: see [`Statistics::enable`].
///
/// # Errors
/// Those of bpf(2).
#[cfg(feature = "plugins")]
pub(crate) fn statistics() -> io::Result<Statistics> {
    ask(|answer| Question::Statistics { answer }).unwrap_or_else(Statistics::enable)
}

/// Returns the id of the next BPF program: see [`statistics::next_program`].
///
/// # Errors
/// Those of bpf(2).
#[cfg(feature = "plugins")]
pub(crate) fn next_program(after: u32) -> io::Result<Option<u32>> {
    let answer = ask(|answer| Question::NextProgram { after, answer });
    answer.unwrap_or_else(|| statistics::next_program(after))
}

/// Returns what a BPF program has cost: see [`statistics::counted`].
///
/// # Errors
/// Those of bpf(2).
#[cfg(feature = "plugins")]
pub(crate) fn program_runs(id: u32) -> io::Result<CountedRuns> {
    ask(|answer| Question::ProgramRuns { id, answer }).unwrap_or_else(|| statistics::counted(id))
}

fn read_executable(pid: i32) -> io::Result<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe"))
}

impl Question {
    /// Answers if the plugin may ask this; drops the sender otherwise. An asker that is gone needs no answer.
    fn serve(self, openable: &Openable) {
        match self {
            Question::Tracepoint { category, event, answer } if openable.tracepoints => {
                let _ = answer.send(tracefs::read_tracepoint_id(&category, &event));
            }
            Question::Tracepoints { answer } if openable.tracepoints => {
                let _ = answer.send(tracefs::read_tracepoints());
            }
            Question::Program { path, answer } if openable.programs => {
                let _ = answer.send(RegularFile::open_program(&path));
            }
            Question::Executable { pid, answer } if openable.processes => {
                let _ = answer.send(read_executable(pid));
            }
            #[cfg(feature = "plugins")]
            Question::Pinned { path, answer } if openable.pins.contains(&path) => {
                let _ = answer.send(pin::open_map(&path));
            }
            #[cfg(feature = "plugins")]
            Question::Pin { path, map, answer } if openable.pins.contains(&path) => {
                let _ = answer.send(pin::create(&path, map.as_fd()));
            }
            #[cfg(feature = "plugins")]
            Question::Statistics { answer } if openable.loaded_programs => {
                let _ = answer.send(Statistics::enable());
            }
            #[cfg(feature = "plugins")]
            Question::NextProgram { after, answer } if openable.loaded_programs => {
                let _ = answer.send(statistics::next_program(after));
            }
            #[cfg(feature = "plugins")]
            Question::ProgramRuns { id, answer } if openable.loaded_programs => {
                let _ = answer.send(statistics::counted(id));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::FileError;

    /// Asks on a thread with an opener for this.
    fn with<R: Send + 'static>(openable: Openable, act: impl FnOnce() -> R + Send + 'static) -> R {
        let mut opener = Opener::start(openable).expect("a thread").expect("it answers something");
        opener.ask_ahead(("sched".into(), "sched_switch".into()));
        let asker = thread::spawn(move || {
            opener.serve_this_thread();
            act()
        });
        asker.join().expect("it does not panic")
    }

    fn own_executable() -> Option<io::Result<PathBuf>> {
        let pid = i32::try_from(std::process::id()).expect("pids are small");
        ask(|answer| Question::Executable { pid, answer })
    }

    #[test]
    fn only_what_a_plugin_may_need_is_opened_for_it() {
        let programs = || Openable { programs: true, ..Openable::default() };
        let own = with(programs(), || program(Path::new("/proc/self/exe"))).expect("it answers");
        assert!(own.is_ok(), "{own:?}");
        for path in ["/etc/passwd", "/proc/1/mem", "/dev/null", "/"] {
            let refused = with(programs(), move || program(Path::new(path))).expect("it answers");
            let error = refused.expect_err("no program").error;
            let is_expected =
                matches!(error, FileError::NotElf | FileError::OfKernel | FileError::NotRegular(_));
            assert!(is_expected, "{path}: {error:?}");
        }
        assert!(with(programs(), own_executable).is_none());
        assert!(with(programs(), || tracepoint_id("sched", "sched_switch")).is_none());
        let processes = || Openable { processes: true, ..Openable::default() };
        assert!(with(processes(), own_executable).expect("it answers").is_ok());
        assert!(with(processes(), || program(Path::new("/proc/self/exe"))).is_none());
    }

    #[cfg(feature = "plugins")]
    #[test]
    fn pins_are_opened_by_exactly_their_paths() {
        let pins = vec!["/sys/fs/bpf/ks-no-such-project/maps/a".into()];
        with(Openable { pins, ..Openable::default() }, || {
            let asked = |path: &str| {
                let path = PathBuf::from(path);
                ask(|answer| Question::Pinned { path, answer })
            };
            assert!(matches!(asked("/sys/fs/bpf/ks-no-such-project/maps/a"), Some(Ok(None))));
            for path in ["/sys/fs/bpf/ks-no-such-project/maps/b", "/sys/fs/bpf", "/etc/passwd"] {
                assert!(asked(path).is_none(), "{path}");
            }
        });
    }

    #[test]
    fn nothing_to_open_takes_no_thread() {
        assert!(Opener::start(Openable::default()).expect("no thread").is_none());
        assert!(own_executable().is_none(), "a thread without an opener opens files itself");
    }
}
