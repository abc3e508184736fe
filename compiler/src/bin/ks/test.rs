//! `ks test`: compiles the `@test` functions and passes them to `ks-host test`.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result};
use ks_compiler::pipeline::Target;
use ks_wit::command_output::shown;
use ks_wit::section::Arch;

use crate::files::ScriptArgs;
use crate::report;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    script: ScriptArgs,
    /// Run only the tests whose names contain this text
    filter: Option<String>,
    /// The ks-host that runs the tests; by default the one in the folder of this command, else the one in
    /// PATH
    #[arg(long, value_name = "FILE")]
    host: Option<PathBuf>,
    /// Allow the tests only what this policy file permits, as `ks-host test` does
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Also allow the tests this: `xdp=eth0`, `pin=counters/*`, `struct_ops`; `all` is everything. May be
    /// given several times
    #[arg(long, value_name = "CLASS[=TARGET]")]
    allow: Vec<String>,
    /// Limit a resource of each test; `ks-host test --help` lists the names. May be given several times
    #[arg(long, value_name = "NAME=NUMBER")]
    limit: Vec<String>,
    /// Stop a test after this time, in seconds or as `300ms` or `2m`; it then counts as failed
    #[arg(long, value_name = "TIME")]
    timeout: Option<String>,
    #[command(flatten)]
    report: report::ReportArgs,
}

/// Runs the tests. Returns exit code 0 if all passed; 1 if one failed or the script has errors.
pub fn run(args: Args) -> Result<ExitCode> {
    let mut checked = args.script.tests().parse()?.check();
    let built = checked.build(Arch::HOST.map_or(Target::default(), Target::from).for_users());
    args.report.show_checked(&checked, args.script.options.verbose)?;
    let Ok(built) = built else { return Ok(report::failure(&checked.diagnostics).into()) };
    let host = args.host.unwrap_or_else(sibling_host);
    // The plugin goes through a pipe, so no file remains, however this ends.
    let mut command = Command::new(&host);
    command.args(["test", "/dev/stdin"]).args(&args.filter).stdin(Stdio::piped());
    if args.report.is_json() {
        command.arg("--json");
    }
    // The host reads these options, and reports errors in them.
    if let Some(policy) = &args.policy {
        command.arg("--policy").arg(policy);
    }
    command.args(args.allow.iter().map(|class| format!("--allow={class}")));
    command.args(args.limit.iter().map(|limit| format!("--limit={limit}")));
    if let Some(seconds) = &args.timeout {
        command.arg(format!("--timeout={seconds}"));
    }
    let mut child = command.spawn().with_context(|| {
        format!("cannot start {}, which runs the tests (--host names another)", shown(host))
    })?;
    if let Some(mut stdin) = child.stdin.take() {
        match stdin.write_all(&built.plugin) {
            // A host that stops reading reports the reason itself.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                return Err(error).context("cannot hand the plugin to ks-host");
            }
            _ => {}
        }
    }
    let status = child.wait().context("cannot wait for ks-host")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// Returns `ks-host` in the folder of this command, or the bare name if there is none.
fn sibling_host() -> PathBuf {
    let own = std::env::current_exe().ok().map(|path| path.with_file_name("ks-host"));
    own.filter(|path| path.exists()).unwrap_or_else(|| "ks-host".into())
}
