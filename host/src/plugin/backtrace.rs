//! Describes a trap in terms of the script: its active functions and their source lines.

use std::borrow::Cow;
use std::fmt::Write as _;

use ks_wit::lines::{Lines, SourcePosition};
use wasmtime::{FrameInfo, Trap, WasmBacktrace};

use crate::text::{MOST_BYTES, visible};

/// Limit on the functions of a call stack in a message; an endless recursion has thousands.
const MAX_DISPLAYED_FRAMES: usize = 16;

/// Formats the reason of a trap, followed by one line for each active function of the script, the innermost
/// first. Prefixes the reason with a source location if it has none.
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

/// Escapes a name from the plugin's file.
fn display(name: &str) -> Cow<'_, str> {
    visible(name, MOST_BYTES)
}

/// Limit on the stack frames that the engine collects: those of [`MAX_DISPLAYED_FRAMES`] functions and the
/// compiler's helper functions between them.
pub(super) const MAX_FRAMES: std::num::NonZeroUsize =
    std::num::NonZeroUsize::new(4 * MAX_DISPLAYED_FRAMES).expect("not zero");

fn position<'l>(frame: &FrameInfo, lines: &'l [Lines]) -> Option<SourcePosition<'l>> {
    let module = frame.module().name()?;
    let lines = lines.iter().find(|lines| lines.module == module)?;
    lines.position(frame.func_index(), u32::try_from(frame.func_offset()?).ok()?)
}

/// Explains a trap of the engine to the author of a script; scripts check most of these conditions before.
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
