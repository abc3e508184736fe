//! The report for a person when the host itself has a defect, and what they should send to its maintainers.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::Write as _;
use std::panic::{self, PanicHookInfo};

use ks_host::Writer;
use ks_host::text::one_line;

/// Replaces the panic message of the standard library, for all threads, by a text that says what to report.
pub(crate) fn report_panics() {
    panic::set_hook(Box::new(|info| {
        // The compiler reports its own panics as errors at the script.
        #[cfg(feature = "script")]
        if ks_compiler::defect::is_contained(info) {
            return;
        }
        // A failed write must not panic again, which would end all plugins. One that waits ends with the
        // plugin whose thread panicked.
        let _ = Writer::stderr().write_all(report_text(info).as_bytes());
    }));
}

/// Runs the closure; a panic, which the hook has reported, becomes the exit code of a host failure.
pub(crate) fn contain(run: impl FnOnce() -> u8 + panic::UnwindSafe) -> u8 {
    panic::catch_unwind(run).unwrap_or(crate::HOST_FAILURE)
}

fn report_text(info: &PanicHookInfo<'_>) -> String {
    let message = one_line(info.payload_as_str().unwrap_or("a panic without words"));
    let location = info.location().map_or_else(|| "an unknown place".into(), ToString::to_string);
    let thread = std::thread::current();
    let backtrace = Backtrace::capture();
    let frames = match backtrace.status() {
        BacktraceStatus::Captured => format!("{backtrace}"),
        _ => "  (RUST_BACKTRACE=1 shows who called it)\n".into(),
    };
    format!(
        "ks-host: a defect of ks-host at {location}, thread `{}`: {message}\n  \
         do: report these lines with the plugin file: ks-host {}, {}\n{frames}",
        one_line(thread.name().unwrap_or_default()),
        env!("CARGO_PKG_VERSION"),
        machine(),
    )
}

/// Kernel release and architecture, as far as they are known.
fn machine() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_panic_before_any_plugin_is_reported_as_a_host_failure() {
        let said = Arc::new(Mutex::new(String::new()));
        let heard = Arc::clone(&said);
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| heard.lock().unwrap().push_str(&report_text(info))));
        let code = contain(|| panic!("nothing {}", "works"));
        panic::set_hook(before);
        assert_eq!(code, crate::HOST_FAILURE);
        let said = said.lock().unwrap();
        for part in ["defect.rs:", ": nothing works\n  do: report", env!("CARGO_PKG_VERSION"), "Linux "] {
            assert!(said.contains(part), "{said}");
        }
    }
}
