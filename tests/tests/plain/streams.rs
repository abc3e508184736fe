//! Standard output and standard error that cannot be written: full, closed, or a pipe whose reader is gone.
//! Every command ends with an exit code that says so, and requested output is not lost silently.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use ks_tests::{Folder, Outcome, binary, is_within};
use std::os::unix::process::CommandExt as _;

/// The condition of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Whole,
    Full,
    Closed,
    Broken,
}

impl Stream {
    /// Returns the writing end of a command's stream; an intact one is a file of this name, which takes any
    /// length.
    fn end(self, folder: &Folder, name: &str) -> Stdio {
        match self {
            Stream::Whole => File::create(folder.path(name)).expect("the folder is ours").into(),
            Stream::Full => File::options().write(true).open("/dev/full").expect("it is there").into(),
            // A placeholder for the stream that the child closes.
            Stream::Closed => Stdio::null(),
            Stream::Broken => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                drop(reader);
                OwnedFd::from(writer).into()
            }
        }
    }
}

/// Runs a command of this build with these streams.
fn run(arguments: &[&str], folder: &Folder, stdout: Stream, stderr: Stream) -> Outcome {
    let streams = Folder::new();
    let mut command = match (stdout, stderr) {
        (Stream::Closed, _) => closing(">&-"),
        (_, Stream::Closed) => closing("2>&-"),
        _ => {
            let mut command = Command::new("sh");
            command.args(["-c", "exec \"$0\" \"$@\""]);
            command
        }
    };
    command.arg(binary(arguments[0])).args(&arguments[1..]).current_dir(folder.path("")).stdin(Stdio::null());
    // The environment must not suppress or add a message.
    command.env_remove("RUST_BACKTRACE").process_group(0);
    command.stdout(stdout.end(&streams, "stdout")).stderr(stderr.end(&streams, "stderr"));
    let status = ended(&mut command.spawn().expect("the shell starts"), arguments);
    let text = |name: &str| std::fs::read(streams.path(name)).unwrap_or_default();
    Outcome::of(status, String::from_utf8_lossy(&text("stdout")).into_owned(), &text("stderr"))
}

fn closing(redirected: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("exec \"$0\" \"$@\" {redirected}"));
    command
}

fn ended(child: &mut Child, arguments: &[&str]) -> ExitStatus {
    let mut status = None;
    let is_over = is_within(Duration::from_secs(60), || {
        status = child.try_wait().expect("it is ours");
        status.is_some()
    });
    if !is_over {
        // The process may have ended just now.
        let _ = child.kill();
        panic!("{arguments:?} does not end");
    }
    status.expect("it has ended")
}

/// Commands that end by themselves without privileges, and whether each has requested output.
const COMMANDS: [(&[&str], bool); 44] = [
    (&["ks", "--version"], true),
    (&["ks", "build", "--help"], true),
    (&["ks", "build", "good.ks", "-o", "out.wasm"], false),
    (&["ks", "build", "warns.ks", "-o", "out.wasm"], false),
    (&["ks", "build", "wrong.ks"], false),
    (&["ks", "build", "absent.ks"], false),
    (&["ks", "build", "good.ks", "--emit", "hir", "-o", "out.wasm"], true),
    (&["ks", "check", "wrong.ks"], false),
    (&["ks", "check", "--json", "warns.ks"], true),
    (&["ks", "fmt", "--check", "unformatted.ks"], true),
    (&["ks", "fmt", "wrong.ks"], false),
    (&["ks", "explain"], true),
    (&["ks", "explain", "KS0301"], true),
    (&["ks", "explain", "--json", "KS0301"], true),
    (&["ks", "explain", "KS9999"], false),
    (&["ks", "init", "rust", "made"], true),
    (&["ks", "share", "absent.wasm"], false),
    (&["ks", "test", "tested.ks"], false),
    (&["ks", "lsp"], false),
    (&["ks", "help"], true),
    (&["ks-host", "--version"], true),
    (&["ks-host", "absent.wasm"], false),
    (&["ks-host", "--no-cache", "good.wasm"], false),
    (&["ks-host", "--no-cache", "--json", "good.wasm"], false),
    (&["ks-host", "--no-cache", "trap.wasm"], false),
    (&["ks-host", "--no-cache", "trap.wasm", "good.wasm"], false),
    (&["ks-host", "run", "--no-cache", "good.wasm"], false),
    (&["ks-host", "inspect", "good.wasm"], true),
    (&["ks-host", "inspect", "--json", "good.wasm"], true),
    (&["ks-host", "test", "good.wasm"], false),
    (&["ks-host", "check", "good.wasm"], false),
    (&["ks-host", "precompile", "good.wasm"], false),
    (&["ks-host", "replay", "good.wasm", "record.jsonl"], false),
    (&["ks-host", "replay", "good.wasm", "absent.jsonl"], false),
    (&["ks-host", "sign", "--key", "absent.pem", "--as", "somebody", "good.wasm"], false),
    (&["ks-host", "verify", "good.wasm"], false),
    (&["ks-host", "ps", "--seconds", "10ms"], false),
    (&["ks-host", "help"], true),
    (&["ks-host", "events"], true),
    (&["ks-host", "tools"], true),
    (&["ks-host", "tool", "opensnoop", "--help"], true),
    (&["ks-host", "doctor"], true),
    (&["ks-host", "completions", "bash"], true),
    (&["ks-host", "man"], true),
];

/// Subcommands that show what the machine has now, which other processes change.
const OF_THE_MACHINE: [&str; 3] = ["events", "doctor", "ps"];

/// Creates a folder with the test's scripts: one without faults, one that traps, and invalid ones.
fn prepared() -> Folder {
    let folder = Folder::new();
    folder.write("good.ks", include_str!("scripts/streams_good.ks"));
    folder.write("trap.ks", include_str!("scripts/streams_trap.ks"));
    folder.write("warns.ks", include_str!("scripts/streams_warns.ks"));
    folder.write("wrong.ks", "fn main() -> i32 {\n    return missing\n}\n");
    folder.write("unformatted.ks", "fn main()   -> i32 {\n return 0 }\n");
    folder.write("tested.ks", "@test\nfn adds() -> u32 {\n    test_assert(1 + 1 == 2)\n    return 0\n}\n");
    for name in ["good", "trap"] {
        let arguments = ["ks", "build", &format!("{name}.ks"), "-o", &format!("{name}.wasm")];
        let outcome = run(&arguments, &folder, Stream::Whole, Stream::Whole);
        assert_eq!(outcome.code, 0, "{outcome:#?}");
    }
    let arguments = ["ks-host", "--no-cache", "--record", "record.jsonl", "good.wasm"];
    let outcome = run(&arguments, &folder, Stream::Whole, Stream::Whole);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    folder
}

/// Removes the output of `init`, which would be in the way of the next run.
fn cleared(folder: &Folder) {
    let output_folder = folder.path("made");
    if output_folder.exists() {
        std::fs::remove_dir_all(output_folder).expect("the folder is ours");
    }
    folder.write("unformatted.ks", "fn main()   -> i32 {\n return 0 }\n");
}

/// Returns the reproducible part of an output: without times, and independent of the order in which two
/// plugins print.
fn timeless(text: &str) -> Vec<String> {
    let line = |line: &str| line.chars().filter(|char| !char.is_ascii_digit()).collect();
    let mut lines: Vec<String> = text.lines().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn every_subcommand_is_tried() {
    let folder = Folder::new();
    for program in ["ks", "ks-host"] {
        let help = run(&[program, "--help"], &folder, Stream::Whole, Stream::Whole).stdout;
        let (_, listed) = help.split_once("Commands:\n").expect("it has subcommands");
        let names: Vec<&str> = listed
            .lines()
            .take_while(|line| !line.is_empty())
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .collect();
        assert!(names.len() > 5, "{help}");
        for name in names {
            let is_tried =
                COMMANDS.iter().any(|(words, _)| words[0] == program && words.get(1) == Some(&name));
            assert!(is_tried, "{program} {name}");
        }
    }
}

#[test]
fn a_stream_that_cannot_be_written_ends_no_command_but_with_an_exit_code() {
    let folder = prepared();
    let mut wrong = Vec::new();
    for (arguments, shows) in COMMANDS {
        cleared(&folder);
        let whole = run(arguments, &folder, Stream::Whole, Stream::Whole);
        assert!(!shows || !whole.stdout.is_empty(), "{arguments:?} shows nothing: {whole:#?}");
        for stream in [Stream::Full, Stream::Closed, Stream::Broken] {
            for is_output in [true, false] {
                cleared(&folder);
                let (stdout, stderr) =
                    if is_output { (stream, Stream::Whole) } else { (Stream::Whole, stream) };
                let outcome = run(arguments, &folder, stdout, stderr);
                let which = if is_output { "standard output" } else { "standard error" };
                let panicked = outcome.stderr.contains("panicked") || outcome.code == 101;
                let is_lost = shows && is_output && stream == Stream::Full && outcome.code == 0;
                // Lost messages change nothing else.
                let is_other = !is_output
                    && (outcome.code, timeless(&outcome.stdout)) != (whole.code, timeless(&whole.stdout));
                if outcome.signal.is_some()
                    || panicked
                    || is_lost
                    || is_other && !arguments.iter().any(|word| OF_THE_MACHINE.contains(word))
                {
                    wrong.push(format!("{arguments:?}, {which} {stream:?}: {outcome:#?}; whole: {whole:#?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// One plugin traps, and the report goes to a full stream; the other ends normally.
#[test]
fn a_message_that_cannot_be_written_ends_no_other_plugin() {
    let folder = prepared();
    let arguments = ["ks-host", "--no-cache", "trap.wasm", "good.wasm"];
    for stream in [Stream::Full, Stream::Broken, Stream::Closed] {
        let outcome = run(&arguments, &folder, Stream::Whole, stream);
        assert!(outcome.stdout.contains("all is well"), "{stream:?}: {outcome:#?}");
        assert_eq!(outcome.signal, None, "{outcome:#?}");
    }
}
