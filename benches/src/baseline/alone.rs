//! `read(2)` of a group in a process of its own, which has one thread: the kernel then looks descriptors up without taking
//! a reference. With the filter of system calls that a worker has, or without.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::perf::{Group, Observed};
use crate::answer::Answer;
use crate::plugin;

/// The first argument of such a process: then the members, the iterations, and whether it is filtered.
const ARGUMENT: &str = "--read-alone";

/// Reads and returns true, if this process was started for that.
///
/// # Errors
/// If the kernel refuses an event or the filter, or a read fails.
pub fn serve_if_asked() -> Result<bool> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [argument, members, iterations, filtered] = &arguments[..] else { return Ok(false) };
    if argument != ARGUMENT {
        return Ok(false);
    }
    let mut group = Group::open(members.parse()?, Observed::OwnTask)?;
    if filtered.parse()? {
        ks_host::worker::confine_like_a_worker()?;
    }
    let Answer { elapsed, right, members, time_enabled } = group.measure(iterations.parse()?)?;
    println!("{} {right} {members} {time_enabled}", elapsed.as_nanos());
    Ok(true)
}

/// Reads a group of the own task this many times in such a process.
///
/// # Errors
/// If the process fails.
pub fn measure(members: u32, iterations: u64, filtered: bool) -> Result<Answer> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([ARGUMENT, &members.to_string(), &iterations.to_string(), &filtered.to_string()]);
    let output = command.output().context("cannot start this program again")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    plugin::parse(&String::from_utf8_lossy(&output.stdout))
}
