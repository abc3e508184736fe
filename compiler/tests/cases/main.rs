//! The case folders next to this file: each case is a test with a name of its own, and adding a case is
//! adding a file.
//!
//! `check/`, `diagnostics/`, `parse/`: [`snapshots`]. `valid/`, `invalid/`: [`corpus`]. `kernel/`: [`loads`]
//! in the kernel and [`both`] for the userspace half, as `both/`. All of them: [`check_and_build`].

mod both;
mod check_and_build;
mod corpus;
mod loads;
mod snapshots;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let mut trials = snapshots::trials();
    trials.extend(corpus::trials());
    trials.extend(loads::trials());
    trials.extend(both::trials());
    trials.extend(check_and_build::trials());
    trials.push(Trial::test("the_cases_are_there", the_cases_are_there));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A folder without cases would have no failing test.
fn the_cases_are_there() -> Result<(), Failed> {
    for (kind, least) in [("diagnostics", 150), ("valid", 120), ("invalid", 200), ("kernel", 10), ("both", 1)]
    {
        let found = scripts(kind).len();
        if found < least {
            return Err(format!("{found} cases in `{kind}`, of {least} at least").into());
        }
    }
    Ok(())
}

/// Returns the folder of one kind of case.
fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(kind)
}

/// Returns the files and folders in a folder, sorted by name.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let read = fs::read_dir(folder).expect("the cases are there");
    let mut paths: Vec<_> = read.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// Returns the scripts of one kind of case, sorted by name.
fn scripts(kind: &str) -> Vec<PathBuf> {
    let mut paths = entries(&folder(kind));
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "ks"));
    paths
}

/// Returns the file name of a script without its ending.
fn stem(path: &Path) -> String {
    path.file_stem().expect("a script has a name").to_string_lossy().into_owned()
}
