//! What the command shows on standard output, and says on standard error.

use std::fmt;
use std::io::{self, Write};

use anyhow::{Context, Result};

/// Says something on standard error. If that cannot be written there is no further place to report to.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
}

/// An error with its causes, each once: the words of some errors end with those of their cause.
pub fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// Writes what the command shows. A reader that has seen enough (`| head`) is no failure.
///
/// # Errors
/// What cannot be written otherwise, on a full disk.
pub fn show(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
