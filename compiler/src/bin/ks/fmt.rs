//! `ks fmt`: formats scripts.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use ks_compiler::diag::Diagnostics;
use ks_compiler::source::{MAX_FILE_BYTES, SourceMap};
use ks_compiler::{fmt, lex, parse};
use ks_wit::command_output::{shown, write_lines, write_stdout};

use crate::report;

#[derive(clap::Args)]
pub struct Args {
    /// The scripts; `-` is standard input, which is written to standard output
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// List the scripts that are not formatted, and change none; the exit code is 1 if there are any
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    report: report::ReportArgs,
}

/// Formats scripts in place. Returns exit code 1 if one has errors, in which case it stays unchanged, or if
/// `--check` found one to change.
pub fn run(args: &Args) -> Result<ExitCode> {
    let mut clean = true;
    for file in &args.files {
        clean &= run_one(file, args)?;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_one(file: &Path, args: &Args) -> Result<bool> {
    let stdin = file.as_os_str() == "-";
    let name = if stdin { "<stdin>".to_owned() } else { file.display().to_string() };
    let text = if stdin { read_stdin() } else { ks_wit::files::read(file, MAX_FILE_BYTES as u64) };
    let text = text.with_context(|| format!("cannot read {}", shown(&name)))?;
    let Some(formatted) = formatted(&name, &text, &args.report)? else { return Ok(false) };
    let changed = formatted != text;
    if args.check {
        if changed {
            write_lines(&format!("{}\n", shown(&name)))?;
        }
        return Ok(!changed);
    }
    if stdin {
        write_stdout(&formatted)?;
    } else if changed {
        std::fs::write(file, formatted).with_context(|| format!("cannot write {}", shown(&name)))?;
    }
    Ok(true)
}

fn read_stdin() -> std::io::Result<Vec<u8>> {
    ks_wit::files::read_all(std::io::stdin().lock(), MAX_FILE_BYTES as u64)
}

/// Returns the formatted text; none if it has errors, which are printed.
fn formatted(name: &str, text: &[u8], report: &report::ReportArgs) -> Result<Option<Vec<u8>>> {
    let mut sources = SourceMap::default();
    let file = sources.add(name, text).with_context(|| format!("{} is too long", shown(name)))?;
    let mut diagnostics = Diagnostics::default();
    let tokens = lex::scan(file, text);
    lex::report(&tokens, text, &mut diagnostics);
    let ast = parse::parse(&tokens, text, &mut diagnostics);
    if diagnostics.has_errors() {
        report.show(&diagnostics, &sources)?;
        return Ok(None);
    }
    fmt::format(&tokens, text, &ast).map(Some).with_context(|| format!("cannot format {}", shown(name)))
}
