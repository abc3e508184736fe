//! A private bpffs, and calls of bpftool.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A bpffs mounted on a temporary folder; dropping it unmounts it and removes its pins.
pub struct BpfFs {
    root: PathBuf,
}

impl BpfFs {
    pub fn mount() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("ks-object-{}-{number}", std::process::id()));
        std::fs::create_dir_all(root.join("fs")).expect("the temporary folder is writable");
        let fs = BpfFs { root };
        run(Command::new("mount").args(["-t", "bpf", "ks-object"]).arg(fs.root.join("fs")));
        fs
    }

    /// Writes a file next to the mount and returns its path.
    pub fn write(&self, name: &str, content: &[u8]) -> String {
        let path = self.root.join(name);
        std::fs::write(&path, content).expect("the temporary folder is writable");
        text(&path)
    }

    /// Returns the path of a pin below the mount.
    pub fn pin(&self, name: &str) -> String {
        text(&self.root.join("fs").join(name))
    }
}

impl Drop for BpfFs {
    fn drop(&mut self) {
        // A drop during a failing test must not hide the failure, so errors are only reported.
        let unmounted = Command::new("umount").arg(self.root.join("fs")).status();
        let removed = std::fs::remove_dir_all(&self.root);
        if !unmounted.is_ok_and(|status| status.success()) || removed.is_err() {
            eprintln!("{} is left over", self.root.display());
        }
    }
}

/// Runs bpftool and returns its standard output. Panics with all of its output if it fails.
pub fn bpftool(args: &[&str]) -> String {
    let output = run(Command::new("bpftool").args(args));
    String::from_utf8(output.stdout).expect("bpftool prints text")
}

/// Runs bpftool, which must fail, and returns its standard error.
pub fn bpftool_fails(args: &[&str]) -> String {
    let output = Command::new("bpftool").args(args).output().expect("bpftool is installed");
    assert!(!output.status.success(), "bpftool {args:?} succeeded");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

fn text(path: &Path) -> String {
    path.to_str().expect("the temporary folder has a UTF-8 name").to_owned()
}
