//! Recording and replay of a run's calls: the mode of a run, and the plugin's state for it.

use serde_json::Value;

use super::linker::Answers;
use super::state::State;
use super::value::Handles;
use crate::plugin::Abort;
use crate::record::{Answer, Recording, Replay, Texts};

/// Source of the answers to a run's calls.
#[derive(Clone)]
pub enum Calls {
    /// The host's functions, directly.
    Answered,
    /// The host's functions; each call is recorded with its answer. Shared memory is not mapped: its accesses
    /// are not calls.
    Recorded(Recording),
    /// A recording of an earlier run. The host queries nothing of this machine, consults no policy and does
    /// not use the plugin's BPF object.
    Replayed(Replay),
}

impl Calls {
    /// Returns the mode for linking the plugin.
    pub(crate) fn answers(&self) -> Answers {
        match self {
            Calls::Answered => Answers::Host,
            Calls::Recorded(_) => Answers::Recorded,
            Calls::Replayed(_) => Answers::Replayed,
        }
    }
}

/// The state of [`Calls`] for one run.
pub(super) enum CallRecording {
    None,
    Recorder(Recorder),
    Replay(Replay),
}

/// Writer of a recording.
pub(super) struct Recorder {
    pub(super) recording: Recording,
    pub(super) handles: Handles,
}

impl CallRecording {
    pub(super) fn of(calls: Calls) -> CallRecording {
        match calls {
            Calls::Answered => CallRecording::None,
            Calls::Recorded(recording) => {
                CallRecording::Recorder(Recorder { recording, handles: Handles::counted() })
            }
            Calls::Replayed(replay) => CallRecording::Replay(replay),
        }
    }
}

impl State {
    /// Returns the writer of this run's recording.
    ///
    /// # Errors
    /// A trap if there is none: the plugin was linked for another mode.
    pub(super) fn recorder(&mut self) -> wasmtime::Result<&mut Recorder> {
        match &mut self.recording {
            CallRecording::Recorder(recorder) => Ok(recorder),
            CallRecording::None | CallRecording::Replay(_) => Err(other_run()),
        }
    }

    /// Answers a call from the recording, and writes the text that the host wrote before it.
    ///
    /// # Errors
    /// A trap; see [`Replay::answer`].
    pub(super) fn replayed(&mut self, function: &str, args: &[Value]) -> wasmtime::Result<Answer> {
        let CallRecording::Replay(replay) = &self.recording else { return Err(other_run()) };
        let (texts, answer) = replay.answer(function, args);
        self.show_recorded(texts);
        answer
    }

    /// Builds the trap for a recorded answer of the wrong type.
    pub(super) fn misfit(&self, line: usize, function: &str, misfit: &str) -> wasmtime::Error {
        match &self.recording {
            CallRecording::Replay(replay) => replay.misfit(line, function, misfit),
            CallRecording::None | CallRecording::Recorder(_) => other_run(),
        }
    }

    /// Writes the text that the host wrote at the end of the recorded run.
    pub(super) fn show_last_recorded(&mut self) {
        if let CallRecording::Replay(replay) = &self.recording {
            let texts = replay.last_texts();
            self.show_recorded(texts);
        }
    }

    fn show_recorded(&mut self, texts: Texts) {
        for (stream, text) in texts {
            self.output.replay(stream, &text);
        }
    }
}

fn other_run() -> wasmtime::Error {
    wasmtime::Error::new(Abort("ks-host has a defect: the plugin was linked for another kind of run".into()))
}
