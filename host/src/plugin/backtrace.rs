//! A trap in the words of a script: which of its functions were running, and at which lines.

use std::borrow::Cow;
use std::fmt::Write as _;

use ks_wit::lines::{Lines, SourcePosition};
use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use crate::text::{MOST_BYTES, visible};

/// Most functions that are told; a recursion without end has thousands.
const MAX_DISPLAYED_FRAMES: usize = 16;

/// The words of a trap, and below them a line for each function of the script, the innermost first. The words begin with
/// a place if they had none.
pub(super) fn describe(reason: String, error: &wasmtime::Error, lines: &[Lines]) -> String {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return reason };
    let positions: Vec<SourcePosition<'_>> =
        backtrace.frames().iter().filter_map(|frame| position(frame, lines)).collect();
    let Some(innermost) = positions.first() else { return reason };
    let mut description = match error.downcast_ref::<Trap>() {
        Some(trap) => {
            format!("{}:{}: {}", display(innermost.file), innermost.line, explain_trap(*trap, &reason))
        }
        None => reason,
    };
    for position in positions.iter().take(MAX_DISPLAYED_FRAMES) {
        // Writing to a string cannot fail.
        let _ = write!(
            description,
            "\n  in {} at {}:{}",
            display(position.function),
            display(position.file),
            position.line
        );
    }
    if backtrace.frames().len() >= MAX_FRAMES.get() || positions.len() > MAX_DISPLAYED_FRAMES {
        description.push_str("\n  ..");
    }
    description
}

/// A name that the plugin's file has.
fn display(name: &str) -> Cow<'_, str> {
    visible(name, MOST_BYTES)
}

/// Most frames that the engine collects: those of [`MAX_DISPLAYED_FRAMES`] functions with the compiler's own between them.
pub(super) const MAX_FRAMES: std::num::NonZeroUsize =
    std::num::NonZeroUsize::new(4 * MAX_DISPLAYED_FRAMES).expect("not zero");

fn position<'l>(frame: &FrameInfo, lines: &'l [Lines]) -> Option<SourcePosition<'l>> {
    let module = frame.module().name()?;
    let lines = lines.iter().find(|lines| lines.module == module)?;
    lines.position(frame.func_index(), u32::try_from(frame.func_offset()?).ok()?)
}

/// What a trap of the engine means to the author of a script; scripts check what they can before it comes to that.
fn explain_trap(trap: Trap, reason: &str) -> String {
    match trap {
        Trap::StackOverflow => "KS-TRAP stack: too many calls are running".into(),
        Trap::MemoryOutOfBounds => "KS-TRAP pointer: outside the memory of the plugin".into(),
        Trap::UnreachableCodeReached => {
            "KS-TRAP memory: the memory of the plugin is full, or the host broke its contract".into()
        }
        _ => reason.to_owned(),
    }
}
