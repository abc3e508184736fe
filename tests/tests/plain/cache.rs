//! The cache of compiled code: it saves a compilation, and uses no entry that somebody else could have
//! written.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use hmac::{Hmac, KeyInit as _, Mac as _};
use ks_host::Host;
use ks_host::plugin::{Cache, CacheError, CodeOrigin, Plugin};
use ks_tests::plugins::component;
use ks_tests::{command, finish};
use sha2::Sha256;

/// A temporary folder, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ks-cache-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("the temporary folder is writable");
        Folder(path)
    }

    fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn returning(code: u8) -> Plugin {
    let text = format!("(func (export \"run\") (result i32) (i32.const {code}))");
    Plugin::from_bytes(component(&text)).expect("a plugin")
}

/// Prepares a plugin with this cache, runs it, and returns its exit code and the origin of its code.
fn run(cache: &Path, plugin: &Plugin) -> (u8, String) {
    let host = Host::new().expect("an engine").with_cache(Cache::open(cache).expect("a cache"));
    let prepared = host.prepare(plugin).expect("a plugin for this host");
    let origin = match prepared.code() {
        CodeOrigin::Cached => "cached".to_owned(),
        CodeOrigin::Stored => "stored".to_owned(),
        other => format!("{other:?}"),
    };
    (prepared.run(ks_host::RunOptions::new("test.wasm")).exit_code(), origin)
}

/// Returns the cache entries, without the key file.
fn entries(cache: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(cache).expect("readable").map(|entry| entry.expect("readable").path());
    listed.filter(|path| path.file_name().is_some_and(|name| name != "key")).collect()
}

fn stored() -> (u8, String) {
    (7, "stored".into())
}

fn cached() -> (u8, String) {
    (7, "cached".into())
}

#[test]
fn code_is_compiled_once() {
    let folder = Folder::new();
    let cache = folder.cache();
    assert_eq!(run(&cache, &returning(7)), stored());
    assert_eq!(run(&cache, &returning(7)), cached());
    assert_eq!(run(&cache, &returning(8)), (8, "stored".into()));
    let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o7777;
    assert_eq!((mode(&cache), mode(&cache.join("key"))), (0o700, 0o600));
    assert_eq!(entries(&cache).len(), 2);
}

#[test]
fn an_entry_that_was_changed_is_not_taken() {
    let folder = Folder::new();
    let cache = folder.cache();
    assert_eq!(run(&cache, &returning(7)), stored());
    let entry = entries(&cache).remove(0);
    let good = fs::read(&entry).expect("readable");
    for offset in [0, good.len() / 2, good.len() - 1] {
        let mut changed = good.clone();
        changed[offset] ^= 1;
        fs::write(&entry, changed).expect("writable");
        assert_eq!(run(&cache, &returning(7)), stored(), "byte {offset} was changed");
        assert_eq!(run(&cache, &returning(7)), cached());
    }
    fs::write(&entry, &good[..20]).expect("writable");
    assert_eq!(run(&cache, &returning(7)), stored(), "cut short");
}

/// The engine looks at code while the run has begun, of the command with one plugin, and before it, of the library.
#[test]
fn code_of_another_engine_is_compiled_again() {
    let folder = Folder::new();
    let (cache, plugin) = (folder.cache(), returning(7));
    let file = folder.0.join("seven.wasm");
    fs::write(&file, plugin.bytes()).expect("the folder is writable");
    assert_eq!(run(&cache, &plugin), stored());
    let entry = entries(&cache).pop().expect("one entry");
    let name = entry.file_name().expect("a name").to_string_lossy().into_owned();
    let code = b"the code of another engine".as_slice();
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&fs::read(cache.join("key")).expect("the key")).expect("any key");
    [&(name.len() as u64).to_le_bytes(), name.as_bytes(), code].iter().for_each(|part| mac.update(part));
    let written = [code, &mac.finalize().into_bytes()].concat();
    for isolation in ["process", "thread"] {
        fs::write(&entry, &written).expect("it is ours");
        let mut host = command("ks-host");
        let ran = finish(host.arg("--cache").arg(&cache).args(["--isolation", isolation]).arg(&file));
        assert_eq!((ran.code, ran.stderr.as_str()), (7, ""), "{isolation}: {ran:#?}");
        assert_ne!(fs::read(&entry).expect("it is there"), written, "{isolation}");
    }
    fs::write(&entry, &written).expect("it is ours");
    assert_eq!(run(&cache, &plugin), stored());
}

#[test]
fn the_code_of_another_plugin_is_not_taken() {
    let folder = Folder::new();
    let cache = folder.cache();
    assert_eq!(run(&cache, &returning(8)), (8, "stored".into()));
    let other = entries(&cache).remove(0);
    assert_eq!(run(&cache, &returning(7)), stored());
    let own = entries(&cache).into_iter().find(|path| *path != other).expect("a second entry");
    fs::copy(&other, &own).expect("writable");
    assert_eq!(run(&cache, &returning(7)), stored());
}

#[test]
fn code_that_was_written_with_another_key_is_not_taken() {
    let folder = Folder::new();
    let cache = folder.cache();
    assert_eq!(run(&cache, &returning(7)), stored());
    fs::write(cache.join("key"), [0; 32]).expect("writable");
    assert_eq!(run(&cache, &returning(7)), stored());
    fs::write(cache.join("key"), "no key").expect("writable");
    assert_eq!(run(&cache, &returning(7)), stored());
    assert_eq!(run(&cache, &returning(7)), cached());
}

/// Runs a script that names a type of the kernel and prints a word, with this cache. Returns whether it runs, and what is
/// said.
fn run_with_types(cache: &Path, word: &str) -> (bool, String) {
    let script = "
        @perf_event
        fn of_task(ctx: *bpf_perf_event_data) -> i32 {
            var task = bpf_get_current_task_btf() as *task_struct
            return task->prio
        }
        fn main() -> i32 { print(\"WORD\") return 0 }"
        .replace("WORD", word);
    let output =
        command("ks-host").arg("--cache").arg(cache).args(["-e", &script]).output().expect("ks-host starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

fn assert_runs(cache: &Path, word: &str) {
    assert_eq!(run_with_types(cache, word), (true, format!("{word}\n")));
}

/// Returns the entry whose name begins so.
fn entry_of(cache: &Path, prefix: &str) -> PathBuf {
    let begins =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix));
    entries(cache).into_iter().find(begins).expect("it is kept")
}

/// Gives a type of the image another name.
fn renamed(image: &[u8]) -> Vec<u8> {
    let name = b"\0task_struct\0";
    let at = image.windows(name.len()).position(|bytes| bytes == name).expect("each kernel has it");
    let mut renamed = image.to_vec();
    renamed[at + 1] = b'T';
    renamed
}

#[test]
fn the_kernels_types_are_kept_and_used() {
    let folder = Folder::new();
    let cache = folder.cache();
    assert_runs(&cache, "first");
    let image = entry_of(&cache, "types-");
    let whole = fs::read(&image).expect("readable");
    assert_runs(&cache, "second");

    // The types are those of the image.
    fs::write(&image, renamed(&whole)).expect("writable");
    let (succeeds, said) = run_with_types(&cache, "third");
    assert!(!succeeds && said.contains("task_struct"), "{said}");

    // An image that is cut off, or that others can write, is replaced.
    fs::write(&image, &whole[..whole.len() / 2]).expect("writable");
    assert_runs(&cache, "fourth");
    assert!(fs::read(&image).expect("readable") == whole, "another image");
    fs::write(&image, renamed(&whole)).expect("writable");
    fs::set_permissions(&image, Permissions::from_mode(0o666)).expect("ours");
    assert_runs(&cache, "fifth");

    // That of an earlier boot is removed.
    let earlier = cache.join("types-of-an-earlier-boot");
    fs::rename(&image, &earlier).expect("ours");
    assert_runs(&cache, "sixth");
    assert!(image.exists() && !earlier.exists());
}

#[test]
fn a_script_is_compiled_once() {
    let folder = Folder::new();
    let cache = folder.cache();
    assert_runs(&cache, "first");
    // It would not be compiled with these types.
    let image = entry_of(&cache, "types-");
    let whole = fs::read(&image).expect("readable");
    fs::write(&image, renamed(&whole)).expect("writable");
    assert_runs(&cache, "first");
    assert!(!run_with_types(&cache, "second").0, "another text");

    let kept = entry_of(&cache, "script-");
    let mut changed = fs::read(&kept).expect("readable");
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    fs::write(&kept, changed).expect("writable");
    assert!(!run_with_types(&cache, "first").0, "a changed entry is not taken");
    fs::write(&image, whole).expect("writable");
    assert_runs(&cache, "first");
    assert_runs(&cache, "first");
}

#[test]
fn files_that_others_can_write_or_that_are_links_are_not_taken() {
    let folder = Folder::new();
    let cache = folder.cache();
    assert_eq!(run(&cache, &returning(7)), stored());
    let entry = entries(&cache).remove(0);
    fs::set_permissions(&entry, Permissions::from_mode(0o666)).expect("ours");
    assert_eq!(run(&cache, &returning(7)), stored());
    let elsewhere = folder.0.join("elsewhere");
    fs::rename(&entry, &elsewhere).expect("ours");
    symlink(&elsewhere, &entry).expect("ours");
    assert_eq!(run(&cache, &returning(7)), stored());
    assert!(!fs::symlink_metadata(&entry).expect("it is there").is_symlink(), "replaced");
}

#[test]
fn a_folder_that_is_not_this_users_alone_is_refused() {
    let folder = Folder::new();
    let open = Folder::cache(&folder);
    fs::create_dir(&open).expect("ours");
    fs::set_permissions(&open, Permissions::from_mode(0o755)).expect("ours");
    let refused = |path: &Path| match Cache::open(path) {
        Err(CacheError::Unsafe { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert!(refused(&open).contains("mode is 0755"));
    fs::set_permissions(&open, Permissions::from_mode(0o700)).expect("ours");
    let link = folder.0.join("link");
    symlink(&open, &link).expect("ours");
    assert!(refused(&link).contains("link"));
    assert!(Cache::open(&open).is_ok());
}

#[test]
fn root_a_folder_of_another_user_is_refused() {
    let folder = Folder::new();
    let cache = folder.cache();
    fs::create_dir(&cache).expect("ours");
    fs::set_permissions(&cache, Permissions::from_mode(0o700)).expect("ours");
    std::os::unix::fs::chown(&cache, Some(65534), None).expect("this test needs root");
    let Err(error) = Cache::open(&cache) else { panic!("a folder of another user was taken") };
    assert!(error.to_string().contains("belongs to user 65534"), "{error}");
}
