//! `ks lsp`: the language server over standard input and output.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};
use ks_compiler::lsp::Server;
use ks_compiler::pipeline::Options;
use ks_compiler::source::{Disk, MAX_FILE_BYTES};
use serde_json::Value;

use crate::files::{KernelArgs, whole};

/// A line of a header above this many bytes is none: it keeps a client that sends no line ends from filling the memory.
const MAX_HEADER_LINE: u64 = 4096;

/// A message above this many bytes is passed over. An opened text is written in one message, each byte of it in at most
/// six.
const MAX_MESSAGE: usize = 6 * MAX_FILE_BYTES + (1 << 20);

/// A text is checked when no message has come for so long: who types asks for completion with every letter, and that
/// should not wait for a check.
const QUIET: Duration = Duration::from_millis(40);

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

/// Answers messages until `exit` or the end of the input. Texts are checked while no message waits.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (messages, incoming) = mpsc::channel();
    std::thread::spawn(move || {
        let mut input = BufReader::new(io::stdin().lock());
        while let Ok(Some(message)) = read(&mut input) {
            if messages.send(message).is_err() {
                return;
            }
        }
    });
    let options = Options {
        files: Arc::new(Disk::default()),
        include: args.include.iter().map(|folder| whole(folder)).collect::<Result<_>>()?,
        kernel: std::sync::Arc::new(args.kernel.types()?),
        ..Options::new("")
    };
    let mut server = Server::new(options);
    serve(&mut server, &incoming)?;
    // The end of the input without `exit` is the end of the client.
    Ok(ExitCode::from(server.exit_code().unwrap_or(1)))
}

fn serve(server: &mut Server, incoming: &Receiver<Vec<u8>>) -> Result<()> {
    let mut output = io::stdout().lock();
    // Whether something may have to be checked, and how long to wait for the next message before that.
    let mut pause = None;
    while server.exit_code().is_none() {
        let message = match pause {
            Some(pause) => incoming.recv_timeout(pause),
            None => incoming.recv().map_err(RecvTimeoutError::from),
        };
        let answers = match message {
            Ok(message) => {
                pause = Some(QUIET);
                server.handle(&message)
            }
            Err(RecvTimeoutError::Timeout) => {
                let shown = server.idle();
                pause = shown.is_some().then_some(Duration::ZERO);
                shown.unwrap_or_default()
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        };
        for answer in answers {
            write(&mut output, &answer).context("cannot write to standard output")?;
        }
    }
    Ok(())
}

/// The next message; none at the end of the input. A header that names no length is passed over.
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

/// The length that a header names, up to and with the empty line behind it; none at the end of the input.
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
