//! Data of the kernel and of processes as tools read it, compared with procfs and with what this process did. The
//! plugins are built once, for the running kernel, and run here and in the emulated ones. These tests need root.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use ks_tests::emulated::{Kernel, Machine, here_or_inside};
use ks_tests::watched::Running;
use ks_tests::{Folder, allowed, compile, finish};
use nix::libc;

const SCRIPTS: [(&str, &str); 7] = [
    ("task", include_str!("scripts/kernel_data_task.ks")),
    ("socket", include_str!("scripts/kernel_data_socket.ks")),
    ("paths", include_str!("scripts/kernel_data_paths.ks")),
    ("text", include_str!("scripts/kernel_data_text.ks")),
    ("functions", include_str!("scripts/kernel_data_functions.ks")),
    ("lists", include_str!("scripts/kernel_data_lists.ks")),
    ("reserved", include_str!("scripts/kernel_data_reserved.ks")),
];

/// Where the plugins lie that another kernel's types were used for.
const PLUGINS: &str = "KS_TEST_PLUGINS";

#[test]
fn kernel_6_1() {
    run_inside(Kernel::V6_1);
}

#[test]
fn kernel_6_12() {
    run_inside(Kernel::V6_12);
}

fn run_inside(kernel: Kernel) {
    let folder = Folder::new();
    for (name, script) in SCRIPTS {
        folder.write(&format!("{name}.wasm"), compile(name, script).plugin);
    }
    let machine =
        Machine::new(kernel).file(folder.path("")).env(PLUGINS, folder.path("").to_str().expect("text"));
    machine.run_tests(module_path!(), &["root_"]);
}

/// The plugin of a script: the one that was built outside, or, here, one that is built now.
fn plugin(name: &str, folder: &Folder) -> PathBuf {
    if let Some(built) = std::env::var_os(PLUGINS) {
        return PathBuf::from(built).join(format!("{name}.wasm"));
    }
    let (_, script) = SCRIPTS.iter().find(|(one, _)| *one == name).expect("it is listed");
    folder.write(&format!("{name}.wasm"), compile(name, script).plugin)
}

fn start(name: &str, arguments: &[&str]) -> (Running, Folder) {
    let folder = Folder::new();
    let plugin = plugin(name, &folder);
    let mut host = allowed();
    host.args(["--timeout", "60"]).arg(plugin).arg("--").args(arguments);
    (Running::of(&mut host, "ready"), folder)
}

/// A process that switches often, and whose children would lose its policy.
fn worker() -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "while :; do sleep 0.01; done"]).stdin(Stdio::null());
    #[expect(unsafe_code, reason = "limits and policies are set between fork and exec")]
    // SAFETY: the calls are async-signal-safe and touch only the new process.
    unsafe {
        command.pre_exec(|| {
            let param = libc::sched_param { sched_priority: 0 };
            let policy = libc::SCHED_BATCH | libc::SCHED_RESET_ON_FORK;
            let limit = libc::rlimit { rlim_cur: 321, rlim_max: 654 };
            if libc::sched_setscheduler(0, policy, &raw const param) != 0
                || libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.spawn().expect("sh is there")
}

#[test]
fn root_members_of_every_kind_have_the_values_of_procfs() {
    let mut worker = worker();
    let pid = worker.id();
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).expect("it runs");
    let (running, _folder) = start("task", &["--pid", &pid.to_string()]);
    let ran = running.finish();
    worker.kill().expect("it is ours");
    worker.wait().expect("it is ours");
    let lines: Vec<_> = ran.stdout.lines().skip(1).collect();
    assert!(ran.code == 0 && lines.len() == 29, "{ran:#?}");
    let pid = pid.to_string();
    let parent = std::process::id().to_string();
    // State 1 is an interruptible sleep: the shell waits for its child. Policy 3 is SCHED_BATCH.
    let expected = ["321", "654", &pid, &pid, "1", "3", "1", "1", &pid, "3", "10", &parent];
    assert_eq!(lines[..12], expected, "{ran:#?}");
    assert_eq!(lines[12], "sh sh", "{ran:#?}");
    // Source: include/uapi/asm-generic/resource.h, v6.18: the order of the limits.
    let rows = [
        "cpu time",
        "file size",
        "data size",
        "stack size",
        "core file size",
        "resident set",
        "processes",
        "open files",
        "locked memory",
        "address space",
        "file locks",
        "pending signals",
        "msgqueue size",
        "nice priority",
        "realtime priority",
        "realtime timeout",
    ];
    for (row, found) in rows.iter().zip(&lines[13..]) {
        let line = limits.lines().find(|line| line.starts_with(&format!("Max {row}"))).expect(row);
        let hard = line[format!("Max {row}").len()..].split_whitespace().nth(1).expect("a hard limit");
        let hard = if hard == "unlimited" { u64::MAX.to_string() } else { hard.to_owned() };
        assert_eq!(**found, hard, "{row}: {ran:#?}");
    }
}

#[test]
fn root_addresses_of_both_families_are_those_of_the_sockets() {
    let (running, _folder) = start("socket", &[]);
    let v4 = TcpListener::bind((Ipv4Addr::new(127, 0, 0, 7), 0)).expect("loopback is up");
    let port4 = v4.local_addr().expect("it is bound").port();
    let v6 = TcpListener::bind("[::1]:0").expect("loopback is up");
    let port6 = v6.local_addr().expect("it is bound").port();
    let ran = running.finish();
    for line in [
        format!("{port4} 2 127.0.0.7"),
        format!("{port6} 10 127.0.0.6 0 1 1 0 0 0"),
        format!("{port6} 1010 0.0.0.0 0 0 0 1 127 6"),
    ] {
        assert!(ran.stdout.contains(&line), "{line}: {ran:#?}");
    }
    for port in [port4, port6] {
        for half in ["kernel", "user"] {
            let line = format!("{half} {port} SS_UNCONNECTED TCP_LISTEN\n");
            assert!(ran.stdout.contains(&line), "{line}: {ran:#?}");
        }
    }
    // In a record an address of the first family is its four bytes. A socket of `::1` has 127.0.0.6 as such
    // an address. Source: include/net/ipv6.h, `LOOPBACK4_IPV6`, v6.18.
    let recorded = ran.stdout.lines().find(|line| line.starts_with(&format!("{port4} 1002 ")));
    assert!(recorded.is_some_and(|line| line.ends_with(" 127 7")), "{ran:#?}");
}

#[test]
fn root_functions_that_the_kernel_lacks_are_not_called() {
    let (running, _folder) = start("functions", &["--pid", &std::process::id().to_string()]);
    assert!(Command::new("/bin/true").status().expect("it is there").success());
    let ran = running.finish();
    let symbols = std::fs::read_to_string("/proc/kallsyms").expect("procfs is there");
    let has_lock = symbols.lines().any(|line| line.split_whitespace().nth(2) == Some("bpf_rcu_read_lock"));
    let expected = format!("1 {0} 0 0 {0}\n", u8::from(has_lock));
    assert!(ran.code == 0 && ran.stdout.ends_with(&expected), "{expected}: {ran:#?}");
}

#[test]
fn root_lists_of_the_kernel_have_their_elements_and_a_bound() {
    let mut children: Vec<Child> = (0..5).map(|_| sleeper()).collect();
    let (running, _folder) = start("lists", &["--pid", &std::process::id().to_string()]);
    let mut last = Command::new("/bin/true").spawn().expect("it is there");
    let pid = last.id();
    last.wait().expect("it is ours");
    let ran = running.finish();
    let pids: Vec<u32> = children.iter().map(Child::id).collect();
    for child in &mut children {
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }
    // The newest child is the last of the list; the plugin's host may be among them.
    let found: Vec<(u32, u32)> = (ran.stdout.lines())
        .filter_map(|line| line.strip_prefix("child ")?.split_once(' '))
        .map(|(index, pid)| (index.parse().expect("a number"), pid.parse().expect("a number")))
        .collect();
    let own: Vec<u32> = found.iter().map(|(_, pid)| *pid).filter(|pid| pids.contains(pid)).collect();
    assert_eq!(own, pids, "{ran:#?}");
    assert!(found.iter().enumerate().all(|(at, (index, _))| at == *index as usize), "{ran:#?}");
    let sum: u32 = found.iter().map(|(index, _)| index).sum();
    let two: u32 = found[..2].iter().map(|(_, pid)| pid).sum();
    for line in [format!("own 0 {pid} true\n"), format!("sums {sum} {two}\n")] {
        assert!(ran.stdout.contains(&line), "{line}: {ran:#?}");
    }
    assert!(!ran.stdout.contains("own 1 "), "{ran:#?}");
    let cut = "1 time line 21 left a list of the kernel before its end";
    assert!(ran.stderr.contains(cut) && ran.stderr.matches("left a list").count() == 1, "{ran:#?}");
}

fn sleeper() -> Child {
    Command::new("sleep").arg("1000").spawn().expect("it is there")
}

#[test]
fn root_text_of_calls_and_records_is_what_was_started() {
    let (running, _folder) = start("text", &[]);
    let many: Vec<String> = (0..30).map(|one| one.to_string()).collect();
    let mut pids = Vec::new();
    for arguments in [&["first", "", "third one"][..], &[&"long".repeat(40)], &[]] {
        let mut child = Command::new("/bin/true").args(arguments).spawn().expect("it is there");
        pids.push(child.id());
        child.wait().expect("it is ours");
    }
    let mut child = Command::new("/bin/true").args(&many).spawn().expect("it is there");
    pids.push(child.id());
    child.wait().expect("it is ours");
    assert!(Command::new("/bin/true").arg("end").status().expect("it is there").success());
    let ran = running.finish();
    let cut = format!("/bin/true|{}", "long".repeat(40));
    let twenty = many[..19].join("|");
    for line in [
        format!("call {} /bin/true /bin/t firs /bin/true|first||third one\n", pids[0]),
        format!("call {} /bin/true /bin/t long {}\n", pids[1], &cut[..63]),
        format!("call {} /bin/true /bin/t  /bin/true\n", pids[2]),
        format!("call {} /bin/true /bin/t 0 /bin/true|{twenty}|...\n", pids[3]),
        format!("record {} /bin/true /bin/tru\n", pids[0]),
    ] {
        assert!(ran.stdout.contains(&line), "{line}: {ran:#?}");
    }
}

#[test]
fn root_paths_lead_through_all_mounts() {
    let folder = Folder::new();
    let deep = (0..6).fold(folder.path(""), |path, _| path.join("a directory"));
    std::fs::create_dir_all(&deep).expect("the folder is writable");
    let long = deep.join("l".repeat(120));
    std::fs::write(&long, "").expect("the folder is writable");
    let (running, _folder) = start("paths", &["--pid", &std::process::id().to_string()]);
    let paths =
        ["/", "/dev/null", "/proc/self/status", "/sys/kernel/btf/vmlinux", "/proc/sys/kernel/pid_max"];
    let mut expected = Vec::new();
    let mut open = Vec::new();
    for path in paths.iter().map(PathBuf::from).chain([deep, long]) {
        let file = File::open(&path).expect("it is there");
        let descriptor = file.as_raw_fd();
        let real = std::fs::read_link(format!("/proc/self/fd/{descriptor}")).expect("it is open");
        expected.push((descriptor, real.to_str().expect("text").to_owned()));
        open.push(file);
    }
    open.push(File::open("/dev/zero").expect("it is there"));
    let ran = running.finish();
    let cut = |path: &str, size: usize| match path.len() < size {
        true => path.to_owned(),
        false => format!("..{}", &path[path.len() - (size - 3)..]),
    };
    for (descriptor, path) in expected {
        let line = format!("{descriptor} {} {}\n", cut(&path, 128), cut(&path, 16));
        assert!(ran.stdout.contains(&line), "{line}: {ran:#?}");
    }
}

#[test]
fn root_members_named_like_words_of_the_language_are_read() {
    let has = std::path::Path::new("/sys/bus/event_source/devices/kprobe").exists();
    if !here_or_inside("kprobes", has) {
        return;
    }
    let folder = Folder::new();
    let ran = finish(allowed().arg(plugin("reserved", &folder)));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 1\n"), "{ran:#?}");
}
