//! Defects of the compiler itself: a panic in a stage becomes an internal error (KS9902) that names the stage
//! and points to the item which the stage was compiling.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};

use crate::diag::Diagnostic;
use crate::source::Span;

thread_local! {
    /// The source range that the stage of this thread compiles; none outside of [`contain`].
    static COMPILING: Cell<Option<Span>> = const { Cell::new(None) };
    /// The file and line of the compiler where the last contained panic began.
    static ORIGIN: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Sets the item that the stage of this thread compiles from here on.
pub(crate) fn at(item: Span) {
    COMPILING.set(COMPILING.get().map(|_| item));
}

/// Runs a stage. Until the stage calls [`at`], it compiles `script`.
///
/// # Errors
/// An internal error if the stage panics.
pub(crate) fn contain<T>(stage: &str, script: Span, run: impl FnOnce() -> T) -> Result<T, Box<Diagnostic>> {
    let outer = COMPILING.replace(Some(script));
    // On a panic the results of the stage are dropped, so no broken invariant is seen later.
    let result = catch_unwind(AssertUnwindSafe(run));
    let item = COMPILING.replace(outer).unwrap_or(script);
    result.map_err(|payload| {
        let origin = ORIGIN.take();
        let separator = if origin.is_empty() { "" } else { " at " };
        Box::new(Diagnostic::mistake(item, format!("{stage}{separator}{origin}: {}", message(&*payload))))
    })
}

/// For a panic hook: records where a panic began if a stage of this thread contains it. Returns whether it
/// does; then the hook has nothing to print.
pub fn is_contained(panic: &PanicHookInfo<'_>) -> bool {
    let contained = COMPILING.get().is_some();
    if contained {
        ORIGIN.set(panic.location().map(ToString::to_string).unwrap_or_default());
    }
    contained
}

/// Converts a size or an offset that the front end has limited to the range of the target type.
///
/// # Panics
/// If the value does not fit: a defect, which [`contain`] reports. A wrong number would be wrong code.
#[track_caller]
pub(crate) fn narrow<T: TryFrom<U>, U: Copy + Display>(value: U) -> T {
    T::try_from(value).unwrap_or_else(|_| panic!("{value} is beyond the range of its type"))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceMap;

    #[test]
    fn a_panic_is_an_error_at_the_item_that_was_compiled() {
        let file = SourceMap::default().add("a.ks", b"fn main() {}").expect("a short text");
        let (script, item) = (Span { file, start: 0, end: 0 }, Span { file, start: 3, end: 7 });
        assert_eq!(contain("kernel half", script, || 7).ok(), Some(7));
        let early: Result<(), _> = contain("kernel half", script, || panic!("no {}", "block"));
        let error = early.expect_err("it panics");
        assert_eq!((error.code.0, error.primary.span), (9902, script));
        assert!(error.notes[0].starts_with("kernel half") && error.notes[0].ends_with(": no block"));
        let late: Result<(), _> = contain("kernel half", script, || {
            at(item);
            // A stage within the stage has an item of its own.
            assert!(contain("plugin", script, || at(script)).is_ok());
            panic!("no block")
        });
        assert_eq!(late.expect_err("it panics").primary.span, item);
        at(item);
        assert_eq!(COMPILING.get(), None);
    }
}
