//! Output of the commands `ks` and `ks-host`: results on standard output, messages on standard error.
//!
//! Not part of the contract. It is here because both commands link this crate, and neither may depend on the
//! other.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use crate::text;

/// The reason why a command could not write its result.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub struct StdoutError(#[source] io::Error);

/// Writes the result of a command to standard output. A reader that closes the pipe early (`| head`) is no
/// failure.
///
/// # Errors
/// Any other failure to write, such as a full disk.
pub fn write_stdout(bytes: &[u8]) -> Result<(), StdoutError> {
    let mut stdout = io::stdout().lock();
    written(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Judges what came of writing a result to standard output, for results that another library writes.
///
/// # Errors
/// As for [`write_stdout`].
pub fn written(result: io::Result<()>) -> Result<(), StdoutError> {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(StdoutError(error)),
        _ => Ok(()),
    }
}

/// Writes lines that a command has formed for a person. All their characters that would act on the terminal
/// are made visible.
///
/// # Errors
/// As for [`write_stdout`].
pub fn write_lines(lines: &str) -> Result<(), StdoutError> {
    let lines: Vec<_> = lines.split('\n').map(|line| text::visible(line, usize::MAX)).collect();
    write_stdout(lines.join("\n").as_bytes())
}

/// Writes a value as one line of JSON.
///
/// # Errors
/// As for [`write_stdout`].
pub fn write_json_line(value: &impl Serialize) -> Result<(), StdoutError> {
    let line = serde_json::to_string(value).map_err(|error| StdoutError(error.into()))?;
    write_stdout(format!("{}\n", text::json(&line)).as_bytes())
}

/// Writes a value as JSON, indented.
///
/// # Errors
/// As for [`write_stdout`].
pub fn write_json(value: &impl Serialize) -> Result<(), StdoutError> {
    let text = json_text(value).map_err(|error| StdoutError(error.into()))?;
    write_stdout(text.as_bytes())
}

/// Formats a value as [`write_json`] writes it.
///
/// # Errors
/// If the value has no form in JSON.
pub fn json_text(value: &impl Serialize) -> serde_json::Result<String> {
    Ok(format!("{}\n", text::json(&serde_json::to_string_pretty(value)?)))
}

/// Writes a message of one or more lines to standard error, followed by a newline, in one piece, as
/// [`text::message`] makes it safe. A failure cannot be reported anywhere.
pub fn write_stderr(message: fmt::Arguments<'_>) {
    write_stderr_lines(&message.to_string(), "  ");
}

/// Writes a message as [`write_stderr`]; each line after the first begins with `following`.
pub fn write_stderr_lines(message: &str, following: &str) {
    write_stderr_raw(&format!("{}\n", text::message(message, following)));
}

/// Writes text that is safe already to standard error, in one piece.
pub fn write_stderr_raw(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Formats a path for a message: as one line without characters that would act on a terminal. Who names a file
/// may not be who reads the message.
pub fn shown(path: impl AsRef<Path>) -> String {
    text::visible(&path.as_ref().to_string_lossy(), text::MOST_BYTES).into_owned()
}

/// Formats an error with its causes, each once: some errors include the text of their cause.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in std::iter::successors(error.source(), |&cause| cause.source()) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_reported_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read it: {0}")]
        struct Unreadable(#[from] io::Error);
        #[derive(Debug, thiserror::Error)]
        #[error("cannot use x")]
        struct Unusable(#[source] Unreadable);
        let error = Unusable(Unreadable(io::Error::other("it is torn")));
        assert_eq!(with_causes(&error), "cannot use x: cannot read it: it is torn");
        let error = StdoutError(io::Error::other("it is full"));
        assert_eq!(with_causes(&error), "cannot write to standard output: it is full");
    }
}
