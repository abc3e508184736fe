//! Who holds an interface that takes one xdp program only.
//!
//! A plugin's thread has no rights to look at programs and processes of others. So a thread that has them is started before
//! the plugin's one drops its own, and is asked when an attachment is refused.

use std::ffi::CStr;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, SystemTime};

use nix::errno::Errno;
use nix::time::{ClockId, clock_gettime};

use super::sys;

/// Most processes that are named.
const MOST_HOLDERS: usize = 4;

/// Most questions that are answered in a run: each looks at the descriptors of every process, with all rights.
const MAX_ANSWERS: usize = 8;

/// The program that holds an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// The kernel's number of it.
    pub program: u32,
    /// Its name, of which the kernel keeps 15 bytes; none if the kernel does not tell, or it has none.
    pub name: Option<String>,
    /// When it was loaded.
    pub loaded: Option<SystemTime>,
    /// Processes that hold it or its link open: their numbers and names.
    pub holders: Vec<(u32, String)>,
}

/// Finds who holds an interface, with the rights of the thread that started it.
#[derive(Debug)]
pub(super) struct OccupantFinder {
    questions: Sender<Question>,
}

/// Whose is the interface of this number?
#[derive(Debug)]
struct Question {
    interface: i32,
    answer: Sender<Option<Occupant>>,
}

impl OccupantFinder {
    /// Starts the thread. It ends when this is dropped, or has answered as often as it does.
    ///
    /// # Errors
    /// If the system has no thread to spare.
    pub(super) fn start() -> Result<OccupantFinder, Errno> {
        let (questions, asked) = mpsc::channel();
        let answer = move || {
            for Question { interface, answer } in asked.into_iter().take(MAX_ANSWERS) {
                // Nobody listens any more: nobody misses it.
                let _ = answer.send(of_interface(interface));
            }
        };
        let started = thread::Builder::new().name("xdp holder".into()).spawn(answer);
        started.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
        Ok(OccupantFinder { questions })
    }

    /// The xdp program of an interface; none if it has none, nobody may know, or the run has asked too often.
    pub(super) fn find(&self, interface: i32) -> Option<Occupant> {
        let (answer, answered) = mpsc::channel();
        self.questions.send(Question { interface, answer }).ok()?;
        answered.recv().ok()?
    }
}

fn of_interface(interface: i32) -> Option<Occupant> {
    let program = sys::xdp_program(interface).ok()?;
    let info = sys::program_by_id(program).and_then(|program| sys::program_info(program.as_fd())).ok();
    let name = info.and_then(|info| {
        let bytes = info.name.map(|byte| byte as u8);
        let name = CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().into_owned();
        (!name.is_empty()).then_some(name)
    });
    let loaded = info.and_then(|info| {
        let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?);
        SystemTime::now().checked_sub(now.saturating_sub(Duration::from_nanos(info.load_time)))
    });
    Some(Occupant { program, name, loaded, holders: holders(program) })
}

/// The processes that have a descriptor of a program or of a link of it.
fn holders(program: u32) -> Vec<(u32, String)> {
    let Ok(listed) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| holds(&Path::new("/proc").join(pid.to_string()), program);
    let named = |pid: u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        (pid, name.trim_end().to_owned())
    };
    pids.filter(holds).map(named).take(MOST_HOLDERS).collect()
}

fn holds(process: &Path, program: u32) -> bool {
    let Ok(listed) = fs::read_dir(process.join("fd")) else { return false };
    let line = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?;
        // `anon_inode:bpf-prog`, `anon_inode:bpf_link`; links of older kernels are `anon_inode:bpf-link`.
        target.to_str()?.strip_prefix("anon_inode:")?.strip_prefix("bpf")?;
        let facts = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).ok()?;
        facts.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok())
    };
    listed.flatten().filter_map(line).any(|id| id == program)
}
