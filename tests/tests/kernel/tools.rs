//! The tools inside `ks-host`, each beside a workload that is known: what a tool prints is compared with what the
//! workload did, with bpftrace, or with procfs. These tests need root.

pub(crate) mod beside_bpftrace;
mod block;
mod counting;
mod files;
mod losses;
mod memory;
mod network;
mod processes;
mod programs;
mod scheduling;

use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ks_tests::{Folder, Outcome, command, copy_program, finish, repository, wait_until};

/// How long a tool may take to be attached; the machine may be busy.
const LONGEST: Duration = Duration::from_secs(60);

/// The command that runs a tool.
fn tool(name: &str, options: &[&str]) -> Command {
    let mut host = command("ks-host");
    host.args(["tool", name, "--timeout", "60"]).args(options);
    host
}

/// Runs a tool around a command, which must end well.
fn around(name: &str, options: &[&str], exec: &[&str]) -> Outcome {
    let outcome = finish(tool(name, options).arg("--exec-code").arg("--exec").args(exec));
    assert_eq!(outcome.code, 0, "{name}: {outcome:#?}");
    outcome
}

/// A tool that is attached, until it is ended: what it observes is a command that waits for a file.
pub(crate) struct RunningTool {
    child: Child,
    folder: Folder,
}

impl RunningTool {
    /// Starts a tool, and waits until it is attached.
    fn begin(name: &str, options: &[&str]) -> RunningTool {
        RunningTool::of(&mut tool(name, options))
    }

    /// Starts a command line of `ks-host` without `--exec`, and waits until its script is attached.
    pub(crate) fn of(host: &mut Command) -> RunningTool {
        let folder = Folder::new();
        let (ready, done) = (folder.path("ready"), folder.path("done"));
        let waits =
            format!("echo > {}; while [ ! -e {} ]; do sleep 0.01; done", ready.display(), done.display());
        let mut child = host
            .arg("--output")
            .arg(folder.path("output"))
            .args(["--exec", "sh", "-c", &waits])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("ks-host starts");
        wait_until(LONGEST, "the tool is attached", || {
            if let Some(status) = child.try_wait().expect("it is ours") {
                let messages = child.stderr.take().map(std::io::read_to_string);
                panic!("it ended before it was attached: {status}: {messages:?}");
            }
            ready.exists()
        });
        RunningTool { child, folder }
    }

    /// Ends the tool, and returns what it has printed.
    pub(crate) fn end(self) -> Outcome {
        self.folder.write("done", "");
        let output = self.child.wait_with_output().expect("it is ours");
        let printed = fs::read_to_string(self.folder.path("output")).expect("it was written");
        let outcome = Outcome::of(output.status, printed, &output.stderr);
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        outcome
    }
}

/// The words of the lines that contain a text.
fn rows<'a>(ran: &'a Outcome, text: &str) -> Vec<Vec<&'a str>> {
    let lines = ran.stdout.lines().filter(|line| line.contains(text));
    lines.map(|line| line.split_whitespace().collect()).collect()
}

/// The number of values of a histogram, and their sum.
fn histogram(ran: &Outcome, title: &str) -> (u64, u64) {
    let line = ran.stdout.lines().find(|line| line.starts_with(title) && line.contains(" values, sum "));
    let words: Vec<&str> = line.unwrap_or_else(|| panic!("{ran:#?}")).split([' ', ',']).collect();
    let before = |word: &str, by: usize| {
        let at = words.iter().position(|other| *other == word).expect("it is there");
        words[at - by].parse::<u64>().expect("a number")
    };
    (before("values", 1), before("mean", 2))
}

/// A copy of a program under a name that no other test observes: at most 15 bytes.
fn copy_of(program: &str, folder: &Folder) -> (String, String) {
    let source = fs::canonicalize(program).expect("it is there");
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let base = source.file_name().expect("a file").to_string_lossy().into_owned();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}{}x{count}", &base[..base.len().min(4)], std::process::id());
    let path = folder.path(&name);
    copy_program(source, &path);
    (name, path.display().to_string())
}

/// A copy of a program, and how it is run.
pub(crate) struct Workload {
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) folder: Folder,
}

impl Workload {
    pub(crate) fn of(program: &str) -> Workload {
        let folder = Folder::new();
        let (name, path) = copy_of(program, &folder);
        Workload { name, path, folder }
    }

    /// The filter of bpftrace for this program.
    fn filter(&self) -> String {
        format!("/comm == \"{}\"/", self.name)
    }

    /// Runs it to its end, however it ends.
    pub(crate) fn run(&self, arguments: &[&str]) {
        let mut command = Command::new(&self.path);
        // cargo sets it for tests: the loader would look for libraries in many more folders.
        command.env_remove("LD_LIBRARY_PATH");
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().expect("it starts");
    }
}

/// The names of the scripts of the folder.
fn names() -> Vec<String> {
    let entries = fs::read_dir(repository().join("tools")).expect("the folder is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("readable").path().file_stem().expect("a file").to_string_lossy().into())
        .collect();
    names.sort();
    names
}

#[test]
fn each_tool_is_listed_and_documents_its_options() {
    let listed = finish(command("ks-host").args(["tools", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let listed = listed.as_array().expect("a list");
    let names = names();
    assert_eq!(listed.iter().map(|tool| tool["name"].as_str().expect("text")).collect::<Vec<_>>(), names);
    for tool in listed {
        assert!(tool["shows"].as_str().is_some_and(|text| text.ends_with('.')), "{tool}");
        // Both have no programs: one opens the events of its options, the other looks at programs of others.
        let attached = tool["attached"].as_array().expect("a list");
        assert!(!attached.is_empty() || tool["name"] == "stat" || tool["name"] == "bpfstat", "{tool}");
    }
    let near = finish(command("ks-host").args(["tool", "opensnop"]));
    assert!(near.code == 125 && near.stderr.contains("did you mean `opensnoop`?"), "{near:#?}");
}

#[test]
fn root_a_tool_shows_its_options_and_rejects_others() {
    let help = around_nothing(&["tool", "opensnoop", "--help"]);
    assert!(
        help.code == 0 && help.stdout.starts_with("usage: ks-host tool opensnoop [OPTIONS]\n"),
        "{help:#?}"
    );
    assert!(help.stdout.contains("--pid") && help.stdout.contains("Only this process."), "{help:#?}");
    let wrong = around_nothing(&["tool", "opensnoop", "--pit", "1"]);
    assert!(wrong.code == 1 && wrong.stderr.contains("there is no option `--pit`"), "{wrong:#?}");
}

fn around_nothing(arguments: &[&str]) -> Outcome {
    finish(command("ks-host").args(arguments))
}

#[test]
fn root_a_link_runs_its_tool_within_its_policy() {
    let folder = Folder::new();
    let policy = around_nothing(&["tools", "threadsnoop", "--policy"]);
    let policy = folder.write("policy.toml", policy.stdout);
    let link = folder.path("threadsnoop");
    std::os::unix::fs::symlink(ks_tests::binary("ks-host"), &link).expect("the folder is writable");
    let mut linked = Command::new(link);
    linked.arg("--policy").arg(&policy).args(["--timeout", "60", "--exec", "sh", "-c", "true & wait"]);
    let outcome = finish(&mut linked);
    // A process has the same NEWPID and NEWTID.
    let is_process = |row: &Vec<&str>| row[0] != "PID" && row[row.len() - 2] == row[row.len() - 1];
    assert!(outcome.code == 0 && rows(&outcome, " ").iter().any(is_process), "{outcome:#?}");
    // A tool's policy allows its own programs only.
    let other = finish(tool("sigsnoop", &[]).arg("--policy").arg(policy));
    assert_eq!(other.code, 126, "{other:#?}");
}
