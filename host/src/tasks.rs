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

#[cfg(test)]
mod tests {
    use super::*;

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
