//! Diagnostics are plain data. The stages create them, [`render`] formats them as text.

pub mod codes;
mod near;
pub mod render;

pub use near::{near, nears};

use crate::source::Span;

/// Number of errors that are kept; further ones are only counted. The same limit applies to warnings. Nobody
/// reads more, and a file of rubbish must not fill the memory.
pub const MAX_KEPT: usize = 100;

/// The number of a diagnostic, `KS0417`. The first two digits are the stage: 01 scanner, 02 grammar, 03
/// names, 04 types, 05 programs, 06 memory, 07 control flow, 08 modules, 09 perf events, 10 limits, 99
/// mistakes of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiagnosticCode(pub u16);

/// The code of internal errors, which [`Diagnostic::mistake`] makes.
const DEFECT: DiagnosticCode = DiagnosticCode(9902);

impl std::fmt::Display for DiagnosticCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KS{:04}", self.0)
    }
}

/// The severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Compilation continues after it.
    Warning,
    /// No plugin is produced.
    Error,
}

/// A source range with a short text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The source range that is marked.
    pub span: Span,
    /// The text next to it; may be empty.
    pub text: String,
}

/// A change of the source text that a tool can apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// The range that is replaced; empty for an insertion.
    pub span: Span,
    /// The new text; empty for a deletion.
    pub replacement: String,
    /// The change in words, without the new text: "a similar name exists".
    pub message: String,
}

/// One error or warning.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a diagnostic that nobody reports is lost"]
pub struct Diagnostic {
    /// The code of its page.
    pub code: DiagnosticCode,
    /// Whether it stops the compilation.
    pub severity: Severity,
    /// The headline: understandable alone, on one line.
    pub message: String,
    /// The smallest text the author would change.
    pub primary: Label,
    /// Further source ranges that explain it.
    pub secondary: Vec<Label>,
    /// Rules and reasons, one line each.
    pub notes: Vec<String>,
    /// Advice, one line each.
    pub help: Vec<String>,
    /// Advice in the form of changes. Each alone is enough; several are alternatives.
    pub suggestions: Vec<Suggestion>,
}

impl Diagnostic {
    /// Creates an error at a source range.
    pub fn error(code: u16, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code: DiagnosticCode(code),
            severity: Severity::Error,
            message: message.into(),
            primary: Label { span, text: String::new() },
            secondary: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
            suggestions: Vec::new(),
        }
    }

    /// Creates a warning at a source range.
    pub fn warning(code: u16, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// Creates an internal error: a broken invariant of the compiler. The script is not at fault, but its
    /// author has to report it.
    pub fn mistake(span: Span, what: impl Into<String>) -> Diagnostic {
        Diagnostic::error(9902, span, "ks made a mistake while compiling this")
            .note(what)
            .help(concat!("please report it with the script: ks ", env!("CARGO_PKG_VERSION")))
    }

    /// Sets the text at the primary source range.
    pub fn label(mut self, text: impl Into<String>) -> Diagnostic {
        self.primary.text = text.into();
        self
    }

    /// Adds a further source range with a text.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// Adds a rule or reason.
    pub fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// Adds a line of advice.
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.help.push(text.into());
        self
    }

    /// Adds advice in the form of a change: `span` becomes `replacement`.
    pub fn suggest(
        mut self,
        span: Span,
        replacement: impl Into<String>,
        message: impl Into<String>,
    ) -> Diagnostic {
        self.suggestions.push(Suggestion { span, replacement: replacement.into(), message: message.into() });
        self
    }

    /// Suggests the names among `candidates` that are similar to `wanted`, which stands at `span`. `what` is
    /// the kind of name in the singular: "function".
    pub fn suggest_near<'a>(
        self,
        span: Span,
        what: &str,
        wanted: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Diagnostic {
        let names = nears(wanted, candidates);
        let message = match names.len() {
            1 => format!("a similar {what} exists"),
            _ => format!("similar {what}s exist"),
        };
        names.into_iter().fold(self, |diagnostic, name| diagnostic.suggest(span, name, message.as_str()))
    }

    /// Adds a line of advice if there is one.
    pub fn maybe_help(mut self, text: Option<String>) -> Diagnostic {
        self.help.extend(text);
        self
    }
}

/// The diagnostics of one compilation, in the order in which they were reported: the first [`MAX_KEPT`]
/// errors and as many warnings, and the number of further ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
    kept_errors: usize,
    kept_warnings: usize,
    omitted: Omitted,
}

impl Diagnostics {
    /// Adds a diagnostic, or only counts it above [`MAX_KEPT`]. What was reported in the same words is not repeated: the
    /// block of a program with several targets is checked for each.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        if self.all.contains(&diagnostic) {
            return;
        }
        let (kept, omitted) = match diagnostic.severity {
            Severity::Error => (&mut self.kept_errors, &mut self.omitted.errors),
            Severity::Warning => (&mut self.kept_warnings, &mut self.omitted.warnings),
        };
        if *kept < MAX_KEPT {
            *kept += 1;
            self.all.push(diagnostic);
        } else {
            *omitted += 1;
        }
    }

    /// Whether at least one of them is an error.
    pub fn has_errors(&self) -> bool {
        self.kept_errors > 0
    }

    /// Returns the number of errors, including those that were not kept.
    pub fn error_count(&self) -> usize {
        self.kept_errors + self.omitted.errors
    }

    /// Returns the number of warnings, including those that were not kept.
    pub fn warning_count(&self) -> usize {
        self.kept_warnings + self.omitted.warnings
    }

    /// Whether an internal error is among the kept diagnostics: the compiler is at fault, not the script.
    pub fn has_defect(&self) -> bool {
        self.all.iter().any(|one| one.code == DEFECT)
    }

    /// Returns the numbers of errors and warnings that were counted but not kept; none if all were kept.
    pub fn omitted(&self) -> Option<Omitted> {
        (self.omitted != Omitted::default()).then_some(self.omitted)
    }

    /// Returns the kept diagnostics, sorted by source range.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<_> = self.all.iter().collect();
        sorted.sort_by_key(|one| (one.primary.span, one.code));
        sorted
    }

    /// Returns the kept diagnostics in the order of their reports.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.all.iter()
    }
}

/// Numbers of diagnostics that were counted but not kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Number of errors above [`MAX_KEPT`].
    pub errors: usize,
    /// Number of warnings above [`MAX_KEPT`].
    pub warnings: usize,
}

impl std::fmt::Display for Omitted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count =
            |number, what: &str| format!("{number} more {what}{}", if number == 1 { "" } else { "s" });
        match (self.errors, self.warnings) {
            (errors, 0) => write!(f, "{} not shown", count(errors, "error")),
            (0, warnings) => write!(f, "{} not shown", count(warnings, "warning")),
            (errors, warnings) => {
                write!(f, "{} and {} not shown", count(errors, "error"), count(warnings, "warning"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
