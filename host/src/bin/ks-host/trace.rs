//! `-v`: writes the library's `tracing` events to standard error.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use ks_host::{Writer, text};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Installs a subscriber that writes events up to this level; does nothing without `-v`.
pub(crate) fn start(verbose: u8) {
    let level = match verbose {
        0 => return,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    // Fails only if a subscriber was set before; nothing else sets one.
    let _ = tracing::subscriber::set_global_default(Stderr { level, last_span: AtomicU64::new(0) });
}

/// A subscriber that writes one line for each event; spans are not shown.
struct Stderr {
    level: Level,
    last_span: AtomicU64,
}

impl Subscriber for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // The engine's own events help only its developers.
        let ours =
            ["ks_host", "libbpf", "verifier"].iter().any(|target| metadata.target().starts_with(target));
        ours && *metadata.level() <= self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(self.last_span.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        let prefix = format!("[{}]", event.metadata().target());
        let text = format!("{prefix}{}\n", text::message(&line.0, &format!("{prefix} ")));
        // Plugins' threads come here, too. A failure cannot be reported anywhere.
        let _ = Writer::stderr().write_all(text.as_bytes());
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The text of an event: the message, then `name=value` for each other field.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
