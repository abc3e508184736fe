//! Confinement of a plugin's thread: the operations that it loses, and those that it keeps.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU32;

use ks_host::confine::{Confinement, Outputs, RunNeeds};
use ks_host::plugin::{Engine, Plugin};
use ks_host::policy::{PluginObject, Policy};
use ks_tests::plugins::models::program;
use ks_tests::plugins::{OWN_EVENT, component, elf, with_object};
use ks_tests::{Folder, binary};
use ks_wit::section::Arch;
use nix::errno::Errno;
use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;

/// Runs a function on its own thread, confined like a plugin that needs nothing.
fn confined<R: Send + 'static>(act: impl FnOnce() -> R + Send + 'static) -> R {
    let confinement = Confinement::of(None, &BTreeSet::new(), &Policy::everything(), RunNeeds::default());
    confined_as(confinement, act)
}

/// Runs a function on its own thread, confined like this.
fn confined_as<R: Send + 'static>(confinement: Confinement, act: impl FnOnce() -> R + Send + 'static) -> R {
    let thread = std::thread::spawn(move || {
        confinement.enter(&Outputs::open_now()).expect("every kernel of the tests has seccomp");
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

/// Makes a system call by its number.
#[expect(unsafe_code, reason = "the filter is asked about calls that no safe wrapper makes")]
fn call<const N: usize>(number: i64, arguments: [usize; N]) -> Result<i64, Errno> {
    let mut six = [0; 6];
    six[..N].copy_from_slice(&arguments);
    let [a, b, c, d, e, f] = six;
    // SAFETY: each test either expects that the filter refuses the call, or passes memory that it mapped itself
    // for this call.
    Errno::result(unsafe { libc::syscall(number, a, b, c, d, e, f) })
}

/// Memory of the host, by which other threads run: replaced, it would be theirs.
#[test]
fn memory_of_the_host_stays() {
    const PAGE: usize = 4096;
    let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs is there");
    let line = |name: &str| maps.lines().find(|line| line.ends_with(name)).expect("it is mapped");
    let first = |line: &str| {
        let start = line.split('-').next().and_then(|start| usize::from_str_radix(start, 16).ok());
        start.expect("an address")
    };
    static OWN: AtomicU32 = AtomicU32::new(0);
    let pages = [
        libc::getpid as *const () as usize & !(PAGE - 1),
        (&raw const OWN) as usize & !(PAGE - 1),
        memory_of_the_host_stays as *const () as usize & !(PAGE - 1),
        first(line("[vdso]")),
        first(line("[stack]")),
    ];
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize;
    let fixed = private | libc::MAP_FIXED as usize;
    let no_file = usize::MAX;
    confined(move || {
        for page in pages {
            // A range that begins before the page, and one that has 4 GiB and more, reach it, too.
            for (start, length) in
                [(page, PAGE), (page - PAGE, 2 * PAGE), (page - PAGE, (1 << 32) + 2 * PAGE)]
            {
                let read = libc::PROT_READ as usize;
                for (number, arguments) in [
                    (libc::SYS_mmap, [start, length, read, fixed, no_file, 0]),
                    (libc::SYS_munmap, [start, length, 0, 0, 0, 0]),
                    (libc::SYS_mprotect, [start, length, read, 0, 0, 0]),
                    (libc::SYS_madvise, [start, length, libc::MADV_DONTNEED as usize, 0, 0, 0]),
                    (libc::SYS_mremap, [start, length, length, 0, 0, 0]),
                ] {
                    assert_eq!(call(number, arguments), Err(Errno::EPERM), "{number} {start:x} {length:x}");
                }
            }
        }
        // Memory of its own is its own.
        let read_write = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let own =
            call(libc::SYS_mmap, [0, 2 * PAGE, read_write, private, no_file, 0]).expect("memory") as usize;
        assert_eq!(call(libc::SYS_mmap, [own, PAGE, read_write, fixed, no_file, 0]), Ok(own as i64));
        assert_eq!(call(libc::SYS_mprotect, [own, PAGE, 0]), Ok(0));
        assert_eq!(call(libc::SYS_madvise, [own, PAGE, libc::MADV_DONTNEED as usize]), Ok(0));
        let over = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let moved = [own, PAGE, PAGE, over as usize, own + PAGE];
        assert_eq!(call(libc::SYS_mremap, moved), Err(Errno::EPERM), "over other memory");
        assert_eq!(call(libc::SYS_munmap, [own, 2 * PAGE]), Ok(0));
    });
}

/// Descriptors that are opened later, here by a thread that is not confined, belong to others.
#[test]
fn only_descriptors_of_the_start_are_written() {
    let (old_reader, old) = std::io::pipe().expect("a pipe");
    let (entered, is_entered) = std::sync::mpsc::channel();
    let (later_opened, opened) = std::sync::mpsc::channel::<(std::io::PipeReader, std::io::PipeWriter)>();
    let outside = std::thread::spawn(move || {
        is_entered.recv().expect("it enters");
        later_opened.send(std::io::pipe().expect("a pipe")).expect("it waits");
    });
    confined(move || {
        entered.send(()).expect("it waits");
        let (_later_reader, mut later) = opened.recv().expect("it is opened");
        let mut old = old;
        old.write_all(b"x").expect("it was open at the start");
        assert_eq!(later.write_all(b"x").expect_err("opened later").kind(), ErrorKind::PermissionDenied);
        // Nor does it become one of the first.
        let numbers = [&later, &old].map(|one| one.as_raw_fd() as usize);
        let over = [numbers[0], numbers[1], libc::O_CLOEXEC as usize];
        assert_eq!(call(libc::SYS_dup3, over), Err(Errno::EPERM));
        let free = call(libc::SYS_dup, [numbers[0]]).expect("a copy") as usize;
        assert_eq!(call(libc::SYS_dup3, [numbers[0], free, 0]), Ok(free as i64));
    });
    outside.join().expect("it opened a pipe");
    drop(old_reader);
}

/// Signals to other processes, and actions of signals, which are those of all threads.
#[test]
fn signals_are_for_this_process() {
    let mut child = Command::new("sleep").arg("600").spawn().expect("it starts");
    let other = child.id() as usize;
    let (none, end, stop) = (0, Signal::SIGTERM as usize, Signal::SIGSTOP as usize);
    confined(move || {
        for pid in [other, 1] {
            assert_eq!(call(libc::SYS_tgkill, [pid, pid, none]), Err(Errno::EPERM), "{pid}");
        }
        for (pid, signal) in [(other, end), (other, stop), (other, none), (usize::MAX, end), (0, end)] {
            assert_eq!(call(libc::SYS_kill, [pid, signal]), Err(Errno::EPERM), "{pid} {signal}");
        }
        let own = std::process::id() as usize;
        let thread = call(libc::SYS_gettid, []).expect("it has one") as usize;
        assert_eq!(call(libc::SYS_tgkill, [own, thread, none]), Ok(0));
        for signal in [Signal::SIGTERM, Signal::SIGCHLD, Signal::SIGUSR1] {
            // An address that is not read: the filter answers first.
            let action = [signal as usize, 8, 0, 8];
            assert_eq!(call(libc::SYS_rt_sigaction, action), Err(Errno::EPERM), "{signal}");
        }
    });
    child.kill().expect("it lives");
    child.wait().expect("it is ours");
}

/// Descriptors that send signals or wait for others, sockets that reach services, and new namespaces.
#[test]
fn descriptors_and_sockets_reach_nobody() {
    let file = std::fs::File::open("/dev/null").expect("it is there");
    let file = file.as_raw_fd() as usize;
    let network = {
        let object = PluginObject::new("test", Arch::Any, program("xdp", &[])).expect("a sound object");
        Confinement::of(Some(&object), &BTreeSet::new(), &Policy::everything(), RunNeeds::default())
    };
    confined_as(network, move || {
        for command in [libc::F_SETOWN, libc::F_SETLEASE, libc::F_NOTIFY, libc::F_SETFL, libc::F_SETLK] {
            let asked = [file, command as usize, 1];
            assert_eq!(call(libc::SYS_fcntl, asked), Err(Errno::EPERM), "{command}");
        }
        // CAP_PERFMON is for the verifier alone.
        assert_eq!(call(libc::SYS_perf_event_open, [0, 0, 0, usize::MAX, 0]), Err(Errno::EPERM));
        let copy = call(libc::SYS_fcntl, [file, libc::F_DUPFD_CLOEXEC as usize, 0]).expect("a copy") as usize;
        let netlink = |protocol: i32| {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            call(libc::SYS_socket, [libc::AF_NETLINK as usize, kind as usize, protocol as usize])
        };
        let socket = netlink(libc::NETLINK_ROUTE).expect("interfaces are asked about") as usize;
        // A number that no other test's descriptor had when the outputs were listed.
        let high = [socket, libc::F_DUPFD_CLOEXEC as usize, 900];
        let routes = call(libc::SYS_fcntl, high).expect("a copy") as usize;
        assert_eq!(netlink(libc::NETLINK_NETFILTER), Err(Errno::EPERM));
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_PACKET] {
            let asked = [family as usize, libc::SOCK_DGRAM as usize, 0];
            assert_eq!(call(libc::SYS_socket, asked), Err(Errno::EPERM), "{family}");
        }
        // An address that is not read.
        assert_eq!(call(libc::SYS_sendto, [routes, 0, 0, 0, 8, 16]), Err(Errno::EPERM));
        assert_eq!(call(libc::SYS_sendmsg, [routes, 8, 0]), Err(Errno::EPERM));
        assert_eq!(call(libc::SYS_write, [routes, 0, 0]), Err(Errno::EPERM));
        let flags = libc::CLONE_THREAD | libc::CLONE_NEWNS;
        assert_eq!(call(libc::SYS_clone, [flags as usize, 0]), Err(Errno::EPERM));
        for descriptor in [copy, socket, routes] {
            assert_eq!(call(libc::SYS_close, [descriptor]), Ok(0));
        }
    });
}

/// Files that only root reads, other processes' memory, and folders that the thread could change.
#[test]
fn root_files_of_root_are_not_opened() {
    let folder = Folder::new();
    let secret = folder.write("secret", "s");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    let closed = folder.path("closed");
    std::fs::create_dir(&closed).expect("it is ours");
    std::fs::write(closed.join("file"), "f").expect("it is ours");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    let object =
        PluginObject::new("test", Arch::Any, program("kprobe/vfs_read", &[])).expect("a sound object");
    let functions = ["perf.open".to_owned(), "symbols.kernel".to_owned()].into();
    let observes = Confinement::of(Some(&object), &functions, &Policy::everything(), RunNeeds::default());
    for confinement in [Confinement::default(), observes] {
        let (secret, closed) = (secret.clone(), closed.clone());
        confined_as(confinement, move || {
            for path in ["/etc/shadow", "/proc/1/mem", "/proc/1/environ", "/proc/1/maps"] {
                let refused = std::fs::File::open(path).expect_err("not for everybody");
                assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{path}");
            }
            for path in [secret, closed.join("file")] {
                let refused = std::fs::File::open(&path).expect_err("not for everybody");
                assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{}", path.display());
            }
            for number in [libc::SYS_mkdirat, libc::SYS_unlinkat] {
                assert_eq!(call(number, [0, 8, 0]), Err(Errno::EPERM));
            }
        });
    }
    assert_eq!(std::fs::read_to_string(&secret).expect("this thread is not confined"), "s");
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
    engine.code(&plugin, None).expect("it compiles here");
    let refused = confined(move || engine.code(&plugin, None).map(drop).expect_err("not there").to_string());
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

    // A policy of interfaces alone: nothing of files, other processes, addresses of the kernel or locked memory.
    let policy = std::env::temp_dir().join(format!("ks-confine-{}.toml", std::process::id()));
    let rules = "[allow]\nxdp = [\"lo\"]\nimport = [\"*\"]\n";
    std::fs::write(&policy, rules).expect("the folder for temporary files is writable");
    let loads = with_object(sleeper(""), elf::counting("xdp"));
    let only = Running::start("only", &loads, &["--policy", policy.to_str().expect("text")]);
    let kept = only.plugin_status().2;
    assert_eq!(kept, BPF | PERFMON | NET_ADMIN, "{kept:x}");
    let _ = std::fs::remove_file(policy);

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
    let observes = of("raw_tracepoint/sched_switch", &[]);
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
