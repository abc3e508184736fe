//! The loader: libbpf with sanitizers in a process of its own, which gets objects through a pipe.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use ks_tests::cgroup::MemoryGroup;
use ks_tests::guests::target_folder;
use ks_tests::{finish, finish_within, repository};

/// Limit of the loader's memory in bytes, its maps included: several times what it and the maps of one object
/// take.
const MEMORY_BYTES: u64 = 512 << 20;

/// Returns the path of the loader, which is built with this host's version of libbpf and sanitizers. Several tests
/// ask at once.
fn built() -> &'static Path {
    static BUILT: LazyLock<PathBuf> = LazyLock::new(find_or_build);
    &BUILT
}

fn find_or_build() -> PathBuf {
    // Packages for other platforms need not have been fetched.
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let asked =
        ["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform", &platform];
    let outcome = finish(Command::new(env!("CARGO")).current_dir(repository()).args(asked));
    let metadata: serde_json::Value = serde_json::from_str(&outcome.stdout).expect("JSON");
    let packages = metadata["packages"].as_array().expect("packages");
    let package =
        packages.iter().find(|package| package["name"] == "libbpf-sys").expect("it is a dependency");
    let (version, manifest) = (package["version"].as_str(), package["manifest_path"].as_str());
    let source = Path::new(manifest.expect("a path")).parent().expect("a folder").join("libbpf/src");
    let folder = target_folder().join(format!("libbpf-sanitized-{}", version.expect("a version")));
    let program = folder.join("loader");
    let main = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/toolchains/mutants/loader.c");
    let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    if changed(&program) < changed(&main) {
        build(&source, &main, &folder, &program);
    }
    program
}

fn build(source: &Path, main: &Path, folder: &Path, program: &Path) {
    let headers = folder.join("include/bpf");
    fs::create_dir_all(&headers).expect("the folder is ours");
    let mut files = vec![main.to_owned()];
    for entry in fs::read_dir(source).expect("the sources of libbpf are there").flatten() {
        let path = entry.path();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("c") => files.push(path),
            Some("h") => _ = fs::copy(&path, headers.join(entry.file_name())).expect("the folder is ours"),
            _ => {}
        }
    }
    let include = |folder: PathBuf| format!("-I{}", folder.display());
    // Built next to its final path and renamed: another run of the tests sees the whole program or none.
    let part = folder.join(format!("loader.{}.part", std::process::id()));
    let built = finish_within(
        Command::new("cc")
            .args(["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"])
            .args(["-D_LARGEFILE64_SOURCE", "-D_FILE_OFFSET_BITS=64"])
            .args([include(source.to_owned()), include(source.join("../include"))])
            .args([include(source.join("../include/uapi")), include(folder.join("include"))])
            .args(files)
            .args(["-lelf", "-lz", "-o"])
            .arg(&part),
        Duration::from_secs(600),
    );
    assert_eq!(built.code, 0, "{built:#?}");
    fs::rename(part, program).expect("the folder is ours");
}

/// Number of objects for one process. What libbpf leaks, and what the sanitizer keeps back of freed memory, ends
/// with it.
const OBJECTS: u32 = 4000;

/// A running loader, killed when dropped.
pub(super) struct Loader {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    /// Number of objects so far.
    objects: u32,
    /// Limits the memory of the maps; none where no control group can.
    group: Option<MemoryGroup>,
}

/// The loader's result for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadOutcome {
    Prepared,
    Opened,
    NotPrepared,
    NotOpened,
}

impl Loader {
    /// Starts the loader in a control group with a limit of memory.
    pub(super) fn start() -> Loader {
        let group = MemoryGroup::new(MEMORY_BYTES);
        let mut command = match group {
            Some(_) => Command::new(built()),
            None => limited(built()),
        };
        let mut child = command
            // Leaks are ignored because they end with the process; the test looks for memory errors.
            .env("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1:quarantine_size_mb=32")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it was built");
        // It waits for the first object.
        group.iter().for_each(|group| group.add(child.id()));
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Loader { child, to, from, objects: 0, group }
    }

    /// Opens an object, with the types for CO-RE in the file `types`, and prepares it if `prepare`. None if
    /// the loader ended.
    pub(super) fn load(&mut self, elf: &[u8], types: &str, prepare: bool) -> Option<LoadOutcome> {
        if self.objects == OBJECTS {
            *self = Loader::start();
        }
        self.objects += 1;
        let len = |bytes: usize| u32::try_from(bytes).expect("objects are small").to_le_bytes();
        let head = [u32::from(prepare).to_le_bytes(), len(types.len()), len(elf.len()), [0; 4]].concat();
        let mut said = [0];
        let answered = [&head[..], types.as_bytes(), elf].iter().try_for_each(|part| self.to.write_all(part));
        answered.and_then(|()| self.from.read_exact(&mut said)).ok()?;
        [LoadOutcome::Prepared, LoadOutcome::Opened, LoadOutcome::NotPrepared, LoadOutcome::NotOpened]
            .get(usize::from(said[0]))
            .copied()
    }

    /// Returns whether a control group limits the memory of the maps.
    pub(super) fn is_grouped(&self) -> bool {
        self.group.is_some()
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Cleans up after a failed test; a child that has ended cannot be killed.
        let _ = self.child.kill().and_then(|()| self.child.wait().map(drop));
        // The maps that it pinned, if a fault ended it. The path is that of loader.c.
        let _ = fs::remove_dir_all(format!("/sys/fs/bpf/ks-mutants-{}", self.child.id()));
    }
}

/// Returns a command with the only limit that maps have without control groups, and says so.
fn limited(program: &Path) -> Command {
    eprintln!(
        "no control group with the memory controller: maps are limited by RLIMIT_MEMLOCK, which kernels since \
         5.11 do not apply to them"
    );
    let mut command = Command::new("prlimit");
    command.arg(format!("--memlock={MEMORY_BYTES}")).arg(program);
    command
}
