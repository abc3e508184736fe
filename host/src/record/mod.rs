//! Records of runs: every call of a plugin and its answer, one JSON object a line; `docs/recording.md` has the format.
//!
//! ```text
//! a run -> Recording -> file -> Record -> Replay -> a run that asks this machine nothing
//! ```
//!
//! Calls are text here: a function's name, its arguments and its answer as JSON. Not here: the types of the contract,
//! which `world` knows.

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

/// The version of the format that this host writes and reads. Another number is another format.
pub const FORMAT: u32 = 1;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    /// [`FORMAT`].
    #[serde(rename = "ks-record")]
    format: u32,
    /// The contract that the host serves.
    contract: String,
    /// The plugin's name in messages.
    plugin: String,
}

/// A call that was answered, or that ended the plugin.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    /// Interface and function, as the component imports it: `perf.[method]attachment.read`.
    call: String,
    /// The arguments in order, `self` first.
    args: Vec<Value>,
    /// The result; null, and left out, for a function without one.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    answer: Value,
    /// Why the call did not come back, in the place of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trap: Option<String>,
}

/// Text that the host wrote of itself, not what the plugin gave to `console`: lines of the kernel half, usages,
/// warnings.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// Where.
    host: Stream,
    /// What: text, or `{"hex": ".."}`.
    text: Value,
}

/// Where text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The last line: how the run ended.
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

    /// In words, without the reason: that may name places of a script.
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

/// Bytes as they stand in a record: text if they are such, which a person can read.
pub(crate) fn bytes(bytes: &[u8]) -> Value {
    let is_printable = |char: char| matches!(char, '\n' | '\t') || !char.is_control();
    match str::from_utf8(bytes) {
        Ok(text) if text.chars().all(is_printable) => text.into(),
        _ => json!({ "hex": crate::plugin::hex(bytes) }),
    }
}

/// The bytes again; none if the value is no form of them.
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
