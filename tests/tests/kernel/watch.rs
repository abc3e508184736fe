//! `ks-host --watch` on a terminal: what its screen shows after each key, and that the terminal is as before however the view
//! ends. script(1) is the terminal, the crate `vt100` reads its screen. These tests need root.

use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ks_tests::{Folder, binary, finish, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid};

const LONGEST: Duration = Duration::from_secs(60);

/// Size of the terminal.
const ROWS: NonZero<u16> = NonZero::new(20).expect("not 0");
const COLUMNS: NonZero<u16> = NonZero::new(90).expect("not 0");

/// Keeps 40 rows, one of them with a text that would colour a terminal, and changes one of them.
const TABLE: &str = r#"
struct Name { name: str(24), number: u32 }
var sizes : hash<Name, u64>(64)
@begin {
    print("begun %s", "a\x1b[31mb")
    for (i in 1..40) {
        sizes[Name { name: "row", number: i }] = (i * 7 % 40) as u64
    }
    sizes[Name { name: "a\x1b[31mb", number: 40 }] = 1000
}
@interval("50ms") {
    sizes[Name { name: "a\x1b[31mb", number: 40 }] += 1
    print_map(sizes)
}
@tracepoint("syscalls/sys_enter_getpgid") { seen[cpu()] += 1 }
"#;

/// Keeps histograms that nobody prints.
const HISTOGRAMS: &str = r#"
@tracepoint("syscalls/sys_enter_getpgid") { asked[comm()].add(ctx->args[0]) }
"#;

/// Counts by the kernel's stack.
const STACKS: &str = r#"
@tracepoint("syscalls/sys_enter_getpgid") { asked[comm(), kstack()] += 1 }
"#;

/// A terminal in which a shell runs `ks-host`.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<vt100::Parser>>,
    folder: Folder,
}

impl Terminal {
    /// Runs a script of ours; what the shell does after it is the last part.
    fn begin(script: &str, options: &str) -> Terminal {
        let folder = Folder::new();
        let file = folder.write("watched.ks", script);
        let (host, pid) = (binary("ks-host"), folder.path("pid"));
        let line = format!(
            "stty rows {ROWS} cols {COLUMNS}; sh -c 'echo $$ > {}; exec {} {options} {}'; echo ended with $?; \
             stty -a | tr ';' '\\n' | grep -o -e '-*icanon' -e '-*isig' -e ' -*echo '",
            pid.display(),
            host.display(),
            file.display()
        );
        let mut script = Command::new("script")
            .args(["-q", "-f", "-c", &line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm-256color")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script(1) is part of every Debian");
        let screen = Arc::new(Mutex::new(vt100::Parser::new(ROWS, COLUMNS, 0)));
        let (seen, mut output) = (Arc::clone(&screen), script.stdout.take().expect("piped"));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = output.read(&mut bytes) {
                seen.lock().expect("nobody panics with it").process(&bytes[..len]);
            }
        });
        let keys = script.stdin.take().expect("piped");
        Terminal { script, keys, screen, folder }
    }

    /// The text of the screen.
    fn text(&self) -> String {
        self.screen.lock().expect("nobody panics with it").screen().contents()
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).expect("it reads");
        self.keys.flush().expect("it reads");
    }

    /// Waits until the screen is as expected, and returns its lines.
    fn wait(&self, what: &str, is_so: impl Fn(&str) -> bool) -> Vec<String> {
        let started = std::time::Instant::now();
        loop {
            let text = self.text();
            if is_so(&text) {
                return text.lines().map(|line| line.trim_end().to_owned()).collect();
            }
            assert!(started.elapsed() < LONGEST, "not seen: {what}:\n{text}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits for the end, and checks that the terminal is as it was.
    fn ended(mut self, code: &str) {
        let restored = |text: &str| text.contains(&format!("ended with {code}")) && text.contains("icanon");
        let lines = self.wait("the end", restored);
        wait_until(LONGEST, "script ends", || self.script.try_wait().expect("it is ours").is_some());
        let text = lines.join("\n");
        for mode in ["-icanon", "-isig", " -echo "] {
            assert!(!text.contains(mode), "{mode}: {text}");
        }
        let screen = self.screen.lock().expect("nobody panics with it");
        assert!(!screen.screen().alternate_screen() && !screen.screen().hide_cursor(), "{text}");
    }

    fn host(&self) -> Pid {
        let pid = std::fs::read_to_string(self.folder.path("pid")).expect("it was written");
        Pid::from_raw(pid.trim().parse().expect("a number"))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// Whether a screen has this line, and nothing but blanks behind it.
fn has_line(text: &str, wanted: &str) -> bool {
    text.lines().any(|line| line.trim_end() == wanted)
}

/// The last column of the rows.
fn values(lines: &[String]) -> Vec<u64> {
    let rows = lines.iter().filter(|line| line.starts_with("row "));
    rows.map(|line| line.split_whitespace().last().expect("a word").parse().expect("a number")).collect()
}

#[test]
fn root_a_view_sorts_filters_scrolls_and_pauses() {
    let mut terminal = Terminal::begin(TABLE, "--watch");
    let lines = terminal.wait("the table", |text| text.contains("40 rows"));
    // What would colour the terminal is text, and the largest comes first.
    assert!(lines[2].starts_with("a\\x1b[31mb") || lines[2].starts_with("a\\u{1b}[31mb"), "{lines:#?}");
    assert!(lines[1].contains("name") && lines[1].contains("number"), "{lines:#?}");
    let shown = values(&lines);
    assert!(shown.is_sorted_by(|one, other| one >= other) && shown.len() > 8, "{lines:#?}");
    // By the number, which is the second column.
    terminal.press("ss");
    let lines = terminal.wait("another order", |text| text.contains("number▼"));
    assert!(lines[2].contains(" 40 ") && lines[3].contains(" 39 "), "{lines:#?}");
    terminal.press("r");
    let lines = terminal.wait("the reverse", |text| text.contains("number▲"));
    assert!(lines[2].contains(" 1 ") && lines[2].ends_with(" 7"), "{lines:#?}");
    // The last row is below the screen.
    terminal.press("\x1b[F");
    terminal.wait("the end", |text| text.contains("x1b") || text.contains("{1b}"));
    terminal.press("\x1b[H");
    terminal.wait("the begin", |text| text.lines().nth(2).is_some_and(|line| line.contains(" 1 ")));
    terminal.press("/31\r");
    let lines = terminal.wait("the filter", |text| text.contains("filter: 31"));
    assert!(lines.iter().any(|line| line.contains("3 rows")), "{lines:#?}");
    terminal.press("\x1b");
    terminal.wait("all rows", |text| text.contains("40 rows") && !text.contains("filter: 31"));
    // The changing row stands still while the view is paused.
    terminal.press("o\x1b[H");
    terminal.wait("its own order", |text| text.lines().nth(2).is_some_and(|line| line.starts_with('a')));
    terminal.press(" ");
    let changing = |lines: &[String]| lines[2].split_whitespace().last().expect("a word").parse::<u64>().ok();
    let paused = changing(&terminal.wait("the pause", |text| text.contains("PAUSED")));
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(changing(&terminal.wait("the pause", |text| text.contains("PAUSED"))), paused);
    terminal.press(" ");
    let lines = terminal.wait("no pause", |text| !text.contains("PAUSED"));
    assert!(changing(&lines) > paused, "{lines:#?}");
    // The last values of the chosen row are bars below the table.
    assert!(lines.iter().any(|line| line.contains("at most") && line.contains('█')), "{lines:#?}");
    // Behind the two tables are the lines.
    terminal.wait("the second table", |text| text.contains("1/3"));
    terminal.press("\t\t");
    let lines = terminal.wait("the lines", |text| text.contains("1 line ") && text.contains("3/3"));
    assert_eq!(lines[1], "begun a\\u{1b}[31mb", "{lines:#?}");
    terminal.press("\t");
    terminal.press("?");
    terminal.wait("the keys", |text| text.contains("sort by the next"));
    terminal.press("q");
    terminal.ended("0");
}

#[test]
fn root_a_view_refreshes_what_nobody_prints_and_draws_the_chosen_histogram() {
    let mut terminal = Terminal::begin(HISTOGRAMS, "--watch=100ms");
    terminal.wait("an empty table", |text| text.contains("asked"));
    let own = std::fs::read_to_string("/proc/thread-self/comm").expect("it is there").trim().to_owned();
    for pid in [1, 1, 1] {
        // There may be no such process: the program runs before the kernel looks.
        let _ = getpgid(Some(Pid::from_raw(pid)));
    }
    terminal.press("/");
    terminal.press(&own[..own.len().min(8)]);
    terminal.press("\r");
    let lines = terminal.wait("the histogram", |text| text.contains("|####"));
    assert!(lines.iter().any(|line| line.contains("count") && line.contains("mean")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("1 - 1") && line.contains('3')), "{lines:#?}");
    // It shows what comes while it runs.
    let _ = getpgid(Some(Pid::from_raw(1)));
    terminal.wait("the fourth", |text| text.lines().any(|line| line.contains("1 - 1") && line.contains('4')));
    terminal.press("\x03");
    terminal.ended("0");
}

#[test]
fn root_stacks_of_the_chosen_key_are_a_flame_graph() {
    let mut terminal = Terminal::begin(STACKS, "--watch=100ms");
    terminal.wait("an empty table", |text| text.contains("asked") && text.contains("f flame graph"));
    let own = std::fs::read_to_string("/proc/thread-self/comm").expect("it is there").trim().to_owned();
    for _ in 0..3 {
        let _ = getpgid(Some(Pid::from_raw(1)));
    }
    terminal.press("/");
    terminal.press(&own);
    terminal.press("\r");
    // First the stack of the row itself.
    let stack = terminal.wait("a stack", |text| has_line(text, "do_syscall_64"));
    assert!(stack.iter().any(|line| line.contains(&own) && line.contains('3')), "{stack:#?}");
    terminal.press("f");
    let of_own = format!("value 3 of {own}");
    let lines = terminal.wait("the graph", |text| text.contains(&of_own));
    let graph: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix('|')).collect();
    let at = |name: &str| graph.iter().position(|line| line.trim_end() == name);
    // The outermost function is above, and the table is still there.
    let (outer, inner) = (at("entry_SYSCALL_64_after_hwframe"), at("do_syscall_64"));
    assert!(outer.is_some() && inner == outer.map(|at| at + 1), "{lines:#?}");
    assert!(lines[1].starts_with("comm") && lines[2].starts_with(&own), "{lines:#?}");
    // It grows with what comes.
    let _ = getpgid(Some(Pid::from_raw(1)));
    let more = format!("value 4 of {own}");
    terminal.wait("the fourth", |text| text.contains(&more));
    terminal.press("f");
    terminal.wait("the stack again", |text| has_line(text, "do_syscall_64"));
    terminal.press("q");
    terminal.ended("0");
}

#[test]
fn root_the_terminal_is_restored_after_signals_and_time_limits() {
    for (signal, options, code) in [
        (Some(Signal::SIGTERM), "--watch", "0"),
        (Some(Signal::SIGINT), "--watch", "0"),
        (None, "--watch --timeout 500ms", "124"),
    ] {
        let terminal = Terminal::begin(TABLE, options);
        if let Some(signal) = signal {
            terminal.wait("the table", |text| text.contains("40 rows"));
            kill(terminal.host(), signal).expect("it runs");
        }
        terminal.ended(code);
    }
}

#[test]
fn root_a_closed_terminal_ends_the_plugin() {
    let mut terminal = Terminal::begin(TABLE, "--watch");
    terminal.wait("the table", |text| text.contains("40 rows"));
    let host = terminal.host();
    terminal.script.kill().expect("it runs");
    wait_until(LONGEST, "ks-host ends", || kill(host, None).is_err());
}

#[test]
fn root_a_view_is_refused_where_it_makes_no_sense() {
    let folder = Folder::new();
    let script = folder.write("watched.ks", TABLE);
    let refused = |options: &[&str]| {
        let ran = finish(Command::new(binary("ks-host")).args(options).arg(&script).stdin(Stdio::null()));
        assert_ne!(ran.code, 0, "{ran:#?}");
        ran.stderr
    };
    assert!(refused(&["--watch"]).contains("terminal"));
    let with_json = refused(&["--watch", "--json"]);
    assert!(with_json.contains("--watch") && with_json.contains("--json"), "{with_json}");
}
