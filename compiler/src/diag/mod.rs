//! Diagnostics: data until the end. Stages make them, [`render`] turns them into text.

pub mod render;

use crate::source::Span;

/// The number of a diagnostic, `KS0417`. The first two digits are the stage: 01 scanner, 02 grammar, 03 names,
/// 04 types, 05 programs, 06 memory, 07 control flow, 08 modules, 09 perf events, 10 limits, 99 this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u16);

impl std::fmt::Display for Code {
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

/// One thing that is wrong, or questionable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a diagnostic that nobody reports is lost"]
pub struct Diagnostic {
    /// Its number.
    pub code: Code,
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
}

impl Diagnostic {
    /// An error at a place.
    pub fn error(code: u16, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code: Code(code),
            severity: Severity::Error,
            message: message.into(),
            primary: Label { span, text: String::new() },
            secondary: Vec::new(),
            notes: Vec::new(),
            help: Vec::new(),
        }
    }

    /// A warning at a place.
    pub fn warning(code: u16, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(code, span, message) }
    }

    /// What the language has and this version of the compiler does not.
    pub fn not_yet(span: Span, what: &str) -> Diagnostic {
        Diagnostic::error(9901, span, format!("{what} not supported yet"))
            .label("this version of ks cannot compile it")
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

    /// Adds a help if there is one.
    pub fn maybe_help(mut self, text: Option<String>) -> Diagnostic {
        self.help.extend(text);
        self
    }
}

/// The diagnostics of one compilation, in the order in which they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diagnostics {
    all: Vec<Diagnostic>,
}

impl Diagnostics {
    /// Adds one.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        self.all.push(diagnostic);
    }

    /// Whether one of them is an error.
    pub fn has_errors(&self) -> bool {
        self.error_count() > 0
    }

    /// How many of them are errors.
    pub fn error_count(&self) -> usize {
        self.all.iter().filter(|one| one.severity == Severity::Error).count()
    }

    /// All of them, by place.
    pub fn sorted(&self) -> Vec<&Diagnostic> {
        let mut sorted: Vec<_> = self.all.iter().collect();
        sorted.sort_by_key(|one| (one.primary.span, one.code));
        sorted
    }

    /// All of them, as found.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.all.iter()
    }
}

/// The name among `candidates` that a person may have meant by `wanted`: at most a third of its letters differ.
pub fn near<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .into_iter()
        .map(|name| (distance(wanted, name), name))
        .filter(|(distance, name)| *distance > 0 && *distance * 3 <= wanted.len().max(name.len()))
        .min()
        .map(|(_, name)| name)
}

/// Levenshtein's distance, ASCII letters of either case being equal.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let substituted = diagonal + usize::from(!x.eq_ignore_ascii_case(&y));
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::near;

    #[test]
    fn near_names_are_near() {
        let names = ["cache_misses", "cache_references", "page_faults", "cpu_cycles"];
        assert_eq!(near("cache_miss", names), Some("cache_misses"));
        assert_eq!(near("pagefaults", names), Some("page_faults"));
        assert_eq!(near("zebra", names), None);
        assert_eq!(near("", names), None);
    }
}
