//! A plugin's output to standard output and standard error: escaped, formatted, counted in its final form,
//! and written at once.
//!
//! ```text
//! prints, histograms  -> visible -> form (plain, named, JSON) -> counted -> standard output
//! messages, WASI text -> visible -> one line after the name   -> counted -> standard error
//! ```
//!
//! Output that is lost is not formatted, and incomplete lines are bounded. Not here: the consequences of a
//! lost stream for the plugin, and what is recorded (`output`).

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Serialize;

use super::bindings::kernelscript::host::console::Value;
use super::histogram::Histogram;
use super::histograms::Histograms;
use super::table::{self, RowObject, Table};
use super::view::{ShownTable, View};
use crate::host_bytes::{Charge, HostBytes};
use crate::text::{self, one_line, visible};

/// Format of a plugin's standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Text as printed, without a prefix.
    Plain,
    /// Each line preceded by the plugin's name.
    Named,
    /// Each line as a JSON object: `time`, `plugin` and `line`, `histogram`, or `table` and `row`; on standard
    /// error `warning`, `error` or `stderr`.
    Json,
}

/// Kind of a line on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Said {
    /// A message of the host about a plugin that continues.
    Warning,
    /// The reason why a plugin did not start or has ended.
    Error,
    /// Text that the plugin itself wrote.
    Stderr,
}

impl Said {
    fn key(self) -> &'static str {
        match self {
            Said::Warning => "warning",
            Said::Error => "error",
            Said::Stderr => "stderr",
        }
    }
}

/// Formats a line of standard error as JSON: `{"time": .., "plugin": .., "warning": ..}`, with its newline.
pub fn said_as_json(plugin: &str, said: Said, text: &str) -> String {
    let object = serde_json::json!({ "time": now(), "plugin": plugin, said.key(): text });
    format!("{object}\n")
}

/// Upper limit of a line in bytes; longer lines are split. The lines of `console.print` never exceed it.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Moves the cursor of a terminal to its first line, and clears what follows. Source: ECMA-48, CUP and ED.
const CLEAR: &[u8] = b"\x1b[H\x1b[J";

/// Formatted lines are written when they reach this number of bytes.
const AT_ONCE: usize = 64 << 10;

/// The two output streams of a plugin.
pub(super) struct Streams {
    name: String,
    form: Form,
    /// Whether control characters reach standard output unescaped.
    raw: bool,
    /// Whether a new picture replaces the one before.
    redraws: bool,
    stdout: Box<dyn Write + Send>,
    stderr: Box<dyn Write + Send>,
    /// Takes tables and histograms.
    view: Option<Arc<dyn View>>,
    /// The incomplete last line of standard output; in plain form, the incomplete last UTF-8 character.
    begun: Begun,
    /// The incomplete last line of standard error.
    begun_error: Begun,
    written: Written,
}

/// Destinations and format of a plugin's output.
pub(super) struct StreamOptions {
    pub(super) name: String,
    pub(super) form: Form,
    pub(super) raw: bool,
    /// Whether standard output is a terminal of this plugin alone.
    pub(super) redraws: bool,
    pub(super) stdout: Box<dyn Write + Send>,
    pub(super) stderr: Box<dyn Write + Send>,
    /// Takes tables and histograms; none if they are written as text.
    pub(super) view: Option<Arc<dyn View>>,
    /// Limit of the output in bytes per second.
    pub(super) limit: u64,
}

#[derive(Serialize)]
struct Printed<'a> {
    time: &'a str,
    plugin: &'a str,
    line: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    values: &'a [serde_json::Value],
}

#[derive(Serialize)]
struct HistogramLine<'a> {
    time: &'a str,
    plugin: &'a str,
    histogram: &'a Histogram,
}

#[derive(Serialize)]
struct RowLine<'a> {
    time: &'a str,
    plugin: &'a str,
    #[serde(flatten)]
    row: RowObject<'a>,
}

impl Streams {
    /// Starts with no output.
    pub(super) fn new(options: StreamOptions, host_bytes: &HostBytes) -> Streams {
        let StreamOptions { name, form, raw, redraws, stdout, stderr, view, limit } = options;
        let (begun, begun_error) = (Begun::new(host_bytes), Begun::new(host_bytes));
        let written = Written::new(limit);
        Streams { name, form, raw, redraws, stdout, stderr, view, begun, begun_error, written }
    }

    /// Returns the plugin's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the values of a line are written beside it.
    pub(super) fn shows_values(&self) -> bool {
        self.form == Form::Json
    }

    /// Returns the limit of the output in bytes per second.
    pub(super) fn limit(&self) -> u64 {
        self.written.limit
    }

    /// Writes text that the plugin printed, as far as the rate limit allows.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn print(&mut self, bytes: &[u8]) -> io::Result<()> {
        if !self.written.has_room() {
            self.begun.clear();
            return Ok(());
        }
        if self.form != Form::Plain {
            return self.print_lines(bytes);
        }
        if self.raw {
            return self.put_lines(bytes);
        }
        let joined = if self.begun.bytes.is_empty() {
            Cow::Borrowed(bytes)
        } else {
            Cow::Owned([&std::mem::take(&mut self.begun.bytes), bytes].concat())
        };
        let (whole, begun) = joined.split_at(joined.len() - unfinished(&joined));
        self.begun.bytes.extend_from_slice(begun);
        self.put_lines(&display(whole))
    }

    /// Writes a line that was formatted from values: with JSON one object has both, whatever line feeds the values have.
    /// What does not end with a line is written as text alone.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn print_values(&mut self, line: &[u8], values: &[Value]) -> io::Result<()> {
        let whole = line.strip_suffix(b"\n").filter(|_| self.shows_values() && self.begun.bytes.is_empty());
        let Some(whole) = whole.filter(|_| !values.is_empty()) else { return self.print(line) };
        if !self.written.has_room() {
            return Ok(());
        }
        let values: Vec<serde_json::Value> = values.iter().map(table::json).collect();
        let line = if self.raw { Cow::Borrowed(whole) } else { display(whole) };
        let mut object = Vec::new();
        let printed = Printed {
            time: &now(),
            plugin: &self.name,
            line: &String::from_utf8_lossy(&line),
            values: &values,
        };
        serde_json::to_writer(&mut object, &printed)?;
        object.push(b'\n');
        self.put(&object)
    }

    /// Writes a histogram, as far as the rate limit allows.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn print_histogram(&mut self, histogram: &Histogram) -> io::Result<()> {
        if !self.written.has_room() {
            return Ok(());
        }
        if self.view.is_some() {
            self.show(ShownTable::of_histogram(histogram));
            return Ok(());
        }
        if self.form != Form::Json {
            return self.print(histogram.to_string().as_bytes());
        }
        let mut line = serde_json::to_vec(&HistogramLine { time: &now(), plugin: &self.name, histogram })?;
        line.push(b'\n');
        self.put(&line)
    }

    /// Writes and removes histograms, as far as the rate limit allows.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn print_histograms(&mut self, histograms: &mut Histograms) -> io::Result<()> {
        if self.view.is_some() {
            self.show(ShownTable::of_histograms(histograms));
            return Ok(());
        }
        let others = histograms.others();
        histograms.take().iter().try_for_each(|histogram| self.print_histogram(histogram))?;
        self.print_rest(others)
    }

    /// Shows a table if the rate limit allows it.
    fn show(&mut self, table: ShownTable) {
        if let Some(view) = &self.view
            && self.written.take(table.plain.len())
        {
            view.show(table);
        }
    }

    /// Writes a table, as far as the rate limit allows.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn print_table(&mut self, table: &Table) -> io::Result<()> {
        if !self.written.has_room() {
            return Ok(());
        }
        if self.view.is_some() {
            self.show(ShownTable::of_table(table));
            return Ok(());
        }
        if self.form != Form::Json {
            return self.print(table.to_string().as_bytes());
        }
        let time = now();
        let mut lines = Vec::new();
        for row in table.objects() {
            serde_json::to_writer(&mut lines, &RowLine { time: &time, plugin: &self.name, row })?;
            lines.push(b'\n');
        }
        self.put_lines(&lines)
    }

    /// Writes how many others there are than those that were written; nothing with JSON.
    ///
    /// # Errors
    /// Those of standard output.
    fn print_rest(&mut self, others: usize) -> io::Result<()> {
        if others == 0 || self.form == Form::Json {
            return Ok(());
        }
        self.print(table::rest(others).as_bytes())
    }

    /// Clears the terminal; nothing if standard output is none.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        if self.redraws && self.view.is_none() && self.written.has_room() { self.put(CLEAR) } else { Ok(()) }
    }

    /// Writes bytes; above the rate limit only the whole lines at their start that still fit.
    fn put_lines(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = self.written.room();
        if bytes.len() as u64 <= room {
            return self.put(bytes);
        }
        let fitting = bytes.get(..usize::try_from(room).unwrap_or(usize::MAX)).unwrap_or(bytes);
        let end = fitting.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        self.put(&bytes[..end])?;
        self.written.lose();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written.take(bytes.len()) { write_now(&mut self.stdout, bytes) } else { Ok(()) }
    }

    fn print_lines(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Streams { name, form, raw, stdout, begun, written, .. } = self;
        let time = now();
        let mut formed = Vec::new();
        begun.split(bytes, |line| {
            let before = formed.len();
            let line = if *raw { Cow::Borrowed(line) } else { display(line) };
            form_line(*form, name, &time, &line, &mut formed)?;
            if !written.take(formed.len() - before) {
                formed.truncate(before);
                return Ok(false);
            }
            // Write whole lines in one piece, so that those of several plugins do not mix.
            if formed.len() >= AT_ONCE {
                write_now(stdout, &formed)?;
                formed.clear();
            }
            Ok(true)
        })?;
        if formed.is_empty() { Ok(()) } else { write_now(stdout, &formed) }
    }

    /// Returns whether more may be written in this second. If not, the caller need not produce output.
    pub(super) fn has_room(&mut self) -> bool {
        self.written.has_room()
    }

    /// Returns true once after output was lost by the rate limit, for a notice.
    pub(super) fn notice(&mut self) -> bool {
        self.written.is_lost && !std::mem::replace(&mut self.written.is_reported, true)
    }

    /// Formats a message as one line of standard error, after the plugin's name.
    pub(super) fn line(&self, message: &str) -> String {
        self.line_of(Said::Warning, message)
    }

    /// Formats a message of a kind as [`Streams::line`].
    pub(super) fn line_of(&self, said: Said, message: &str) -> String {
        match self.form {
            Form::Json => said_as_json(&self.name, said, &one_line(message)),
            Form::Plain | Form::Named => format!("{}: {}\n", self.name, one_line(message)),
        }
    }

    /// Formats several lines of text of the host for standard error. Where the plugin is one of several, each
    /// line follows the plugin's name.
    pub(super) fn block(&self, text: &str) -> String {
        match self.form {
            Form::Plain => text::lines(text),
            Form::Json => said_as_json(&self.name, Said::Warning, text::lines(text).trim_end()),
            Form::Named => text
                .lines()
                .map(|line| format!("{}: {}\n", self.name, visible(line, text::MOST_BYTES)))
                .collect(),
        }
    }

    /// Formats recorded lines of standard error. Lines that do not begin with the plugin's name, such as those of
    /// a usage text, are indented: a recording may have been changed, and must not speak for others.
    pub(super) fn replayed(&self, text: &str) -> String {
        let own = format!("{}: ", self.name);
        let line = |line: &str| {
            let indent = if line.starts_with(&own) || line.starts_with("  ") { "" } else { "  " };
            format!("{indent}{}\n", visible(line, text::MOST_BYTES))
        };
        text.lines().map(line).collect()
    }

    /// Counts bytes for the rate limit and returns true, or returns false if they exceed it.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        self.written.take(bytes)
    }

    /// Writes lines to standard error, at once.
    pub(super) fn write_error(&mut self, lines: &str) {
        // A failure cannot be reported anywhere.
        let _ = write_now(&mut self.stderr, lines.as_bytes());
    }

    /// Writes text that the plugin itself wrote to standard error: each line after its name, as far as the
    /// rate limit allows.
    pub(super) fn write_error_stream(&mut self, bytes: &[u8]) {
        let Streams { name, form, stderr, begun_error, written, .. } = self;
        // A failure cannot be reported anywhere.
        let _ = begun_error.split(bytes, |line| {
            let display = display(line);
            let line = match form {
                Form::Json => {
                    said_as_json(name, Said::Stderr, &String::from_utf8_lossy(&display)).into_bytes()
                }
                Form::Plain | Form::Named => named(name, &display),
            };
            let fits = written.take(line.len());
            if fits {
                write_now(stderr, &line)?;
            }
            Ok(fits)
        });
    }

    /// Writes incomplete lines at the end of the plugin.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if !self.begun_error.bytes.is_empty() {
            self.write_error_stream(b"\n");
        }
        match self.form {
            _ if self.begun.bytes.is_empty() => Ok(()),
            Form::Plain => {
                let begun = std::mem::take(&mut self.begun.bytes);
                self.put(&display(&begun))
            }
            Form::Named | Form::Json => self.print_lines(b"\n"),
        }
    }
}

fn write_now(to: &mut Box<dyn Write + Send>, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).and_then(|()| to.flush())
}

fn now() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// Appends a line in its format.
fn form_line(form: Form, plugin: &str, time: &str, line: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match form {
        Form::Json => append_object(plugin, time, line, &[], out)?,
        Form::Named | Form::Plain => out.extend_from_slice(&named(plugin, line)),
    }
    Ok(())
}

/// Appends a line as an object, with the values that it was formatted from.
fn append_object(
    plugin: &str,
    time: &str,
    line: &[u8],
    values: &[serde_json::Value],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let line = &String::from_utf8_lossy(line);
    serde_json::to_writer(&mut *out, &Printed { time, plugin, line, values })?;
    out.push(b'\n');
    Ok(())
}

fn named(plugin: &str, line: &[u8]) -> Vec<u8> {
    [plugin.as_bytes(), b": ", line, b"\n"].concat()
}

/// Escapes everything except line feeds and tabs that is not printable, including invalid UTF-8, which some
/// terminals interpret as control characters.
pub(super) fn display(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')) {
        return Cow::Borrowed(bytes);
    }
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for part in chunk.valid().split_inclusive(['\n', '\t']) {
            let text = part.trim_end_matches(['\n', '\t']);
            out.push_str(&visible(text, usize::MAX));
            out.push_str(&part[text.len()..]);
        }
        out.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    Cow::Owned(out.into_bytes())
}

/// Returns the number of bytes at the end that are the start of an incomplete UTF-8 character.
fn unfinished(bytes: &[u8]) -> usize {
    let last = bytes.iter().rev().take(3).enumerate();
    for (trailing, byte) in last {
        let whole = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => return 0,
        };
        return if trailing + 1 < whole { trailing + 1 } else { 0 };
    }
    0
}

/// The start of an incomplete line.
struct Begun {
    bytes: Vec<u8>,
    charge: Charge,
}

impl Begun {
    fn new(host_bytes: &HostBytes) -> Begun {
        Begun { bytes: Vec::new(), charge: host_bytes.start() }
    }

    /// Calls `line` for every line that ends within these bytes, without its newline, and keeps the rest. If
    /// the rest becomes too long, or the plugin's memory in the host is exhausted, it counts as a line, too.
    /// If `line` returns false, the remaining bytes are dropped.
    fn split(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            if self.bytes.is_empty() && ends {
                if !line(text)? {
                    return Ok(());
                }
                continue;
            }
            for piece in text.chunks(MAX_LINE_BYTES) {
                self.bytes.extend_from_slice(piece);
                let too_long = self.bytes.len() >= MAX_LINE_BYTES;
                if (too_long || self.charge.set(self.bytes.len() as u64).is_err()) && !self.give(&mut line)? {
                    return Ok(());
                }
            }
            if ends && !self.give(&mut line)? {
                return Ok(());
            }
        }
        Ok(())
    }

    fn give(&mut self, line: &mut impl FnMut(&[u8]) -> io::Result<bool>) -> io::Result<bool> {
        line(&self.clear())
    }

    /// Empties the buffer and returns its content.
    fn clear(&mut self) -> Vec<u8> {
        self.charge.shrink(u64::MAX);
        std::mem::take(&mut self.bytes)
    }
}

/// Number of bytes written in the current second.
struct Written {
    limit: u64,
    since: Option<Instant>,
    bytes: u64,
    /// Whether output exceeded the limit in this second.
    is_full: bool,
    /// Whether any output was lost so far.
    is_lost: bool,
    /// Whether the loss was reported.
    is_reported: bool,
}

impl Written {
    fn new(limit: u64) -> Written {
        Written { limit, since: None, bytes: 0, is_full: false, is_lost: false, is_reported: false }
    }

    fn look(&mut self) {
        let now = Instant::now();
        if self.since.is_none_or(|since| now - since >= Duration::from_secs(1)) {
            (self.since, self.bytes, self.is_full) = (Some(now), 0, false);
        }
    }

    fn has_room(&mut self) -> bool {
        self.look();
        !self.is_full
    }

    /// Returns the number of bytes that may still be written in this second.
    fn room(&mut self) -> u64 {
        self.look();
        self.limit.saturating_sub(self.bytes)
    }

    /// Counts bytes and returns true, or records a loss and returns false if they exceed the limit.
    fn take(&mut self, bytes: usize) -> bool {
        self.look();
        let after = self.bytes.saturating_add(bytes as u64);
        let fits = after <= self.limit;
        if fits {
            self.bytes = after;
        } else {
            self.lose();
        }
        fits
    }

    /// Records that output was lost.
    fn lose(&mut self) {
        (self.is_full, self.is_lost) = (true, true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl Sink {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no writer panics").clone()).expect("text")
        }
    }

    impl Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no writer panics").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn streams(form: Form, raw: bool, limit: u64, host_bytes: u64) -> (Streams, Sink, Sink) {
        let (out, error) = (Sink::default(), Sink::default());
        let (stdout, stderr) = (Box::new(out.clone()), Box::new(error.clone()));
        let (name, redraws, view) = ("p.wasm".into(), false, None);
        let options = StreamOptions { name, form, raw, redraws, stdout, stderr, view, limit };
        (Streams::new(options, &HostBytes::new(host_bytes)), out, error)
    }

    fn printed(form: Form, raw: bool, prints: &[&[u8]]) -> String {
        let (mut streams, out, _) = streams(form, raw, u64::MAX, u64::MAX);
        prints.iter().for_each(|print| streams.print(print).expect("a vector takes all"));
        streams.finish().expect("a vector takes all");
        out.text()
    }

    #[test]
    fn every_line_is_named_whole() {
        let named = printed(Form::Named, false, &[b"one\ntwo\n", b"thr", b"ee\n", b"four"]);
        assert_eq!(named, "p.wasm: one\np.wasm: two\np.wasm: three\np.wasm: four\n");
    }

    #[test]
    fn every_line_is_an_object() {
        let text = printed(Form::Json, false, &[b"a \"b\"\n\n"]);
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(objects.len(), 2);
        assert_eq!((&objects[0]["plugin"], &objects[0]["line"]), (&"p.wasm".into(), &"a \"b\"".into()));
        assert_eq!(objects[1]["line"], "");
        let time = objects[0]["time"].as_str().expect("text");
        assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
    }

    #[test]
    fn values_are_beside_their_line_if_it_is_whole() {
        let (mut streams, out, _) = streams(Form::Json, false, u64::MAX, u64::MAX);
        let values = [Value::Unsigned64(u64::MAX), Value::Text(b"a\x1b".to_vec()), Value::Boolean(true)];
        for line in [&b"line\n"[..], b"one\ntwo\n", b"begun", b" and ended\n"] {
            streams.print_values(line, &values).expect("a vector takes all");
        }
        let text = out.text();
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(objects[0]["values"], serde_json::json!([u64::MAX, "a\u{1b}", true]));
        assert_eq!(objects[1]["values"], objects[0]["values"]);
        let lines: Vec<_> = objects.iter().map(|object| object["line"].as_str().expect("text")).collect();
        assert_eq!(lines, ["line", "one\ntwo", "begun and ended"]);
        assert_eq!(objects[2].get("values"), None, "{text}");
    }

    #[test]
    fn messages_are_objects_where_prints_are() {
        let (mut streams, _, error) = streams(Form::Json, false, u64::MAX, u64::MAX);
        let line = streams.line("it is full\n  do: make \"it\" larger");
        streams.write_error(&line);
        streams.write_error_stream(b"by itself\n");
        let text = error.text();
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let [warning, own] = &objects[..] else { panic!("{text}") };
        assert_eq!(
            (&warning["plugin"], &warning["warning"]),
            (&"p.wasm".into(), &"it is full; do: make \"it\" larger".into())
        );
        assert_eq!(own["stderr"], "by itself");
    }

    #[test]
    fn control_characters_are_seen_unless_they_are_wanted() {
        let print: &[u8] = b"a\tb\x1b[2J\r\xff\xc2\x9b\n";
        assert_eq!(printed(Form::Plain, false, &[print]), "a\tb\\u{1b}[2J\\r\\xff\\u{9b}\n");
        assert_eq!(printed(Form::Named, false, &[print]), "p.wasm: a\tb\\u{1b}[2J\\r\\xff\\u{9b}\n");
        assert_eq!(printed(Form::Plain, true, &[b"a\x1b[2J\n"]), "a\x1b[2J\n");
        assert_eq!(printed(Form::Named, true, &[b"a\x1b[2J\n"]), "p.wasm: a\x1b[2J\n");
        // A character split across two writes, and one that stays incomplete.
        assert_eq!(
            printed(Form::Plain, false, &["ä".as_bytes()[..1].as_ref(), "ä".as_bytes()[1..].as_ref()]),
            "ä"
        );
        assert_eq!(printed(Form::Plain, false, &[b"x\xe2\x82", b"y"]), "x\\xe2\\x82y");
        assert_eq!(printed(Form::Plain, false, &[b"x\xe2\x82"]), "x\\xe2\\x82");
    }

    #[test]
    fn what_was_formed_is_counted() {
        // Lines of 30 bytes, including name and newline.
        let (mut streams, out, _) = streams(Form::Named, false, 95, u64::MAX);
        streams.print(&b"0123456789012345678901\n".repeat(100)).expect("a vector takes all");
        assert_eq!(out.text().len(), 93);
        assert!(streams.notice() && !streams.notice() && !streams.has_room());
        let (mut streams, out, _) = super::tests::streams(Form::Plain, false, 10, u64::MAX);
        streams.print(b"one\ntwo\nthree\n").expect("a vector takes all");
        assert_eq!(out.text(), "one\ntwo\n");
        assert!(streams.notice() && !streams.has_room());
    }

    #[test]
    fn standard_error_is_named_and_counted() {
        let (mut streams, _, error) = streams(Form::Plain, false, 60, u64::MAX);
        streams.write_error_stream(b"ks-host: for");
        streams.write_error_stream(b"ged\n\x1b[2Jx\n");
        assert_eq!(error.text(), "p.wasm: ks-host: forged\np.wasm: \\u{1b}[2Jx\n");
        streams.write_error_stream(&b"y".repeat(100));
        streams.finish().expect("nothing was printed");
        assert_eq!(error.text().lines().count(), 2);
        assert!(streams.notice());
    }

    #[test]
    fn a_line_without_end_comes_in_pieces() {
        let text = printed(Form::Named, false, &[&b"x".repeat(MAX_LINE_BYTES + 10)]);
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [8 + MAX_LINE_BYTES, 8 + 10]);
        let (mut streams, out, _) = streams(Form::Named, false, u64::MAX, 100);
        streams.print(&b"x".repeat(60)).expect("a vector takes all");
        assert_eq!(out.text(), "");
        streams.print(&b"x".repeat(60)).expect("a vector takes all");
        assert_eq!(out.text().len(), 8 + 120 + 1);
    }
}
