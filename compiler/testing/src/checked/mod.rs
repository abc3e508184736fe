//! Access of tests to the front end.
//!
//! [`check`] takes files and options, runs everything up to the typed tree and no back end, and returns the
//! diagnostics as plain text.

pub mod kernel;

use std::collections::BTreeMap;
use std::sync::Arc;

use ks_compiler::diag::{Diagnostic, Severity};
use ks_compiler::pipeline;
use ks_compiler::source::Files;

/// Options of a test.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Whether to reject everything that is not part of KernelScript 0.1.1.
    pub strict_011: bool,
    /// Test mode: compiles the `@test` functions.
    pub tests: bool,
    /// Whether to check names and members against the small kernel of [`kernel`], instead of against none.
    pub kernel: bool,
}

/// A diagnostic as text.
#[derive(Debug, Clone)]
pub struct ReportedDiagnostic {
    /// The diagnostic's code, such as `KS0401`.
    pub code: String,
    /// The headline, without source locations.
    pub message: String,
    /// Headline, labels, notes, help and suggested texts, one line each.
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

/// The result of the front end.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Errors, sorted by source position.
    pub errors: Vec<ReportedDiagnostic>,
    /// Warnings, sorted by source position.
    pub warnings: Vec<ReportedDiagnostic>,
    /// Whether a typed tree was produced.
    pub hir_ok: bool,
}

impl Outcome {
    /// Whether there is no error, and a typed tree.
    pub fn accepted(&self) -> bool {
        self.errors.is_empty() && self.hir_ok
    }

    /// Whether there is at least one error, and every error has one of these codes.
    pub fn refused_with(&self, codes: &[&str]) -> bool {
        !self.errors.is_empty() && self.errors.iter().all(|error| codes.contains(&error.code.as_str()))
    }

    /// Whether a warning has this code.
    pub fn warned(&self, code: &str) -> bool {
        self.warnings.iter().any(|warning| warning.code == code)
    }

    /// Summarises the errors, for a table or a failed assertion.
    pub fn errors_in_short(&self) -> String {
        in_short(&self.errors)
    }

    /// Summarises the warnings.
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

/// Checks `files[0]`; it can import and include the others by paths relative to it.
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

/// Files in memory, by normalised path.
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

/// Normalises a path: `./lib/../a.ks` is `a.ks`.
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
