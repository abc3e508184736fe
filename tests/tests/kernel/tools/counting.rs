//! Tools that count and sample by any event, beside `perf stat`, which counts the same process in the same run.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::{Child, Command, Stdio};

use ks_tests::{Folder, Outcome, finish, wait_until};
use nix::sys::stat::Mode;

use super::losses::{shell, work};
use super::{LONGEST, RunningTool, Workload, around, rows, tool};

/// A `perf stat` of a process that counts, until the process ends.
struct Perf {
    child: Child,
    folder: Folder,
}

impl Perf {
    /// Starts to count, and returns when perf says that it does.
    fn begin(pid: &str, events: &str) -> Perf {
        let folder = Folder::new();
        let [control, answer] = ["control", "answer"].map(|name| {
            let path = folder.path(name);
            nix::unistd::mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("the folder is writable");
            path
        });
        let child = Command::new("perf")
            .args(["stat", "-x,", "-D", "-1", "-p", pid, "-e", events, "--control"])
            .arg(format!("fifo:{},{}", control.display(), answer.display()))
            .arg("-o")
            .arg(folder.path("counts"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("perf is there: scripts/packages perf");
        let perf = Perf { child, folder };
        // Both ends stay open here: nothing waits for a perf that did not start, and what is written is kept for it.
        let open = |path| -> File {
            let mut options = OpenOptions::new();
            let opened = options.read(true).write(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
            opened.expect("it was made")
        };
        let (mut wishes, mut answers) = (open(control), open(answer));
        wishes.write_all(b"enable\n").expect("there is room");
        wait_until(LONGEST, "perf counts", || answers.read(&mut [0; 16]).is_ok_and(|bytes| bytes > 0));
        perf
    }

    /// Waits until perf has seen the end of the process, and returns what it counted.
    fn end(mut self) -> Counts {
        wait_until(LONGEST, "perf ends", || self.child.try_wait().expect("it is ours").is_some());
        Counts(fs::read_to_string(self.folder.path("counts")).expect("it was written"))
    }
}

impl Drop for Perf {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines of `perf stat -x,`: a number, its unit, the event, and more.
#[derive(Debug)]
struct Counts(String);

impl Counts {
    fn of(&self, event: &str) -> f64 {
        let rows = self.0.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let mut numbers = rows.filter(|row| row.get(2) == Some(&event)).filter_map(|row| row[0].parse().ok());
        numbers.next().unwrap_or_else(|| panic!("{self:?}"))
    }

    /// The standard error of the mean of several runs, in percent.
    fn error_of(&self, event: &str) -> f64 {
        let rows = self.0.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let mut rows = rows.filter(|row| row.get(2) == Some(&event));
        let row = rows.next().unwrap_or_else(|| panic!("{self:?}"));
        row[3].trim_end_matches('%').parse().unwrap_or_else(|_| panic!("{self:?}"))
    }
}

/// What the lines of `stat` say of an event, summed.
fn counted(ran: &Outcome, event: &str) -> u64 {
    let is_of = |row: &Vec<&str>| row.last().is_some_and(|name| name.ends_with(event));
    let rows = rows(ran, event).into_iter().filter(is_of);
    let counts: Vec<u64> = rows.map(|row| row[2].parse().unwrap_or_else(|_| panic!("{ran:#?}"))).collect();
    assert!(!counts.is_empty(), "{ran:#?}");
    counts.iter().sum()
}

/// Work of a shell and of programs that it starts, with waits in between.
const WORK: &str = "for n in 1 2 3 4 5; do ls / | cat > /dev/null; sleep 0.02; done";

#[test]
fn root_stat_counts_as_perf_stat() {
    const EVENTS: &str = "page-faults,minor-faults,{context-switches,task-clock},cpu-migrations";
    let (mut shell, pid) = shell(WORK);
    // The shell waits until all count.
    let theirs = Perf::begin(&pid, EVENTS);
    let ours = RunningTool::begin("stat", &["-p", &pid, "-e", EVENTS]);
    let parts = RunningTool::begin("stat", &["-p", &pid, "-e", "page-faults", "-I", "30"]);
    work(&mut shell);
    let [ours, parts] = [ours, parts].map(RunningTool::end);
    let theirs = theirs.end();
    for event in ["page-faults", "minor-faults", "context-switches", "cpu-migrations"] {
        assert_eq!(counted(&ours, event) as f64, theirs.of(event), "{event} {ours:#?} {theirs:?}");
    }
    assert!(theirs.of("page-faults") > 100.0 && theirs.of("context-switches") > 5.0, "{theirs:?}");
    // perf counts clocks in ms; the two clocks are switched one after the other.
    let (ns, ms) = (counted(&ours, "task-clock") as f64, theirs.of("task-clock"));
    assert!((ns / 1e6 - ms).abs() <= ms / 20.0 + 1.0, "{ns} {ms}");
    assert!(rows(&parts, "page-faults").len() > 2, "{parts:#?}");
    assert_eq!(counted(&parts, "page-faults") as f64, theirs.of("page-faults"), "{parts:#?} {theirs:?}");
}

/// The number of context switches of the machine since it was started.
fn switches() -> u64 {
    let text = fs::read_to_string("/proc/stat").expect("it is readable");
    let line = text.lines().find_map(|line| line.strip_prefix("ctxt ")).expect("proc_stat(5)");
    line.parse().expect("a number")
}

#[test]
fn root_stat_counts_each_cpu() {
    let outer = switches();
    let all = RunningTool::begin("stat", &["--by", "cpu", "-e", "context-switches"]);
    let first = RunningTool::begin("stat", &["--by", "cpu", "-C", "0-0", "-e", "context-switches"]);
    let inner = switches();
    Command::new("sh").args(["-c", "sleep 0.1; ls | cat"]).stdout(Stdio::null()).status().expect("it runs");
    let inner = switches() - inner;
    let [first, all] = [first, all].map(RunningTool::end);
    let outer = switches() - outer;
    let sum = counted(&all, "context-switches");
    assert!((inner..=outer).contains(&sum) && inner > 0, "{inner} {outer} {all:#?}");
    let cpus =
        |ran: &Outcome| rows(ran, "context-switches").iter().map(|row| row[1].to_owned()).collect::<Vec<_>>();
    let online = std::thread::available_parallelism().expect("it is known").get();
    assert!(cpus(&all).len() >= online.min(2) && cpus(&first) == ["0"], "{all:#?} {first:#?}");
    assert!(counted(&first, "context-switches") <= sum, "{all:#?} {first:#?}");
}

/// A script whose runs make one, two, three.. calls of kill(2): each adds a line to a file that it counts.
fn more_each_time(folder: &Folder, file: &str) -> String {
    let file = folder.path(file);
    format!("echo >> {0}; while read -r line; do kill -0 $$; done < {0}", file.display())
}

#[test]
fn root_stat_repeats_a_command_as_perf_stat_does() {
    const EVENTS: &str = "syscalls:sys_enter_kill,sched:sched_process_exec";
    let folder = Folder::new();
    // perf mounts tracefs: in a namespace of its own.
    let mut perf = Command::new("unshare");
    perf.args(["-m", "perf", "stat", "-x,", "-r", "5", "-e", EVENTS, "-o"]).arg(folder.path("counts"));
    let script = more_each_time(&folder, "theirs");
    assert_eq!(finish(perf.args(["sh", "-c", &script])).code, 0);
    let theirs = Counts(fs::read_to_string(folder.path("counts")).expect("it was written"));
    let script = more_each_time(&folder, "ours");
    let ours = around("stat", &["-r", "5", "-e", EVENTS], &["sh", "-c", &script]);
    // 1 to 5 calls, and one exec each time.
    for (event, mean) in EVENTS.split(',').zip([3, 1]) {
        let row = &rows(&ours, event)[0];
        assert_eq!((row[1], counted(&ours, event)), ("5", mean), "{ours:#?}");
        // perf 6.1 shows the count of the last run, and the error in percent of that.
        let error: f64 = row[4].parse::<f64>().expect("a number") * mean as f64;
        assert!((error - theirs.error_of(event) * theirs.of(event)).abs() <= 0.1, "{ours:#?} {theirs:?}");
        assert!([mean as f64, mean as f64 * 2.0 - 1.0].contains(&theirs.of(event)), "{theirs:?}");
    }
    let without = finish(&mut tool("stat", &["-r", "5"]));
    assert!(without.code == 1 && without.stdout.contains("--exec"), "{without:#?}");
}

/// The same command line after `perf stat` and after `stat`: what the command determines is equal, page faults depend on where
/// things lie in memory.
#[test]
fn root_stat_counts_a_command_as_perf_stat_does() {
    const EVENTS: &str = "syscalls:sys_enter_kill,sched:sched_process_fork,page-faults";
    let command = ["sh", "-c", "for n in 1 2 3 4 5; do kill -0 $$; ls / | cat > /dev/null; done"];
    let folder = Folder::new();
    // perf mounts tracefs: in a namespace of its own.
    let mut perf = Command::new("unshare");
    perf.args(["-m", "perf", "stat", "-x,", "-e", EVENTS, "-o"]).arg(folder.path("counts"));
    assert_eq!(finish(perf.arg("--").args(command)).code, 0);
    let theirs = Counts(fs::read_to_string(folder.path("counts")).expect("it was written"));
    let ours = around("stat", &["-e", EVENTS], &command);
    for event in ["syscalls:sys_enter_kill", "sched:sched_process_fork"] {
        assert_eq!(counted(&ours, event) as f64, theirs.of(event), "{event} {ours:#?} {theirs:?}");
    }
    assert_eq!(counted(&ours, "sys_enter_kill"), 5, "{ours:#?}");
    let (faults, by_perf) = (counted(&ours, "page-faults") as f64, theirs.of("page-faults"));
    assert!((faults - by_perf).abs() <= by_perf / 20.0 && faults > 500.0, "{ours:#?} {theirs:?}");
}

#[test]
fn root_stat_counts_each_thread() {
    const EVENT: &str = "syscalls:sys_enter_getpgid";
    let (pid, calls) = (std::process::id().to_string(), [500, 200]);
    let threads = calls.map(|calls| {
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let (says, said) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            says.send(nix::unistd::gettid()).expect("somebody waits");
            wait.recv().expect("it is let go");
            for _ in 0..calls {
                nix::unistd::getpgid(None).expect("it has one");
            }
        });
        (said.recv().expect("it says its id").to_string(), release, thread)
    });
    let running = RunningTool::begin("stat", &["-p", &pid, "--by", "thread", "-e", EVENT]);
    let ids = threads.map(|(id, release, thread)| {
        release.send(()).expect("it waits");
        thread.join().expect("it ends");
        id
    });
    let ran = running.end();
    for (id, calls) in ids.iter().zip(calls) {
        let found: Vec<_> = rows(&ran, EVENT).into_iter().filter(|row| row[1] == id).collect();
        assert!(found.len() == 1 && found[0][2] == calls.to_string(), "{id} {calls}: {ran:#?}");
    }
    let without = finish(&mut tool("stat", &["--by", "thread"]));
    assert!(without.code == 1 && without.stdout.contains("--pid"), "{without:#?}");
}

#[test]
fn root_stat_says_which_events_there_are_not() {
    let ran = around("stat", &["-e", "page-faults,{no-such,minor-faults}"], &["true"]);
    assert!(counted(&ran, "page-faults") > 0, "{ran:#?}");
    let lacking = rows(&ran, "not counted");
    assert_eq!(lacking.iter().map(|row| row[5]).collect::<Vec<_>>(), ["no-such", "minor-faults"], "{ran:#?}");
    assert!(ran.stderr.contains("no-such"), "{ran:#?}");
}

#[test]
fn root_profile_samples_what_perf_stat_counts() {
    let (mut shell, pid) = shell(WORK);
    let theirs = Perf::begin(&pid, "page-faults");
    let folder = Folder::new();
    let folded = format!("folded={}", folder.path("folded").display());
    let options = ["-p", &pid, "-e", "page-faults", "-c", "1", "--stacks", &folded];
    let ours = RunningTool::begin("profile", &options);
    work(&mut shell);
    let ours = ours.end();
    let theirs = theirs.end();
    let folded = fs::read_to_string(folder.path("folded")).expect("it was written");
    let samples: u64 = folded
        .lines()
        .map(|line| line.rsplit(' ').next().expect("text").parse::<u64>().expect("a count"))
        .sum();
    assert_eq!(samples as f64, theirs.of("page-faults"), "{ours:#?} {theirs:?}");
    // Names of the programs come first, and stacks have functions.
    assert!(folded.lines().any(|line| line.starts_with("ls") && line.contains(';')), "{folded}");
}

#[test]
fn root_profile_shows_a_tree_if_nothing_else_is_asked_for() {
    let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
    let ran = around("profile", &["-F", "999"], &["sh", "-c", busy]);
    let root: Vec<_> = rows(&ran, " sh").into_iter().filter(|row| row.last() == Some(&"sh")).collect();
    assert!(root.len() == 1 && root[0][1] == "100.0" && ran.stdout.lines().count() > 2, "{ran:#?}");
}

#[test]
fn root_top_shows_what_stat_counts() {
    let dd = Workload::of("/bin/dd");
    let beside = RunningTool::begin("top", &["-e", "{page-faults,minor-faults},context-switches"]);
    let program = ["if=/dev/zero", "of=/dev/null", "bs=1M", "count=20000", "status=none"];
    let counts =
        around("stat", &["-e", "page-faults,task-clock"], &[&[dd.path.as_str()], &program[..]].concat());
    let ran = beside.end();
    let shown = rows(&ran, &dd.name);
    let sum = |column: usize| -> u64 {
        shown.iter().map(|row| row[column].parse::<u64>().expect("a number")).sum()
    };
    assert!(ran.stdout.contains(" cpu (us)  page-faults  minor-faults  context-switches\n"), "{ran:#?}");
    // While exec runs, the program has its name and is not counted yet, for some pages.
    let faults = counted(&counts, "page-faults");
    assert!(sum(3).abs_diff(faults) <= 10 && sum(3) == sum(4), "{ran:#?} {counts:#?}");
    // A sample in each millisecond of a CPU.
    let (sampled, us) = (sum(2), counted(&counts, "task-clock") / 1000);
    assert!(us > 50_000 && sampled.abs_diff(us) <= us / 3 + 20_000, "{sampled} {us} {ran:#?} {counts:#?}");
}

#[test]
fn root_top_says_which_event_it_cannot_count() {
    let unknown = finish(tool("top", &["-e", "page-faults,no-such-event"]).args(["--exec", "true"]));
    assert!(unknown.code == 1 && unknown.stderr.contains("no-such-event"), "{unknown:#?}");
    let events = ["page-faults"; 9].join(",");
    let many = finish(tool("top", &["-e", &events]).args(["--exec", "true"]));
    assert!(many.code == 1 && many.stdout.contains("8 events are the most"), "{many:#?}");
}

#[test]
fn root_llcstat_counts_its_two_events() {
    let dd = Workload::of("/bin/dd");
    let options = ["--references", "page-faults", "--misses", "minor-faults", "--period", "1"];
    let beside = RunningTool::begin("llcstat", &options);
    let program = ["if=/dev/zero", "of=/dev/null", "bs=1M", "count=1", "status=none"];
    let counts = around("stat", &["-e", "page-faults"], &[&[dd.path.as_str()], &program[..]].concat());
    let ran = beside.end();
    let shown = rows(&ran, &dd.name);
    let numbers: Vec<u64> = shown[0][2..].iter().map(|word| word.parse().expect("a number")).collect();
    // While exec runs, the program has its name and is not counted yet, for some pages.
    let expected = counted(&counts, "page-faults");
    let is_close = numbers[0].abs_diff(expected) <= 10 && numbers[0] == numbers[1];
    assert!(shown.len() == 1 && is_close && numbers[2] == 0, "{ran:#?} {counts:#?}");
}

#[test]
fn root_llcstat_says_what_it_needs() {
    let folder = std::path::Path::new("/sys/bus/event_source/devices/cpu");
    let ran = finish(tool("llcstat", &[]).args(["--exec", "true"]));
    if folder.exists() {
        return;
    }
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert!(ran.stderr.contains("cache-references") && ran.stderr.contains("PMU"), "{ran:#?}");
}
