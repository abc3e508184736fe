//! Checks that `ks check` and `ks build` report the same on every case, with the same flags.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};

use crate::{entries, folder};

/// The folders of cases.
const KINDS: [&str; 7] = ["valid", "invalid", "check", "diagnostics", "parse", "kernel", "both"];

pub fn trials() -> Vec<Trial> {
    let mut scripts = Vec::new();
    KINDS.iter().for_each(|kind| collect(&folder(kind), &mut scripts));
    scripts
        .into_iter()
        .map(|script| {
            let name = script.strip_prefix(folder("")).expect("a case lies in the folder").with_extension("");
            let name = format!("check_and_build::{}", name.to_string_lossy().replace('/', "::"));
            Trial::test(name, move || compare(&script))
        })
        .collect()
}

/// Collects the main scripts below a folder.
fn collect(folder: &Path, scripts: &mut Vec<PathBuf>) {
    let found = entries(folder);
    let main = folder.join("main.ks");
    if found.contains(&main) {
        scripts.push(main);
        return;
    }
    for path in found {
        match path.is_dir() {
            true => collect(&path, scripts),
            false if path.extension().is_some_and(|ending| ending == "ks") => scripts.push(path),
            false => {}
        }
    }
}

fn compare(script: &Path) -> Result<(), Failed> {
    let text = String::from_utf8_lossy(&std::fs::read(script)?).into_owned();
    let head: Vec<&str> = text.lines().map_while(|line| line.strip_prefix("// ")).collect();
    let has = |flag_name: &str| {
        let mut modes =
            head.iter().filter_map(|line| line.strip_prefix("mode: ").or(line.strip_prefix("flags: ")));
        modes.any(|line| line.split([',', ' ']).any(|one| one == flag_name))
    };
    let run = |command: &[&str]| -> Result<Output, Failed> {
        let mut ks = Command::new(env!("CARGO_BIN_EXE_ks"));
        ks.args(command).args(["--format", "json"]).arg(script);
        for (flag_name, flag) in [("strict", "--strict-011"), ("tests", "--test")] {
            ks.args(has(flag_name).then_some(flag));
        }
        Ok(ks.output()?)
    };
    let (check, build) = (run(&["check"])?, run(&["build", "-o", "/dev/null"])?);
    let said = |output: &Output| {
        let [out, errors] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        (output.status.code(), out, errors)
    };
    if said(&check) == said(&build) {
        return Ok(());
    }
    Err(format!("`ks check`: {:#?}\n`ks build`: {:#?}", said(&check), said(&build)).into())
}
