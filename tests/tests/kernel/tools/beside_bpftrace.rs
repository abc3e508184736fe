//! Tools beside bpftrace: both observe the same run of a workload, and must show the same. The workload is a program with
//! a name of its own, so that other processes do not matter.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};

use ks_tests::{Folder, Outcome, cpus, wait_until};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::losses::{shell, work};
use super::network::connections;
use super::{LONGEST, RunningTool, Workload, histogram, rows};

/// A bpftrace program that is attached, until it is ended.
pub(crate) struct Bpftrace {
    child: Child,
    folder: Folder,
    /// The process, which there is not, to which a signal is sent when the program shall end.
    end: i32,
}

impl Bpftrace {
    /// Starts a program, and waits until it is attached: bpftrace prints what `BEGIN` says when all probes are.
    fn begin(program: &str) -> Bpftrace {
        Bpftrace::of(program, "text")
    }

    /// Starts a program whose output has a form: `text` or `json`.
    pub(crate) fn of(program: &str, form: &str) -> Bpftrace {
        let version = Command::new("bpftrace").arg("--version").output();
        assert!(
            version.is_ok_and(|output| output.status.success()),
            "bpftrace does not run: scripts/packages bpftrace"
        );
        let folder = Folder::new();
        static STARTED: AtomicI32 = AtomicI32::new(0);
        let end = 2_000_000_000 + STARTED.fetch_add(1, Ordering::Relaxed);
        // SIGINT does not always end bpftrace 0.17, and its maps may be missing then.
        let end_of = format!(
            "tracepoint:syscalls:sys_enter_kill /args->pid == {end} && pid == {}/",
            std::process::id()
        );
        let program = folder.write(
            "program.bt",
            format!("BEGIN {{ printf(\"attached\\n\"); }}\n{end_of} {{ exit(); }}\n{program}"),
        );
        let run = format!(
            "[ -e /sys/kernel/tracing/events ] || mount -t tracefs none /sys/kernel/tracing; exec bpftrace -B \
             line -f {form} {}",
            program.display()
        );
        let file = |name: &str| File::create(folder.path(name)).expect("the folder is writable");
        let child = Command::new("unshare")
            .args(["-m", "sh", "-c", &run])
            .env("BPFTRACE_STRLEN", "200")
            .env("BPFTRACE_PERF_RB_PAGES", "1024")
            .stdin(Stdio::null())
            .stdout(file("printed"))
            .stderr(file("messages"))
            .spawn()
            .expect("unshare is there");
        let mut started = Bpftrace { child, folder, end };
        wait_until(LONGEST, "bpftrace is attached", || {
            let status = started.child.try_wait().expect("it is ours");
            assert_eq!(status, None, "{}", started.read("messages"));
            let printed = started.read("printed");
            // As text, and as JSON.
            ["attached\n", "attached\\n"].iter().any(|said| printed.contains(said))
        });
        started
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path(name)).expect("it was made")
    }

    /// How many hits the kernel skipped so far: it runs no program of a tracepoint that interrupts another one on its CPU.
    fn missed(&self) -> u64 {
        let descriptors = fs::read_dir(format!("/proc/{}/fdinfo", self.child.id())).expect("it runs");
        let of_programs = descriptors.filter_map(|one| {
            let text = fs::read_to_string(one.expect("readable").path()).ok()?;
            text.lines().find_map(|line| line.strip_prefix("recursion_misses:")?.trim().parse::<u64>().ok())
        });
        of_programs.sum()
    }

    /// Ends the program, and returns what it has printed, its maps last.
    pub(crate) fn end(mut self) -> Printed {
        let missed = self.missed();
        wait_until(LONGEST, "bpftrace ends", || {
            // The kernel may have skipped the last one.
            assert_eq!(kill(Pid::from_raw(self.end), None), Err(Errno::ESRCH));
            self.child.try_wait().expect("it is ours").is_some()
        });
        let status = self.child.wait().expect("it is ours");
        let (text, messages) = (self.read("printed"), self.read("messages"));
        assert!(
            status.success() && ![&text, &messages].iter().any(|one| one.contains("Lost ")),
            "{messages}"
        );
        Printed { text, missed }
    }
}

impl Drop for Bpftrace {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What bpftrace printed, and how many hits the kernel had skipped when it was ended.
#[derive(Debug)]
pub(crate) struct Printed {
    pub(crate) text: String,
    pub(crate) missed: u64,
}

impl Printed {
    /// The rest of the lines that begin with a word, as words.
    fn rows(&self, first: &str) -> Vec<Vec<&str>> {
        let rows = self.text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row.first() == Some(&first)).map(|row| row[1..].to_vec()).collect()
    }

    /// The keys and numbers of a map.
    fn map(&self, name: &str) -> Vec<(String, u64)> {
        let start = format!("@{name}[");
        let entries = self.text.lines().filter_map(|line| line.strip_prefix(&start)?.split_once("]: "));
        entries.map(|(key, value)| (key.to_owned(), value.parse().expect("a count"))).collect()
    }

    /// The number of a map without keys; 0 if nothing was counted.
    fn count(&self, name: &str) -> u64 {
        let start = format!("@{name}: ");
        let line = self.text.lines().find_map(|line| line.strip_prefix(&start));
        line.map_or(0, |number| number.parse().expect("a count"))
    }
}

/// Runs a workload on one CPU: bpftrace reads a buffer of each CPU in turn, so that lines of two CPUs may come in another
/// order than they were written in.
pub(crate) fn on_one_cpu(workload: impl FnOnce() + Send) {
    let pinned = || {
        cpus::stay_on(cpus::allowed()[0]);
        workload();
    };
    let ended = std::thread::scope(|scope| scope.spawn(pinned).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Runs a workload that a tool and a bpftrace program observe.
fn both(tool: &str, options: &[&str], program: &str, workload: impl FnOnce() + Send) -> (Outcome, Printed) {
    let theirs = Bpftrace::begin(program);
    let ours = RunningTool::begin(tool, options);
    on_one_cpu(workload);
    let ours = ours.end();
    (ours, theirs.end())
}

#[test]
fn root_syscount_counts_as_bpftrace() {
    let dd = Workload::of("/bin/dd");
    let program = format!("tracepoint:raw_syscalls:sys_enter {} {{ @[args->id] = count(); }}", dd.filter());
    let (ours, theirs) = both("syscount", &["--comm", &dd.name], &program, || {
        dd.run(&["if=/dev/zero", "of=/dev/null", "bs=1", "count=300", "status=none"]);
    });
    let of = |number: i64| {
        theirs.map("").into_iter().find_map(|(key, count)| (key == number.to_string()).then_some(count))
    };
    for (call, number) in [("read", nix::libc::SYS_read), ("write", nix::libc::SYS_write)] {
        assert_eq!(u64::try_from(ours.numbers(call)[0]).ok(), of(number), "{call} {ours:#?} {theirs:#?}");
    }
    // A call that does not return has no time and no error: the tool counts where calls return.
    let ends = |key: &str| key == nix::libc::SYS_exit_group.to_string();
    let mut counted: Vec<u64> =
        theirs.map("").into_iter().filter(|(key, _)| !ends(key)).map(|(_, count)| count).collect();
    counted.sort_by_key(|count| std::cmp::Reverse(*count));
    // The tool's rows are sorted, too.
    let shown = ours.stdout.lines().filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    assert_eq!(shown.collect::<Vec<_>>(), counted, "{ours:#?} {theirs:#?}");
}

#[test]
fn root_execsnoop_and_exitsnoop_show_processes_as_bpftrace() {
    let shell = Workload::of("/bin/sh");
    let filter = shell.filter();
    let program = format!(
        "tracepoint:sched:sched_process_exec {filter} {{ printf(\"exec %d\\n\", pid); }}
         tracepoint:sched:sched_process_exit {filter} {{
             printf(\"exit %d %d\\n\", pid, ((struct task_struct *)curtask)->exit_code);
         }}"
    );
    let ended = RunningTool::begin("exitsnoop", &[]);
    let (begun, theirs) = both("execsnoop", &[], &program, || {
        for script in ["exit 3", "kill -9 $$", "exit 0", "(exit 1); exit 2"] {
            shell.run(&["-c", script]);
        }
    });
    let ended = ended.end();
    let of_it = |ran| rows(ran, &shell.name).into_iter().filter(|row| row[0] == shell.name);
    let begun: Vec<_> = of_it(&begun).map(|row| vec![row[1]]).collect();
    assert!(begun.len() == 4 && begun == theirs.rows("exec"), "{begun:?} {theirs:#?}");
    let shown: Vec<_> = of_it(&ended).map(|row| [row[1], row[4], row[5]].map(str::to_owned)).collect();
    let expected = theirs.rows("exit").into_iter().map(|row| {
        let code: i32 = row[1].parse().expect("a number");
        [row[0].to_owned(), (code >> 8).to_string(), signal_name(code & 0x7f)]
    });
    assert_eq!(shown, expected.collect::<Vec<_>>(), "{theirs:#?}");
    assert_eq!(shown.len(), 5, "{shown:?}");
}

/// The name of a signal as tools show it.
fn signal_name(number: i32) -> String {
    Signal::try_from(number).map_or(number.to_string(), |signal| signal.as_str().to_owned())
}

#[test]
fn root_opensnoop_shows_calls_as_bpftrace() {
    let cat = Workload::of("/bin/cat");
    let filter = cat.filter();
    let program = format!(
        "tracepoint:syscalls:sys_enter_openat {filter} {{ @paths[tid] = args->filename; }}
         tracepoint:syscalls:sys_exit_openat /@paths[tid]/ {{
             printf(\"open %d %s\\n\", args->ret, str(@paths[tid]));
             delete(@paths[tid]);
         }}"
    );
    let file = cat.folder.write("opened", "text").display().to_string();
    let missing = cat.folder.path("missing").display().to_string();
    let (ours, theirs) = both("opensnoop", &["--comm", &cat.name], &program, || cat.run(&[&file, &missing]));
    let shown = rows(&ours, &cat.name).into_iter().filter(|row| row[1] == cat.name);
    let shown: Vec<_> = shown.map(|row| [row[2], row[3], row[4]].map(str::to_owned)).collect();
    let expected = theirs.rows("open").into_iter().map(|row| {
        let number: i32 = row[0].parse().expect("a number");
        let failed = number < 0;
        let error = if failed { format!("{:?}", Errno::from_raw(-number)) } else { "-".to_owned() };
        [number.max(-1).to_string(), error, row[1].to_owned()]
    });
    assert_eq!(shown, expected.collect::<Vec<_>>(), "{ours:#?} {theirs:#?}");
    assert!(shown.iter().any(|row| row[1..] == ["ENOENT", &*missing]), "{shown:?}");
}

#[test]
fn root_killsnoop_and_sigsnoop_show_signals_as_bpftrace() {
    let shell = Workload::of("/bin/sh");
    let filter = shell.filter();
    let program = format!(
        "tracepoint:syscalls:sys_enter_kill {filter} {{ @target[tid] = args->pid; @signal[tid] = args->sig; }}
         tracepoint:syscalls:sys_exit_kill /@target[tid]/ {{
             printf(\"kill %d %d %d\\n\", @signal[tid], @target[tid], args->ret);
             delete(@target[tid]);
             delete(@signal[tid]);
         }}
         tracepoint:signal:signal_generate {filter} {{
             printf(\"signal %d %d %d\\n\", args->sig, args->pid, args->result);
         }}"
    );
    let generated = RunningTool::begin("sigsnoop", &[]);
    let (calls, theirs) = both("killsnoop", &[], &program, || {
        shell.run(&["-c", "sleep 60 & kill -USR2 $!; wait; kill -USR1 $!; kill -0 $$"]);
    });
    let generated = generated.end();
    let named = |row: &[&str]| {
        let name = signal_name(row[0].parse().expect("a number"));
        std::iter::once(name).chain(row[1..].iter().map(|&word| word.to_owned())).collect::<Vec<_>>()
    };
    let of_it = |ran| rows(ran, &shell.name).into_iter().filter(|row| row[1] == shell.name);
    let calls: Vec<_> = of_it(&calls).map(|row| row[2..].join(" ")).collect();
    let expected: Vec<_> = theirs.rows("kill").iter().map(|row| named(row)).collect();
    let expected = expected.into_iter().map(|mut row| {
        let result: i32 = row[2].parse().expect("a number");
        if result < 0 {
            row[2] = format!("{:?}", Errno::from_raw(-result));
        }
        row.join(" ")
    });
    assert_eq!(calls, expected.collect::<Vec<_>>(), "{theirs:#?}");
    assert!(calls.len() == 3 && calls[1].ends_with(" ESRCH"), "{calls:?}");
    let generated: Vec<_> = of_it(&generated).map(|row| vec![row[2], row[3], row[row.len() - 1]]).collect();
    let generated: Vec<_> =
        generated.into_iter().map(|row| row.into_iter().map(str::to_owned).collect::<Vec<_>>()).collect();
    let expected: Vec<_> = theirs.rows("signal").iter().map(|row| named(row)).collect();
    assert!(generated == expected && !generated.is_empty(), "{generated:?} {theirs:#?}");
}

#[test]
fn root_biosnoop_and_bitesize_show_requests_as_bpftrace() {
    let dd = Workload::of("/bin/dd");
    let filter = format!("/args->comm == \"{}\"/", dd.name);
    let program = format!(
        "tracepoint:block:block_io_start {filter} {{ @requests = count(); @bytes = sum(args->bytes); }}"
    );
    let of = format!("of={}", dd.folder.path("written").display());
    let sizes = RunningTool::begin("bitesize", &[]);
    let (ours, theirs) = both("biosnoop", &[], &program, || {
        dd.run(&["if=/dev/zero", &of, "bs=8k", "count=40", "oflag=direct", "status=none"]);
    });
    let sizes = sizes.end();
    let shown: Vec<_> = rows(&ours, &dd.name);
    let bytes: u64 = shown.iter().map(|row| row[5].parse::<u64>().expect("a number")).sum();
    let expected = (theirs.count("requests"), theirs.count("bytes"));
    assert_eq!((shown.len() as u64, bytes), expected, "{ours:#?} {theirs:#?}");
    assert!(expected.0 >= 40, "{theirs:#?}");
    assert_eq!(histogram(&sizes, &format!("bytes[{}]", dd.name)), expected, "{sizes:#?} {theirs:#?}");
}

#[test]
fn root_tcpconnect_and_tcplife_show_connections_as_bpftrace() {
    // 6 is IPPROTO_TCP, 2 TCP_SYN_SENT, and 7 TCP_CLOSE.
    let program = "tracepoint:sock:inet_sock_set_state /args->protocol == 6 && args->newstate == 2/ {
            printf(\"opened %d %d\\n\", pid, args->dport);
        }
        tracepoint:sock:inet_sock_set_state /args->protocol == 6 && args->newstate == 7/ {
            printf(\"closed %d %d\\n\", args->sport, args->dport);
        }";
    let closed = RunningTool::begin("tcplife", &[]);
    let mut made = Vec::new();
    let (opened, theirs) = both("tcpconnect", &[], program, || made = connections());
    let closed = closed.end();
    let me = std::process::id().to_string();
    for connection in &made {
        let (server, client) = (&*connection.server, &*connection.client);
        let shown =
            rows(&opened, server).into_iter().filter(|row| row[0] == me && row[row.len() - 1] == server);
        let expected = theirs.rows("opened").into_iter().filter(|row| *row == [&*me, server]).count();
        assert_eq!((shown.count(), expected), (1, 1), "{opened:#?} {theirs:#?}");
        for ends in [[server, client], [client, server]] {
            let shown = rows(&closed, server).into_iter().filter(|row| {
                // LPORT and RPORT; the name before them may have spaces.
                [row[row.len() - 6], row[row.len() - 4]] == ends
            });
            let expected = theirs.rows("closed").into_iter().filter(|row| *row == ends).count();
            assert_eq!((shown.count(), expected), (1, 1), "{closed:#?} {theirs:#?}");
        }
    }
}

#[test]
fn root_pagefaults_counts_as_bpftrace() {
    let dd = Workload::of("/bin/dd");
    let filter = dd.filter();
    let program = format!(
        "tracepoint:exceptions:page_fault_user {filter} {{ @user = count(); }}
         tracepoint:exceptions:page_fault_kernel {filter} {{ @kernel = count(); }}"
    );
    let (ours, theirs) = both("pagefaults", &[], &program, || {
        dd.run(&["if=/dev/zero", "of=/dev/null", "bs=1M", "count=1", "status=none"]);
    });
    let numbers: Vec<u64> = ours.numbers(&dd.name).into_iter().map(i64::unsigned_abs).collect();
    assert_eq!(numbers[..2], [theirs.count("user"), theirs.count("kernel")], "{ours:#?} {theirs:#?}");
}

#[test]
fn root_threadsnoop_shows_processes_as_bpftrace() {
    let shell = Workload::of("/bin/sh");
    let program = format!(
        "tracepoint:sched:sched_process_fork {} {{ printf(\"started %d\\n\", args->child_pid); }}",
        shell.filter()
    );
    let (ours, theirs) = both("threadsnoop", &[], &program, || shell.run(&["-c", "true; (true); : & wait"]));
    let shown: Vec<_> = rows(&ours, &shell.name).into_iter().map(|row| vec![row[4]]).collect();
    assert!(shown == theirs.rows("started") && shown.len() == 2, "{ours:#?} {theirs:#?}");
}

/// Interrupts belong to no process. What bpftrace counts is between the counts of two runs of each tool: one
/// begins before it and ends after it, the other begins after it and ends before it. Hits that the kernel skipped for
/// bpftrace may lack: programs of other tests run where interrupts come.
#[test]
fn root_softirqs_and_hardirqs_count_as_bpftrace() {
    let program = "tracepoint:irq:softirq_exit { @soft[args->vec] = count(); }
        tracepoint:irq:irq_handler_entry { @hard[str(args->name)] = count(); }";
    let tools = || ["softirqs", "hardirqs"].map(|name| RunningTool::begin(name, &[]));
    let dd = Workload::of("/bin/dd");
    let of = format!("of={}", dd.folder.path("written").display());
    let outer = tools();
    let theirs = Bpftrace::begin(program);
    let inner = tools();
    dd.run(&["if=/dev/zero", &of, "bs=4k", "count=300", "oflag=direct,dsync", "status=none"]);
    let inner = inner.map(RunningTool::end);
    let theirs = theirs.end();
    let outer = outer.map(RunningTool::end);
    let missed = theirs.missed;
    let within = |what: &str, least: u64, theirs: u64, most: u64| {
        let is_within = least <= theirs + missed && theirs <= most && least > 0;
        assert!(is_within, "{what}: {least} {theirs} {most}, {missed} missed: {inner:#?} {outer:#?}");
    };
    for (name, number) in [("TIMER_SOFTIRQ", "1"), ("SCHED_SOFTIRQ", "7"), ("RCU_SOFTIRQ", "9")] {
        let of = |ran: &Outcome| ran.numbers(name)[0].unsigned_abs();
        let counted = theirs.map("soft").into_iter().find(|(key, _)| key == number);
        within(name, of(&inner[0]), counted.map_or(0, |(_, count)| count), of(&outer[0]));
    }
    let disk = "-req.0";
    let of = |ran: &Outcome| rows(ran, disk).iter().map(|row| row[1].parse::<u64>().expect("a count")).sum();
    let counted = theirs.map("hard").into_iter().filter(|(key, _)| key.ends_with(disk));
    within("interrupts of the disk", of(&inner[1]), counted.map(|(_, count)| count).sum(), of(&outer[1]));
}

/// How many calls moved bytes, and how many, by the words of what was printed.
fn moved(rows: &[Vec<&str>], operation: &str, bytes: usize) -> (u64, u64) {
    let of_it = rows.iter().filter(|row| row[bytes - 1] == operation);
    let numbers = of_it.map(|row| row[bytes].parse::<u64>().expect("a number"));
    numbers.filter(|number| *number > 0).fold((0, 0), |(count, sum), number| (count + 1, sum + number))
}

#[test]
fn root_fileslower_and_fsslower_show_calls_as_bpftrace() {
    let folder = Folder::new();
    let source = folder.write("read", vec![7; 24 * 1024]).display().to_string();
    let target = folder.path("written").display().to_string();
    let found = Command::new("findmnt").args(["-n", "-o", "FSTYPE", "-T", &source]).output();
    let kind = String::from_utf8(found.expect("util-linux is there").stdout).expect("text");
    let kind = kind.trim();
    let (mut shell, pid) = shell(&format!("exec dd if={source} of={target} bs=8k conv=fsync status=none"));
    let filter = |other: &str| format!("/pid == {pid} && {other}/");
    let sized = filter("args->ret == 8192");
    let program = format!(
        "tracepoint:syscalls:sys_exit_read {sized} {{ @reads = count(); @read = sum(args->ret); }}
         tracepoint:syscalls:sys_exit_write {sized} {{ @writes = count(); @written = sum(args->ret); }}
         tracepoint:syscalls:sys_exit_fsync {} {{ @syncs = count(); }}",
        filter("args->ret == 0")
    );
    let options = ["--us", "0", "--pid", &pid];
    let calls = RunningTool::begin("fsslower", &options);
    let of_type = RunningTool::begin("fsslower", &[&options[..], &["--type", kind]].concat());
    let of_none = RunningTool::begin("fsslower", &[&options[..], &["--type", "no-such"]].concat());
    let slow = RunningTool::begin("fileslower", &["--us", "60000000", "--pid", &pid]);
    let (ours, theirs) = both("fileslower", &options, &program, || {
        assert!(work(&mut shell).success());
    });
    let [calls, of_type, of_none, slow] = [calls, of_type, of_none, slow].map(RunningTool::end);
    let of_it = |ran| {
        let mut rows = rows(ran, &pid);
        rows.retain(|row| row[0] == pid && [&*source, &*target].contains(&row[row.len() - 1]));
        rows
    };
    let read = (theirs.count("reads"), theirs.count("read"));
    let written = (theirs.count("writes"), theirs.count("written"));
    assert!(read == (3, 24 * 1024) && written == read && theirs.count("syncs") == 1, "{theirs:#?}");
    let shown = of_it(&ours);
    assert_eq!([moved(&shown, "R", 3), moved(&shown, "W", 3)], [read, written], "{ours:#?}");
    assert!(shown.iter().any(|row| row[4] != "0"), "{ours:#?}");
    let shown = of_it(&calls);
    assert_eq!([moved(&shown, "read", 4), moved(&shown, "write", 4)], [read, written], "{calls:#?}");
    let count = |operation: &str| shown.iter().filter(|row| row[3] == operation).count();
    assert_eq!([count("open"), count("sync")], [2, 1], "{calls:#?}");
    assert!(shown.iter().all(|row| row[2] == kind), "{calls:#?}");
    assert_eq!(of_it(&of_type).len(), shown.len(), "{calls:#?} {of_type:#?}");
    assert!(of_it(&of_none).is_empty() && of_it(&slow).is_empty(), "{of_none:#?} {slow:#?}");
}
