//! `ks-host PLUGIN`: runs a plugin in the foreground.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use ks_host::plugin::{Outcome, StopHandle};
use ks_host::{Host, RunOptions};

use crate::{not_a_plugin, read_plugin, signals};

/// What to run, and how.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The plugin file, or a script (`.ks`).
    plugin: PathBuf,
    /// Asks the plugin to stop after so many seconds; the exit code is then 124.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// The plugin's words.
    #[arg(last = true, value_name = "WORDS")]
    words: Vec<String>,
}

/// Runs the plugin and gives the exit code.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    // Before any thread starts: all threads inherit the blocked signals.
    let stop = StopHandle::new();
    signals::stop_on_signals(stop.clone()).context("cannot handle signals")?;
    let plugin = match read_plugin(&args.plugin) {
        Ok(plugin) => plugin,
        Err(code) => return Ok(code),
    };
    let prepared = match Host::new()?.prepare(&plugin) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(not_a_plugin(&args.plugin, &error)),
    };
    let name = name_of(&args.plugin);
    let options =
        RunOptions { words: args.words, stop, timeout: args.timeout, ..RunOptions::new(name.clone()) };
    let outcome = prepared.run(options);
    match &outcome {
        Outcome::Trapped(reason) => eprintln!("{name}: {reason}"),
        Outcome::Failed(reason) => eprintln!("ks-host: {reason}"),
        Outcome::TimedOut => eprintln!("{name}: stopped after the time limit"),
        Outcome::Killed => eprintln!("{name}: ended"),
        Outcome::Returned(_) | Outcome::Exited(_) => {}
    }
    Ok(outcome.exit_code())
}

/// The file name, which messages begin with.
fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A positive number of seconds, with a fraction or without.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    let duration = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if duration.is_zero() { Err("must be more than 0".into()) } else { Ok(duration) }
}
