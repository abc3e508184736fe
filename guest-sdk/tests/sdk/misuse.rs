//! Misuse of the API does not compile, and the compiler's message explains why.

use std::fs::DirEntry;
use std::path::Path;
use std::process::Command;

/// Each program of tests/misuse is compiled against this build of the crate.
#[test]
fn misuse_does_not_compile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/misuse");
    let entries =
        std::fs::read_dir(&folder).expect("the folder is there").map(|entry| entry.expect("readable").path());
    let mut programs: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == "rs")).collect();
    programs.sort();
    assert!(!programs.is_empty());
    insta::with_settings!({
        prepend_module_to_snapshot => false,
        snapshot_path => "../misuse",
        omit_expression => true,
    }, {
        for program in programs {
            let name = program.file_stem().expect("a file has a name").to_string_lossy().into_owned();
            insta::assert_snapshot!(name, refused(&program));
        }
    });
}

/// Returns rustc's message for a program, without line numbers of the crate, which change.
fn refused(program: &Path) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let binary = std::env::current_exe().expect("a test knows its own path");
    let dependencies = binary.parent().expect("it lies in a folder");
    // Older builds of the crate lie next to it.
    let entries =
        std::fs::read_dir(dependencies).expect("the folder is there").map(|entry| entry.expect("readable"));
    let builds = entries.filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libks_guest-") && name.ends_with(".rlib")
    });
    let changed =
        |entry: &DirEntry| entry.metadata().and_then(|data| data.modified()).expect("a file has a time");
    let library = builds.max_by_key(changed).expect("the crate is built").path();
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or("rustc".into()));
    rustc
        .current_dir(folder)
        .args(["--edition", "2024", "--crate-type", "bin", "--emit", "metadata", "--color", "never"])
        .args(["-o", "/dev/null", "--cap-lints", "allow"])
        .arg("--extern")
        .arg(format!("ks_guest={}", library.display()))
        .arg("-L")
        .arg(format!("dependency={}", dependencies.display()))
        .arg(program.strip_prefix(folder).unwrap_or(program));
    let output = rustc.output().unwrap_or_else(|error| panic!("{rustc:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{}: {said}", program.display());
    // cargo passed rustc paths that are relative to the workspace.
    let without = |line: &str| match line.split_once("--> guest-sdk/") {
        Some((before, at)) => format!("{before}--> {}", at.split(':').next().unwrap_or_default()),
        None => line.to_owned(),
    };
    said.lines().map(without).collect::<Vec<_>>().join("\n")
}
