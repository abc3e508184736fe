//! Answers a plugin's calls from a recording, and detects the first difference.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::reader::Record;
use super::{End, Stream};
use crate::plugin::{Abort, Outcome};
use crate::text::{indented, visible};

/// Limit on the bytes of a call in a message.
const MAX_DISPLAY_BYTES: usize = 300;

/// Argument indices of values that only bound how long a call waits or how much it returns at once.
/// Implementations in different languages choose them freely, so [`Order::Any`] does not compare them.
const BOUNDS: [(&str, &[usize]); 2] = [("ring.poll", &[1, 2]), ("maps.[method]cursor.next", &[1])];

/// The order in which a plugin must make the recorded calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The recorded order, with every call: for the same plugin, or a rewrite that makes the same calls.
    Same,
    /// Any order. Each call is answered by the first unused record with the same function and arguments,
    /// handles included, so the calls on one resource keep their order. Recorded calls that are never made,
    /// and handles that are dropped at another time, are no difference.
    Any,
}

/// A recording that answers a plugin's calls; clones share the same replay.
#[derive(Clone)]
pub struct Replay {
    player: Arc<Mutex<Player>>,
}

/// The source of a call's answer.
pub(crate) enum Answer {
    /// The host answers: the call only prints or ends something, and asks this machine nothing.
    Own,
    /// The recording answers the call.
    Recorded {
        /// Line number of the recorded call.
        line: usize,
        /// The recorded answer.
        answer: Value,
    },
}

/// Text that the host wrote when the run was recorded, in order.
pub(crate) type Texts = Vec<(Stream, Vec<u8>)>;

struct Player {
    record: Record,
    order: Order,
    /// Index of the first unused call, for the recorded order.
    next: usize,
    /// Unused calls by their key, for any order.
    left: HashMap<String, VecDeque<usize>>,
    over: Option<ReplayEnd>,
}

/// Why no more calls are answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplayEnd {
    /// The plugin made a call that the recording does not have.
    Differs,
    /// The recorded run was ended from outside at this point.
    Ended,
}

impl Replay {
    /// Creates a replay of this recording.
    pub fn new(record: Record, order: Order) -> Replay {
        let mut left: HashMap<String, VecDeque<usize>> = HashMap::new();
        if order == Order::Any {
            for (index, entry) in record.calls.iter().enumerate() {
                left.entry(key(&entry.function, &entry.args)).or_default().push_back(index);
            }
        }
        Replay { player: Arc::new(Mutex::new(Player { record, order, next: 0, left, over: None })) }
    }

    /// Answers a call. The text is what the host wrote before the recorded call returned.
    ///
    /// # Errors
    /// A trap that ends the plugin: the recorded trap, the end of the recorded run, or a difference.
    pub(crate) fn answer(&self, function: &str, args: &[Value]) -> (Texts, wasmtime::Result<Answer>) {
        let mut player = self.lock();
        let mut texts = Vec::new();
        let found = match player.order {
            Order::Same => player.next_in_order(function, args, &mut texts),
            Order::Any => player.first_left(function, args, &mut texts),
        };
        let answer = found.and_then(|found| match found {
            None if speaks(function) => Ok(Answer::Own),
            // A handle that is dropped at another time: the record's end drops what is left.
            None => Ok(Answer::Recorded { line: player.record.end_line, answer: Value::Null }),
            Some(index) => {
                let entry = &mut player.record.calls[index];
                let line = entry.line;
                std::mem::replace(&mut entry.answer, Ok(Value::Null))
                    .map(|answer| Answer::Recorded { line, answer })
            }
        });
        (texts, answer.map_err(|description| wasmtime::Error::new(Abort(indented(&description)))))
    }

    /// Reports that the recorded answer of this line does not have the function's result type.
    pub(crate) fn misfit(&self, line: usize, function: &str, misfit: &str) -> wasmtime::Error {
        self.lock().over = Some(ReplayEnd::Differs);
        wasmtime::Error::new(Abort(format!("line {line} of the record: the answer of {function}: {misfit}")))
    }

    /// Returns the text that the host wrote after the last answered call.
    pub(crate) fn last_texts(&self) -> Texts {
        let mut player = self.lock();
        let from = player.next;
        let calls = player.record.calls[from..].iter_mut().filter(|entry| speaks(&entry.function));
        let mut texts: Texts = calls.flat_map(|entry| std::mem::take(&mut entry.texts)).collect();
        if player.over != Some(ReplayEnd::Differs) {
            texts.append(&mut player.record.texts);
        }
        texts
    }

    /// Compares the outcome of the whole run with the recording; returns the exit code if they agree.
    ///
    /// # Errors
    /// Describes the first difference.
    pub fn finish(&self, outcome: &Outcome) -> Result<u8, String> {
        let player = self.lock();
        match (player.over, outcome) {
            (Some(ReplayEnd::Differs), Outcome::Trapped(description) | Outcome::Failed(description)) => {
                return Err(description.clone());
            }
            (Some(ReplayEnd::Differs), _) => return Err("it differs from the record".into()),
            _ => {}
        }
        let mut left = player.record.calls[player.next..].iter().filter(|entry| !speaks(&entry.function));
        if let (Order::Same, None, Some(entry)) = (player.order, player.over, left.next()) {
            return Err(format!(
                "it ends before the record does, which goes on at line {}\n  record: {}",
                entry.line,
                display(&entry.function, &entry.args)
            ));
        }
        let (own, recorded) = (End::of(outcome), &player.record.end);
        match recorded {
            // The end came from outside, and a plugin that was asked to stop may have returned.
            End::TimedOut => Ok(Outcome::TimedOut.exit_code()),
            End::Killed => Ok(Outcome::Killed.exit_code()),
            recorded if own.description() == recorded.description() => Ok(outcome.exit_code()),
            recorded => Err(format!(
                "it ends otherwise than the record does in line {}\n  here:   it {}\n  record: it {}",
                player.record.end_line,
                own.description(),
                recorded.description()
            )),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Player> {
        // A thread that panicked has left a difference at worst.
        self.player.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Player {
    /// Returns the index of the next recorded call, which must be this one; none for a call that the host
    /// answers itself.
    fn next_in_order(
        &mut self,
        function: &str,
        args: &[Value],
        texts: &mut Texts,
    ) -> Result<Option<usize>, String> {
        // The plugin's own output is not compared, but text that the host wrote meanwhile keeps its position.
        let own = speaks(function);
        while let Some(entry) = self.record.calls.get_mut(self.next) {
            let said = speaks(&entry.function);
            let same = !own && !said && entry.function == function && entry.args == args;
            if !said && !same {
                break;
            }
            texts.append(&mut entry.texts);
            self.next += 1;
            if same {
                return Ok(Some(self.next - 1));
            }
            if own {
                return Ok(None);
            }
        }
        if own {
            return Ok(None);
        }
        let Some(entry) = self.record.calls.get(self.next) else {
            return Err(self.end_instead(function, args));
        };
        self.over = Some(ReplayEnd::Differs);
        Err(format!(
            "it differs from the record at line {}\n  asked:  {}\n  record: {}",
            entry.line,
            display(function, args),
            display(&entry.function, &entry.args)
        ))
    }

    /// Returns the index of the first unused call with this function and these arguments; none for a call that
    /// the host answers itself, and for a handle that is dropped at another time.
    fn first_left(
        &mut self,
        function: &str,
        args: &[Value],
        texts: &mut Texts,
    ) -> Result<Option<usize>, String> {
        let found = self.left.get_mut(&key(function, args)).and_then(VecDeque::pop_front);
        if let Some(entry) = found.and_then(|index| self.record.calls.get_mut(index)) {
            texts.append(&mut entry.texts);
        }
        if speaks(function) {
            return Ok(None);
        }
        if found.is_some() {
            return Ok(found);
        }
        if function.contains(".[resource-drop]") {
            return Ok(None);
        }
        let of_function = |index: &&usize| self.record.calls[**index].function == function;
        let Some(nearest) = self.left.values().flatten().filter(of_function).min() else {
            return Err(self.end_instead(function, args));
        };
        let entry = &self.record.calls[*nearest];
        let record = format!("line {} has {}", entry.line, display(&entry.function, &entry.args));
        self.over = Some(ReplayEnd::Differs);
        Err(format!(
            "it asks what is not left in the record\n  asked:  {}\n  record: {record}",
            display(function, args)
        ))
    }

    /// Ends the replay when the recording has no more of these calls.
    fn end_instead(&mut self, function: &str, args: &[Value]) -> String {
        let end = &self.record.end;
        if matches!(end, End::TimedOut | End::Killed) {
            self.over = Some(ReplayEnd::Ended);
            return format!("it is ended where the record was, at line {}", self.record.end_line);
        }
        self.over = Some(ReplayEnd::Differs);
        format!(
            "it asks more than the record has, which ends at line {}\n  asked:  {}\n  record: the plugin {}",
            self.record.end_line,
            display(function, args),
            end.description()
        )
    }
}

/// Whether a call prints something or ends the plugin. Its arguments are not compared.
fn speaks(function: &str) -> bool {
    function.starts_with("console.") || function == "args.exit"
}

/// Returns the function and the arguments of a call as a key, without arguments that only bound it.
fn key(function: &str, args: &[Value]) -> String {
    let bounds = BOUNDS.iter().find(|(name, _)| *name == function).map_or(&[][..], |(_, indices)| indices);
    let args = args.iter().enumerate().filter(|(index, _)| !bounds.contains(index)).map(|(_, value)| value);
    // Calls that print are equal whatever they print.
    let args = args.filter(|_| !speaks(function)).map(Value::to_string).collect::<Vec<_>>();
    format!("{function}({})", args.join(", "))
}

/// Formats a call for messages.
fn display(function: &str, args: &[Value]) -> String {
    let args = args.iter().map(Value::to_string).collect::<Vec<_>>().join(", ");
    visible(&format!("{function}({args})"), MAX_DISPLAY_BYTES).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = r#"{"ks-record":1,"contract":"kernelscript:host@0.2.0","plugin":"a.wasm"}
{"call":"clock.now","args":[],"answer":7}
{"call":"console.print","args":["x",[]]}
{"host":"stdout","text":"from the kernel half\n"}
{"call":"ring.poll","args":[[1],5,100],"answer":{"ok":"a"}}
{"call":"ring.poll","args":[[2],5,100],"answer":{"ok":"b"}}
{"end":"returned","code":0}
"#;

    fn replay(order: Order) -> Replay {
        Replay::new(Record::read(RECORD.as_bytes()).expect("it is a record"), order)
    }

    fn ask(replay: &Replay, function: &str, args: &str) -> Result<String, String> {
        let args: Vec<Value> = serde_json::from_str(args).expect("arguments are JSON");
        match replay.answer(function, &args).1 {
            Ok(Answer::Own) => Ok("own".into()),
            Ok(Answer::Recorded { answer, .. }) => Ok(answer.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_same_calls_get_the_same_answers() {
        let replay = replay(Order::Same);
        assert_eq!(ask(&replay, "clock.now", "[]").as_deref(), Ok("7"));
        assert_eq!(ask(&replay, "console.print", "[\"other\", []]").as_deref(), Ok("own"));
        let (texts, _) =
            replay.answer("ring.poll", &serde_json::from_str::<Vec<_>>("[[1],5,100]").expect("JSON"));
        assert_eq!(texts, [(Stream::Stdout, b"from the kernel half\n".to_vec())]);
        let early = replay.finish(&Outcome::Returned(0)).expect_err("a call is left");
        assert!(early.contains("goes on at line 6\n  record: ring.poll([2], 5, 100)"), "{early}");
        assert!(ask(&replay, "ring.poll", "[[2],5,100]").is_ok());
        assert_eq!(replay.finish(&Outcome::Returned(0)), Ok(0));
        let other = replay.finish(&Outcome::Exited(3)).expect_err("another end");
        assert!(other.ends_with("here:   it exited with code 3\n  record: it returned 0"), "{other}");
    }

    #[test]
    fn the_first_difference_is_reported() {
        let same = replay(Order::Same);
        let differs = ask(&same, "ring.poll", "[[1],5,100]").expect_err("clock.now comes first");
        let expected =
            "it differs from the record at line 2\n  asked:  ring.poll([1], 5, 100)\n  record: clock.now()";
        assert_eq!(differs, expected);
        let any = replay(Order::Any);
        assert_eq!(ask(&any, "ring.poll", "[[2],9,9]").as_deref(), Ok(r#"{"ok":"b"}"#));
        let none = ask(&any, "ring.poll", "[[2],9,9]").expect_err("it was given");
        assert!(none.ends_with("record: line 5 has ring.poll([1], 5, 100)"), "{none}");
        let unknown = ask(&replay(Order::Any), "clock.sleep", "[1]").expect_err("never called");
        assert!(
            unknown.ends_with("ends at line 7\n  asked:  clock.sleep(1)\n  record: the plugin returned 0")
        );
    }

    #[test]
    fn in_any_order_handles_may_be_dropped_at_any_time() {
        let replay = replay(Order::Any);
        assert_eq!(ask(&replay, "ring.[resource-drop]ring", "[1]").as_deref(), Ok("null"));
        // A table of the console is the host's own, in a replay, too.
        assert_eq!(ask(&replay, "console.[resource-drop]table", "[1]").as_deref(), Ok("own"));
        assert_eq!(replay.finish(&Outcome::Returned(0)), Ok(0));
    }
}
