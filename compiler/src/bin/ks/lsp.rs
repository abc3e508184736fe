//! `ks lsp`: the language server over standard input and output.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::{Context, Result};
use ks_compiler::lsp::{Compilation, Server};
use ks_compiler::pipeline::Options;
use ks_compiler::source::{Disk, MAX_FILE_BYTES};
use serde_json::Value;

use crate::files::{KernelArgs, whole};

/// Maximum length of a header line in bytes. It keeps a client that sends no line ends from filling the
/// memory.
const MAX_HEADER_LINE: u64 = 4096;

/// Maximum length of a message in bytes; longer ones are skipped. An opened text is one message, in which
/// each of its bytes takes at most six.
const MAX_MESSAGE: usize = 6 * MAX_FILE_BYTES + (1 << 20);

/// Time without messages after which a text is checked. A typing user requests completions with every letter,
/// which should not wait for a check.
const QUIET: Duration = Duration::from_millis(40);

/// Stack size in bytes of the thread that compiles: that of a main thread, as in `ks build`.
const STACK_BYTES: usize = 8 << 20;

/// The events that the server waits for.
enum Event {
    Message(Vec<u8>),
    /// The client closed its end of the connection.
    End,
    /// A compiled text. None if the compiler panicked: a defect of ours without a source range.
    Compiled(Option<Box<Compilation>>),
}

#[derive(clap::Args)]
pub struct Args {
    /// Use standard input and output; they are used in any case
    #[arg(long)]
    stdio: bool,
    /// Look for headers in this folder too, after that of the script
    #[arg(short = 'I', value_name = "FOLDER")]
    include: Vec<PathBuf>,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Answers messages until `exit` or the end of the input. Texts are checked while no message is pending, and
/// then compiled on another thread.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (events, incoming) = mpsc::channel();
    let messages = events.clone();
    std::thread::spawn(move || {
        let mut input = BufReader::new(io::stdin().lock());
        while let Ok(Some(message)) = read(&mut input) {
            if messages.send(Event::Message(message)).is_err() {
                return;
            }
        }
        let _ = messages.send(Event::End);
    });
    let options = Options {
        files: Arc::new(Disk::default()),
        include: args.include.iter().map(|folder| whole(folder)).collect::<Result<_>>()?,
        kernel: std::sync::Arc::new(args.kernel.types()?),
        ..Options::new("")
    };
    let mut server = Server::new(options);
    serve(&mut server, &events, &incoming)?;
    // The end of the input without `exit` means that the client is gone.
    Ok(ExitCode::from(server.exit_code().unwrap_or(1)))
}

fn serve(server: &mut Server, events: &Sender<Event>, incoming: &Receiver<Event>) -> Result<()> {
    let mut output = io::stdout().lock();
    // The time to wait for the next message before the next check; none if there is nothing to check.
    let mut pause = None;
    let mut compiling = false;
    while server.exit_code().is_none() {
        let event = match pause {
            Some(pause) => incoming.recv_timeout(pause),
            None => incoming.recv().map_err(RecvTimeoutError::from),
        };
        let answers = match event {
            Ok(Event::Message(message)) => {
                pause = Some(QUIET);
                server.handle(&message)
            }
            Ok(Event::Compiled(text)) => {
                compiling = false;
                pause = Some(QUIET);
                text.and_then(|text| server.compiled(&text)).into_iter().collect()
            }
            Ok(Event::End) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            Err(RecvTimeoutError::Timeout) => {
                let notifications = server.idle();
                pause = notifications.is_some().then_some(Duration::ZERO);
                if notifications.is_none() && !compiling {
                    compiling = server.uncompiled().is_some_and(|text| compile(text, events.clone()));
                }
                notifications.unwrap_or_default()
            }
        };
        for answer in answers {
            write(&mut output, &answer).context("cannot write to standard output")?;
        }
    }
    Ok(())
}

/// Compiles a text on a new thread; returns whether the thread was started.
fn compile(mut text: Compilation, events: Sender<Event>) -> bool {
    let work = move || {
        let compiled = catch_unwind(AssertUnwindSafe(|| text.run()));
        let _ = events.send(Event::Compiled(compiled.ok().map(|()| Box::new(text))));
    };
    std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work).is_ok()
}

/// Reads the next message; none at the end of the input. A header without a length is skipped.
fn read(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    loop {
        let Some(length) = read_header(input)? else { return Ok(None) };
        match length {
            Some(length) if length > MAX_MESSAGE => {
                io::copy(&mut input.take(length as u64), &mut io::sink())?;
            }
            Some(length) => {
                let mut body = vec![0; length];
                input.read_exact(&mut body)?;
                return Ok(Some(body));
            }
            None => {}
        }
    }
}

/// Reads a header up to and including the empty line after it, and returns its length field; none at the end
/// of the input.
fn read_header(input: &mut impl BufRead) -> io::Result<Option<Option<usize>>> {
    let mut length = None;
    loop {
        let mut line = Vec::new();
        if input.by_ref().take(MAX_HEADER_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        let Some((name, value)) = line.split_once(':') else {
            if line.trim().is_empty() {
                return Ok(Some(length));
            }
            continue;
        };
        if name.trim().eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
}

fn write(output: &mut impl Write, message: &Value) -> io::Result<()> {
    let body = message.to_string();
    write!(output, "Content-Length: {}\r\n\r\n{body}", body.len())?;
    output.flush()
}
