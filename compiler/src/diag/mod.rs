//! Diagnostics: data until the end. Stages make them, [`render`] turns them into text.

pub mod codes;
mod near;
pub mod render;

pub use near::{near, nears};

use crate::source::Span;

/// Errors above this number are counted and not kept; warnings likewise. Nobody reads more, and a file of rubbish must
/// not fill the memory.
pub const MAX_KEPT: usize = 100;

/// The number of a diagnostic, `KS0417`. The first two digits are the stage: 01 scanner, 02 grammar, 03 names,
/// 04 types, 05 programs, 06 memory, 07 control flow, 08 modules, 09 perf events, 10 limits, 99 mistakes of the compiler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiagnosticCode(pub u16);

impl std::fmt::Display for DiagnosticCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KS{:04}", self.0)
    }
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// Compilation goes on.
    Warning,
    /// No plugin is made.
    Error,
}

/// A place with a few words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Where.
    pub span: Span,
    /// What is there; may be empty.
    pub text: String,
}

/// A change of the text that a tool can make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// What is replaced; empty where something is put in.
    pub span: Span,
    /// The new text; empty where something is taken out.
    pub replacement: String,
    /// The change in words, without the new text: "a similar name exists".
    pub message: String,
}

/// One thing that is wrong, or questionable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a diagnostic that nobody reports is lost"]
pub struct Diagnostic {
    /// Its number.
    pub code: DiagnosticCode,
    /// Error or warning.
    pub severity: Severity,
    /// The headline: makes sense alone, in one line.
    pub message: String,
    /// The smallest text the author would change.
    pub primary: Label,
    /// Where the other end is.
    pub secondary: Vec<Label>,
    /// Rules and reasons, a line each.
    pub notes: Vec<String>,
    /// What to do, a line each.
    pub help: Vec<String>,
    /// What to do, as changes of the text. Each alone is enough; several are a choice.
    pub suggestions: Vec<Suggestion>,
}

impl Diagnostic {
    /// An error at a place.
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

    /// A warning at a place.
    pub fn warning(code: u16, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// A promise of the compiler's own that is broken: no fault of the script, but its author is the one who must hear of it.
    pub fn mistake(span: Span, what: impl Into<String>) -> Diagnostic {
        Diagnostic::error(9902, span, "ks made a mistake while compiling this")
            .note(what)
            .help("please report it with the script")
    }

    /// Words beside the primary place.
    pub fn label(mut self, text: impl Into<String>) -> Diagnostic {
        self.primary.text = text.into();
        self
    }

    /// Another place.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Diagnostic {
        self.secondary.push(Label { span, text: text.into() });
        self
    }

    /// A rule or reason.
    pub fn note(mut self, text: impl Into<String>) -> Diagnostic {
        self.notes.push(text.into());
        self
    }

    /// What to do.
    pub fn help(mut self, text: impl Into<String>) -> Diagnostic {
        self.help.push(text.into());
        self
    }

    /// What to do, as a change of the text: `span` becomes `replacement`.
    pub fn suggest(
        mut self,
        span: Span,
        replacement: impl Into<String>,
        message: impl Into<String>,
    ) -> Diagnostic {
        self.suggestions.push(Suggestion { span, replacement: replacement.into(), message: message.into() });
        self
    }

    /// Suggests the names among `candidates` that are near to `wanted`, which stands at `span`. `what` they are names
    /// of, in the singular: "function".
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

    /// Adds a help if there is one.
    pub fn maybe_help(mut self, text: Option<String>) -> Diagnostic {
        self.help.extend(text);
        self
    }
}

/// The diagnostics of one compilation, in the order in which they were found: the first [`MAX_KEPT`] errors and as many
/// warnings, and how many more there were.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
    kept_errors: usize,
    kept_warnings: usize,
    omitted: Omitted,
}

impl Diagnostics {
    /// Adds one.
    pub fn report(&mut self, diagnostic: Diagnostic) {
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

    /// Whether one of them is an error.
    pub fn has_errors(&self) -> bool {
        self.kept_errors > 0
    }

    /// How many errors there are, those not kept included.
    pub fn error_count(&self) -> usize {
        self.kept_errors + self.omitted.errors
    }

    /// How many warnings there are, those not kept included.
    pub fn warning_count(&self) -> usize {
        self.kept_warnings + self.omitted.warnings
    }

    /// How many errors and warnings were counted and not kept; nothing if all were kept.
    pub fn omitted(&self) -> Option<Omitted> {
        (self.omitted != Omitted::default()).then_some(self.omitted)
    }

    /// All that were kept, by place.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<_> = self.all.iter().collect();
        sorted.sort_by_key(|one| (one.primary.span, one.code));
        sorted
    }

    /// All that were kept, as found.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.all.iter()
    }
}

/// What was counted and not kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Omitted {
    /// Errors above [`MAX_KEPT`].
    pub errors: usize,
    /// Warnings above [`MAX_KEPT`].
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
