//! Reads a recording without trusting it: every line has a known form and an allowed position.

use std::io::Read;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Call, End, FORMAT, Header, Stream, Text};
use crate::text::{MOST_BYTES, visible};

/// Limit on the bytes of a recording. Guards the host's memory against a file (or a pipe) without end.
pub const MAX_RECORD_BYTES: u64 = 256 << 20;

/// A recording in memory, read and validated.
#[derive(Debug)]
pub struct Record {
    pub(super) calls: Vec<RecordedCall>,
    /// Text that the host wrote after the last call.
    pub(super) texts: Vec<(Stream, Vec<u8>)>,
    pub(super) end: End,
    /// Line number of the `end` line.
    pub(super) end_line: usize,
}

/// A call of a recording.
#[derive(Debug)]
pub(super) struct RecordedCall {
    /// Line number, counted from 1.
    pub(super) line: usize,
    pub(super) function: String,
    pub(super) args: Vec<Value>,
    pub(super) answer: Result<Value, String>,
    /// Text that the host wrote before the call returned.
    pub(super) texts: Vec<(Stream, Vec<u8>)>,
}

/// Why a file is not a valid recording.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file could not be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] std::io::Error),
    /// The file is longer than [`MAX_RECORD_BYTES`].
    #[error("the file has more than {MAX_RECORD_BYTES} bytes")]
    TooLong,
    /// A line is malformed or at a wrong position.
    #[error("line {line}: {reason}")]
    Line {
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong with the line.
        reason: String,
    },
}

impl Record {
    /// Reads a whole recording.
    ///
    /// # Errors
    /// The first invalid line. A recording without an end line was truncated, or its host was killed.
    pub fn read(from: impl Read) -> Result<Record, RecordError> {
        let mut bytes = Vec::new();
        // One byte above the limit distinguishes a file that is too long from one that just fits.
        from.take(MAX_RECORD_BYTES + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_RECORD_BYTES {
            return Err(RecordError::TooLong);
        }
        let mut lines = Lines { rest: &bytes, line: 0 };
        let wrong = |line, reason| RecordError::Line { line, reason };
        read(&mut lines).map_err(|reason| wrong(lines.line, reason))
    }
}

/// The unread lines.
struct Lines<'a> {
    rest: &'a [u8],
    /// Number of the last line that was read.
    line: usize,
}

impl Lines<'_> {
    /// Reads the next line, which ends in LF, as an object.
    fn next(&mut self) -> Result<Map<String, Value>, String> {
        self.line += 1;
        if self.rest.is_empty() {
            return Err("the record is cut off: it should end in a line with `end`".into());
        }
        let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') else {
            return Err("the record is cut off within this line".into());
        };
        let (line, rest) = self.rest.split_at(end);
        self.rest = &rest[1..];
        serde_json::from_slice(line).map_err(|error| format!("not a JSON object: {}", shown(&error)))
    }
}

fn read(lines: &mut Lines<'_>) -> Result<Record, String> {
    let header: Header =
        form(lines.next()?).map_err(|error| format!("not the start of a record: {error}"))?;
    if header.format != FORMAT {
        return Err(format!(
            "the record has format {}; this host reads {FORMAT}\n  do: record the run again",
            header.format
        ));
    }
    let mut calls = Vec::new();
    let mut texts = Vec::new();
    loop {
        let line = lines.next()?;
        if line.contains_key("call") {
            let Call { call, args, answer, trap } = form(line)?;
            if trap.is_some() && !answer.is_null() {
                return Err("a call has an answer or a trap, not both".into());
            }
            let answer = trap.map_or(Ok(answer), Err);
            let texts = std::mem::take(&mut texts);
            calls.push(RecordedCall { line: lines.line, function: call, args, answer, texts });
        } else if line.contains_key("host") {
            let Text { host, text } = form(line)?;
            let bytes = super::read_bytes(&text).ok_or("`text` should be text, or {\"hex\": \"..\"}")?;
            texts.push((host, bytes));
        } else if line.contains_key("end") {
            let end = form(line)?;
            if !lines.rest.is_empty() {
                lines.line += 1;
                return Err("the record has ended".into());
            }
            return Ok(Record { calls, texts, end, end_line: lines.line });
        } else {
            return Err("a line has `call`, `host` or `end`".into());
        }
    }
}

fn form<T: DeserializeOwned>(line: Map<String, Value>) -> Result<T, String> {
    serde_json::from_value(Value::Object(line)).map_err(|error| shown(&error))
}

/// Formats an error, which may quote the file, as one visible line.
fn shown(error: &serde_json::Error) -> String {
    visible(&error.to_string(), MOST_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#"{"ks-record":1,"contract":"kernelscript:host@0.2.0","plugin":"a.wasm"}"#;
    const CALL: &str = r#"{"call":"clock.now","args":[],"answer":7}"#;
    const END: &str = r#"{"end":"returned","code":0}"#;

    fn read(lines: &[&str]) -> Result<Record, String> {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        Record::read(text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_record_is_a_header_calls_and_an_end() {
        let trap = r#"{"call":"args.exit","args":[3],"trap":"exit with code 3"}"#;
        let text = r#"{"host":"stdout","text":{"hex":"ff0a"}}"#;
        let record = read(&[HEADER, CALL, text, trap, END]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((record.calls.len(), record.end_line), (2, 5));
        assert_eq!(record.calls[1].texts, [(Stream::Stdout, vec![0xff, b'\n'])]);
        assert_eq!(record.calls[1].answer, Err("exit with code 3".into()));
    }

    #[test]
    fn errors_are_reported_with_their_line() {
        let cases: [(&[&str], &str); 13] = [
            (&[], "line 1: the record is cut off: it should end in a line with `end`"),
            (&["[]"], "line 1: not a JSON object: "),
            (&["{}"], "line 1: not the start of a record: missing field `ks-record`"),
            (&[CALL], "line 1: not the start of a record: unknown field"),
            (&[&HEADER.replace("1,", "2,")], "line 1: the record has format 2; this host reads 1"),
            (&[HEADER], "line 2: the record is cut off"),
            (&[HEADER, "{\"a\":1}"], "line 2: a line has `call`, `host` or `end`"),
            (&[HEADER, CALL, "{\"call\":"], "line 3: not a JSON object: EOF"),
            (
                &[HEADER, &CALL.replace("[]", "1"), END],
                "line 2: invalid type: integer `1`, expected a sequence",
            ),
            (&[HEADER, &CALL.replace("answer", "anwser"), END], "line 2: unknown field `anwser`"),
            (&[HEADER, r#"{"host":"stdout","text":{"hex":"f"}}"#], "line 2: `text` should be text"),
            (&[HEADER, r#"{"end":"left"}"#], "line 2: unknown variant `left`"),
            (&[HEADER, END, CALL], "line 3: the record has ended"),
        ];
        for (lines, expected) in cases {
            let error = read(lines).expect_err("it is wrong");
            assert!(error.starts_with(expected), "{lines:?}: {error}");
        }
        let cut = format!("{HEADER}\n{CALL}");
        let error = Record::read(cut.as_bytes()).expect_err("cut off").to_string();
        assert_eq!(error, "line 2: the record is cut off within this line");
    }

    /// Arbitrary bytes produce an error, never a panic.
    #[test]
    fn any_cut_or_change_of_a_byte_is_read_or_refused() {
        let whole = format!("{HEADER}\n{CALL}\n{END}\n");
        for length in 0..whole.len() {
            assert!(Record::read(&whole.as_bytes()[..length]).is_err(), "{length}");
        }
        for index in 0..whole.len() {
            for byte in [0, b'"', b'{', b'9', 0xff] {
                let mut changed = whole.clone().into_bytes();
                changed[index] = byte;
                let _ = Record::read(&changed[..]);
            }
        }
    }
}
