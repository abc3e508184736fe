//! Recordings of runs: every call of a plugin and its answer, one JSON object a line; `docs/recording.md` has
//! the format.
//!
//! ```text
//! a run -> Recording -> file -> Record -> Replay -> a run that asks this machine nothing
//! ```
//!
//! Calls are text here: a function's name, its arguments and its answer as JSON. The types of the contract
//! are known to `world` only.

mod reader;
mod recording;
mod replay;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use reader::{MAX_RECORD_BYTES, Record, RecordError};
pub use recording::Recording;
pub(crate) use replay::{Answer, Texts};
pub use replay::{Order, Replay};

use crate::plugin::Outcome;

/// The version of the format that this host writes and reads. Any other number is rejected.
pub const FORMAT: u32 = 1;

/// The first line of a recording.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// Version of the format, [`FORMAT`].
    #[serde(rename = "ks-record")]
    format: u32,
    /// The version of the plugin contract that the recording host serves.
    contract: String,
    /// The plugin's name in messages.
    plugin: String,
}

/// A call that returned, or that ended the plugin.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    /// Interface and function, as the component imports it: `perf.[method]attachment.read`.
    call: String,
    /// The arguments in order, `self` first.
    args: Vec<Value>,
    /// The result; null, and omitted, for a function without one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    answer: Value,
    /// Why the call did not return; it replaces the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trap: Option<String>,
}

/// Text that the host wrote itself, as opposed to text that the plugin passed to `console`: lines of the
/// kernel half, usage texts, warnings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// The stream that it was written to.
    host: Stream,
    /// The contents: text, or `{"hex": ".."}` for bytes that are not UTF-8.
    text: Value,
}

/// A standard stream of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The last line of a recording: how the run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "kebab-case", deny_unknown_fields)]
enum End {
    Returned { code: i32 },
    Exited { code: u8 },
    Trapped { reason: String },
    TimedOut,
    Killed,
    Denied { reason: String },
    Failed { reason: String },
}

impl End {
    fn of(outcome: &Outcome) -> End {
        match outcome.clone() {
            Outcome::Returned(code) => End::Returned { code },
            Outcome::Exited(code) => End::Exited { code },
            Outcome::Trapped(reason) => End::Trapped { reason },
            Outcome::TimedOut => End::TimedOut,
            Outcome::Killed => End::Killed,
            Outcome::Denied(reason) => End::Denied { reason },
            Outcome::Failed(reason) => End::Failed { reason },
        }
    }

    /// Describes the end without its reason, which may contain source locations of a script.
    fn description(&self) -> String {
        match self {
            End::Returned { code } => format!("returned {code}"),
            End::Exited { code } => format!("exited with code {code}"),
            End::Trapped { .. } => "trapped".into(),
            End::TimedOut => "ran into its time limit".into(),
            End::Killed => "was ended".into(),
            End::Denied { .. } => "was denied the start".into(),
            End::Failed { .. } => "failed".into(),
        }
    }
}

/// Encodes bytes for a recording: as text if they are valid UTF-8, which a person can read.
pub(crate) fn bytes(bytes: &[u8]) -> Value {
    let is_printable = |char: char| matches!(char, '\n' | '\t') || !char.is_control();
    match str::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_printable) => text.into(),
        _ => json!({ "hex": crate::plugin::hex(bytes) }),
    }
}

/// Decodes bytes; returns none if the value encodes no bytes.
pub(crate) fn read_bytes(value: &Value) -> Option<Vec<u8>> {
    if let Some(text) = value.as_str() {
        return Some(text.as_bytes().to_vec());
    }
    let members = value.as_object().filter(|members| members.len() == 1)?;
    let digits = members.get("hex")?.as_str()?.as_bytes();
    let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    });
    pairs.collect()
}
