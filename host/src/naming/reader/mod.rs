//! The naming process: reads passed files and answers with names. It opens nothing, and may fail at any time.

mod data;
mod demangle;
mod elf;
mod perf_map;
mod program;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

pub(crate) use self::demangle::demangled;

use self::data::Data;
use self::demangle::Demangled;
use self::program::Program;
use super::protocol::{Answer, MAX_REQUEST_BYTES, Request};
use crate::processes::channel::{self, Received};

/// Answers requests until the socket is closed or a request is malformed.
pub(super) fn serve(socket: BorrowedFd<'_>) {
    let mut reader = Reader::default();
    while let Ok(Some(Received { bytes, file })) = channel::receive(socket.as_fd(), MAX_REQUEST_BYTES) {
        let Some(answer) = Request::decode(&bytes).and_then(|request| reader.answer(request, file)) else {
            return;
        };
        if channel::send(socket.as_fd(), &answer.encode(), None).is_err() {
            return;
        }
    }
}

/// The files that were read so far.
#[derive(Default)]
struct Reader {
    /// Keyed by the host's id; None if the file is not a program.
    programs: HashMap<u32, Option<Program>>,
    demangled: Demangled,
}

impl Reader {
    /// Answers a request. None if it is inconsistent, which the host never sends.
    fn answer(&mut self, request: Request, file: Option<OwnedFd>) -> Option<Answer> {
        let file = file.map(File::from);
        match request {
            Request::Program { id, build_id, lines, offsets } => {
                if let Some(file) = file {
                    self.programs.insert(id, Data::new(file).and_then(Program::read));
                }
                let Some(program) = self.programs.get_mut(&id)? else { return Some(Answer::NoProgram) };
                if !build_id.is_empty() && program.build_id() != build_id {
                    return Some(Answer::OtherFile);
                }
                if lines && let Some(needed) = program.needs() {
                    return Some(Answer::Needs(needed));
                }
                let frames = offsets.iter().map(|offset| program.frames(*offset, lines, &mut self.demangled));
                Some(Answer::Frames(frames.collect()))
            }
            Request::Debug { id } => {
                let program = self.programs.get_mut(&id)?.as_mut()?;
                program.take(file.and_then(Data::new));
                Some(Answer::Taken)
            }
            Request::PerfMap { addresses } => {
                let mut frames = perf_map::functions(&file?, &addresses);
                for frame in frames.iter_mut().flatten() {
                    frame.function = self.demangled.of(&frame.function);
                }
                Some(Answer::Frames(frames))
            }
        }
    }
}
