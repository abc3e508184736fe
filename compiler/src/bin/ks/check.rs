//! `ks check`: errors and warnings, nothing written.

use std::process::ExitCode;

use anyhow::Result;

use crate::files::ScriptArgs;
use crate::report;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    script: ScriptArgs,
    #[command(flatten)]
    report: report::ReportArgs,
}

/// Checks a script up to the typed tree: what a back end cannot compile yet is no error of the script. Exit code 1 if
/// there is an error.
pub fn run(args: &Args) -> Result<ExitCode> {
    let checked = args.script.parse()?.check();
    args.report.show_checked(&checked, args.script.verbose);
    Ok(if checked.diagnostics.has_errors() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
