//! The commands of this build, as a user runs them.

use std::ffi::OsString;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Returns the path of `ks` or `ks-host` of this build, two folders above the bench.
///
/// # Errors
/// If it is not built.
pub fn path(name: &str) -> Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let folder = bench.parent().and_then(Path::parent).context("a bench lies below the target folder")?;
    let command = folder.join(name);
    ensure!(command.exists(), "{} is not built: run `make bench`", command.display());
    Ok(command)
}

/// How long the kernel is busy with what a command before has left: maps and programs are freed after its end, and a
/// tracepoint that was left waits for a grace period when it is attached to again.
const UNTIL_QUIET: Duration = Duration::from_millis(30);

/// Runs a command that prints `attached` once its events are, and returns the time until then; none if it is not
/// installed.
///
/// # Errors
/// If it fails, or ends without that line.
pub fn until_attached(name: &str, words: &[OsString]) -> Result<Option<Duration>> {
    let (program, arguments) = words.split_first().context("a command has a name")?;
    std::thread::sleep(UNTIL_QUIET);
    let began = Instant::now();
    let mut command = Command::new(program);
    let pipes = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = pipes.spawn();
    let mut child = match child {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        child => child.with_context(|| format!("cannot start {name}"))?,
    };
    let mut stdout = child.stdout.take().context("it was piped")?;
    // bpftrace first prints how many probes it attaches.
    let mut printed = Vec::new();
    while !String::from_utf8_lossy(&printed).contains("attached") {
        let mut byte = [0];
        ensure!(stdout.read(&mut byte)? == 1, "{name} ended without its line");
        printed.push(byte[0]);
    }
    let time = began.elapsed();
    std::io::copy(&mut stdout, &mut std::io::sink())?;
    // Standard error matters only if the command fails: bpftrace warns wherever a limit may not be raised.
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name} ended with {}: {said}", output.status);
    Ok(Some(time))
}
