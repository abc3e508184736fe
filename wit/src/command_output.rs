//! Output of the commands `ks` and `ks-host`: results on standard output, messages on standard error.
//!
//! Not part of the contract. It is here because both commands link this crate, and neither may depend on the
//! other.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};

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
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(StdoutError(error)),
        _ => Ok(()),
    }
}

/// Writes a message of one or more lines to standard error, followed by a newline, in one piece. A failure
/// cannot be reported anywhere.
pub fn write_stderr(message: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{message}\n").as_bytes());
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
