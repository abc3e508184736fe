//! Tools that show when tasks run and wait, and interrupts.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

use ks_tests::{Folder, command, finish};

use super::{RunningTool, around, copy_of, histogram, rows};

/// A shell that does nothing until a line comes, and then counts what the kernel accounts for it.
struct Shell {
    child: Child,
    pid: String,
}

/// From /proc/PID/schedstat: the time on a CPU and the time that it waited for one in us, and how often it ran.
struct Accounted {
    ran: u64,
    waited: u64,
    times: u64,
}

impl Shell {
    fn new(work: &str) -> Shell {
        let script = format!(
            "read go; read a b c < /proc/$$/schedstat; {work}; read d e f < /proc/$$/schedstat; echo $((d - a)) \
             $((e - b)) $((f - c))"
        );
        let child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let pid = child.id().to_string();
        Shell { child, pid }
    }

    fn work(mut self) -> Accounted {
        self.child.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
        let mut line = String::new();
        BufReader::new(self.child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        self.child.wait().expect("it is ours");
        let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        Accounted { ran: numbers[0] / 1000, waited: numbers[1] / 1000, times: numbers[2] }
    }
}

/// Counts without a system call, on a CPU for a tenth of a second and more.
const BUSY: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";

/// Whether both are the same but for a tenth, and what the shell does before and after it is accounted.
fn agree(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= other / 10 + 5000
}

#[test]
fn root_cpudist_has_the_time_on_cpus() {
    let shell = Shell::new(BUSY);
    let beside = RunningTool::begin("cpudist", &["--pid", &shell.pid]);
    let accounted = shell.work();
    let ran = beside.end();
    let (count, sum) = histogram(&ran, "us ");
    assert!(agree(sum, accounted.ran), "{} {ran:#?}", accounted.ran);
    assert!(count.abs_diff(accounted.times) <= 5, "{} {ran:#?}", accounted.times);
}

#[test]
fn root_runqlat_has_the_time_before_cpus() {
    let shell = Shell::new(BUSY);
    let beside = RunningTool::begin("runqlat", &["--pid", &shell.pid]);
    let accounted = shell.work();
    let ran = beside.end();
    let (_, sum) = histogram(&ran, "us ");
    assert!(agree(sum, accounted.waited), "{} {ran:#?}", accounted.waited);
}

#[test]
fn root_offcputime_and_wakeuptime_have_the_time_of_waits() {
    let folder = Folder::new();
    let (name, path) = copy_of("/bin/sleep", &folder);
    let shell = Shell::new(&format!("{path} 0.3"));
    let (blocked, woken) = (
        RunningTool::begin("offcputime", &["--pid", &shell.pid]),
        RunningTool::begin("wakeuptime", &["--pid", &shell.pid]),
    );
    let pid = shell.pid.clone();
    let begun = std::time::Instant::now();
    shell.work();
    let most = u64::try_from(begun.elapsed().as_micros()).expect("short");
    let (blocked, woken) = (blocked.end(), woken.end());
    let row = rows(&blocked, " sh ")
        .into_iter()
        .find(|row| row[0] == pid)
        .unwrap_or_else(|| panic!("{blocked:#?}"));
    let us: u64 = row[3].parse().expect("a number");
    // It waited for `go`, too, when the tool was attached already.
    assert!(us >= 300_000, "{most} {blocked:#?}");
    let row = rows(&woken, &format!("{name} ")).into_iter().find(|row| row[2] == pid);
    let row = row.unwrap_or_else(|| panic!("{woken:#?}"));
    let us: u64 = row[4].parse().expect("a number");
    assert!(row[1] == "sh" && (290_000..=most).contains(&us), "{most} {woken:#?}");
}

/// The stack of the program that sleeps, the timer that wakes the program, and the shell that waits for it.
#[test]
fn root_offwaketime_has_the_stacks_of_the_times_of_wakeuptime() {
    let folder = Folder::new();
    let (name, path) = copy_of("/bin/sleep", &folder);
    let shell = Shell::new(&format!("{path} 0.3"));
    let folded = folder.path("folded");
    let form = format!("folded={}", folded.display());
    let stacks = RunningTool::begin("offwaketime", &["--pid", &shell.pid, "--stacks", &form]);
    let names = RunningTool::begin("wakeuptime", &["--pid", &shell.pid]);
    let pid = shell.pid.clone();
    shell.work();
    let (names, stacks) = (names.end(), stacks.end());
    let folded = fs::read_to_string(folded).expect("it was written");
    // From the shell's functions to those of the program that ended, which meet where it was woken.
    let by = format!(";[by {name}];");
    let of_it: Vec<&str> = folded.lines().filter(|line| line.contains(&by)).collect();
    let us: u64 = of_it.iter().filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    let row = rows(&names, &format!("{name} ")).into_iter().find(|row| row[2] == pid);
    let expected: u64 = row.unwrap_or_else(|| panic!("{names:#?}"))[4].parse().expect("a number");
    assert!(agree(us, expected) && expected > 290_000, "{expected} {folded} {stacks:#?}");
    let (waits, wakes) = of_it[0].split_once(&by).expect("it is there");
    assert!(waits.starts_with("sh;") && waits.ends_with("_[k]"), "{folded}");
    assert!(wakes.split(' ').next().is_some_and(|first| first.contains("_[k]")), "{folded}");
}

#[test]
fn root_runqlen_sees_tasks_that_wait() {
    // Three tasks that compute for one CPU.
    let work = "for n in 1 2 3; do (i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done) & done; wait";
    let ran = around("runqlen", &[], &["taskset", "-c", "0", "sh", "-c", work]);
    let (count, sum) = histogram(&ran, "waiting ");
    assert!(count > 0 && sum > 0, "{ran:#?}");
}

/// Sums of a table of procfs whose rows have a number for each CPU, by what `name` says of a row's words.
fn sum(table: &str, is_wanted: impl Fn(&[&str]) -> bool) -> u64 {
    let text = fs::read_to_string(table).expect("it is readable");
    let cpus = text.lines().next().expect("a heading").split_whitespace().count();
    let rows = text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| is_wanted(row))
        .flat_map(|row| {
            row[1..=cpus].iter().map(|word| word.parse::<u64>().expect("a number")).collect::<Vec<_>>()
        })
        .sum()
}

#[test]
fn root_softirqs_and_hardirqs_agree_with_procfs() {
    let timers = || sum("/proc/softirqs", |row| row[0] == "TIMER:");
    let disk = || sum("/proc/interrupts", |row| row.last().is_some_and(|name| name.ends_with("-req.0")));
    let outer = (timers(), disk());
    let (soft, hard) = (RunningTool::begin("softirqs", &[]), RunningTool::begin("hardirqs", &[]));
    let inner = (timers(), disk());
    let folder = Folder::new();
    let file = folder.path("written").display().to_string();
    let written = Command::new("dd")
        .args([
            "if=/dev/zero",
            &format!("of={file}"),
            "bs=4k",
            "count=20",
            "oflag=direct,dsync",
            "status=none",
        ])
        .status();
    assert!(written.expect("it starts").success());
    std::thread::sleep(std::time::Duration::from_millis(100));
    let inner = (timers() - inner.0, disk() - inner.1);
    let (soft, hard) = (soft.end(), hard.end());
    let outer = (timers() - outer.0, disk() - outer.1);
    let counted = soft.numbers("TIMER_SOFTIRQ")[0].unsigned_abs();
    assert!((inner.0..=outer.0).contains(&counted) && inner.0 > 0, "{inner:?} {outer:?} {soft:#?}");
    let counted: u64 = rows(&hard, "-req.0").iter().map(|row| row[1].parse::<u64>().expect("a number")).sum();
    assert!((inner.1..=outer.1).contains(&counted) && inner.1 > 0, "{inner:?} {outer:?} {hard:#?}");
}

/// `--pid` and the columns are numbers of the PID namespace that the tool runs in.
#[test]
fn root_tools_in_a_pid_namespace_take_its_numbers() {
    let folder = Folder::new();
    let (name, shell) = copy_of("/bin/sh", &folder);
    let host = command("ks-host").get_program().to_string_lossy().into_owned();
    let run = |tool: &str| {
        let lines = format!(
            "{shell} -c 'while :; do sleep 0.01; done' & own=$!; {host} tool {tool} --pid $own --timeout 1; echo \
             own $own; kill $own"
        );
        finish(Command::new("unshare").args(["-pf", "--mount-proc", "sh", "-c", &lines]))
    };
    for tool in ["cpudist", "runqlat"] {
        let ran = run(tool);
        assert!(histogram(&ran, "us ").0 > 5, "{tool}: {ran:#?}");
    }
    for tool in ["offcputime", "wakeuptime"] {
        let ran = run(tool);
        let [own] = ran.numbers("own")[..] else { panic!("{ran:#?}") };
        let found = rows(&ran, &name);
        let is_own = |row: &Vec<&str>| row.contains(&own.to_string().as_str());
        assert!(!found.is_empty() && found.iter().all(is_own), "{tool}: {ran:#?}");
    }
}
