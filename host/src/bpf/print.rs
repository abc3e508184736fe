//! Capture of libbpf's messages. Its print hook is global to the process; messages are attributed to the
//! calling thread.

use std::cell::RefCell;
use std::sync::Once;

use super::sys;

thread_local! {
    /// Warnings of libbpf on this thread since [`collect`] began; `None` outside of it.
    static SAID: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Upper limit of lines kept per call. Guards against an object that makes libbpf log endlessly.
const MAX_LINES: usize = 256;

/// Runs `call` and returns its result with the warnings that libbpf printed meanwhile. From the first call
/// on, libbpf writes nothing to standard error.
pub(super) fn collect<T>(call: impl FnOnce() -> T) -> (T, Vec<String>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        sys::print_to_hook();
    });
    SAID.set(Some(Vec::new()));
    let result = call();
    (result, SAID.take().unwrap_or_default())
}

/// Receives one message of libbpf. It may contain names of the object, which need not be UTF-8.
pub(super) fn hook(is_warning: bool, message: &[u8]) {
    let message = String::from_utf8_lossy(message);
    let message = message.trim_end();
    let message = message.strip_prefix("libbpf: ").unwrap_or(message);
    if !is_warning {
        tracing::trace!(target: "libbpf", "{message}");
        return;
    }
    tracing::debug!(target: "libbpf", "{message}");
    SAID.with_borrow_mut(|said| {
        if let Some(said) = said.as_mut().filter(|said| said.len() < MAX_LINES) {
            said.push(message.to_owned());
        }
    });
}
