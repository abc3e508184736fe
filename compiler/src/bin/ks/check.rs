//! `ks check`: reports errors and warnings, and writes no files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use ks_compiler::pipeline::{Parsed, Target};
use ks_wit::command_output::{with_causes, write_stderr};

use crate::files::ScriptOptions;
use crate::report;
use crate::target::TargetArgs;

/// The name of the script of `-e` in messages.
const ARGUMENT: &str = "-e";

#[derive(clap::Args)]
pub struct Args {
    /// The scripts
    #[arg(required_unless_present = "script")]
    files: Vec<PathBuf>,
    /// Check this text, a script
    #[arg(short = 'e', long = "script", value_name = "SCRIPT", conflicts_with = "files")]
    script: Option<String>,
    #[command(flatten)]
    options: ScriptOptions,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    report: report::ReportArgs,
}

/// Compiles scripts as `ks build` does, and reports the same. Returns exit code 1 if there is an error in one
/// of them.
pub fn run(args: &Args) -> Result<ExitCode> {
    let target = args.target.target()?;
    if let Some(text) = &args.script {
        let parsed = args.options.parse_text(Path::new(ARGUMENT), text.as_bytes())?;
        return Ok(check(args, parsed, target)?.into());
    }
    let mut code = 0;
    for file in &args.files {
        match args.options.parse(file).and_then(|parsed| check(args, parsed, target)) {
            Ok(found) => code = code.max(found),
            // The other files are checked all the same.
            Err(error) if args.files.len() > 1 => {
                write_stderr(format_args!("ks: {}", with_causes(&*error)));
                code = code.max(1);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(code.into())
}

/// Checks one script and returns its exit code.
fn check(args: &Args, parsed: Parsed, target: Target) -> Result<u8> {
    let mut checked = parsed.check();
    let compiled = checked.build(target);
    args.report.show_checked(&checked, args.options.verbose)?;
    Ok(if compiled.is_ok() { 0 } else { report::failure(&checked.diagnostics) })
}
