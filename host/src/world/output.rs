//! A plugin's output: the methods that write to its standard output and standard error.
//!
//! | method            | text                                              | stream | recorded | counted |
//! |-------------------|---------------------------------------------------|--------|----------|---------|
//! | `print`           | printed by the plugin                             | stdout | no       | yes     |
//! | `print_values`    | line of values of the plugin                      | stdout | no       | yes     |
//! | `print_histogram` | histogram of the plugin                           | stdout | no       | yes     |
//! | `print_histograms`| histograms of the plugin                          | stdout | no       | yes     |
//! | `print_table`     | table of the plugin                               | stdout | no       | yes     |
//! | `print_from_host` | lines of the kernel half, lists of events, usage  | stdout | yes      | yes     |
//! | `plugin_warn`     | warning of the plugin                             | stderr | no       | yes     |
//! | `plugin_fails`    | error of the plugin                               | stderr | no       | yes     |
//! | `plugin_error`    | written by the plugin to its standard error       | stderr | no       | yes     |
//! | `warn`            | warning of the host about results of calls        | stderr | yes      | yes     |
//! | `warn_usage`      | wrong arguments of the plugin, and its usage      | stderr | yes      | yes     |
//! | `report`          | message of the host that must not be lost         | stderr | yes      | no      |
//! | `replay`          | recorded text                                     | both   | no       | stdout  |
//!
//! - `plugin_warn_once` and `warn_once` write each pair of a key and a message once.
//! - Recorded text has a line of its own in the recording. Other text is an argument of a recorded call, or
//!   was recorded before.
//! - Counted text counts for the limit `print_bytes_per_second`. Text above the limit is lost, which is
//!   reported once. Lost warnings are not recorded.
//! - A failure of standard output asks the plugin to stop. One of standard error cannot be reported anywhere.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;

use super::bindings::kernelscript::host::console::Value;
use super::histogram::Histogram;
use super::histograms::Histograms;
use super::recording::Calls;
use super::streams::{Said, StreamOptions, Streams};
use super::table::Table;
use crate::host_bytes::HostBytes;
use crate::plugin::{StopHandle, StopReason};
use crate::policy::Limit;
use crate::record::{Recording, Stream};

/// Upper limit of different `warn-once` messages that are remembered; later ones are dropped. Guards against
/// a plugin that warns about every value it reads.
const MAX_WARNINGS: usize = 4096;

/// The output of one plugin, with the consequences of a failed stream.
pub(super) struct Output {
    streams: Streams,
    /// The recording of the run; none if it is not recorded.
    recording: Option<Recording>,
    stop: StopHandle,
    /// Why standard output failed; none while it works.
    lost: Option<String>,
    /// Keys and digests of the `warn-once` messages; the messages themselves may be long.
    warned: BTreeSet<(u64, u64)>,
}

impl Output {
    /// Starts with no output.
    pub(super) fn new(
        options: StreamOptions,
        calls: &Calls,
        stop: StopHandle,
        host_bytes: &HostBytes,
    ) -> Output {
        let streams = Streams::new(options, host_bytes);
        let recording = if let Calls::Recorded(recording) = calls { Some(recording.clone()) } else { None };
        Output { streams, recording, stop, lost: None, warned: BTreeSet::new() }
    }

    /// Writes text that the plugin prints.
    pub(super) fn print(&mut self, text: &[u8]) {
        self.put(|streams| streams.print(text));
    }

    /// Writes a line that the plugin prints, formatted from these values.
    pub(super) fn print_values(&mut self, line: &[u8], values: &[Value]) {
        self.put(|streams| streams.print_values(line, values));
    }

    /// Writes a histogram.
    pub(super) fn print_histogram(&mut self, histogram: &Histogram) {
        self.put(|streams| streams.print_histogram(histogram));
    }

    /// Writes histograms, and removes them.
    pub(super) fn print_histograms(&mut self, histograms: &mut Histograms) {
        self.put(|streams| streams.print_histograms(histograms));
    }

    /// Writes a table.
    pub(super) fn print_table(&mut self, table: &Table) {
        self.put(|streams| streams.print_table(table));
    }

    /// Begins a new picture on a terminal.
    pub(super) fn redraw(&mut self) {
        self.put(Streams::redraw);
    }

    /// Writes text of the host to standard output, and records it.
    pub(super) fn print_from_host(&mut self, text: &[u8]) {
        self.record(Stream::Stdout, text);
        self.print(text);
    }

    /// Writes a line of the kernel half, formatted from these values, and records it.
    pub(super) fn print_values_from_host(&mut self, line: &[u8], values: &[Value]) {
        self.record(Stream::Stdout, line);
        self.print_values(line, values);
    }

    /// Writes a warning of the plugin as one line, after its name.
    pub(super) fn plugin_warn(&mut self, message: &str) {
        let line = self.streams.line(message);
        self.write_counted(&line, Origin::Plugin);
    }

    /// Writes what made the plugin fail as one line, after its name.
    pub(super) fn plugin_fails(&mut self, message: &str) {
        let line = self.streams.line_of(Said::Error, message);
        self.write_counted(&line, Origin::Plugin);
    }

    /// Writes a warning as [`Output::plugin_warn`], once for each pair of key and message.
    pub(super) fn plugin_warn_once(&mut self, key: u64, message: &str) {
        if self.is_first(key, message) {
            self.plugin_warn(message);
        }
    }

    /// Writes bytes that the plugin wrote to standard error: each line after its name.
    pub(super) fn plugin_error(&mut self, bytes: &[u8]) {
        self.streams.write_error_stream(bytes);
        self.report_loss();
    }

    /// Writes a message about the results of the plugin's calls as one line, after its name.
    pub(super) fn warn(&mut self, message: &str) {
        let line = self.streams.line(message);
        self.write_counted(&line, Origin::Host);
    }

    /// Writes a message as [`Output::warn`], once for each pair of key and message.
    pub(super) fn warn_once(&mut self, key: u64, message: &str) {
        if self.is_first(key, message) {
            self.warn(message);
        }
    }

    /// Writes what is wrong with the plugin's arguments, and its usage.
    pub(super) fn warn_usage(&mut self, text: &str) {
        let block = self.streams.block(text);
        self.write_counted(&block, Origin::Host);
    }

    /// Writes a message of the host as one line, after the plugin's name, also above the limit.
    pub(super) fn report(&mut self, message: &str) {
        let line = self.streams.line(message);
        self.record(Stream::Stderr, line.as_bytes());
        self.streams.write_error(&line);
    }

    /// Writes text that the host wrote in the recorded run.
    pub(super) fn replay(&mut self, stream: Stream, text: &[u8]) {
        match stream {
            Stream::Stdout => self.print(text),
            Stream::Stderr => {
                let lines = self.streams.replayed(&String::from_utf8_lossy(text));
                self.streams.write_error(&lines);
            }
        }
    }

    /// Whether the values of a line are written beside it.
    pub(super) fn shows_values(&self) -> bool {
        self.streams.shows_values()
    }

    /// Writes incomplete lines, at the end of the plugin.
    pub(super) fn finish(&mut self) {
        self.put(Streams::finish);
    }

    /// Returns whether more would be written now. If not, the caller need not produce output.
    pub(super) fn has_room(&mut self) -> bool {
        self.streams.has_room() && self.lost.is_none()
    }

    /// Describes why the last output was lost; none if none was.
    pub(super) fn lost(&self) -> Option<String> {
        let reason = self.lost.as_ref()?;
        Some(format!("{}: cannot write to standard output, and stopped: {reason}", self.streams.name()))
    }

    /// Performs a write to standard output. A closed pipe asks the plugin to stop, as SIGPIPE would end
    /// another program. Any other failure does so, too, and ends the output, because output with a gap is
    /// worse than none.
    fn put(&mut self, put: impl FnOnce(&mut Streams) -> io::Result<()>) {
        if self.lost.is_some() {
            return;
        }
        let write = self.stop.write();
        let written = put(&mut self.streams);
        drop(write);
        match written {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.stop.ask(StopReason::OutputClosed)
            }
            Err(error) => {
                self.lost = Some(error.to_string());
                self.stop.ask(StopReason::OutputLost);
            }
        }
        self.report_loss();
    }

    /// Writes lines to standard error if the limit allows it, and records those of the host.
    fn write_counted(&mut self, lines: &str, origin: Origin) {
        if self.streams.take(lines.len()) {
            if origin == Origin::Host {
                self.record(Stream::Stderr, lines.as_bytes());
            }
            self.streams.write_error(lines);
        }
        self.report_loss();
    }

    /// Reports once that the plugin exceeded the limit of its output.
    fn report_loss(&mut self) {
        if self.streams.notice() {
            let (limit, name) = (self.streams.limit(), Limit::PrintBytes.name());
            self.report(&format!(
                "it writes more than {limit} bytes in a second, and the rest is lost: --limit {name}=.."
            ));
        }
    }

    fn record(&self, stream: Stream, text: &[u8]) {
        if let Some(recording) = &self.recording {
            recording.text(stream, text);
        }
    }

    /// Returns true for the first warning of a pair, within the limit of remembered messages.
    fn is_first(&mut self, key: u64, message: &str) -> bool {
        let mut digest = DefaultHasher::new();
        message.hash(&mut digest);
        self.warned.len() < MAX_WARNINGS && self.warned.insert((key, digest.finish()))
    }
}

/// The author of a line on standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Plugin,
    Host,
}
