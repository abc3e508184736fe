//! Tools that show processes, their signals, rights and system calls.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use ks_tests::Folder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{RunningTool, around, copy_of, rows};

#[test]
fn root_execsnoop_shows_arguments_and_results() {
    let beside = RunningTool::begin("execsnoop", &["--failed"]);
    let mut child =
        Command::new("/bin/true").args(["with", "two words"]).uid(65534).spawn().expect("it starts");
    let pid = child.id().to_string();
    child.wait().expect("it is ours");
    assert!(Command::new("/nonexistent/program").arg("x").spawn().is_err());
    let ran = beside.end();
    let me = std::process::id().to_string();
    let found = rows(&ran, &format!(" {pid} "));
    assert_eq!(found, [["true", &pid, &me, "65534", "0", "/bin/true", "with", "two", "words"]], "{ran:#?}");
    let failed = rows(&ran, "/nonexistent/program x");
    assert!(failed.len() == 1 && failed[0].contains(&"ENOENT"), "{ran:#?}");
}

#[test]
fn root_exitsnoop_shows_how_processes_end() {
    let beside = RunningTool::begin("exitsnoop", &["--failed"]);
    let mut child = Command::new("sh").args(["-c", "sleep 0.2; exit 3"]).spawn().expect("it starts");
    let mut killed = Command::new("sleep").arg("60").spawn().expect("it starts");
    killed.kill().expect("it is ours");
    let pids = [child.id(), killed.id()].map(|pid| pid.to_string());
    child.wait().expect("it is ours");
    killed.wait().expect("it is ours");
    let ran = beside.end();
    let me = std::process::id().to_string();
    let [exited, ended] = pids.each_ref().map(|pid| rows(&ran, &format!(" {pid} ")));
    assert!(exited.len() == 1 && exited[0][..3] == ["sh", &*pids[0], &*me], "{ran:#?}");
    assert_eq!(exited[0][4..], ["3", "0"], "{ran:#?}");
    let age: u64 = exited[0][3].parse().expect("a number");
    assert!((200..60_000).contains(&age), "{ran:#?}");
    assert!(ended.len() == 1 && ended[0][4..] == ["0", "SIGKILL"], "{ran:#?}");
}

#[test]
fn root_threadsnoop_distinguishes_threads_and_processes() {
    let me = std::process::id().to_string();
    let beside = RunningTool::begin("threadsnoop", &["--pid", &me]);
    let mut child = Command::new("true").spawn().expect("it starts");
    let pid = child.id().to_string();
    child.wait().expect("it is ours");
    let thread = std::thread::spawn(|| nix::unistd::gettid().to_string()).join().expect("it ends");
    let ran = beside.end();
    let ends = |text: &str| {
        rows(&ran, text).into_iter().map(|row| row[row.len() - 2..].to_vec()).collect::<Vec<_>>()
    };
    assert!(ends(&format!(" {pid}")).contains(&vec![&*pid, &*pid]), "{ran:#?}");
    assert!(ends(&format!(" {thread}")).contains(&vec![&*me, &*thread]), "{ran:#?}");
}

#[test]
fn root_killsnoop_and_sigsnoop_show_signals_and_results() {
    let (calls, signals) =
        (RunningTool::begin("killsnoop", &[]), RunningTool::begin("sigsnoop", &["--signal", "12"]));
    let mut child = Command::new("sleep").arg("60").spawn().expect("it starts");
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGUSR2).expect("it is ours");
    child.wait().expect("it is ours");
    assert!(kill(pid, None).is_err(), "it has ended");
    let (calls, signals) = (calls.end(), signals.end());
    let (me, pid) = (std::process::id().to_string(), pid.to_string());
    let mine = |ran| -> Vec<Vec<&str>> {
        let found = rows(ran, &format!(" {pid} ")).into_iter();
        found.filter(|row| row[0] == me).collect()
    };
    // A thread's name may have several words.
    let ends: Vec<_> = mine(&calls).iter().map(|row| row[row.len() - 3..].to_vec()).collect();
    assert_eq!(ends, [["SIGUSR2", &*pid, "0"], ["0", &*pid, "ESRCH"]], "{calls:#?}");
    let generated = mine(&signals);
    assert_eq!(generated.len(), 1, "{signals:#?}");
    let row = &generated[0];
    assert!(row[row.len() - 4..][..2] == ["SIGUSR2", &*pid] && row[row.len() - 1] == "0", "{signals:#?}");
}

#[test]
fn root_sigsnoop_shows_that_the_kernel_sends_signals_of_timers() {
    let folder = Folder::new();
    let (name, timeout) = copy_of("/usr/bin/timeout", &folder);
    let beside = RunningTool::begin("sigsnoop", &["--signal", "14"]);
    let status = Command::new(timeout).args(["0.05", "sleep", "60"]).status().expect("it starts");
    assert_eq!(status.code(), Some(124));
    let ran = beside.end();
    let found = rows(&ran, &format!(" {name} "));
    assert!(found.len() == 1 && found[0][..3] == ["0", "(kernel)", "SIGALRM"], "{ran:#?}");
}

/// Number 20 is getpid(2) for them, and writev(2) for others.
#[cfg(target_arch = "x86_64")]
#[test]
fn root_syscount_counts_calls_of_32_bits_by_themselves() {
    let folder = Folder::new();
    let source = "int main(void) { for (int i = 0; i < 77; i++) { long r; __asm__ volatile(\"int $0x80\" : \"=a\"(r) \
                  : \"0\"(20) : \"memory\"); } return 0; }";
    let (source, program) = (folder.write("calls.c", source), folder.path("calls"));
    let built = ks_tests::finish(Command::new("cc").arg("-o").arg(&program).arg(source));
    assert_eq!(built.code, 0, "{built:#?}");
    let ran = around("syscount", &["--comm", "calls"], &[program.to_str().expect("a plain name")]);
    let found = rows(&ran, "(calls of 32 bits)");
    assert!(found.len() == 1 && found[0][4..6] == ["77", "0"], "{ran:#?}");
    assert!(!ran.stdout.contains("writev"), "{ran:#?}");
}

#[test]
fn root_capable_shows_checks_and_results() {
    let beside = RunningTool::begin("capable", &["--refused"]);
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
    let ran = beside.end();
    let found = rows(&ran, &format!(" {pid} "));
    assert!(found.contains(&vec!["65534", &pid, "date", "25", "CAP_SYS_TIME", "EPERM"]), "{ran:#?}");
}

#[test]
fn root_syscount_counts_calls_and_errors() {
    let folder = Folder::new();
    let (name, path) = copy_of("/bin/dd", &folder);
    let run = [&*path, "if=/dev/zero", "of=/dev/full", "bs=1", "count=500", "conv=noerror", "status=none"];
    let read = [&*path, "if=/dev/zero", "of=/dev/null", "bs=1", "count=500", "status=none"];
    let ran = around("syscount", &["--comm", &name], &read);
    let read = ran.numbers("read");
    // Besides those of dd, the loader reads libraries.
    assert!((500..520).contains(&read[0]) && read[1] == 0 && read[2] > 0, "{ran:#?}");
    assert_eq!(ran.numbers("write")[..2], [500, 0], "{ran:#?}");
    let outcome = ks_tests::finish(super::tool("syscount", &["--comm", &name]).arg("--exec").args(run));
    // ENOSPC of the first write ends it.
    assert!(outcome.numbers("write")[1] >= 1, "{outcome:#?}");
}
