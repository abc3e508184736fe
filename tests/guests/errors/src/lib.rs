//! The plugin of `tests/tests/toolchains/documented_errors`: makes one call of the contract and prints how it
//! fails. The first argument is the function, `maps.bpf-map.lookup`, the others say how it is called.
//!
//! ```text
//! ok                        the call succeeded
//! KIND ERRNO MESSAGE        it failed; ERRNO is `-` if there is none, the message is one line
//! ```

mod bpf;
mod clock;
mod console;
mod globals;
mod maps;
mod perf;
mod programs;
mod ring;

use ks_guest::bindings::kernelscript::host::args;
use ks_guest::bindings::kernelscript::host::console as terminal;
use ks_guest::bindings::kernelscript::host::types::{Error, ErrorKind};
use ks_guest::println;

/// The result of the call; what it returns on success is dropped.
type Answer = Result<(), Error>;

#[ks_guest::main]
fn main() {
    let words = args::words();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [function, words @ ..] = &words[..] else { return abort("no function") };
    let answer = match function.split_once('.') {
        Some(("bpf", function)) => bpf::answer(function, words),
        Some(("clock", function)) => clock::answer(function, words),
        Some(("console", function)) => console::answer(function, words),
        Some(("globals", function)) => globals::answer(function, words),
        Some(("maps", function)) => maps::answer(function, words),
        Some(("perf", function)) => perf::answer(function, words),
        Some(("programs", function)) => programs::answer(function, words),
        Some(("ring", function)) => ring::answer(function, words),
        _ => abort(&format!("no interface of `{function}`")),
    };
    match answer {
        Ok(()) => println!("ok"),
        Err(Error { kind, errno_name, message, .. }) => {
            let errno = errno_name.as_deref().unwrap_or("-");
            println!("{} {errno} {}", name(kind), message.replace("\n  ", " | "));
        }
    }
}

/// Returns what was prepared for the call. A failure of the preparation must not be taken for that of the
/// call.
fn prepared<T>(result: Result<T, Error>) -> T {
    match result {
        Ok(made) => made,
        Err(error) => abort(&format!("not prepared: {}", error.message)),
    }
}

/// Ends the plugin.
fn abort<T>(message: &str) -> T {
    terminal::abort(message);
    unreachable!("the host ends the plugin")
}

/// Marks the moment from which the test refuses system calls of the host.
fn begin() {
    terminal::warn("begin");
}

/// Repeats a call and keeps what it makes, until it fails.
fn until_refused<T>(make: impl Fn() -> Result<T, Error>) -> Answer {
    begin();
    (0..4096).map(|_| make()).collect::<Result<Vec<T>, Error>>().map(drop)
}

fn name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotPermitted => "not-permitted",
        ErrorKind::NotFound => "not-found",
        ErrorKind::Invalid => "invalid",
        ErrorKind::Busy => "busy",
        ErrorKind::Limit => "limit",
        ErrorKind::Stale => "stale",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Interrupted => "interrupted",
        ErrorKind::DeniedByPolicy => "denied-by-policy",
        ErrorKind::Kernel => "kernel",
        ErrorKind::Other(_) => "other",
    }
}
