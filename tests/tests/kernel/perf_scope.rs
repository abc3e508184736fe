//! Scopes of events: threads, processes, a command, CPUs, a control group; each with a workload of a known
//! count.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::perf_support::{named, own_thread};
use ks_host::command::{Command, CommandLine, ExecStatus};
use ks_host::perf::{
    Attachments, Catalog, ErrorKind, Event, Notice, Options, PerfError, Refusal, State, Sysfs,
};
use ks_host::plugin::StopHandle;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, getpgid, getppid};

/// A known number of calls: a system call that a shell makes on request, and nothing else makes.
const KILLS: &str = "i=0; while [ $i -lt 100 ]; do kill -0 $$; i=$((i+1)); done";

fn kills() -> Event {
    Catalog::default().tracepoint("syscalls/sys_enter_kill").unwrap()
}

fn parent_asked() -> Event {
    Catalog::default().tracepoint("syscalls/sys_enter_getppid").unwrap()
}

/// A shell under a name of its own that waits for a line before it makes its calls.
struct Shell {
    folder: PathBuf,
    children: Vec<Child>,
}

impl Shell {
    fn new(number: usize, script: &str) -> Shell {
        use std::sync::atomic::{AtomicU32, Ordering};
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("ks-scope-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        let path = folder.join("shell");
        ks_tests::copy_program("/bin/sh", &path);
        let start = |_| {
            let mut command = Process::new(&path);
            command.args(["-c", &format!("read line; {script}")]).stdin(Stdio::piped());
            loop {
                match command.spawn() {
                    // A process that another test starts has the file open for writing until its exec.
                    Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                        thread::sleep(Duration::from_millis(1));
                    }
                    child => break child.unwrap(),
                }
            }
        };
        Shell { children: (0..number).map(start).collect(), folder }
    }

    fn path(&self) -> String {
        self.folder.join("shell").to_str().unwrap().to_owned()
    }

    fn run(&mut self) {
        for child in &mut self.children {
            child.stdin.take().unwrap().write_all(b"\n").unwrap();
            assert!(child.wait().unwrap().success());
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Runs a function on each CPU that this thread may run on, one after the other, and returns the CPUs.
fn on_each_cpu(mut work: impl FnMut(usize)) -> Vec<usize> {
    let before = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let cpus: Vec<usize> = (0..CpuSet::count()).filter(|cpu| before.is_set(*cpu).unwrap()).collect();
    for cpu in &cpus {
        let mut only = CpuSet::new();
        only.set(*cpu).unwrap();
        sched_setaffinity(Pid::from_raw(0), &only).unwrap();
        work(*cpu);
    }
    sched_setaffinity(Pid::from_raw(0), &before).unwrap();
    cpus
}

#[test]
fn root_another_process_is_counted() {
    let mut shell = Shell::new(1, KILLS);
    let mut attachments = Attachments::new();
    let pid = shell.children[0].id() as i32;
    let id = attachments.open(&kills(), &Options { pid, ..own_thread() }, None, None).unwrap();
    shell.run();
    assert_eq!(attachments.read(id).unwrap().raw, 100);
}

#[test]
fn root_every_process_of_a_program_reads_as_one() {
    let mut shell = Shell::new(3, KILLS);
    let options = Options { process: shell.path(), cpu: -1, ..Options::default() };
    let mut attachments = Attachments::new();
    let id = attachments.open(&kills(), &options, None, None).unwrap();
    let clock = attachments.open(&named("task_clock"), &options, Some(id), None).unwrap();
    assert_eq!(attachments.live().iter().map(|live| live.locations).collect::<Vec<_>>(), [3, 3]);
    shell.run();
    let snapshot = attachments.snapshot(clock).unwrap();
    assert_eq!((snapshot.entries[0].raw, snapshot.own), (300, 1));
    assert!(snapshot.entries[1].raw > 0);
    assert_eq!(attachments.read(id).unwrap().raw, 300, "they have ended, their counts have not");
    let nobody = Options { process: "/no/such/program".to_owned(), ..options };
    let error = attachments.open(&kills(), &nobody, None, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("no process runs `/no/such/program`"), "{error}");
}

#[test]
fn root_all_threads_of_a_process_are_counted_and_not_its_children() {
    // No other test of this file makes this call.
    let event = Catalog::default().tracepoint("syscalls/sys_enter_getpgid").unwrap();
    let call = |times| (0..times).for_each(|_| assert!(getpgid(None).is_ok()));
    let (go, wait) = mpsc::channel::<()>();
    let before = thread::spawn(move || {
        wait.recv().unwrap();
        call(10);
        thread::spawn(move || call(100)).join().unwrap();
    });
    let options = Options { follow: true, ..own_thread() };
    let mut attachments = Attachments::new();
    let id = attachments.open(&event, &options, None, None).unwrap_or_else(|error| panic!("{error}"));
    go.send(()).unwrap();
    before.join().unwrap();
    call(1);
    thread::spawn(move || call(1000)).join().unwrap();
    assert_eq!(attachments.read(id).unwrap().raw, 1111);
    assert!(attachments.live()[0].locations >= 2);
}

#[test]
fn root_new_threads_count_with_follow_and_new_processes_do_not() {
    let mut shell = Shell::new(1, &format!("({KILLS}); sh -c '{}'", KILLS.replace("$$", "1")));
    let pid = shell.children[0].id() as i32;
    let mut attachments = Attachments::new();
    let threads = Options { pid, follow: true, ..own_thread() };
    let own = attachments.open(&kills(), &threads, None, None).unwrap();
    let children = Options { pid, follow: true, inherit: true, ..own_thread() };
    let all = attachments.open(&kills(), &children, None, None).unwrap();
    shell.run();
    assert_eq!(attachments.read(own).unwrap().raw, 0, "its children made the calls");
    assert_eq!(attachments.read(all).unwrap().raw, 200);
}

fn command(script: &str) -> Command {
    let arguments = ["sh", "-c", script].map(OsString::from);
    Command::start(
        CommandLine { words: arguments.to_vec(), is_silent: false },
        StopHandle::new(),
        ExecStatus::default(),
    )
    .unwrap()
}

#[test]
fn root_a_command_is_counted_from_its_exec() {
    let stop = StopHandle::new();
    let arguments =
        ["sh", "-c", &format!("{KILLS}; sh -c '{}'", KILLS.replace("$$", "1"))].map(OsString::from);
    let mut command = Command::start(
        CommandLine { words: arguments.to_vec(), is_silent: false },
        stop.clone(),
        ExecStatus::default(),
    )
    .unwrap();
    let mut attachments = Attachments::new();
    attachments.set_command(command.pid());
    let options = Options { command: true, cpu: -1, ..Options::default() };
    let own = attachments.open(&kills(), &options, None, None).unwrap();
    let clock = attachments.open(&named("task_clock"), &options, Some(own), None).unwrap();
    let inherit = Options { inherit: true, ..options.clone() };
    let all = attachments.open(&kills(), &inherit, None, None).unwrap();
    let waiting = attachments.read(own).unwrap();
    assert_eq!((waiting.raw, waiting.state), (0, State::Idle), "it waits");
    assert!(command.release().unwrap());
    attachments.note_exec();
    assert!(stop.wait(Duration::MAX));
    assert_eq!(attachments.read(own).unwrap().raw, 100);
    assert_eq!(attachments.read(all).unwrap().raw, 200);
    let clock = attachments.read(clock).unwrap();
    assert!(clock.raw > 0 && clock.state == State::Counted, "{clock:?}");
}

#[test]
fn root_a_command_that_nobody_starts_is_refused() {
    let options = Options { command: true, cpu: -1, ..Options::default() };
    let error = Attachments::new().open(&kills(), &options, None, None).unwrap_err();
    assert!(matches!(&error, PerfError::Refused { refusal: Refusal::NoCommand, .. }), "{error}");
    assert!(error.to_string().contains("--exec"), "{error}");
    // A command that never runs leaves no process.
    drop(command("true"));
}

#[test]
fn root_all_cpus_read_as_one_and_each_for_itself() {
    let mut attachments = Attachments::new();
    let options = Options { pid: 0, every_cpu: true, ..Options::default() };
    let leader = attachments.open(&parent_asked(), &options, None, None).unwrap();
    let member = attachments.open(&named("task_clock"), &options, Some(leader), None).unwrap();
    let cpus = on_each_cpu(|cpu| {
        (0..=cpu as u64).for_each(|_| {
            getppid();
        });
    });
    let expected: u64 = cpus.iter().map(|cpu| *cpu as u64 + 1).sum();
    let reading = attachments.read(leader).unwrap();
    assert_eq!(reading.raw, expected);
    // The task ran on one CPU after the other, so no CPU's count is extrapolated to the others. The events
    // start on the CPUs one by one; the time missed in between is extrapolated.
    let scaled = reading.scaled.unwrap();
    let missed = expected * (reading.time_enabled - reading.time_running);
    let most = expected + missed.div_ceil(reading.time_running);
    assert!((expected..=most).contains(&scaled) && !reading.partial, "{reading:?}");
    for cpu in &cpus {
        let here = attachments.snapshot_cpu(member, *cpu as i32).unwrap();
        assert_eq!((here.entries[0].raw, here.own), (*cpu as u64 + 1, 1), "cpu {cpu}");
    }
    let ids: Vec<u64> =
        attachments.snapshot(leader).unwrap().entries.iter().map(|entry| entry.kernel_id).collect();
    let first = attachments.snapshot_cpu(leader, cpus[0] as i32).unwrap();
    assert_eq!(ids, first.entries.iter().map(|entry| entry.kernel_id).collect::<Vec<_>>());
    let none = attachments.snapshot_cpu(leader, 100_000).unwrap_err();
    assert!(none.to_string().contains("cpu: all"), "{none}");
}

/// The kernel counts the reads as well.
#[test]
fn root_a_group_on_all_cpus_costs_one_read_for_each_cpu() {
    let mut attachments = Attachments::new();
    let every = Options { every_cpu: true, ..Options::default() };
    let leader = attachments.open(&named("cpu_clock"), &every, None, None).unwrap();
    for name in ["page_faults", "context_switches", "cpu_migrations"] {
        attachments.open(&named(name), &every, Some(leader), None).unwrap();
    }
    let reads = Catalog::default().tracepoint("syscalls/sys_enter_read").unwrap();
    let reads = attachments.open(&reads, &own_thread(), None, None).unwrap();
    let cpus = attachments.live()[0].locations as u64;
    attachments.snapshot(leader).unwrap();
    let before = attachments.read(reads).unwrap().raw;
    attachments.snapshot(leader).unwrap();
    attachments.read(leader).unwrap();
    let after = attachments.read(reads).unwrap().raw;
    assert_eq!(after - before, 2 * cpus + 1, "the last is the read of this counter itself");
}

#[test]
fn root_members_observe_what_their_leader_does() {
    let mut attachments = Attachments::new();
    let every = Options { every_cpu: true, ..Options::default() };
    let leader = attachments.open(&named("cpu_clock"), &every, None, None).unwrap();
    let mut join = |options: &Options| {
        attachments.open(&named("page_faults"), options, Some(leader), None).unwrap_err().to_string()
    };
    assert!(join(&Options::default()).contains("`cpu: all`"), "{}", join(&Options::default()));
    assert!(join(&own_thread()).contains("pid"));
    for (options, reason) in [
        (Options { pinned: true, ..every.clone() }, "`pinned`"),
        (Options { exclusive: true, ..every.clone() }, "`exclusive`"),
    ] {
        assert!(join(&options).contains(reason), "{}", join(&options));
    }
    assert!(attachments.open(&named("page_faults"), &every, Some(leader), None).is_ok());
}

/// A control group of version 2, removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Cgroup> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        // perf uses the hierarchy with its own controller if there is one.
        let mount = mounts
            .lines()
            .find(|line| line.contains(" cgroup ") && line.contains("perf_event"))
            .or_else(|| mounts.lines().find(|line| line.contains(" cgroup2 ")))?;
        let cgroup_path = Path::new(mount.split(' ').nth(1)?).join(format!("ks-perf-{}", std::process::id()));
        fs::create_dir(&cgroup_path).ok()?;
        Some(Cgroup(cgroup_path))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn root_a_cgroup_is_counted_on_all_cpus() {
    let Some(cgroup) = Cgroup::new() else {
        assert!(std::env::var_os("CI").is_none(), "no control groups that perf can use are mounted");
        eprintln!("NOT TESTED: no control groups that perf can use are mounted");
        return;
    };
    let name = cgroup.0.file_name().unwrap().to_str().unwrap().to_owned();
    let mut shell = Shell::new(2, KILLS);
    // One of the two shells is in the group.
    fs::write(cgroup.0.join("cgroup.procs"), shell.children[0].id().to_string()).unwrap();
    let mut attachments = Attachments::new();
    let options = Options { cgroup: format!("/{name}"), every_cpu: true, ..Options::default() };
    let id = attachments.open(&kills(), &options, None, None).unwrap_or_else(|error| panic!("{error}"));
    shell.run();
    assert_eq!(attachments.read(id).unwrap().raw, 100);
    let missing = Options { cgroup: format!("/{name}/none"), ..options };
    let error = attachments.open(&kills(), &missing, None, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("there is no cgroup"), "{error}");
}

/// A fake list of online CPUs, which changes while the real CPUs stay online.
struct OnlineList(PathBuf);

impl OnlineList {
    fn new(list: &str) -> OnlineList {
        let root = std::env::temp_dir().join(format!("ks-online-{}", std::process::id()));
        fs::create_dir_all(root.join("devices/system/cpu")).unwrap();
        let online = OnlineList(root);
        online.set(list);
        online
    }

    fn set(&self, list: &str) {
        fs::write(self.0.join("devices/system/cpu/online"), list).unwrap();
    }
}

impl Drop for OnlineList {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn root_cpus_that_go_keep_their_counts_and_cpus_that_come_count_on() {
    let online = OnlineList::new("0-1\n");
    let mut attachments = Attachments::with_sysfs(Sysfs::at(&online.0));
    let options = Options { pid: 0, every_cpu: true, ..Options::default() };
    let leader = attachments.open(&parent_asked(), &options, None, None).unwrap();
    let member = attachments.open(&named("task_clock"), &options, Some(leader), None).unwrap();
    let ask_on = |wanted: usize, times: u32| {
        on_each_cpu(|cpu| {
            (0..times).filter(|_| cpu == wanted).for_each(|_| {
                getppid();
            });
        })
    };
    if !ask_on(1, 10).contains(&1) {
        assert!(std::env::var_os("CI").is_none(), "this machine has one CPU only");
        eprintln!("NOT TESTED: this machine has one CPU only");
        return;
    }
    ask_on(0, 5);
    assert_eq!(attachments.read(leader).unwrap().raw, 15);
    let clock = attachments.read(member).unwrap().raw;
    online.set("0\n");
    assert_eq!(attachments.read(leader).unwrap().raw, 15, "what was counted there stays");
    // A warning about a small share of the time may follow as well: that depends on the scheduler.
    let notices = attachments.take_notices();
    let gone = |notice: &&Notice| matches!(notice, Notice::CpuGone { cpu: 1, .. });
    assert_eq!(notices.iter().filter(gone).count(), 1, "{notices:?}");
    let kept = attachments.snapshot_cpu(leader, 1).unwrap();
    assert_eq!((kept.entries[0].raw, kept.partial), (10, true), "what the sum keeps the CPU keeps");
    ask_on(1, 100);
    ask_on(0, 1);
    assert_eq!(attachments.read(leader).unwrap().raw, 16, "nobody counts on a CPU that has gone");
    assert!(attachments.read(member).unwrap().raw >= clock);
    online.set("0-1\n");
    assert_eq!(attachments.read(leader).unwrap().raw, 16);
    let notices = attachments.take_notices();
    let came = |notice: &&Notice| matches!(notice, Notice::CpuCame { cpu: 1, .. });
    assert_eq!(notices.iter().filter(came).count(), 1, "{notices:?}");
    ask_on(1, 3);
    let snapshot = attachments.snapshot(member).unwrap();
    assert_eq!((snapshot.entries[0].raw, snapshot.entries.len(), snapshot.own), (19, 2, 1));
    let both = attachments.snapshot_cpu(leader, 1).unwrap();
    assert_eq!((both.entries[0].raw, both.partial), (13, false));
    attachments.reset(leader).unwrap();
    assert_eq!(attachments.read(leader).unwrap().raw, 0, "a reset forgets the CPUs that went");
}

/// A CPU that came online and cannot be counted is missing in every reading, and is reported once.
#[test]
fn root_readings_are_partial_while_a_cpu_that_came_is_not_counted() {
    let online = OnlineList::new("0\n");
    let mut attachments = Attachments::with_sysfs(Sysfs::at(&online.0));
    let options = Options { pid: -1, every_cpu: true, ..Options::default() };
    let id = attachments.open(&named("cpu_clock"), &options, None, None).unwrap();
    let partial = |attachments: &mut Attachments| attachments.read(id).unwrap().partial;
    assert!(!partial(&mut attachments));
    // No kernel has this many CPUs.
    online.set("0,1048575\n");
    assert!(partial(&mut attachments) && partial(&mut attachments));
    let missed = |notice: &Notice| matches!(notice, Notice::CpuMissed { cpu: 1_048_575, .. });
    assert_eq!(attachments.take_notices().iter().filter(|notice| missed(notice)).count(), 1);
    assert!(attachments.snapshot(id).unwrap().partial);
    online.set("0\n");
    assert!(!partial(&mut attachments));
}
