//! A corpus of scripts as people write them, checked by `ks check`.
//!
//! `valid/`: whole programs, each of which must pass. A head line `// warn: KS0214, KS0415` names warnings
//! that must be there; others are allowed. `invalid/`: small programs, each wrong for one reason, with `//
//! expect: KS0401` (several codes: each error must be one of them) and, if the text matters, `// expect-text:
//! words`. `// mode: strict` is 0.1.1's rules, `// mode: tests` test mode, `// mode: kernel` a kernel whose
//! types are known. Headers and modules are in `lib`.

use std::fs;
use std::path::Path;

use ks_compiler_testing::checked::{Options, Outcome, check};
use libtest_mimic::{Failed, Trial};

use crate::folder;

/// A script with the expectations of its head.
struct Case {
    name: String,
    text: String,
    around: Vec<(String, String)>,
    head: Head,
    valid: bool,
}

#[derive(Default)]
struct Head {
    expect: Vec<String>,
    expect_text: Vec<String>,
    warn: Vec<String>,
    options: Options,
}

pub fn trials() -> Vec<Trial> {
    let cases = ["valid", "invalid"].into_iter().flat_map(cases_of);
    cases
        .map(|case| {
            let name = case.name.trim_end_matches(".ks").replace('/', "::");
            Trial::test(name, move || case.check())
        })
        .collect()
}

impl Case {
    fn check(&self) -> Result<(), Failed> {
        if !self.valid && self.head.expect.is_empty() {
            return Err("an invalid script says what it leads to: `// expect: KS0401`".into());
        }
        let main_name = self.name.rsplit('/').next().unwrap_or(&self.name);
        let mut files = vec![(main_name, self.text.as_str())];
        files.extend(self.around.iter().map(|(name, text)| (name.as_str(), text.as_str())));
        let outcome = check(&files, self.head.options);
        if self.holds(&outcome) {
            return Ok(());
        }
        let got = match (self.valid, outcome.errors.is_empty()) {
            (true, true) => format!("only the warnings: {}", outcome.warnings_in_short()),
            _ => outcome.errors_in_short(),
        };
        Err(format!("expected: {}\ngot:      {got}", self.expectation()).into())
    }

    fn holds(&self, outcome: &Outcome) -> bool {
        let text =
            |expected: &String| outcome.errors.iter().any(|error| error.text.contains(expected.as_str()));
        if self.valid {
            outcome.accepted() && self.head.warn.iter().all(|code| outcome.warned(code))
        } else {
            let codes: Vec<_> = self.head.expect.iter().map(String::as_str).collect();
            outcome.refused_with(&codes) && self.head.expect_text.iter().all(text)
        }
    }

    fn expectation(&self) -> String {
        match (self.valid, self.head.warn.as_slice()) {
            (true, []) => "pass".into(),
            (true, warnings) => format!("pass with {}", warnings.join(", ")),
            _ => [self.head.expect.join(" or "), self.head.expect_text.join(", ")].join(" ").trim().into(),
        }
    }
}

fn cases_of(group: &str) -> Vec<Case> {
    let folder = folder(group);
    let around = read_folder(&folder, "").into_iter().chain(read_folder(&folder.join("lib"), "lib/"));
    let around: Vec<_> = around.collect();
    let scripts = around.iter().filter(|(name, _)| name.ends_with(".ks") && !name.contains('/'));
    scripts
        .map(|(name, text)| Case {
            name: format!("{group}/{name}"),
            text: text.clone(),
            around: around.iter().filter(|(other, _)| other != name).cloned().collect(),
            head: Head::read(text),
            valid: group == "valid",
        })
        .collect()
}

/// Reads the names (with `prefix`) and texts of a folder's files, sorted by name.
fn read_folder(folder: &Path, prefix: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).expect("the corpus has its folders");
    let paths =
        entries.map(|entry| entry.expect("the folder can be read").path()).filter(|path| path.is_file());
    let mut files: Vec<_> = paths
        .map(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let text = fs::read_to_string(&path).expect("a file of the corpus is UTF-8");
            (format!("{prefix}{name}"), text)
        })
        .collect();
    files.sort();
    files
}

impl Head {
    fn read(text: &str) -> Head {
        let mut head = Head::default();
        for line in text.lines().map_while(|line| line.strip_prefix("// ")) {
            let Some((key, value)) = line.split_once(": ") else { continue };
            let values = || value.split(',').map(|one| one.trim().to_string());
            match key {
                "expect" => head.expect.extend(values()),
                "expect-text" => head.expect_text.push(value.trim().into()),
                "warn" => head.warn.extend(values()),
                "mode" => values().for_each(|mode| match mode.as_str() {
                    "strict" => head.options.strict_011 = true,
                    "tests" => head.options.tests = true,
                    "kernel" => head.options.kernel = true,
                    other => panic!("no mode {other}"),
                }),
                _ => {}
            }
        }
        head
    }
}
