//! The tools of `tools/`, each beside a workload that is known: what it prints is compared with what this process did
//! and with procfs. These tests need root.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use ks_tests::watched::Running;
use ks_tests::{Folder, Outcome, allowed, repository};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Starts a tool and waits for its header.
fn start(tool: &str, arguments: &[&str], header: &str) -> Running {
    let script =
        fs::read_to_string(repository().join(format!("tools/{tool}.ks"))).expect("the tool is there");
    let mut host = allowed();
    host.args(["--timeout", "60"]);
    Running::begin(host, tool, &script, arguments, header)
}

/// The words of the lines that contain a text.
fn rows<'a>(ran: &'a Outcome, text: &str) -> Vec<Vec<&'a str>> {
    let lines = ran.stdout.lines().filter(|line| line.contains(text));
    lines.map(|line| line.split_whitespace().collect()).collect()
}

/// Stops a tool when it had time to print what happened before.
fn stop(running: Running) -> Outcome {
    // Records are taken as they come; the machine may be busy.
    std::thread::sleep(std::time::Duration::from_secs(1));
    let ran = running.stop();
    assert_eq!(ran.code, 0, "{ran:#?}");
    ran
}

#[test]
fn root_execsnoop_shows_arguments_and_results() {
    let running = start("execsnoop", &["--failed"], "COMM");
    let mut child =
        Command::new("/bin/true").args(["with", "two words"]).uid(65534).spawn().expect("it starts");
    let pid = child.id().to_string();
    child.wait().expect("it is ours");
    let missing = Command::new("/nonexistent/program").arg("x").spawn();
    assert!(missing.is_err());
    let ran = stop(running);
    let me = std::process::id().to_string();
    let found = rows(&ran, &format!(" {pid} "));
    assert_eq!(found, [["true", &pid, &me, "65534", "0", "/bin/true", "with", "two", "words"]], "{ran:#?}");
    // ENOENT is 2.
    let failed = rows(&ran, "/nonexistent/program x");
    assert!(failed.len() == 1 && failed[0][4] == "-2", "{ran:#?}");
}

#[test]
fn root_opensnoop_shows_paths_and_results() {
    let me = std::process::id().to_string();
    let running = start("opensnoop", &["--pid", &me], "    PID");
    let folder = Folder::new();
    let path = folder.write("opened", b"text");
    let file = File::open(&path).expect("it was written");
    let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
    assert_eq!(fs::read_link(link).expect("it is open"), path);
    let missing = folder.path("missing");
    assert!(File::open(&missing).is_err());
    let ran = stop(running);
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file).to_string();
    let opened = rows(&ran, &format!(" {}", path.display()));
    assert!(opened.iter().any(|row| row[0] == me && row[2..4] == [&*descriptor, "0"]), "{ran:#?}");
    let failed = rows(&ran, &format!(" {}", missing.display()));
    assert!(failed.len() == 1 && failed[0][2..4] == ["-1", "2"], "{ran:#?}");
}

#[test]
fn root_statsnoop_shows_paths_and_results() {
    let me = std::process::id().to_string();
    let running = start("statsnoop", &["--pid", &me], "    PID");
    let folder = Folder::new();
    let path = folder.write("asked", b"text");
    for _ in 0..3 {
        fs::metadata(&path).expect("it was written");
    }
    assert!(fs::metadata(folder.path("missing")).is_err());
    nix::sys::statfs::statfs(&path).expect("it is there");
    let ran = stop(running);
    let found = rows(&ran, &format!(" {}", path.display()));
    assert!(found.len() == 4 && found.iter().all(|row| row[0] == me && row[2] == "0"), "{ran:#?}");
    let failed = rows(&ran, "/missing");
    assert!(failed.len() == 1 && failed[0][2] == "2", "{ran:#?}");
}

#[test]
fn root_killsnoop_shows_signals_and_results() {
    let running = start("killsnoop", &[], "    PID");
    let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGUSR2).expect("it is ours");
    child.wait().expect("it is ours");
    assert!(kill(pid, None).is_err(), "it has ended");
    let ran = stop(running);
    let (me, pid) = (std::process::id().to_string(), pid.to_string());
    let found: Vec<_> = rows(&ran, &format!(" {pid} ")).into_iter().filter(|row| row[0] == me).collect();
    // A thread's name may have several words.
    let ends: Vec<_> = found.iter().map(|row| &row[row.len() - 3..]).collect();
    assert_eq!(ends, [["SIGUSR2", &*pid, "0"], ["0", &*pid, "ESRCH"]], "{ran:#?}");
}

#[test]
fn root_capable_shows_checks_and_results() {
    let running = start("capable", &["--refused"], "   UID");
    // Changing the time of the machine needs CAP_SYS_TIME.
    let mut child = Command::new("date")
        .args(["-s", "@0"])
        .uid(65534)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let pid = child.id().to_string();
    assert!(!child.wait().expect("it is ours").success());
    let ran = stop(running);
    let found = rows(&ran, &format!(" {pid} "));
    assert!(found.contains(&vec!["65534", &pid, "date", "25", "CAP_SYS_TIME", "EPERM"]), "{ran:#?}");
}

#[test]
fn root_filetop_counts_the_bytes_of_files() {
    let me = std::process::id().to_string();
    let running = start("filetop", &["--pid", &me, "--count", "1", "--interval", "2"], "Every 2 s");
    let folder = Folder::new();
    let path = folder.path("filetop-counts");
    let mut file = File::create(&path).expect("the folder is writable");
    for _ in 0..7 {
        file.write_all(&[1; 1000]).expect("there is space");
    }
    drop(file);
    let mut bytes = Vec::new();
    let mut file = File::open(&path).expect("it was written");
    let mut piece = [0; 700];
    while let Ok(count @ 1..) = file.read(&mut piece) {
        bytes.extend_from_slice(&piece[..count]);
    }
    assert_eq!(bytes.len(), 7000);
    let ran = running.finish();
    let found = rows(&ran, "filetop-counts");
    let sums: Vec<u64> = (0..4)
        .map(|column| {
            let numbers =
                found.iter().map(|row| row[row.len() - 5 + column].parse::<u64>().expect("a number"));
            numbers.sum()
        })
        .collect();
    assert_eq!(sums, [10, 7, 7000, 7000], "{ran:#?}");
}

#[test]
fn root_tcpstates_shows_both_families() {
    let running = start("tcpstates", &[], "            SOCKET");
    let mut expected = Vec::new();
    for bound in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(bound).expect("loopback is up");
        let at = listener.local_addr().expect("it is bound");
        let client = TcpStream::connect(at).expect("it listens");
        let from = client.local_addr().expect("it is connected").port().to_string();
        let (server, _) = listener.accept().expect("it is connected");
        drop(client);
        drop(server);
        let address = if at.is_ipv4() { "127.0.0.1" } else { "::1" };
        expected.push((address, at.port().to_string(), from));
    }
    let ran = stop(running);
    for (address, listening, from) in &expected {
        // Addresses and ports of both ends stand before the states and the time.
        let states = |local: &str, remote_address: &str, remote: &str| {
            let ends = [*address, local, remote_address, remote];
            let rows = ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let of = rows.filter(|row| row.len() > 7 && row[row.len() - 7..row.len() - 3] == ends);
            of.map(|row| row[row.len() - 2].to_owned()).collect::<Vec<_>>()
        };
        let nobody = if address.contains(':') { "::" } else { "0.0.0.0" };
        assert_eq!(states(listening, nobody, "0")[0], "LISTEN", "{ran:#?}");
        let client = states(from, address, listening);
        assert_eq!(client[..2], ["ESTABLISHED", "FIN_WAIT1"], "{ran:#?}");
        let server = states(listening, address, from);
        assert_eq!(server[..3], ["SYN_RECV", "ESTABLISHED", "CLOSE_WAIT"], "{ran:#?}");
    }
}

#[test]
fn root_oomkill_shows_the_victim() {
    let Some(group) = MemoryGroup::new(16 << 20) else {
        panic!("the memory controller of control groups is needed");
    };
    let running = start("oomkill", &[], "   TPID");
    // 64 MiB of a shell's variable.
    let script = format!(
        "echo $$ > {}/cgroup.procs; x=$(head -c 67108864 /dev/zero | tr '\\0' x); echo ${{#x}}",
        group.path
    );
    let mut child =
        Command::new("sh").args(["-c", &script]).stdout(Stdio::null()).spawn().expect("it starts");
    let pid = child.id().to_string();
    let status = child.wait().expect("it is ours");
    let ran = stop(running);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{status} {ran:#?}");
    let found = rows(&ran, &format!(" {pid} "));
    assert!(found.len() == 1 && found[0][2..4] == [&*pid, "sh"], "{ran:#?}");
    let anonymous: u64 = found[0][5].parse().expect("a number");
    assert!((8 << 10..=16 << 10).contains(&anonymous), "{ran:#?}");
}

/// A control group whose memory is limited; removed when dropped.
struct MemoryGroup {
    path: String,
}

impl MemoryGroup {
    fn new(bytes: u64) -> Option<MemoryGroup> {
        let named = |root: &str| format!("{root}/ks-oom-{}", std::process::id());
        let second = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].into_iter().find(|root| {
            fs::read_to_string(format!("{root}/cgroup.controllers")).is_ok_and(|all| all.contains("memory"))
        });
        let (path, limit) = match second {
            Some(root) => {
                fs::write(format!("{root}/cgroup.subtree_control"), "+memory").ok()?;
                (named(root), "memory.max")
            }
            // The first version has a hierarchy for each controller.
            None => (named("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        };
        fs::create_dir(&path).ok()?;
        let group = MemoryGroup { path };
        fs::write(format!("{}/{limit}", group.path), bytes.to_string()).ok()?;
        Some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // What is left of it is reported by the next test that makes one of this name.
        drop(fs::remove_dir(&self.path));
    }
}
