//! The front end over files in memory, for tests of diagnostics.

mod kernel;

use std::collections::BTreeSet;
use std::sync::Arc;

use ks_compiler::diag::{DiagnosticCode, Severity};
use ks_compiler::pipeline::{self, Checked, Options, Target};
use ks_compiler::source::Files;

/// Name and contents of a file.
pub type File = (String, Vec<u8>);

/// The codes of a script's diagnostics, by severity.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FoundCodes {
    pub errors: BTreeSet<DiagnosticCode>,
    pub warnings: BTreeSet<DiagnosticCode>,
}

/// A source of files in memory.
#[derive(Debug)]
struct Memory(Vec<File>);

impl Files for Memory {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.0.iter().find(|(name, _)| name == path).map(|(_, text)| text.clone())
    }
}

/// Checks the first file, which can import the others. Flags: `strict` (the language of 0.1.1), `test` (for
/// `ks test`), `btf` (against the kernel of `kernel()`, else against none), `build` (through the back ends
/// too), `kernel=MAJOR.MINOR` (like `build`, for that kernel), `module` (like `build`, with a kernel module).
pub fn check(files: &[File], flags: &[String]) -> Checked {
    let (name, text) = files.first().expect("an example has a file");
    let mut options = Options { files: Arc::new(Memory(files.to_vec())), ..Options::new("example") };
    let (mut build, mut module) = (false, false);
    let mut kernel = None;
    for flag in flags {
        match flag.as_str() {
            "strict" => options.strict_011 = true,
            "test" => options.tests = true,
            "build" => build = true,
            "module" => (build, module) = (true, true),
            "btf" => options.kernel = kernel::types().into(),
            other if other.starts_with("kernel=") => {
                kernel = Some(other["kernel=".len()..].parse().expect("a version"));
                build = true;
            }
            other => panic!("there is no flag `{other}`"),
        }
    }
    let mut checked = pipeline::parse(name, text, options).expect("examples are short").check();
    if build {
        // The result is in the diagnostics.
        let _ = checked.build(Target { kernel, module, ..Target::default() });
    }
    checked
}

/// Returns the codes of the diagnostics of [`check`].
pub fn codes(files: &[File], flags: &[String]) -> FoundCodes {
    let checked = check(files, flags);
    let mut found = FoundCodes::default();
    for diagnostic in checked.diagnostics.iter() {
        match diagnostic.severity {
            Severity::Error => found.errors.insert(diagnostic.code),
            Severity::Warning => found.warnings.insert(diagnostic.code),
        };
    }
    found
}

/// Panics with all names and reasons unless the list of failures is empty.
pub fn expect_none(failing: &[(String, String)]) {
    let lines: Vec<_> = failing.iter().map(|(name, why)| format!("  {name}: {why}")).collect();
    assert!(lines.is_empty(), "{} do not hold:\n{}", lines.len(), lines.join("\n"));
}
