//! `ks-host test PLUGIN`: runs the tests of a plugin sequentially, each in an instance of its own.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ks_host::naming::NamingProcess;
use ks_host::plugin::Outcome;
use ks_host::policy::{Class, Limit, Policy};
use ks_host::{PreparedPlugin, RunOptions};
use ks_wit::command_output::{shown, write_json_line, write_lines, write_stderr};
use nix::sched::{CloneFlags, unshare};
use serde::Serialize;

use crate::apart::{Compiling, Isolation};
use crate::output::printable;
use crate::{EntryPoint, apart, cache, not_a_plugin, policy, progress, read, run};

/// The loopback interface, which every network namespace has.
const LOOPBACK: &str = "lo";

/// Arguments of `ks-host test`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A plugin built by `ks build --test`, or a script (`.ks`).
    plugin: PathBuf,
    /// Runs only the tests whose names contain this text.
    filter: Option<String>,
    /// Writes JSON: one object a test, with `test`, `line`, `passed`, `reason`, `time_ns`, `stdout` and
    /// `stderr`.
    #[arg(long)]
    json: bool,
    /// Allows the tests what this file permits (TOML; `ks-host inspect` writes one), and nothing else.
    /// Without it they may observe, and test-run programs on packets of their own.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Also allows this: `xdp=eth0`, `pin=counters/*`, `helper=send_signal`, `struct_ops`; `all` is
    /// everything. May be given several times.
    #[arg(long, value_name = "CLASS[=TARGET]")]
    allow: Vec<String>,
    #[arg(long, value_name = "NAME=NUMBER", help = policy::limit_help("test"))]
    limit: Vec<String>,
    /// Ends a test after this time, seconds or `300ms`, `2m`; it then counts as failed.
    #[arg(long, value_name = "TIME", value_parser = run::time, default_value = "60")]
    timeout: Duration,
}

/// The result of one test.
#[derive(Serialize)]
struct Result<'a> {
    test: &'a str,
    /// The line of the test in the script; none if the plugin's compiler did not say.
    line: Option<u32>,
    passed: bool,
    /// Why it failed; none if it passed.
    reason: Option<String>,
    time_ns: u64,
    stdout: String,
    stderr: String,
}

/// Runs the tests. The exit code is 0 if all passed, 1 if one failed or none matches, 127 if the file holds
/// no tests.
pub(crate) fn test(args: &Args) -> anyhow::Result<u8> {
    let mut testing = Policy::testing();
    // Before any thread starts: threads inherit the namespace of the thread that starts them.
    let is_apart = unshare(CloneFlags::CLONE_NEWNET).is_ok();
    if is_apart {
        // The new namespace contains nothing but the loopback interface.
        for class in [Class::Xdp, Class::Tc] {
            testing.allow(class, LOOPBACK)?;
        }
    }
    let policy = policy::of(args.policy.as_deref(), testing, &args.allow, &args.limit)?;
    let plugin = match read(&args.plugin, EntryPoint::Tests, Compiling::uncached(Isolation::Thread)) {
        Ok(plugin) => plugin,
        Err(code) => return Ok(code),
    };
    let name = plugin.project().map_or_else(|| shown(&args.plugin), printable);
    if !is_apart && !plugin.objects().is_empty() {
        write_stderr(format_args!(
            "ks-host: the tests see this machine's network: making a network namespace takes CAP_SYS_ADMIN"
        ));
    }
    let host = apart::host(None, policy.compile_time(), policy.limit(Limit::CompileBytes));
    let host = cache::use_in(host, None);
    let prepared = match progress::during(&format!("compiling {name}"), || host.prepare(&plugin)) {
        Ok(prepared) => prepared,
        Err(error) => return Ok(not_a_plugin(&args.plugin, &error)),
    };
    let all = match list(&prepared, &name, args.timeout, &policy) {
        Ok(all) => all,
        Err(reason) => {
            write_stderr(format_args!("ks-host: {name} does not say what tests it has: {reason}"));
            return Ok(crate::NOT_A_PLUGIN);
        }
    };
    if all.is_empty() {
        write_stderr(format_args!(
            "ks-host: {name} holds no tests: compile the script with `ks build --test`"
        ));
        return Ok(crate::NOT_A_PLUGIN);
    }
    let wanted = |test: &&String| args.filter.as_deref().is_none_or(|filter| test.contains(filter));
    let tests: Vec<_> = all.iter().filter(wanted).collect();
    if let (Some(filter), []) = (&args.filter, &tests[..]) {
        let all = all.iter().map(|test| printable(test)).collect::<Vec<_>>().join(", ");
        let filter = printable(filter);
        write_stderr(format_args!(
            "ks-host: no test of {name} has `{filter}` in its name\n  do: its tests are {all}"
        ));
        return Ok(1);
    }
    if !args.json {
        write_lines(&format!("running {} of {name}\n", count(tests.len(), "test")))?;
    }
    let (began, mut failed) = (Instant::now(), 0);
    for test in &tests {
        let line = plugin.tests().find(|one| one.name == **test).map(|one| one.line);
        let result = one(&prepared, test, line, args.timeout, &policy);
        failed += usize::from(!result.passed);
        if args.json { write_json_line(&result)? } else { write_lines(&text(&result))? }
    }
    if !args.json {
        let passed = tests.len() - failed;
        let time = milliseconds(began.elapsed());
        write_lines(&format!("{passed} passed, {failed} failed, in {time}\n"))?;
    }
    Ok(u8::from(failed > 0))
}

/// Asks the plugin for its tests.
fn list(
    prepared: &PreparedPlugin,
    name: &str,
    timeout: Duration,
    policy: &Policy,
) -> std::result::Result<Vec<String>, String> {
    let options = RunOptions {
        stdout: Box::new(Captured::default()),
        stderr: Box::new(Captured::default()),
        timeout: Some(timeout),
        policy: policy.clone(),
        ..RunOptions::new(name)
    };
    prepared.tests(options).map_err(|outcome| reason(outcome, timeout).unwrap_or_default())
}

fn one<'a>(
    prepared: &PreparedPlugin,
    test: &'a str,
    line: Option<u32>,
    timeout: Duration,
    policy: &Policy,
) -> Result<'a> {
    let (stdout, stderr) = (Captured::default(), Captured::default());
    let options = RunOptions {
        stdout: Box::new(stdout.clone()),
        stderr: Box::new(stderr.clone()),
        timeout: Some(timeout),
        policy: policy.clone(),
        naming: Some(NamingProcess::of_this_program()),
        ..RunOptions::new(test)
    };
    let began = Instant::now();
    let outcome = prepared.run_test(test, options);
    let time = began.elapsed();
    let reason = reason(outcome, timeout);
    Result {
        test,
        line,
        passed: reason.is_none(),
        reason,
        time_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        stdout: stdout.text(),
        stderr: stderr.text(),
    }
}

/// Returns why a plugin did not end well.
fn reason(outcome: Outcome, timeout: Duration) -> Option<String> {
    match outcome {
        Outcome::Returned(0) => None,
        Outcome::Returned(code) => Some(format!("it returned {code}")),
        Outcome::Exited(code) => Some(format!("it called exit({code})")),
        Outcome::Trapped(reason) | Outcome::Failed(reason) | Outcome::Denied(reason) => Some(reason),
        Outcome::TimedOut => Some(format!("it ran longer than {} s", timeout.as_secs_f64())),
        Outcome::Killed => Some("it was ended".into()),
    }
}

/// Formats one line for a test that passed; for a failed test also its reason and its output.
fn text(result: &Result<'_>) -> String {
    let time = milliseconds(Duration::from_nanos(result.time_ns));
    let test = printable(result.test);
    let Some(reason) = &result.reason else { return format!("test {test} ... ok ({time})\n") };
    let at = result.line.map(|line| format!(" at line {line}")).unwrap_or_default();
    let mut text = format!("test {test} ... FAILED{at} ({time})\n");
    for part in [reason, &result.stderr, &result.stdout] {
        part.lines().for_each(|line| text.push_str(&format!("    {}\n", printable(line))));
    }
    text
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Most bytes that are kept of each stream of a test; the rest is dropped. Guards the host's memory: a test
/// may print for a minute.
const MAX_CAPTURED: usize = 4 << 20;

/// Captured output of a test.
#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Captured {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }
}

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut captured = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_CAPTURED.saturating_sub(captured.len());
        captured.extend_from_slice(&bytes[..bytes.len().min(room)]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
