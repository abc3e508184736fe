//! Output of the command on standard output and standard error.

use std::fmt;
use std::io::{self, Write};

use anyhow::{Context, Result};

/// Writes a message to standard error. If that fails there is nowhere left to report it.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
}

/// Formats an error with its causes, each once: the text of some errors already ends with that of their
/// cause.
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

/// Writes to standard output. A reader that stops early (`| head`) is not an error.
///
/// # Errors
/// Any other failure to write, such as a full disk.
pub fn show(bytes: &[u8]) -> Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}
