//! What `ks check` says: every file below `cases/` beside the text it leads to. Adding a case is adding a file.
//!
//! A folder with a `main.ks` is one case of several files. In `cases/diagnostics/` the first line of a case names the
//! codes it leads to, errors and warnings: `// expect: KS0401`, or `none`. A second line `// flags: strict` reads it as
//! `ks` does with that option.

mod front;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use front::{File, expect_none};
use ks_compiler::diag::render::{Style, render};
use ks_compiler::diag::{Code, codes};
use ks_compiler::pipeline::{self, Checked, Options};

/// What can be known from the types of a kernel only; these tests have none.
const NO_KERNEL_TYPES: Code = Code(806);

/// The files of a case, the main one first.
fn files(case: &Path) -> Vec<File> {
    let folder = case.parent().expect("a case lies in a folder");
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).expect("plain names").to_owned();
    let read = |path: &Path| (name(path), std::fs::read(path).expect("a case is readable"));
    let mut files = vec![read(case)];
    if name(case) == "main.ks" {
        let mut others: Vec<PathBuf> = entries(folder).into_iter().filter(|path| path != case).collect();
        others.retain(|path| !name(path).ends_with(".snap"));
        files.extend(others.iter().map(|path| read(path)));
    }
    files
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = std::fs::read_dir(folder).expect("the cases are there");
    let mut paths: Vec<_> = read.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// The words behind `// KEY:` in a comment of the first lines of a case.
fn words(text: &[u8], key: &str) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().take(2).find_map(|line| line.strip_prefix(&format!("// {key}: ")))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// The diagnostics as text. With `build` a script without errors goes through both back ends, which may have more to
/// say.
fn shown(mut checked: Checked, build: bool) -> String {
    let accepted = match build {
        true => checked.build(pipeline::Target::default()).is_ok(),
        false => !checked.diagnostics.has_errors(),
    };
    let outcome = if accepted { "accepted" } else { "refused" };
    let mut shown: Vec<String> = checked
        .diagnostics
        .sorted()
        .into_iter()
        .map(|diagnostic| render(diagnostic, &checked.sources, Style::Plain))
        .collect();
    shown.push(outcome.to_owned());
    shown.join("\n\n")
}

/// The front end alone, with every diagnostic as text.
fn read(text: &[u8]) {
    let checked =
        pipeline::parse("broken.ks", text, Options::new("broken")).expect("examples are short").check();
    for diagnostic in checked.diagnostics.sorted() {
        assert!(!render(diagnostic, &checked.sources, Style::Plain).is_empty());
    }
}

/// Whether a file belongs to another one's case.
fn is_part(path: &Path) -> bool {
    !path.ends_with("main.ks") && path.with_file_name("main.ks").exists()
}

fn case_name(path: &Path) -> String {
    path.with_extension("").to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
}

#[test]
fn every_case_says_what_is_written_beside_it() {
    insta::glob!("cases/**/*.ks", |path| {
        if is_part(path) {
            return;
        }
        let files = files(path);
        let (name, text) = &files[0];
        let mut flags = words(text, "flags").unwrap_or_default();
        // The cases that name their codes are about the front end, whatever the back ends can do yet.
        let build = words(text, "expect").is_none() || flags.iter().any(|flag| flag == "build");
        flags.retain(|flag| flag != "build");
        let checked = front::check(&files, &flags);
        insta::with_settings!({
            snapshot_path => path.parent().expect("a case lies in a folder"),
            snapshot_suffix => "",
            prepend_module_to_snapshot => false,
            description => String::from_utf8_lossy(text).into_owned(),
            omit_expression => true,
        }, {
            insta::assert_snapshot!(name.as_str(), shown(checked, build));
        });
    });
}

/// Why a case does not lead to the codes that its first line names.
fn objection(path: &Path) -> Option<String> {
    let files = files(path);
    let text = &files[0].1;
    let names = words(text, "expect").expect("the first line says what is expected");
    let expected: BTreeSet<Code> =
        names.iter().filter(|name| *name != "none").map(|name| codes::parse(name).expect("a code")).collect();
    let found = front::codes(&files, &words(text, "flags").unwrap_or_default());
    let mut all = &found.errors | &found.warnings;
    if !expected.contains(&NO_KERNEL_TYPES) {
        all.remove(&NO_KERNEL_TYPES);
    }
    (all != expected).then(|| format!("expected {}, found {found:?}", names.join(" ")))
}

#[test]
fn every_case_leads_to_the_codes_in_its_first_line() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/diagnostics");
    let mut failing = Vec::new();
    let mut count = 0;
    for path in entries(&root) {
        let case = if path.is_dir() { path.join("main.ks") } else { path };
        if case.extension().is_none_or(|ending| ending != "ks") {
            continue;
        }
        count += 1;
        let name = case_name(case.strip_prefix(&root).expect("it lies there"));
        failing.extend(objection(&case).map(|why| (name, why)));
    }
    assert!(count >= 150, "{count} cases");
    expect_none(&failing);
}

/// Real scripts, cut short and with a byte missing: always a tree and diagnostics, never a panic.
#[test]
fn no_text_makes_it_panic() {
    let pieces: Vec<Vec<u8>> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/perf"))
        .expect("the examples are there")
        .map(|entry| std::fs::read(entry.expect("readable").path()).expect("readable"))
        .collect();
    for text in &pieces {
        for cut in 0..text.len() {
            read(&text[..cut]);
        }
        for hole in 0..text.len() {
            let mut holed = text.clone();
            holed.remove(hole);
            read(&holed);
        }
    }
}
