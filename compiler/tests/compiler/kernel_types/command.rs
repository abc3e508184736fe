//! The command `ks init`: folders and exit codes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Creates an empty folder for this test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("init_{name}_{}", std::process::id()));
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("left over from an earlier run");
    }
    fs::create_dir_all(&folder).expect("the folder for tests is writable");
    folder
}

fn ks(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ks"));
    command.arg("init").args(arguments).current_dir(folder).output().expect("ks runs")
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_folder_is_created_and_filled() {
    let at = folder("made");
    let output = ks(&at, &["xdp", "deep/down/packets"]);
    assert!(output.status.success(), "{}", errors(&output));
    for name in ["packets.ks", "xdp.kh", "README.md"] {
        assert!(at.join("deep/down/packets").join(name).is_file(), "{name}");
    }
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().next(), Some("deep/down/packets/packets.ks"));
}

#[test]
fn existing_files_are_not_overwritten() {
    let at = folder("full");
    fs::create_dir(at.join("mine")).expect("writable");
    assert!(ks(&at, &["xdp", "mine"]).status.success(), "an empty folder is taken");
    fs::write(at.join("mine/mine.ks"), "precious").expect("writable");
    let output = ks(&at, &["xdp", "mine"]);
    assert!(!output.status.success());
    assert!(errors(&output).contains("mine is not empty"), "{}", errors(&output));
    assert_eq!(fs::read_to_string(at.join("mine/mine.ks")).expect("still there"), "precious");
    fs::write(at.join("file"), "").expect("writable");
    assert!(!ks(&at, &["xdp", "file"]).status.success());
}

#[test]
fn an_error_creates_no_files() {
    let at = folder("error");
    for arguments in
        [&["xpd", "fresh"][..], &["probe/vfs_raed", "fresh"], &["xdp", "fresh", "--btf", "no_such_file"]]
    {
        let output = ks(&at, arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(!at.join("fresh").exists(), "{arguments:?}");
    }
    fs::write(at.join("rubbish"), "not BTF").expect("writable");
    let output = ks(&at, &["xdp", "fresh", "--btf", "rubbish"]);
    assert!(errors(&output).contains("rubbish cannot be used as BTF: not BTF"), "{}", errors(&output));
}

#[test]
fn the_btf_file_is_the_one_that_is_asked() {
    use ks_compiler::object::btf::{BtfBuilder, FuncLinkage, IntEncoding};
    let at = folder("btf");
    let mut btf = BtfBuilder::new();
    let int = btf.int("int", 4, IntEncoding::Signed);
    let proto = btf.func_proto(int, &[("answer", int)]);
    btf.func("only_here", proto, FuncLinkage::Static);
    fs::write(at.join("kernel.btf"), btf.finish().expect("well-formed")).expect("writable");
    // The second is the spelling of 0.1.1.
    for (option, name) in [("--btf", "one"), ("--btf-vmlinux-path", "two")] {
        let output = ks(&at, &["probe/only_here", name, option, "kernel.btf"]);
        assert!(output.status.success(), "{}", errors(&output));
        let script = fs::read_to_string(at.join(name).join(format!("{name}.ks"))).expect("written");
        assert!(script.contains("fn on_call(answer: i32) -> i32 {"), "{script}");
    }
    let output = ks(&at, &["probe/vfs_read", "three", "--btf", "kernel.btf"]);
    assert!(errors(&output).contains("the kernel has no function `vfs_read`"), "{}", errors(&output));
}
