//! The interface `bpf`: calls on a program of the object, of which the words name one, with the arguments of the
//! call and what is unusual.
//!
//! ```text
//! any_event at=sched/sched_switch cookie=7     a target, and another argument
//! on_device at=lo twice                        the second call is the one that fails
//! on_device at=1 first=lo                      the program is attached to another target before
//! on_device at=lo full                         no handle is left for the link
//! on_device at=lo costly                       the program has taken more time than it may
//! ```

use ks_guest::bindings::kernelscript::host::bpf::{Link, Program, TestInput, XdpMode};
use ks_guest::bindings::kernelscript::host::clock;
use ks_guest::bindings::kernelscript::host::types::Error;

use crate::{Answer, abort, begin, prepared, until_refused};

/// Most nanoseconds until the host must have seen that a program takes too much time: it looks once per second.
const MINUTE: u64 = 60_000_000_000;
/// Nanoseconds for which a program is attached: tasks that wait or run, and other processes, cause its runs.
const MOMENT: u64 = 10_000_000;

pub fn answer(function: &str, words: &[&str]) -> Answer {
    match (function, words) {
        ("program.load", [name]) => {
            begin();
            Program::load(name).map(drop)
        }
        ("program.load", [name, "many"]) => until_refused(|| Program::load(name)),
        ("link.register", [name, unusual @ ..]) => {
            attach(unusual, || Link::register(name), || clock::sleep(MOMENT))
        }
        (function, [name, words @ ..]) => {
            let program = prepared(Program::load(name));
            of_program(function, &program, &Arguments(words))
        }
        _ => abort(&format!("no way to call `{function}`: {words:?}")),
    }
}

/// The arguments of a call: words of the form `NAME=TEXT`, and words that say what is unusual.
struct Arguments<'a>(&'a [&'a str]);

impl Arguments<'_> {
    fn given(&self, name: &str) -> Option<&str> {
        self.0.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }

    fn text(&self, name: &str) -> &str {
        self.given(name).unwrap_or_default()
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.given(name).map(|text| text.parse().unwrap_or_else(|_| abort("no number")))
    }
}

fn of_program(function: &str, program: &Program, arguments: &Arguments<'_>) -> Answer {
    match function {
        "program.info" => {
            begin();
            program.info().map(drop)
        }
        "program.test-run" => {
            let input = input(arguments);
            if arguments.0.contains(&"costly") {
                return until_too_costly(|| program.test_run(&input).map(drop));
            }
            begin();
            program.test_run(&input).map(drop)
        }
        _ => {
            // Packets that nobody sends; other programs run by what happens while they are attached.
            let packets = TestInput::new();
            packets.set_repeat(10_000);
            let run = || match program.test_run(&packets) {
                Ok(_) => Ok(()),
                Err(_) => clock::sleep(MOMENT),
            };
            let _first = arguments.given("first").map(|at| prepared(link(function, program, at, arguments)));
            attach(arguments.0, || link(function, program, arguments.text("at"), arguments), run)
        }
    }
}

/// Makes a link, after what is unusual was prepared. `run` makes its program run, or waits until it did.
fn attach(unusual: &[&str], link: impl Fn() -> Result<Link, Error>, run: impl Fn() -> Answer) -> Answer {
    let has = |word: &str| unusual.contains(&word);
    if has("costly") {
        return until_too_costly(|| {
            let link = link()?;
            prepared(run());
            drop(link);
            Ok(())
        });
    }
    let first = has("twice").then(|| prepared(link()));
    let rest = if has("full") { fill() } else { Vec::new() };
    begin();
    let second = link().map(drop);
    drop((first, rest));
    second
}

/// Takes handles, and the bytes that the host keeps for them, until there are no more.
fn fill() -> Vec<Program> {
    std::iter::from_fn(|| Program::load("tick").ok()).take(4096).collect()
}

/// Repeats a call until it is refused, because a program has taken more time than it may.
fn until_too_costly(call: impl Fn() -> Answer) -> Answer {
    let end = clock::now() + MINUTE;
    while clock::now() < end {
        call()?;
    }
    Ok(())
}

fn input(arguments: &Arguments<'_>) -> TestInput {
    let input = TestInput::new();
    arguments.number("size").into_iter().for_each(|bytes| input.set_packet_size(bytes));
    arguments.number("interface").into_iter().for_each(|index| input.set_ingress_ifindex(index));
    arguments.number("repeat").into_iter().for_each(|times| input.set_repeat(times));
    arguments.number("arguments").into_iter().for_each(|number| input.set_arguments(&vec![0; number]));
    input
}

fn link(function: &str, program: &Program, at: &str, arguments: &Arguments<'_>) -> Result<Link, Error> {
    let cookie = arguments.number("cookie").unwrap_or(0);
    let offset = arguments.number("offset").unwrap_or(0);
    match function {
        "program.attach" => program.attach(cookie),
        "program.attach-tracepoint" => program.attach_tracepoint(at, cookie),
        "program.attach-raw-tracepoint" => program.attach_raw_tracepoint(at, cookie),
        "program.attach-kprobe" => program.attach_kprobe(at, offset, cookie),
        "program.attach-uprobe" => {
            program.attach_uprobe(at, arguments.text("function"), offset, arguments.number("process"), cookie)
        }
        "program.attach-xdp" => program.attach_xdp(at, mode(arguments.text("mode"))),
        "program.attach-tc" => {
            program.attach_tc(at, arguments.number("priority"), arguments.number("handle"))
        }
        "program.attach-cgroup" => program.attach_cgroup(at),
        "program.attach-socket-filter" => program.attach_socket_filter(at),
        _ => abort(&format!("no function `{function}`")),
    }
}

fn mode(name: &str) -> XdpMode {
    match name {
        "native" => XdpMode::Native,
        "offloaded" => XdpMode::Offloaded,
        _ => XdpMode::Best,
    }
}
