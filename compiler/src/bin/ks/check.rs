//! `ks check`: errors and warnings, nothing written.

use std::process::ExitCode;

use anyhow::Result;

use crate::files::ScriptArgs;
use crate::report;
use crate::target::TargetArgs;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    script: ScriptArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    report: report::ReportArgs,
}

/// Compiles a script as `ks build` does, and reports the same. Exit code 1 if there is an error.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut checked = args.script.parse()?.check();
    let compiled = checked.build(args.target.target()?);
    args.report.show_checked(&checked, args.script.verbose);
    Ok(if compiled.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
