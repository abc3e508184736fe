//! Who answers the calls of a run, and the part of a plugin's state that writes them down or reads them.

use serde_json::Value;

use super::linker::Answers;
use super::state::State;
use super::value::Handles;
use crate::plugin::Abort;
use crate::record::{Answer, Recording, Replay, Stream, Texts};

/// Who answers the calls of a run.
#[derive(Clone)]
pub enum Calls {
    /// This host.
    Answered,
    /// This host, and each call is written down with its answer. Shared memory is not mapped then: it has no calls.
    Recorded(Recording),
    /// A record of an earlier run. Nothing of this machine is asked, no policy has a part in it, and the plugin's BPF
    /// object is not looked at.
    Replayed(Replay),
}

impl Calls {
    /// How a plugin is linked for it.
    pub(crate) fn answers(&self) -> Answers {
        match self {
            Calls::Answered => Answers::Host,
            Calls::Recorded(_) => Answers::Recorded,
            Calls::Replayed(_) => Answers::Replayed,
        }
    }
}

/// [`Calls`] of one run.
pub(super) enum CallRecording {
    None,
    Recorder(Recorder),
    Replay(Replay),
}

/// Writes a run down.
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
    /// What writes this run down.
    ///
    /// # Errors
    /// A trap if nothing does: the plugin was linked for another run.
    pub(super) fn recorder(&mut self) -> wasmtime::Result<&mut Recorder> {
        match &mut self.recording {
            CallRecording::Recorder(recorder) => Ok(recorder),
            CallRecording::None | CallRecording::Replay(_) => Err(other_run()),
        }
    }

    /// Answers a call from the record, and writes what the host wrote when it was recorded.
    ///
    /// # Errors
    /// What ends the plugin; see [`Replay::answer`].
    pub(super) fn replayed(&mut self, function: &str, args: &[Value]) -> wasmtime::Result<Answer> {
        let CallRecording::Replay(replay) = &self.recording else { return Err(other_run()) };
        let (texts, answer) = replay.answer(function, args);
        self.show_recorded(texts);
        answer
    }

    /// What ends the plugin when the record has an answer of another type.
    pub(super) fn misfit(&self, line: usize, function: &str, misfit: &str) -> wasmtime::Error {
        match &self.recording {
            CallRecording::Replay(replay) => replay.misfit(line, function, misfit),
            CallRecording::None | CallRecording::Recorder(_) => other_run(),
        }
    }

    /// Writes what the host wrote at the end of the recorded run.
    pub(super) fn show_last_recorded(&mut self) {
        if let CallRecording::Replay(replay) = &self.recording {
            let texts = replay.last_texts();
            self.show_recorded(texts);
        }
    }

    /// Writes text of the host's own down.
    pub(super) fn record_text(&self, stream: Stream, text: &[u8]) {
        if let CallRecording::Recorder(recorder) = &self.recording {
            recorder.recording.text(stream, text);
        }
    }

    fn show_recorded(&mut self, texts: Texts) {
        for (stream, text) in texts {
            match stream {
                Stream::Stdout => self.write_out(&text),
                Stream::Stderr => self.write_recorded_error(&text),
            }
        }
    }
}

fn other_run() -> wasmtime::Error {
    wasmtime::Error::new(Abort("ks-host has a defect: the plugin was linked for another kind of run".into()))
}
