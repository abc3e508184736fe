//! What the tests of diagnostics share: the front end over files in memory, and lists of what does not hold yet.

mod kernel;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use ks_compiler::diag::{Code, Severity};
use ks_compiler::pipeline::{self, Checked, Options, Target};
use ks_compiler::source::Files;

/// A file's name and text.
pub type File = (String, Vec<u8>);

/// The codes that a script leads to, by severity.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub errors: BTreeSet<Code>,
    pub warnings: BTreeSet<Code>,
}

/// Files in memory.
#[derive(Debug)]
struct Memory(Vec<File>);

impl Files for Memory {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        self.0.iter().find(|(name, _)| name == path).map(|(_, text)| text.clone())
    }
}

/// Checks the first file, with the others beside it. Flags: `strict` (the language of 0.1.1), `test` (for `ks test`),
/// `btf` (against the kernel of [`kernel`], else against none), `build` (through the back ends too).
pub fn check(files: &[File], flags: &[String]) -> Checked {
    let (name, text) = files.first().expect("an example has a file");
    let mut options = Options { files: Arc::new(Memory(files.to_vec())), ..Options::new("example") };
    let mut build = false;
    for flag in flags {
        match flag.as_str() {
            "strict" => options.strict_011 = true,
            "test" => options.tests = true,
            "build" => build = true,
            "btf" => options.kernel = kernel::types().into(),
            other => panic!("there is no flag `{other}`"),
        }
    }
    let mut checked = pipeline::parse(name, text, options).expect("examples are short").check();
    if build {
        // What it says is in the diagnostics.
        let _ = checked.build(Target::default());
    }
    checked
}

/// The codes that [`check`] leads to.
pub fn codes(files: &[File], flags: &[String]) -> Found {
    let checked = check(files, flags);
    let mut found = Found::default();
    for diagnostic in checked.diagnostics.iter() {
        match diagnostic.severity {
            Severity::Error => found.errors.insert(diagnostic.code),
            Severity::Warning => found.warnings.insert(diagnostic.code),
        };
    }
    found
}

/// The names in a list of what does not hold yet; `#` begins a comment.
pub fn pending(list: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(tests().join(list)).expect("the list is there");
    let name = |line: &str| line.split('#').next().unwrap_or_default().trim().to_owned();
    text.lines().map(name).filter(|name| !name.is_empty()).collect()
}

/// Holds a list to what is so: each name with a reason in `failing` is in it and no other. With `UPDATE_PENDING=1` names
/// that hold now leave the list; to put one in takes an editor.
pub fn hold_to(list: &str, failing: &[(String, String)]) {
    let listed = pending(list);
    let names: BTreeSet<String> = failing.iter().map(|(name, _)| name.clone()).collect();
    let broken: Vec<_> = failing
        .iter()
        .filter(|(name, _)| !listed.contains(name))
        .map(|(name, why)| format!("  {name}: {why}"))
        .collect();
    let held: Vec<_> = listed.difference(&names).cloned().collect();
    if !held.is_empty() && std::env::var_os("UPDATE_PENDING").is_some() {
        remove(&tests().join(list), &held);
    } else {
        assert!(
            held.is_empty(),
            "{list}: take these out, they hold now (or run with UPDATE_PENDING=1):\n{held:#?}"
        );
    }
    assert!(broken.is_empty(), "{} do not hold and are not in {list}:\n{}", broken.len(), broken.join("\n"));
}

fn remove(list: &Path, names: &[String]) {
    let text = std::fs::read_to_string(list).expect("the list is there");
    let stays =
        |line: &&str| !names.iter().any(|name| line.split('#').next().unwrap_or_default().trim() == name);
    let kept: String = text.lines().filter(stays).map(|line| format!("{line}\n")).collect();
    std::fs::write(list, kept).expect("the list can be written");
}

/// The folder of this crate's tests.
pub fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
}
