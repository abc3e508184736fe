//! Identifies the program that holds an interface, which takes only one xdp program.
//!
//! A plugin's thread lacks the privileges to inspect programs and processes of others. A helper thread that
//! has them is started before the plugin's thread drops its own; it is queried when an attachment fails.

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

/// Upper limit of processes in an answer.
const MOST_HOLDERS: usize = 4;

/// Upper limit of answers per run: each reads the descriptors of every process, with all privileges.
const MAX_ANSWERS: usize = 8;

/// The xdp program that holds an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupant {
    /// Id of the program.
    pub program: u32,
    /// Name of the program, truncated to 15 bytes by the kernel. None if it is empty or unavailable.
    pub name: Option<String>,
    /// Time of the load; none if unavailable.
    pub loaded: Option<SystemTime>,
    /// Processes with a descriptor of the program or of a link to it: pids and names, at most 4.
    pub holders: Vec<(u32, String)>,
}

/// Handle to the helper thread. Its queries run with the privileges of the thread that started it.
#[derive(Debug)]
pub(super) struct OccupantFinder {
    questions: Sender<Question>,
}

/// Asks for the program at an interface, given by its index.
#[derive(Debug)]
struct Question {
    interface: i32,
    answer: Sender<Option<Occupant>>,
}

impl OccupantFinder {
    /// Starts the thread. It ends when this value is dropped, or after 8 answers.
    ///
    /// # Errors
    /// If the system cannot create a thread.
    pub(super) fn start() -> Result<OccupantFinder, Errno> {
        let (questions, asked) = mpsc::channel();
        let answer = move || {
            for Question { interface, answer } in asked.into_iter().take(MAX_ANSWERS) {
                // A failed send means that the receiver is gone and needs no answer.
                let _ = answer.send(of_interface(interface));
            }
        };
        let started = thread::Builder::new().name("xdp holder".into()).spawn(answer);
        started.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))?;
        Ok(OccupantFinder { questions })
    }

    /// Returns the xdp program of an interface. None if there is none, it cannot be determined, or the run
    /// has used up its answers.
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

/// Returns processes that hold a descriptor of a program or of a link to it.
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
        // `anon_inode:bpf-prog`, `anon_inode:bpf_link`; on older kernels `anon_inode:bpf-link`.
        target.to_str()?.strip_prefix("anon_inode:")?.strip_prefix("bpf")?;
        let facts = fs::read_to_string(process.join("fdinfo").join(entry.file_name())).ok()?;
        facts.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse::<u32>().ok())
    };
    listed.flatten().filter_map(line).any(|id| id == program)
}
