//! What `ks` writes, and what it must not write over.

use std::os::unix::fs::FileTypeExt;

use ks_tests::{Folder, command, finish};

const SCRIPT: &str = "fn main() -> i32 {\n    return 0\n}\n";

#[test]
fn a_script_is_never_its_own_output() {
    let folder = Folder::new();
    let script = folder.write("script.ks", SCRIPT);
    let built = finish(command("ks").arg("build").arg(&script).arg("-o").arg(&script));
    assert_eq!(built.code, 1, "{built:#?}");
    assert!(built.stderr.contains("is the script itself"), "{built:#?}");
    assert_eq!(std::fs::read_to_string(&script).expect("the script is still there"), SCRIPT);
}

#[test]
fn a_pipe_as_output_stays_a_pipe() {
    let folder = Folder::new();
    let script = folder.write("script.ks", SCRIPT);
    let pipe = folder.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("the folder is ours");
    // Opened for both, which waits for nobody; the kernel keeps the bytes for us.
    let _held = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).expect("the pipe opens");
    let built = finish(command("ks").arg("build").arg(&script).arg("-o").arg(&pipe));
    assert_eq!(built.code, 0, "{built:#?}");
    let kind = std::fs::symlink_metadata(&pipe).expect("the pipe is still there").file_type();
    assert!(kind.is_fifo(), "{kind:?}");
}
