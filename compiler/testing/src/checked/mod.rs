//! The one place that knows how a test reaches the front end.
//!
//! [`check`] takes files and options, runs everything up to the typed tree and no back end, and gives back what was
//! said as plain text.

pub mod kernel;

use std::collections::BTreeMap;
use std::sync::Arc;

use ks_compiler::diag::{Diagnostic, Severity};
use ks_compiler::pipeline;
use ks_compiler::source::Files;

/// What a test may choose.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Refuse what 0.1.1 refuses.
    pub strict_011: bool,
    /// Test mode: `@test` functions are what is compiled.
    pub tests: bool,
    /// Hold names and members against the small kernel of [`kernel`], instead of against none.
    pub kernel: bool,
}

/// One diagnostic.
#[derive(Debug, Clone)]
pub struct ReportedDiagnostic {
    /// `KS0401`.
    pub code: String,
    /// The headline.
    pub message: String,
    /// Headline, labels, notes, help and suggested texts, a line each.
    pub text: String,
}

impl ReportedDiagnostic {
    fn new(diagnostic: &Diagnostic) -> ReportedDiagnostic {
        let labels = std::iter::once(&diagnostic.primary).chain(&diagnostic.secondary);
        let changes = diagnostic.suggestions.iter().flat_map(|change| [&change.message, &change.replacement]);
        let lines: Vec<_> = std::iter::once(&diagnostic.message)
            .chain(labels.map(|label| &label.text))
            .chain(&diagnostic.notes)
            .chain(&diagnostic.help)
            .chain(changes)
            .map(String::as_str)
            .collect();
        ReportedDiagnostic {
            code: diagnostic.code.to_string(),
            message: diagnostic.message.clone(),
            text: lines.join("\n"),
        }
    }
}

/// What the front end made of some files.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// By place.
    pub errors: Vec<ReportedDiagnostic>,
    /// By place.
    pub warnings: Vec<ReportedDiagnostic>,
    /// Whether there is a typed tree.
    pub hir_ok: bool,
}

impl Outcome {
    /// No error, and a typed tree.
    pub fn accepted(&self) -> bool {
        self.errors.is_empty() && self.hir_ok
    }

    /// At least one error, and no error of another code than these.
    pub fn refused_with(&self, codes: &[&str]) -> bool {
        !self.errors.is_empty() && self.errors.iter().all(|error| codes.contains(&error.code.as_str()))
    }

    /// Whether a warning has this code.
    pub fn warned(&self, code: &str) -> bool {
        self.warnings.iter().any(|warning| warning.code == code)
    }

    /// The errors in a few words, for a table or a failed assertion.
    pub fn errors_in_short(&self) -> String {
        in_short(&self.errors)
    }

    /// The warnings in a few words.
    pub fn warnings_in_short(&self) -> String {
        in_short(&self.warnings)
    }
}

fn in_short(all: &[ReportedDiagnostic]) -> String {
    match all {
        [] => "nothing".into(),
        _ => all.iter().map(|one| format!("{} {}", one.code, one.message)).collect::<Vec<_>>().join("; "),
    }
}

/// Checks `files[0]`; the others are what it can import and include, by path relative to it.
pub fn check(files: &[(&str, &str)], options: Options) -> Outcome {
    let (name, text) = files.first().expect("a test has a main file");
    let mut with = pipeline::Options::new("script");
    with.strict_011 = options.strict_011;
    with.tests = options.tests;
    if options.kernel {
        with.kernel = kernel::types().into();
    }
    with.files = Arc::new(Texts::new(&files[1..]));
    let parsed = pipeline::parse(name, text.as_bytes(), with).expect("a test's script is short");
    let checked = parsed.check();
    let (errors, warnings): (Vec<_>, Vec<_>) =
        checked.diagnostics.sorted().into_iter().partition(|one| one.severity == Severity::Error);
    Outcome {
        errors: errors.into_iter().map(ReportedDiagnostic::new).collect(),
        warnings: warnings.into_iter().map(ReportedDiagnostic::new).collect(),
        hir_ok: checked.hir.is_some(),
    }
}

/// A folder in memory.
#[derive(Debug)]
struct Texts(BTreeMap<String, String>);

impl Texts {
    fn new(files: &[(&str, &str)]) -> Texts {
        Texts(files.iter().map(|(path, text)| (normal(path), (*text).to_string())).collect())
    }
}

impl Files for Texts {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.0.get(&normal(path)).map(|text| text.clone().into_bytes())
    }
}

/// `./lib/../a.ks` is `a.ks`.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}
