//! Output of `ks check`: every script in `check/`, `diagnostics/` and `parse/`, compared with the text next
//! to it.
//!
//! A folder with a `main.ks` is one case of several files. In `diagnostics/` the first line of a case names
//! its expected codes, errors and warnings: `// expect: KS0401`, or `none`. A second line `// flags: strict`
//! sets that option of `ks`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use ks_compiler::diag::render::{Style, render};
use ks_compiler::diag::{DiagnosticCode, codes};
use ks_compiler::pipeline::{self, Checked};
use ks_compiler_testing::front::{self, File};
use libtest_mimic::{Failed, Trial};

use crate::{entries, folder};

/// The code for checks that need a kernel's types; these tests have none.
const NO_KERNEL_TYPES: DiagnosticCode = DiagnosticCode(806);

pub fn trials() -> Vec<Trial> {
    let mut paths = Vec::new();
    ["check", "diagnostics", "parse"].iter().for_each(|kind| collect(&folder(kind), &mut paths));
    paths
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(folder("")).expect("a case lies in the folder").with_extension("");
            let name = name.to_string_lossy().replace('/', "::");
            Trial::test(name.trim_end_matches("::main").to_owned(), move || check(&path))
        })
        .collect()
}

/// Collects the main files of all cases below a folder.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    let found = entries(folder);
    let main = folder.join("main.ks");
    if found.contains(&main) {
        paths.push(main);
        return;
    }
    for path in found {
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|ending| ending == "ks") {
            paths.push(path);
        }
    }
}

fn check(path: &Path) -> Result<(), Failed> {
    let files = files(path)?;
    if let Some(expected) = header_values(&files[0].1, "expect") {
        has_codes(&files, &expected)?;
    }
    has_text(path, &files)
}

/// Reads the files of a case, the main one first.
fn files(case: &Path) -> Result<Vec<File>, Failed> {
    let folder = case.parent().expect("a case lies in a folder");
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).expect("plain names").to_owned();
    let read = |path: &Path| Ok::<File, Failed>((name(path), fs::read(path)?));
    let mut files = vec![read(case)?];
    if name(case) == "main.ks" {
        let mut others: Vec<PathBuf> = entries(folder).into_iter().filter(|path| path != case).collect();
        others.retain(|path| !name(path).ends_with(".snap"));
        for path in others {
            files.push(read(&path)?);
        }
    }
    Ok(files)
}

/// Returns the words that follow `// KEY:` in a comment of the first lines of a case.
fn header_values(text: &[u8], key: &str) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().take(2).find_map(|line| line.strip_prefix(&format!("// {key}: ")))?;
    Some(line.split_whitespace().map(str::to_owned).collect())
}

/// Formats the diagnostics. With `build` a script without errors goes through both back ends, which may
/// report more.
fn rendered(mut checked: Checked, build: bool) -> String {
    let accepted = if build {
        checked.build(pipeline::Target::default()).is_ok()
    } else {
        !checked.diagnostics.has_errors()
    };
    let outcome = if accepted { "accepted" } else { "refused" };
    let mut parts: Vec<String> = checked
        .diagnostics
        .sorted()
        .into_iter()
        .map(|diagnostic| render(diagnostic, &checked.sources, Style::Plain))
        .collect();
    parts.push(outcome.to_owned());
    parts.join("\n\n")
}

/// Compares the output of a case with the snapshot next to it.
fn has_text(path: &Path, files: &[File]) -> Result<(), Failed> {
    let (name, text) = &files[0];
    let mut flags = header_values(text, "flags").unwrap_or_default();
    // Cases with expected codes are about the front end, whatever the back ends support.
    let build = header_values(text, "expect").is_none() || flags.iter().any(|flag| flag == "build");
    flags.retain(|flag| flag != "build");
    let checked = front::check(files, &flags);
    insta::with_settings!({
        snapshot_path => path.parent().ok_or("a case lies in a folder")?,
        snapshot_suffix => "",
        prepend_module_to_snapshot => false,
        description => String::from_utf8_lossy(text).into_owned(),
        omit_expression => true,
        input_file => path,
    }, {
        insta::assert_snapshot!(name.as_str(), rendered(checked, build));
    });
    Ok(())
}

/// Compares the codes of a case with the expected codes in its first line.
fn has_codes(files: &[File], names: &[String]) -> Result<(), Failed> {
    let expected: BTreeSet<DiagnosticCode> =
        names.iter().filter(|name| *name != "none").map(|name| codes::parse(name).expect("a code")).collect();
    let found = front::codes(files, &header_values(&files[0].1, "flags").unwrap_or_default());
    let mut all = &found.errors | &found.warnings;
    if !expected.contains(&NO_KERNEL_TYPES) {
        all.remove(&NO_KERNEL_TYPES);
    }
    if all == expected {
        Ok(())
    } else {
        Err(format!("expected {}, found {found:?}", names.join(" ")).into())
    }
}
