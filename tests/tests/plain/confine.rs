//! Confinement of a plugin's thread: the operations that it loses, and those that it keeps.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ks_host::confine::{Confinement, RunNeeds};
use ks_host::plugin::{Engine, Plugin};
use ks_host::policy::{PluginObject, Policy};
use ks_tests::binary;
use ks_tests::plugins::models::program;
use ks_tests::plugins::{OWN_EVENT, component, elf, with_object};
use ks_wit::section::Arch;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Runs a function on its own thread, confined like a plugin that needs nothing.
fn confined<R: Send + 'static>(act: impl FnOnce() -> R + Send + 'static) -> R {
    let confinement = Confinement::of(None, &BTreeSet::new(), &Policy::everything(), RunNeeds::default());
    let thread = std::thread::spawn(move || {
        confinement.enter().expect("every kernel of the tests has seccomp");
        act()
    });
    thread.join().expect("the act does not panic")
}

#[test]
fn files_are_read_and_not_written() {
    let folder = std::env::temp_dir().join(format!("ks-confine-{}", std::process::id()));
    let (to_write, to_make) = (folder.clone(), folder.with_extension("d"));
    confined(move || {
        assert!(!std::fs::read_to_string("/proc/version").expect("files are read").is_empty());
        for refused in [
            std::fs::write(&to_write, b"x"),
            std::fs::create_dir(&to_make),
            std::fs::remove_file("/nonexistent"),
            std::fs::rename("/nonexistent", "/nonexistent2"),
            std::fs::OpenOptions::new().append(true).open("/dev/null").map(drop),
        ] {
            assert_eq!(refused.expect_err("not allowed").kind(), ErrorKind::PermissionDenied);
        }
    });
    assert!(!folder.exists());
}

#[test]
fn confined_threads_cannot_start_programs_or_connect() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("bound");
    confined(move || {
        assert_eq!(Command::new("true").spawn().expect_err("no process").kind(), ErrorKind::PermissionDenied);
        assert_eq!(TcpStream::connect(address).expect_err("no socket").kind(), ErrorKind::PermissionDenied);
        // Threads are allowed: they inherit the confinement.
        let child = std::thread::spawn(|| Command::new("true").spawn().map(drop));
        let inherited = child.join().expect("a thread").expect_err("no process");
        assert_eq!(inherited.kind(), ErrorKind::PermissionDenied);
    });
    TcpStream::connect(address).expect("this thread is not confined");
}

/// Limits bound the host's use of the machine.
#[test]
fn limits_are_read_and_not_set() {
    confined(|| {
        let (soft, hard) = getrlimit(Resource::RLIMIT_CORE).expect("limits are read");
        assert_eq!(setrlimit(Resource::RLIMIT_CORE, soft, hard), Err(Errno::EPERM));
    });
}

/// Compiling happens on threads that are not confined: here no memory becomes executable.
#[test]
fn no_memory_becomes_executable() {
    let plugin = Plugin::from_bytes(component(RETURNS_0)).expect("a plugin");
    let engine = Engine::new().expect("an engine");
    engine.compile(&plugin).expect("it compiles here");
    let refused = confined(move || engine.compile(&plugin).map(drop).expect_err("not there").to_string());
    assert!(refused.contains("not permitted"), "{refused}");
}

const RETURNS_0: &str = r#"(func (export "run") (result i32) (i32.const 0))"#;

/// A running `ks-host` with a plugin, and the plugin's file.
struct Running(Child, PathBuf);

impl Running {
    fn start(name: &str, file: &[u8], arguments: &[&str]) -> Running {
        let path = std::env::temp_dir().join(format!("ks-confine-{}-{name}.wasm", std::process::id()));
        std::fs::write(&path, file).expect("the folder for temporary files is writable");
        let mut child = Command::new(binary("ks-host"))
            .args(arguments)
            .arg(&path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("ks-host starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("text");
        assert_eq!(line, "ready\n");
        Running(child, path)
    }

    /// Returns the status of the plugin's thread.
    fn plugin_status(&self) -> (u64, u64, u64) {
        self.status(|name| name.starts_with("ks:"))
    }

    /// Returns the status of a thread of the host.
    fn host_status(&self) -> (u64, u64, u64) {
        self.status(|name| !name.starts_with("ks:"))
    }

    /// Returns the kernel's status of the first thread whose name is wanted: seccomp, no_new_privs,
    /// capabilities.
    fn status(&self, is_wanted: impl Fn(&str) -> bool) -> (u64, u64, u64) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it lives");
        let mut texts = tasks
            .filter_map(|task| std::fs::read_to_string(task.expect("an entry").path().join("status")).ok());
        let text =
            texts.find(|text| text.strip_prefix("Name:\t").is_some_and(&is_wanted)).expect("there is one");
        let field = |name: &str, radix| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            u64::from_str_radix(value.trim(), radix).expect("a number")
        };
        (field("Seccomp:", 10), field("NoNewPrivs:", 10), field("CapEff:", 16))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_file(&self.1);
    }
}

/// Returns a component that prints `ready` and sleeps; `before` makes it import more.
fn sleeper(before: &str) -> Vec<u8> {
    component(&format!(
        r#"{OWN_EVENT} (data (i32.const 16) "ready")
        (func (export "run") (result i32)
          {before}
          (call $print (i32.const 16) (i32.const 5) (i32.const 0) (i32.const 0))
          (call $sleep (i64.const 3600000000000) (i32.const 1024)) (i32.const 0))"#
    ))
}

const NET_ADMIN: u64 = 1 << 12;
const SYS_ADMIN: u64 = 1 << 21;
const PERFMON: u64 = 1 << 38;
const BPF: u64 = 1 << 39;

#[test]
fn root_the_thread_of_a_plugin_keeps_what_it_needs() {
    let counts =
        Running::start("counts", &sleeper("(drop (call $own_page_faults (i32.const 0) (i32.const 0)))"), &[]);
    let (seccomp, no_new_privs, capabilities) = counts.plugin_status();
    assert_eq!((seccomp, no_new_privs), (2, 1));
    let closed = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").expect("procfs is there");
    let closed = closed.trim().parse::<i32>().is_ok_and(|setting| setting > 2);
    let expected = if closed { PERFMON | SYS_ADMIN } else { PERFMON };
    assert_eq!(capabilities & (PERFMON | BPF | NET_ADMIN | SYS_ADMIN), expected, "{capabilities:x}");
    let (seccomp, no_new_privs, all) = counts.host_status();
    assert_eq!((seccomp, no_new_privs), (0, 0), "other threads are as they were");
    assert!(capabilities.count_ones() < all.count_ones());

    let loads = with_object(sleeper(""), elf::counting("xdp"));
    let loads = Running::start("loads", &loads, &["--allow", "xdp"]);
    let (.., capabilities) = loads.plugin_status();
    assert_eq!(capabilities & (BPF | NET_ADMIN), BPF | NET_ADMIN, "{capabilities:x}");

    let unconfined = Running::start("unconfined", &sleeper(""), &["--unconfined"]);
    assert_eq!(unconfined.plugin_status(), (0, 0, all));
}

#[test]
fn kept_capabilities_follow_the_object_and_the_imports() {
    let functions = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    let of = |section: &str, names: &[&str]| {
        let object = PluginObject::new("test", Arch::Any, program(section, &[])).expect("a sound object");
        Confinement::of(Some(&object), &functions(names), &Policy::everything(), RunNeeds::default())
    };
    let observes = of("tracepoint/sched/sched_switch", &[]);
    assert_ne!(observes, of("xdp", &[]));
    assert_eq!(observes, of("lsm/file_open", &["clock.now"]));
    assert_ne!(observes, of("lsm/file_open", &["symbols.kernel"]));
    assert_ne!(of("kprobe/vfs_read", &[]), of("uprobe//bin/true:main+0", &[]));
    let with =
        |policy: &Policy, name| Confinement::of(None, &functions(&[name]), policy, RunNeeds::default());
    let without = |name| with(&Policy::everything(), name);
    assert_ne!(without("perf.[static]event.named"), without("perf.[static]event.breakpoint"));

    // A denied import needs no rights.
    let mut policy = Policy::nothing();
    let nothing = with(&policy, "clock.now");
    for import in ["perf.open", "perf.[static]event.breakpoint", "symbols.kernel"] {
        assert_ne!(without(import), nothing, "{import}");
        assert_eq!(with(&policy, import), nothing, "{import}");
    }
    policy.allow_rule("event=software").expect("a class");
    let software = with(&policy, "perf.open");
    assert_eq!(software, without("perf.open"));
    assert_eq!(with(&policy, "perf.[static]event.breakpoint"), software);
    assert_eq!(with(&policy, "perf.[static]event.uprobe"), software);
    policy.allow_rule("event=uprobe:/bin/true:*").expect("a class");
    assert_ne!(with(&policy, "perf.[static]event.uprobe"), software);
}
