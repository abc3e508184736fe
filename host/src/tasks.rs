//! Tasks of this machine and their names, as procfs lists them.

use std::fs;

use crate::{killed, procfs};

/// Bytes of a command name that the kernel keeps (`TASK_COMM_LEN` of `include/linux/sched.h`, without the
/// terminator).
const COMM_BYTES: usize = 15;

/// Returns the lowest process id whose command name is `name`, cut to the kernel's length. Processes that end
/// while the list is read are not found.
pub fn pid_of(name: &[u8]) -> Option<i32> {
    if !procfs::is_own() {
        return None;
    }
    let name = &name[..name.len().min(COMM_BYTES)];
    let entries = fs::read_dir("/proc").ok()?;
    let entries = entries.take_while(|_| !killed::is_killed());
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|pid| comm_of(*pid).as_deref() == Some(name)).min()
}

/// Returns the command name of a process or thread; none if no task has this id.
pub fn comm_of(pid: i32) -> Option<Vec<u8>> {
    // 0 is not a task of its own, and a negative number would form no valid path.
    if pid <= 0 || !procfs::is_own() {
        return None;
    }
    let mut comm = fs::read(format!("/proc/{pid}/comm")).ok()?;
    comm.pop_if(|last| *last == b'\n');
    Some(comm)
}

/// Returns the lowest id above `after` of the threads of a process; none if there is none, or no such process.
pub fn next_thread(process: i32, after: i32) -> Option<i32> {
    if process <= 0 || !procfs::is_own() {
        return None;
    }
    let entries = fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let entries = entries.take_while(|_| !killed::is_killed());
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| *id > after).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_listed_in_ascending_order() {
        let own = i32::try_from(std::process::id()).expect("pids are small");
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let (says, said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            says.send(nix::unistd::gettid().as_raw()).expect("somebody waits");
            // Ends when the sender is dropped.
            let _ = wait.recv();
        });
        let other = said.recv().expect("it says its id");
        let listed: Vec<i32> =
            std::iter::successors(next_thread(own, 0), |last| next_thread(own, *last)).collect();
        assert!(listed.is_sorted() && listed.contains(&own) && listed.contains(&other), "{listed:?}");
        drop(release);
        thread.join().expect("it ends");
        assert_eq!([next_thread(0, 0), next_thread(-1, 0), next_thread(own, i32::MAX)], [None; 3]);
    }

    #[test]
    fn a_process_is_found_by_its_own_name() {
        let own = i32::try_from(std::process::id()).expect("pids are small");
        let comm = comm_of(own).expect("this process exists");
        assert!(!comm.is_empty() && comm.len() <= COMM_BYTES);
        let found = pid_of(&comm).expect("this process has that name");
        assert!(found <= own);
        assert_eq!(comm_of(found), Some(comm.clone()));
        // Names are cut like the kernel cuts them.
        let mut long = comm.clone();
        long.resize(COMM_BYTES, b'_');
        assert!(comm.len() < COMM_BYTES || pid_of(&[&long[..], b"tail"].concat()).is_some());
        assert_eq!((pid_of(b"no task has this"), pid_of(b"")), (None, None));
    }

    #[test]
    fn numbers_without_a_task_have_no_name() {
        assert_eq!([0, -1, i32::MIN, i32::MAX].map(comm_of), [None, None, None, None]);
    }
}
