//! What libbpf prints. Its print hook is one for the process; what matters is said on the thread that called it.

use std::cell::RefCell;
use std::sync::Once;

use super::sys;

thread_local! {
    /// What libbpf said on this thread since [`collect`] began; `None` outside of it.
    static SAID: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Most lines that are kept of one call. Guards against an object that makes libbpf complain without end.
const MAX_LINES: usize = 256;

/// Runs `call` and returns with its result what libbpf said meanwhile. libbpf writes nothing to standard error from
/// the first call on.
pub(super) fn collect<T>(call: impl FnOnce() -> T) -> (T, Vec<String>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        sys::print_to_hook();
    });
    SAID.set(Some(Vec::new()));
    let result = call();
    (result, SAID.take().unwrap_or_default())
}

/// Takes one message of libbpf. Names of the object are in it, with whatever bytes they have.
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
