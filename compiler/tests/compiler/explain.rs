//! `ks explain`: every page's examples behave as the page says, every code has a page, and the command shows
//! it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

use ks_compiler::diag::DiagnosticCode;
use ks_compiler::diag::codes::{self, Example, Page};
use ks_compiler_testing::front::{self, File, expect_none};

/// Returns why an example does not behave as its page says; none if it does.
fn objection(page: &Page, example: &Example) -> Option<String> {
    let kind = if example.wrong { "wrong" } else { "right" };
    let files: Vec<File> =
        example.files.iter().map(|file| (file.name.clone(), file.text.clone().into_bytes())).collect();
    let found = front::codes(&files, &example.flags);
    let expected: BTreeSet<DiagnosticCode> =
        (example.wrong && !page.is_warning()).then_some(page.code).into_iter().collect();
    let given = found.errors.contains(&page.code) || found.warnings.contains(&page.code);
    // A code that is an error in one place and a warning in another counts as the error.
    let holds = found.errors == expected && given == example.wrong;
    (!holds).then(|| format!("the {kind} example gives {found:?}"))
}

#[test]
fn every_example_does_what_its_page_says() {
    let mut failing = Vec::new();
    for page in codes::pages() {
        let objections: Vec<_> =
            page.examples().iter().filter_map(|example| objection(page, example)).collect();
        if !objections.is_empty() {
            failing.push((page.code.to_string(), objections.join("; ")));
        }
    }
    expect_none(&failing);
}

/// Collects the numbers after `error(`, `warning(` and functions that take a code, `..._as(`, in a source
/// text without its tests.
fn numbers(text: &str) -> BTreeSet<DiagnosticCode> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let number = |rest: &str| -> Option<DiagnosticCode> {
        let rest = rest.trim_start();
        let digits = &rest[..rest.find(|char: char| !char.is_ascii_digit())?];
        let rest_after = rest[digits.len()..].trim_start();
        (rest_after.starts_with(',') && !digits.is_empty())
            .then(|| digits.parse().ok().map(DiagnosticCode))?
    };
    let after = |call: &'static str| code.split(call).skip(1).filter_map(number);
    after("error(").chain(after("warning(")).chain(after("_as(")).collect()
}

fn used(folder: &Path, codes: &mut BTreeSet<DiagnosticCode>) {
    for entry in std::fs::read_dir(folder).expect("the sources are there") {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.ends_with("src/object") {
            // The host also reads objects: errors of that reader are not diagnostics.
            continue;
        }
        if path.is_dir() {
            used(&path, codes);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            codes.append(&mut numbers(&std::fs::read_to_string(&path).expect("readable")));
        }
    }
}

#[test]
fn codes_and_pages_are_the_same_set() {
    let mut used_codes = BTreeSet::new();
    used(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src")), &mut used_codes);
    assert!(used_codes.contains(&DiagnosticCode(301)), "the search finds codes");
    let described: BTreeSet<DiagnosticCode> = codes::pages().iter().map(|page| page.code).collect();
    let without: Vec<_> = used_codes.difference(&described).map(DiagnosticCode::to_string).collect();
    assert!(without.is_empty(), "used without a page: {without:?}");
    let idle: Vec<_> = described.difference(&used_codes).map(DiagnosticCode::to_string).collect();
    assert!(idle.is_empty(), "described, never used: {idle:?}");
}

fn ks(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ks")).args(args).output().expect("ks runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("ks writes text")
}

#[test]
fn a_page_is_printed_however_the_code_is_written() {
    let page = ks(&["explain", "KS0301"]);
    assert!(page.status.success());
    let printed = text(&page.stdout);
    assert!(printed.starts_with("KS0301: there is no such name here\n\nError.\n"), "{printed}");
    assert!(
        printed.contains("\nWrong:\n    var hits") && printed.contains("\nRight:\n    var hits"),
        "{printed}"
    );
    assert!(!printed.contains("```"), "{printed}");
    for written in ["301", "0301", "ks0301", "KS301"] {
        assert_eq!(ks(&["explain", written]).stdout, page.stdout, "{written}");
    }
}

#[test]
fn all_files_of_an_example_are_printed() {
    let printed = text(&ks(&["explain", "803"]).stdout);
    for name in ["// main.ks\n", "// a.ks\n", "// b.ks\n"] {
        assert_eq!(printed.matches(name).count(), 2, "{printed}");
    }
    assert!(text(&ks(&["explain", "702"]).stdout).contains("Wrong with --strict-011:"));
}

#[test]
fn an_unknown_code_is_an_error_with_near_ones() {
    let unknown = ks(&["explain", "KS0310x"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("`KS0310x` is not a code"), "{}", text(&unknown.stderr));
    let unused = ks(&["explain", "KS0313"]);
    assert_eq!(unused.status.code(), Some(1));
    assert!(text(&unused.stderr).contains("there is no code KS0313; near: KS0"), "{}", text(&unused.stderr));
}

#[test]
fn the_list_has_every_code_on_a_line() {
    let printed = text(&ks(&["explain"]).stdout);
    assert_eq!(printed.lines().count(), codes::pages().len());
    assert!(printed.contains("\nKS0312  warning  this is never used\n"), "{printed}");
    assert!(printed.contains("\nKS0301  error    there is no such name here\n"), "{printed}");
}

#[test]
fn pages_are_json_too() {
    let object: serde_json::Value =
        serde_json::from_slice(&ks(&["explain", "--json", "214"]).stdout).expect("JSON");
    assert_eq!(object["code"], "KS0214");
    assert_eq!(object["severity"], "warning");
    assert_eq!(object["examples"][0]["wrong"], true);
    assert_eq!(object["examples"][0]["files"][0]["name"], "main.ks");
    let list = text(&ks(&["explain", "--json"]).stdout);
    assert!(list.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
}
