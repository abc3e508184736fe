//! Measured plugins: on the calling thread, so that `pid: 0` observes the thread that also runs the baseline; or as
//! `ks-host` runs them, confined, on a thread or in a process of their own.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use ks_compiler::diag::render;
use ks_compiler::pipeline::{self, Options, Target};
use ks_host::plugin::{Outcome, Plugin};
use ks_host::worker::WorkerProgram;
use ks_host::{Host, PreparedPlugin, RunOptions};

use crate::answer::Answer;

/// A measured plugin. Each run is a new instance.
pub struct Subject {
    name: &'static str,
    prepared: PreparedPlugin,
    isolation: Isolation,
}

/// How a plugin is isolated from the bench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// On the calling thread, which is not confined.
    None,
    /// On a confined thread of its own, as `ks-host --isolation thread` runs it.
    Thread,
    /// In a worker, as `ks-host --isolation process` runs it. The bench's `main` begins with
    /// [`ks_host::worker::serve_if_asked`].
    Process,
}

impl Subject {
    /// Compiles a script to a plugin, and its component to machine code.
    ///
    /// # Errors
    /// If the script has errors, or the engine does not start.
    pub fn of_script(name: &'static str, text: &str) -> Result<Subject> {
        Subject::of_script_in(Isolation::None, name, text)
    }

    /// As [`Subject::of_script`], for runs that are isolated so.
    ///
    /// # Errors
    /// As [`Subject::of_script`].
    pub fn of_script_in(isolation: Isolation, name: &'static str, text: &str) -> Result<Subject> {
        let mut checked = pipeline::parse(name, text.as_bytes(), Options::new("bench"))?.check();
        let Ok(built) = checked.build(Target::default()) else {
            let sorted = checked.diagnostics.sorted();
            let errors: Vec<_> = sorted
                .iter()
                .map(|one| render::render(one, &checked.sources, render::Style::Plain))
                .collect();
            bail!("{}", errors.join("\n"));
        };
        Subject::of_plugin_in(isolation, name, built.plugin)
    }

    /// Compiles the component of a finished plugin to machine code.
    ///
    /// # Errors
    /// If the bytes are not a plugin, or the engine does not start.
    pub fn of_plugin(name: &'static str, bytes: Vec<u8>) -> Result<Subject> {
        Subject::of_plugin_in(Isolation::None, name, bytes)
    }

    fn of_plugin_in(isolation: Isolation, name: &'static str, bytes: Vec<u8>) -> Result<Subject> {
        let host = match isolation {
            Isolation::Process => Host::of_workers(WorkerProgram::of_this_program()),
            Isolation::None | Isolation::Thread => Host::new()?,
        };
        Ok(Subject { name, prepared: host.prepare(&Plugin::from_bytes(bytes)?)?, isolation })
    }

    /// Runs the plugin to its end with these arguments, and parses the answer that it printed: the
    /// nanoseconds of its loop, the iterations with a right result, the members and the time enabled of the
    /// group.
    ///
    /// # Errors
    /// If it ended with another code than 0 or printed anything else; the error contains its standard error.
    pub fn run(&self, arguments: &[String]) -> Result<Answer> {
        self.run_with(arguments, |_| ())
    }

    /// Runs the plugin like [`Subject::run`], with options that `change` adjusts.
    ///
    /// # Errors
    /// As [`Subject::run`].
    pub fn run_with(&self, arguments: &[String], change: impl FnOnce(&mut RunOptions)) -> Result<Answer> {
        let (stdout, stderr) = (Captured::default(), Captured::default());
        let mut options = RunOptions::new(self.name);
        options.arguments = arguments.to_vec();
        options.stdout = Box::new(stdout.clone());
        options.stderr = Box::new(stderr.clone());
        change(&mut options);
        let outcome = match self.isolation {
            Isolation::None => {
                let outcome = self.prepared.instantiate(options).map(|mut plugin| plugin.run());
                outcome.unwrap_or_else(|ended| ended)
            }
            Isolation::Thread | Isolation::Process => {
                self.prepared.run(RunOptions { confine: true, ..options })
            }
        };
        let said = stderr.text();
        ensure!(outcome == Outcome::Returned(0) && said.is_empty(), "{}: {outcome:?}\n{said}", self.name);
        let printed = stdout.text();
        parse(&printed).with_context(|| format!("{}: printed {printed:?}", self.name))
    }
}

/// Parses the four numbers of an answer.
///
/// # Errors
/// If the text is anything else.
pub fn parse(printed: &str) -> Result<Answer> {
    let numbers = printed.split_whitespace().map(str::parse).collect::<Result<Vec<u64>, _>>()?;
    let [elapsed, right, members, time_enabled] = numbers[..] else {
        return Err(anyhow!("expected 4 numbers"));
    };
    let members = u32::try_from(members)?;
    Ok(Answer { elapsed: Duration::from_nanos(elapsed), right, members, time_enabled })
}

/// A shared buffer of a plugin's output.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_four_numbers() {
        let answer = parse("900 3 4 1000\n").unwrap();
        assert_eq!((answer.elapsed, answer.right), (Duration::from_nanos(900), 3));
        assert_eq!((answer.members, answer.time_enabled), (4, 1000));
        assert!(parse("900 3 4").is_err());
        assert!(parse("900 3 -4 1000").is_err());
    }
}
