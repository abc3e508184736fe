//! Reading a script and showing what is wrong with it.

use std::io::{IsTerminal, Write};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ks_compiler::diag::render::{self, Style};
use ks_compiler::diag::{Diagnostics, Severity};
use ks_compiler::pipeline::{self, Parsed};
use ks_compiler::source::SourceMap;

/// Reads and parses a script.
pub fn parse(file: &Path) -> Result<Parsed> {
    let text = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(pipeline::parse(&file.display().to_string(), &text)?)
}

/// The project's name: the file's without its ending.
pub fn project(file: &Path) -> Result<String> {
    let name = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    ensure!(!name.is_empty(), "{} has no name that is text", file.display());
    Ok(name.to_owned())
}

/// Shows diagnostics on standard error, and how many there were.
pub fn show(diagnostics: &Diagnostics, sources: &SourceMap) {
    let mut stderr = std::io::stderr().lock();
    let style = if stderr.is_terminal() { Style::Coloured } else { Style::Plain };
    let (mut errors, mut warnings) = (0, 0);
    for diagnostic in diagnostics.sorted() {
        match diagnostic.severity {
            Severity::Error => errors += 1,
            Severity::Warning => warnings += 1,
        }
        // A closed terminal is no reason to fail: the exit code still says what was found.
        let _ = writeln!(stderr, "{}\n", render::render(diagnostic, sources, style));
    }
    if errors + warnings > 0 {
        let _ = writeln!(stderr, "ks: {}, {}", count(errors, "error"), count(warnings, "warning"));
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
