//! The lessons of `docs/tutorial.md`: each one-liner beside bpftrace's, both observing the same run of a workload. The
//! workload has a name of its own, so that other processes do not matter; a one-liner about all processes gets a filter
//! by that name, on both sides.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

use ks_tests::{command, compile, finish, repository};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use serde_json::Value;

use crate::tools::RunningTool;
use crate::tools::Workload;
use crate::tools::beside_bpftrace::{Bpftrace, on_one_cpu};

/// A one-liner of bpftrace, and its equal in the line after it.
#[derive(Debug)]
struct Pair {
    lesson: usize,
    theirs: String,
    ours: String,
}

/// The equals may be this much longer.
const MOST_TENTHS: usize = 13;

/// Lessons whose equals are longer: wildcards of tracepoints are not part of the language.
const LONGER: [usize; 1] = [8];

/// Returns the scripts, or the patterns of events, of two lines of the page; none if they are no pair.
fn pair(theirs: &str, ours: &str) -> Option<(String, String)> {
    let quoted = |line: &str| line.split('\'').nth(1).map(str::to_owned);
    let of_host = ours.trim_start_matches("target/release/").starts_with("ks-host ");
    (theirs.starts_with("bpftrace ") && of_host).then_some(())?;
    Some((quoted(theirs)?, quoted(ours)?))
}

/// Returns the pairs of the page.
fn pairs() -> Vec<Pair> {
    let page = std::fs::read_to_string(repository().join("docs/tutorial.md")).expect("readable");
    let mut found = Vec::new();
    for text in page.split("\n## ").skip(1) {
        // The last part of the page is no lesson.
        let Some(Ok(lesson)) = text.split_once(". ").map(|(number, _)| number.parse()) else { continue };
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let pairs = lines.windows(2).filter_map(|two| pair(two[0], two[1]));
        found.extend(pairs.map(|(theirs, ours)| Pair { lesson, theirs, ours }));
    }
    found
}

/// Returns the one-liners of a lesson that this kernel has attach points for: the first pair.
fn lesson(number: usize) -> (String, String) {
    let pair = pairs().into_iter().find(|pair| pair.lesson == number).expect("the page has the lesson");
    (pair.theirs, pair.ours)
}

/// Returns the same with a filter by the name of a command before what each does.
fn filtered(number: usize, name: &str) -> (String, String) {
    let (theirs, ours) = lesson(number);
    let (head, body) = ours.split_once("{ ").expect("a program");
    let ours = format!("{head}{{ if (comm() == \"{name}\") {{ {body} }}");
    (theirs.replacen(" { ", &format!(" /comm == \"{name}\"/ {{ "), 1), ours)
}

/// What both printed, as JSON.
struct Printed {
    theirs: Vec<Value>,
    ours: Vec<Value>,
}

/// Runs a workload that both one-liners observe, ours with more options.
fn beside(theirs: &str, ours: &str, options: &[&str], workload: impl FnOnce() + Send) -> Printed {
    let theirs = Bpftrace::of(theirs, "json");
    let ours = RunningTool::of(
        command("ks-host").args(["--json", "--timeout", "60"]).args(options).args(["-e", ours]),
    );
    on_one_cpu(workload);
    let (ours, theirs) = (ours.end(), theirs.end());
    let lines = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with('{'));
        lines.map(|line| serde_json::from_str(line).expect("JSON")).collect()
    };
    Printed { theirs: lines(&theirs.text), ours: lines(&ours.stdout) }
}

impl Printed {
    /// The lines that both printed and that contain a text.
    fn lines(&self, text: &str) -> (Vec<String>, Vec<String>) {
        let with = |lines: Vec<&str>| {
            let lines = lines.into_iter().map(str::trim_end).filter(|line| line.contains(text));
            lines.map(str::to_owned).collect()
        };
        let theirs = self.theirs.iter().filter(|line| line["type"] == "printf");
        let theirs = theirs.map(|line| line["data"].as_str().expect("text"));
        (with(theirs.collect()), with(self.ours.iter().filter_map(|line| line["line"].as_str()).collect()))
    }

    /// The counts of bpftrace's map by key.
    fn their_counts(&self, map: &str) -> BTreeMap<String, u64> {
        let maps = self.theirs.iter().filter(|line| line["type"] == "map");
        let entries = maps.filter_map(|line| line["data"][map].as_object()).flatten();
        entries.map(|(key, count)| (key.clone(), count.as_u64().expect("a count"))).collect()
    }

    /// The counts of our map by key.
    fn our_counts(&self, map: &str) -> BTreeMap<String, u64> {
        let rows = self.ours.iter().filter(|line| line["table"] == map).map(|line| &line["row"]);
        let text = |key: &Value| key.as_str().map_or_else(|| key.to_string(), str::to_owned);
        rows.map(|row| (text(&row["key"]), row["value"].as_u64().expect("a count"))).collect()
    }

    /// The counts of both histograms, by the lowest value of a slot; empty slots left out.
    fn slots(&self, theirs: &str, ours: &str, key: Option<&str>) -> (BTreeMap<i64, u64>, BTreeMap<i64, u64>) {
        let slots = |slots: &Value, low: &str| {
            let slots = slots.as_array().unwrap_or_else(|| panic!("{slots}")).iter();
            let slots = slots.map(|slot| {
                (slot[low].as_i64().unwrap_or(i64::MIN), slot["count"].as_u64().expect("a count"))
            });
            slots.filter(|(_, count)| *count > 0).collect()
        };
        let histograms = self.theirs.iter().filter(|line| line["type"] == "hist");
        let their = histograms.map(|line| &line["data"][theirs]).find(|one| !one.is_null());
        let their = their.unwrap_or_else(|| panic!("no {theirs}: {:#?}", self.theirs));
        let title = key.map_or(ours.to_owned(), |key| format!("{ours}[{key}]"));
        let our = self.ours.iter().map(|line| &line["histogram"]).find(|one| one["title"] == title);
        let our = our.unwrap_or_else(|| panic!("no {title}: {:#?}", self.ours));
        (slots(key.map_or(their, |key| &their[key]), "min"), slots(&our["slots"], "low"))
    }
}

/// The arguments with which `dd` reads so many blocks.
fn reads(count: u32) -> [String; 5] {
    let arguments = ["if=/dev/zero", "of=/dev/null", "bs=700", &format!("count={count}"), "status=none"];
    arguments.map(str::to_owned)
}

/// Runs `dd` with these arguments.
fn run(dd: &Workload, arguments: &[String]) {
    dd.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
}

/// The arguments with which `dd` waits for the disk again and again.
fn writes(dd: &Workload, count: u32) -> [String; 6] {
    let of = format!("of={}", dd.folder.path("written").display());
    let count = format!("count={count}");
    ["if=/dev/zero", &of, "bs=16k", &count, "oflag=direct", "status=none"].map(str::to_owned)
}

#[test]
fn equals_of_the_tutorial_compile_and_are_as_long_as_the_page_says() {
    let pairs = pairs();
    let lessons: BTreeSet<usize> = pairs.iter().map(|pair| pair.lesson).collect();
    assert_eq!(lessons, (1..=12).collect(), "{pairs:#?}");
    for Pair { lesson, theirs, ours } in pairs {
        if lesson > 1 {
            compile("equal", &ours);
        }
        let is_longer = ours.chars().count() * 10 > theirs.chars().count() * MOST_TENTHS;
        assert_eq!(
            is_longer,
            LONGER.contains(&lesson),
            "lesson {lesson}: {} for {}:\n{ours}",
            ours.len(),
            theirs.len()
        );
    }
}

#[test]
fn root_lesson_1_lists_the_same_tracepoints() {
    let (theirs, ours) = lesson(1);
    let listing = format!(
        "[ -e /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing; exec bpftrace -l '{theirs}'"
    );
    let listed = finish(Command::new("unshare").args(["-m", "sh", "-c", &listing]));
    let theirs: BTreeSet<String> = listed
        .stdout
        .lines()
        .filter_map(|line| line.strip_prefix("tracepoint:").map(str::to_owned))
        .collect();
    let outcome = finish(command("ks-host").args(["events", "--json", &ours]));
    let events: Vec<Value> = serde_json::from_str(&outcome.stdout).expect("JSON");
    let ours = events.iter().map(|event| event["perf"].as_str().expect("text").to_owned()).collect();
    assert_eq!(theirs, ours);
    assert!(theirs.len() > 100, "{theirs:?}");
}

#[test]
fn root_lesson_2_prints_the_same_line() {
    let (theirs, ours) = lesson(2);
    let theirs = theirs.replace("; }", "; exit(); }");
    let printed = finish(Command::new("bpftrace").args(["-e", &theirs]));
    assert_eq!(
        printed.stdout.lines().filter(|line| line.contains("hello")).collect::<Vec<_>>(),
        ["hello world"]
    );
    let outcome = finish(command("ks-host").args(["-e", &ours]));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "hello world\n"), "{outcome:#?}");
}

#[test]
fn root_lesson_3_shows_the_same_files() {
    let (theirs, ours) = lesson(3);
    let cat = Workload::of("/bin/cat");
    let file = cat.folder.write("opened", "text").display().to_string();
    let printed = beside(&theirs, &ours, &[], || cat.run(&[&file, "/nonexistent"]));
    let (theirs, ours) = printed.lines(&format!("{} ", cat.name));
    assert_eq!(theirs, ours);
    assert!(ours.contains(&format!("{} {file}", cat.name)), "{ours:#?}");
}

#[test]
fn root_lesson_4_counts_the_same_calls() {
    let (theirs, ours) = lesson(4);
    let dd = Workload::of("/bin/dd");
    let printed = beside(&theirs, &ours, &[], || run(&dd, &reads(400)));
    let (theirs, ours) = (printed.their_counts("@"), printed.our_counts("n"));
    assert_eq!(theirs.get(&dd.name), ours.get(&dd.name));
    assert!(ours[&dd.name] > 800, "{ours:?}");
}

/// The process is there before both look at it by its number: it waits to be continued.
#[test]
fn root_lesson_5_has_the_same_distribution() {
    let dd = Workload::of("/bin/dd");
    let arguments = [std::slice::from_ref(&dd.path), &reads(300)].concat();
    let waiting = ["-c", "kill -STOP $$; exec \"$@\"", "sh"];
    let child = Command::new("sh").args(waiting).args(arguments).stdin(Stdio::null()).spawn();
    let pid = Pid::from_raw(child.expect("sh starts").id() as i32);
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it is ours");
    assert_eq!(stopped, WaitStatus::Stopped(pid, Signal::SIGSTOP));
    let of_it = |script: String| {
        assert!(script.contains("18644"), "{script}");
        script.replace("18644", &pid.to_string())
    };
    let (theirs, ours) = lesson(5);
    let printed = beside(&of_it(theirs), &of_it(ours), &[], || {
        kill(pid, Signal::SIGCONT).expect("it is ours");
        assert_eq!(waitpid(pid, None), Ok(WaitStatus::Exited(pid, 0)));
    });
    let (theirs, ours) = printed.slots("@bytes", "bytes", None);
    assert_eq!(theirs, ours);
    assert!(ours[&512] >= 300, "{ours:?}");
}

#[test]
fn root_lesson_6_has_the_same_distribution() {
    let dd = Workload::of("/bin/dd");
    let (theirs, ours) = filtered(6, &dd.name);
    let printed = beside(&theirs, &ours, &[], || run(&dd, &reads(300)));
    let (theirs, ours) = printed.slots("@bytes", "bytes", None);
    assert_eq!(theirs, ours);
    assert!(ours[&600] >= 300, "{ours:?}");
}

/// Times are different each time they are taken; there are as many.
#[test]
fn root_lesson_7_times_the_same_reads() {
    let (theirs, ours) = lesson(7);
    let dd = Workload::of("/bin/dd");
    let printed = beside(&theirs, &ours, &[], || run(&dd, &reads(300)));
    let (theirs, ours) = printed.slots("@ns", "ns", Some(&dd.name));
    let values = |slots: &BTreeMap<i64, u64>| slots.values().sum::<u64>();
    assert_eq!(values(&theirs), values(&ours), "{theirs:?} {ours:?}");
    assert!(values(&ours) >= 300, "{ours:?}");
}

#[test]
fn root_lesson_8_counts_the_same_events() {
    let shell = Workload::of("/bin/sh");
    let (theirs, ours) = lesson(8);
    let before_interval = |script: &str, interval: &str| {
        let (before, _) = script.split_once(interval).expect("it ends by itself");
        before.to_owned()
    };
    let theirs = before_interval(&theirs, "interval:").replacen(
        " { ",
        &format!(" /comm == \"{}\"/ {{ ", shell.name),
        1,
    );
    let ours = before_interval(&ours, "@interval")
        .replace("{ n[", &format!("{{ if (comm() == \"{}\") {{ n[", shell.name));
    let ours = ours.replace("+= 1 }", "+= 1 } }");
    let printed =
        beside(&theirs, &ours, &[], || shell.run(&["-c", "true; (true); /bin/true; sleep 0.01 & wait"]));
    let (theirs, ours) = (printed.their_counts("@"), printed.our_counts("n"));
    for event in ["sched_process_fork", "sched_process_exec", "sched_process_exit"] {
        let probe = format!("tracepoint:sched:{event}");
        assert_eq!(theirs.get(&probe), ours.get(event), "{event}: {theirs:?} {ours:?}");
        assert!(ours[event] > 0, "{event}: {ours:?}");
    }
}

/// Two clocks sample at moments of their own, and other tests run on the CPU meanwhile: the counts differ as two numbers
/// of independent samples do, whose difference has the variance of their sum.
#[test]
fn root_lesson_9_samples_as_often() {
    let dd = Workload::of("/bin/dd");
    let (theirs, ours) = filtered(9, &dd.name);
    let printed =
        beside(&theirs, &ours, &[], || dd.run(&["if=/dev/zero", "of=/dev/null", "bs=4M", "count=16000"]));
    let samples = |counts: BTreeMap<String, u64>| counts.values().sum::<u64>();
    let (theirs, ours) = (samples(printed.their_counts("@")), samples(printed.our_counts("n")));
    // Four standard deviations: half the rate would be outside of 120 samples.
    let is_near = theirs.abs_diff(ours).pow(2) <= 16 * (theirs + ours);
    assert!(ours > 80 && is_near, "{ours} samples beside {theirs}");
}

#[test]
fn root_lesson_10_counts_the_same_stacks() {
    let dd = Workload::of("/bin/dd");
    let (theirs, ours) = filtered(10, &dd.name);
    let folded = dd.folder.path("folded");
    let stacks = format!("folded={}", folded.display());
    let printed = beside(&theirs, &ours, &["--stacks", &stacks], || run(&dd, &writes(&dd, 100)));
    let mut shown: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for row in printed.ours.iter().filter(|line| line["table"] == "n").map(|line| &line["row"]) {
        let functions = row["key"].as_array().expect("a stack").iter().rev();
        let functions = functions.map(|function| function.as_str().expect("text").to_owned()).collect();
        *shown.entry(functions).or_default() += row["value"].as_u64().expect("a count");
    }
    let mut theirs: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for (stack, count) in printed.their_counts("@") {
        let name = |frame: &str| frame.trim().split('+').next().map(str::to_owned);
        let frames = stack.lines().rev().filter(|line| !line.trim().is_empty()).filter_map(name).collect();
        *theirs.entry(frames).or_default() += count;
    }
    let mut ours: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for line in std::fs::read_to_string(folded).expect("it was written").lines() {
        let (stack, count) = line.rsplit_once(' ').expect("a count");
        let frames = stack.split(';').map(|frame| frame.trim_end_matches("_[k]").to_owned()).collect();
        *ours.entry(frames).or_default() += count.parse::<u64>().expect("a count");
    }
    assert_eq!(theirs, ours);
    assert_eq!(theirs, shown);
    assert!(ours.values().sum::<u64>() >= 20, "{ours:#?}");
}

#[test]
fn root_lesson_11_has_the_same_distribution() {
    let dd = Workload::of("/bin/dd");
    let (theirs, ours) = filtered(11, &dd.name);
    let printed = beside(&theirs, &ours, &[], || run(&dd, &writes(&dd, 50)));
    let (theirs, ours) = printed.slots("@", "bytes", None);
    assert_eq!(theirs, ours);
    assert!(ours.values().sum::<u64>() >= 50, "{ours:?}");
}

#[test]
fn root_lesson_12_reads_the_same_members() {
    let (theirs, ours) = lesson(12);
    let shell = Workload::of("/bin/sh");
    let printed = beside(&theirs, &ours, &[], || shell.run(&["-c", "/bin/true; /bin/true; exit 0"]));
    let (theirs, ours) = printed.lines(&shell.name);
    assert_eq!(theirs, ours);
    assert_eq!(
        ours.iter().filter(|line| line.ends_with(&format!("by {}", shell.name))).count(),
        2,
        "{ours:?}"
    );
}
