//! Where the tools of `ks-host` run: here, and on the emulated kernels. The table of `docs/tools.md` is made from this.
//! Needs root.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{binary, finish, finish_within, repository};

/// The exit code of the command that each tool observes, and so its own: the command starts when the tool waits, and
/// then its programs are attached.
const ATTACHED: &str = "42";

/// The kernel of the table's column "6.18".
const HERE: &str = "6.18.";

/// The head of the table's second line, which no other table of the page has.
const HEADING: &str = "|---|:-:|:-:|:-:|\n";

/// A shell script that starts each tool, and prints for each a line with its name, its exit code, and why it ended.
fn script(names: &[String]) -> String {
    let host = binary("ks-host");
    let mut script = String::new();
    for name in names {
        writeln!(
            script,
            "said=$({} tool {name} --timeout 60 --exec-code --exec sh -c 'exit {ATTACHED}' 2>&1 >/dev/null); echo \"{name} $?\" $said",
            host.display()
        )
        .expect("a string grows");
    }
    script
}

/// What a cell says of a line of the script: whether the tool was attached, and if not, what the kernel lacks.
fn cell(code: &str, said: &str) -> String {
    if code == ATTACHED {
        return "yes".to_owned();
    }
    let lacks = [
        ("no tracepoint `", "`", "tracepoint"),
        ("has no member `", "`", "member"),
        ("so nothing counts `", "`", "counter of"),
    ];
    let found = lacks.iter().find_map(|(before, after, what)| {
        let (_, rest) = said.split_once(before)?;
        Some(format!("no {what} `{}`", rest.split_once(after)?.0))
    });
    let is_locked = || said.contains("kernel lockdown").then(|| "refused, as by lockdown".to_owned());
    found.or_else(is_locked).unwrap_or_else(|| format!("ends: {}", said.replace('|', "/")))
}

/// The cells of a column, by the tool.
fn column(printed: &str) -> BTreeMap<String, String> {
    let rows = printed.lines().map(|line| {
        let mut words = line.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (name, code, said) = (next(), next(), next());
        (name.to_owned(), cell(code, said))
    });
    rows.collect()
}

/// The cells of a table, without those of the running kernel unless they are wanted.
fn compared(table: &str, with_here: bool) -> Vec<Vec<&str>> {
    let is_wanted = |index: usize| with_here || index != 1;
    let cells = |row| {
        let cells = str::split(row, " | ").enumerate();
        cells.filter(|(index, _)| is_wanted(*index)).map(|(_, cell)| cell).collect()
    };
    table.lines().map(cells).collect()
}

/// Every tenth tool; all of them with `KS_ALL_TOOLS`. `INSTA_UPDATE=always` then writes the table.
#[test]
fn root_the_table_of_tools_says_where_they_run() {
    let takes_all = std::env::var_os("KS_ALL_TOOLS").is_some();
    let listed = finish(ks_tests::command("ks-host").args(["tools", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let every = if takes_all { 1 } else { 10 };
    let names: Vec<String> = listed.as_array().expect("a list").iter().step_by(every).map(name).collect();
    let script = script(&names);
    let limit = 600;
    let here = finish_within(Command::new("sh").args(["-c", &script]), std::time::Duration::from_secs(limit));
    let there = Kernel::ALL
        .map(|kernel| column(&Machine::new(kernel).seconds(limit).run(&["sh", "-c", &script]).stdout));
    let here = column(&here.stdout);
    let mut table = String::new();
    for name in &names {
        let cells = [&here, &there[0], &there[1]].map(|column| &*column[name]);
        writeln!(table, "| `{name}` | {} |", cells.join(" | ")).expect("a string grows");
    }
    let path = repository().join("docs/tools.md");
    let text = std::fs::read_to_string(&path).expect("readable");
    let (before, rest) = text.split_once(HEADING).expect("it has the table");
    let (old, after) = rest.split_once("\n\n").expect("text follows");
    if takes_all && std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        let made = format!("{before}{HEADING}{table}\n{after}");
        std::fs::write(path, made).expect("writable");
    } else {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc is mounted");
        // The column of the running kernel is that of another one elsewhere.
        let is_the_same = release.starts_with(HERE);
        let is_taken = |row: &&str| names.iter().any(|name| row.starts_with(&format!("| `{name}` |")));
        let old: String =
            old.lines().filter(|row| takes_all || is_taken(row)).map(|row| format!("{row}\n")).collect();
        let [old, made] = [&old, &table].map(|table| compared(table, is_the_same));
        assert_eq!(old, made, "`make tool-table` writes it");
    }
}

/// The tool whose functions this kernel cannot probe, beside a workload that is known.
#[test]
fn root_vfsstat_counts_calls_where_functions_can_be_probed() {
    let host = binary("ks-host");
    let script = format!(
        "{} tool vfsstat --timeout 60 --exec dd if=/dev/zero of=/tmp/written bs=1 count=3000",
        host.display()
    );
    let ran = Machine::new(Kernel::V6_12).run(&["sh", "-c", &script]);
    let calls = |function: &str| -> u64 {
        let rows = ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let counts = rows.filter(|row| row.first() == Some(&function));
        counts.map(|row| row[1].parse::<u64>().expect("a number")).sum()
    };
    // Nothing else runs there, but the host itself.
    for function in ["vfs_read", "vfs_write"] {
        assert!((3000..4000).contains(&calls(function)), "{ran:#?}");
    }
    assert!(calls("vfs_open") > 0, "{ran:#?}");
}

fn name(tool: &serde_json::Value) -> String {
    tool["name"].as_str().expect("text").to_owned()
}
