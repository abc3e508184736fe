//! A trap in the words of a script: which of its functions were running, and at which lines.

use std::borrow::Cow;
use std::fmt::Write as _;

use ks_wit::lines::{Lines, Place};
use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use crate::text::{MOST_BYTES, visible};

/// Most functions that are told; a recursion without end has thousands.
const MAX_SHOWN: usize = 16;

/// The words of a trap, and below them a line for each function of the script, the innermost first. The words begin with
/// a place if they had none.
pub(super) fn tell(words: String, error: &wasmtime::Error, lines: &[Lines]) -> String {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return words };
    let places: Vec<Place<'_>> = backtrace.frames().iter().filter_map(|frame| place(frame, lines)).collect();
    let Some(innermost) = places.first() else { return words };
    let mut told = match error.downcast_ref::<Trap>() {
        Some(trap) => format!("{}:{}: {}", shown(innermost.file), innermost.line, in_words(*trap, &words)),
        None => words,
    };
    for place in places.iter().take(MAX_SHOWN) {
        // Writing to a string cannot fail.
        let _ = write!(told, "\n  in {} at {}:{}", shown(place.function), shown(place.file), place.line);
    }
    if backtrace.frames().len() >= MAX_FRAMES.get() || places.len() > MAX_SHOWN {
        told.push_str("\n  ..");
    }
    told
}

/// A name that the plugin's file has.
fn shown(name: &str) -> Cow<'_, str> {
    visible(name, MOST_BYTES)
}

/// Most frames that the engine collects: those of [`MAX_SHOWN`] functions with the compiler's own between them.
pub(super) const MAX_FRAMES: std::num::NonZeroUsize =
    std::num::NonZeroUsize::new(4 * MAX_SHOWN).expect("not zero");

fn place<'l>(frame: &FrameInfo, lines: &'l [Lines]) -> Option<Place<'l>> {
    let module = frame.module().name()?;
    let lines = lines.iter().find(|lines| lines.module == module)?;
    lines.place(frame.func_index(), u32::try_from(frame.func_offset()?).ok()?)
}

/// What a trap of the engine means to the author of a script; scripts check what they can before it comes to that.
fn in_words(trap: Trap, words: &str) -> String {
    match trap {
        Trap::StackOverflow => "KS-TRAP stack: too many calls are running".into(),
        Trap::MemoryOutOfBounds => "KS-TRAP pointer: outside the memory of the plugin".into(),
        Trap::UnreachableCodeReached => {
            "KS-TRAP memory: the memory of the plugin is full, or the host broke its contract".into()
        }
        _ => words.to_owned(),
    }
}
