//! Reports the errors and warnings of a script.

use std::io::{IsTerminal, Write};

use anyhow::Result;
use ks_compiler::diag::Diagnostics;
use ks_compiler::diag::render::{self, Style};
use ks_compiler::hir::Half;
use ks_compiler::pipeline::Checked;
use ks_compiler::source::SourceMap;
use ks_wit::command_output::{write_stderr, write_stdout};
use ks_wit::text::{self, MOST_BYTES, visible};

/// Notes on standard error that a spelling of KernelScript 0.1.1 was used, with its replacement. Standard
/// output stays unchanged for programs that read it.
pub fn old_spelling(old: &str, advice: &str) {
    write_stderr(format_args!("ks: note: `{old}` is a spelling of KernelScript 0.1.1; {advice}"));
}

/// The exit code after an internal error of the compiler. Source: sysexits.h, EX_SOFTWARE.
const INTERNAL_ERROR: u8 = 70;

/// The exit code of a script with errors: 1, or 70 if the compiler is at fault.
pub fn failure(diagnostics: &Diagnostics) -> u8 {
    if diagnostics.has_defect() { INTERNAL_ERROR } else { 1 }
}

/// Options for errors and warnings.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// The format of errors and warnings
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// When to use colours; `auto`: on a terminal, unless NO_COLOR is set or TERM is dumb
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    color: Color,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// With the lines of the script, on standard error
    Human,
    /// One line each, on standard error
    Concise,
    /// One JSON object per line, on standard output
    Json,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

impl ReportArgs {
    /// Whether the output is read by programs.
    pub fn is_json(&self) -> bool {
        self.json || self.format == Format::Json
    }

    /// Reports the diagnostics of a script, and with `verbose` the files that were read.
    ///
    /// # Errors
    /// As for [`ReportArgs::show`].
    pub fn show_checked(&self, checked: &Checked, verbose: bool) -> Result<()> {
        self.show(&checked.diagnostics, &checked.sources)?;
        if !verbose {
            return Ok(());
        }
        for file in checked.sources.files() {
            let name = visible(file.name(), MOST_BYTES);
            write_stderr(format_args!("ks: read {name} ({})", count(file.text().len(), "byte")));
        }
        if let Some(hir) = &checked.hir {
            let kernel = hir.functions.iter().filter(|one| one.kind.half() == Half::Kernel).count();
            let user = hir.functions.len() - kernel;
            let maps = hir.maps.len() + hir.rings.len();
            write_stderr(format_args!(
                "ks: {} in the kernel half, {} in the userspace half, {}",
                count(kernel, "function"),
                count(user, "function"),
                count(maps, "map")
            ));
        }
        Ok(())
    }

    /// Reports diagnostics and their number.
    ///
    /// # Errors
    /// If JSON cannot be written. A closed terminal is not an error: the exit code still reports the result.
    pub fn show(&self, diagnostics: &Diagnostics, sources: &SourceMap) -> Result<()> {
        let _ = match if self.is_json() { Format::Json } else { self.format } {
            Format::Human => self.human(diagnostics, sources),
            Format::Concise => concise(diagnostics, sources),
            Format::Json => return Ok(write_stdout(json(diagnostics, sources).as_bytes())?),
        };
        Ok(())
    }

    fn human(&self, diagnostics: &Diagnostics, sources: &SourceMap) -> std::io::Result<()> {
        let mut stderr = std::io::stderr().lock();
        let style = self.color.style(&stderr);
        for diagnostic in diagnostics.sorted() {
            writeln!(stderr, "{}\n", render::render(diagnostic, sources, style))?;
        }
        summary(&mut stderr, diagnostics)
    }
}

impl Color {
    fn style(self, stream: &impl IsTerminal) -> Style {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let wanted = match self {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                stream.is_terminal()
                    && set("NO_COLOR").is_none()
                    && set("TERM").is_none_or(|term| term != "dumb")
            }
        };
        if wanted { Style::Coloured } else { Style::Plain }
    }
}

fn concise(diagnostics: &Diagnostics, sources: &SourceMap) -> std::io::Result<()> {
    let mut stderr = std::io::stderr().lock();
    for diagnostic in diagnostics.sorted() {
        writeln!(stderr, "{}", render::concise(diagnostic, sources))?;
    }
    summary(&mut stderr, diagnostics)
}

fn json(diagnostics: &Diagnostics, sources: &SourceMap) -> String {
    let sorted = diagnostics.sorted();
    let objects = sorted.into_iter().map(|diagnostic| render::json(diagnostic, sources));
    let omitted = diagnostics.omitted().map(render::omitted_json);
    objects.chain(omitted).map(|object| format!("{}\n", text::json(&object.to_string()))).collect()
}

/// Writes the number of errors and warnings, if there are any.
fn summary(out: &mut impl Write, diagnostics: &Diagnostics) -> std::io::Result<()> {
    let (errors, warnings) = (diagnostics.error_count(), diagnostics.warning_count());
    if errors + warnings == 0 {
        return Ok(());
    }
    write!(out, "ks: {}, {}", count(errors, "error"), count(warnings, "warning"))?;
    match diagnostics.omitted() {
        Some(omitted) => writeln!(out, " ({omitted})"),
        None => writeln!(out),
    }
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
