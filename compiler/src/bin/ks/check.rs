//! `ks check`: errors and warnings, nothing written.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use ks_compiler::pipeline::Target;

use crate::report;

#[derive(clap::Args)]
pub struct Args {
    /// The script
    file: PathBuf,
    /// One JSON object per line on standard output, for programs
    #[arg(long)]
    json: bool,
}

/// Checks a script and compiles both halves without keeping them. Exit code 1 if there is an error.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut checked = report::parse(&args.file)?.check(&report::project(&args.file)?);
    let built = checked.build(Target::default());
    if args.json {
        for diagnostic in checked.diagnostics.sorted() {
            println!("{}", ks_compiler::diag::render::json(diagnostic, &checked.sources));
        }
    } else {
        report::show(&checked.diagnostics, &checked.sources);
    }
    Ok(if built.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
