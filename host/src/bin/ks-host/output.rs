//! What reaches standard output: a plugin's prints in their form, and what commands show.

use std::io::{self, Write};
use std::time::SystemTime;

use anyhow::Context;
use ks_host::world::{Histogram, HistogramSink};
use serde::Serialize;

/// In which form a plugin's prints reach standard output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Plain,
    /// Each line after the plugin's name.
    Named,
    /// Each line as a JSON object.
    Json,
}

impl Form {
    /// Standard output in this form, for the plugin of this name.
    pub(crate) fn writer(self, name: &str) -> Box<dyn Write + Send> {
        match self {
            Form::Plain => Box::new(io::stdout()),
            form => Box::new(Lines { form, name: name.into(), rest: Vec::new(), out: io::stdout() }),
        }
    }

    /// What takes the histograms of the plugin of this name; none if they are lines as its prints are.
    pub(crate) fn histograms(self, name: &str) -> Option<HistogramSink> {
        let name = name.to_owned();
        let object = move |histogram: &Histogram| {
            let mut line = serde_json::to_vec(&Counted { time: now(), plugin: &name, histogram })?;
            line.push(b'\n');
            io::stdout().write_all(&line)
        };
        (self == Form::Json).then(|| Box::new(object) as HistogramSink)
    }
}

/// Changes the form of whole lines.
struct Lines<W: Write> {
    form: Form,
    name: String,
    /// The begin of a line whose end has not come.
    rest: Vec<u8>,
    out: W,
}

#[derive(Serialize)]
struct Printed<'a> {
    time: String,
    plugin: &'a str,
    line: &'a str,
}

#[derive(Serialize)]
struct Counted<'a> {
    time: String,
    plugin: &'a str,
    histogram: &'a Histogram,
}

fn now() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

impl<W: Write> Lines<W> {
    fn formed(&self, line: &[u8]) -> io::Result<Vec<u8>> {
        let mut formed = match self.form {
            Form::Json => {
                let line = String::from_utf8_lossy(line);
                serde_json::to_vec(&Printed { time: now(), plugin: &self.name, line: &line })?
            }
            Form::Named | Form::Plain => [self.name.as_bytes(), b": ", line].concat(),
        };
        formed.push(b'\n');
        Ok(formed)
    }
}

impl<W: Write> Write for Lines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let mut formed = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            formed.extend(self.formed(&self.rest[..end])?);
            self.rest.drain(..=end);
        }
        // In one piece, so that lines of several plugins do not mix.
        self.out.write_all(&formed).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W: Write> Drop for Lines<W> {
    fn drop(&mut self) {
        if !self.rest.is_empty() {
            // The plugin has ended: nobody is left to be told.
            let _ = self.formed(&self.rest).and_then(|line| self.out.write_all(&line));
        }
    }
}

/// Writes what a command shows. A reader that has seen enough (`| head`) is no failure.
pub(crate) fn show(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write"),
        _ => Ok(()),
    }
}

/// Writes a value as JSON for tools.
pub(crate) fn show_json(value: &impl Serialize) -> anyhow::Result<()> {
    show(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// A plugin's own words cannot move the cursor or colour the terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { '\u{fffd}' } else { letter }).collect()
}

/// Rows with aligned columns, each after two spaces.
pub(crate) fn aligned(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or_default()).collect();
    let line = |row: &Vec<String>| -> String {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("  {cell:<width$}"));
        cells.collect::<String>().trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(form: Form, prints: &[&str]) -> String {
        let mut out = Vec::new();
        let mut lines = Lines { form, name: "p.wasm".into(), rest: Vec::new(), out: &mut out };
        prints.iter().for_each(|print| lines.write_all(print.as_bytes()).expect("a vector takes all"));
        drop(lines);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn every_line_is_named_whole() {
        let named = lines(Form::Named, &["one\ntwo\n", "thr", "ee\n", "four"]);
        assert_eq!(named, "p.wasm: one\np.wasm: two\np.wasm: three\np.wasm: four\n");
    }

    #[test]
    fn every_line_is_an_object() {
        let text = lines(Form::Json, &["a \"b\"\n\n"]);
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(objects.len(), 2);
        assert_eq!((&objects[0]["plugin"], &objects[0]["line"]), (&"p.wasm".into(), &"a \"b\"".into()));
        assert_eq!(objects[1]["line"], "");
        let time = objects[0]["time"].as_str().expect("text");
        assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
    }

    #[test]
    fn columns_are_aligned_and_control_characters_shown() {
        let rows = [vec!["a".into(), "bb".into()], vec!["long\x1b".into(), "c".into()]];
        assert_eq!(aligned(&rows), "  a      bb\n  long\u{fffd}  c\n");
    }
}
