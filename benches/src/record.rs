//! The records that a bench writes for the summary: one line of JSON per figure, in
//! `target/bench/BENCH.json`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// One figure of a run of a bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The case, a slash, and the subject, as in `map/read/native`. Figures of one case are comparable.
    pub name: String,
    /// The figure, in `unit`.
    pub value: f64,
    /// The unit of `value`: `ns`, `ms`, `records/s`, `bytes`.
    pub unit: String,
}

impl Record {
    /// Creates a record from a figure with its name and unit.
    pub fn new(name: impl Into<String>, value: f64, unit: &str) -> Record {
        Record { name: name.into(), value, unit: unit.to_owned() }
    }

    /// Splits the name into the case and the subject.
    pub fn parts(&self) -> (&str, &str) {
        self.name.rsplit_once('/').unwrap_or(("", &self.name))
    }
}

/// Returns whether this run measures (`cargo bench`); a test runs the bench once without measuring.
pub fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Replaces the records of an earlier run of a bench. A test writes nothing.
///
/// # Errors
/// If the file cannot be written.
pub fn leave(bench: &str, records: &[Record]) -> Result<()> {
    if is_measured() { write(&folder()?, bench, records) } else { Ok(()) }
}

/// Returns the records of the last run of each bench, by the name of the bench.
///
/// # Errors
/// If a file cannot be read, or holds anything else.
pub fn all() -> Result<Vec<(String, Vec<Record>)>> {
    read(&folder()?)
}

/// Returns `bench` in the target folder, which is three levels above the bench.
fn folder() -> Result<PathBuf> {
    let bench = std::env::current_exe()?;
    let target = bench.ancestors().nth(3).context("a bench lies below the target folder")?;
    Ok(target.join("bench"))
}

fn write(folder: &Path, bench: &str, records: &[Record]) -> Result<()> {
    let lines = records.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
    let file = folder.join(bench).with_extension("json");
    fs::create_dir_all(folder)?;
    fs::write(&file, lines.join("\n") + "\n").with_context(|| format!("cannot write {}", file.display()))
}

fn read(folder: &Path) -> Result<Vec<(String, Vec<Record>)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read {}", folder.display()))?,
    };
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    files.into_iter().map(|file| of_file(&file)).collect()
}

/// Returns the name of a file's bench, and the records in the file.
///
/// # Errors
/// If it cannot be read, or holds anything else.
pub fn of_file(file: &Path) -> Result<(String, Vec<Record>)> {
    let bench = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let said = || format!("{} holds no figures of a bench", file.display());
    let text = fs::read_to_string(file).with_context(said)?;
    let records = text.lines().map(serde_json::from_str).collect::<Result<_, _>>().with_context(said)?;
    Ok((bench, records))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_bench_are_read_and_replaced_by_its_next_run() {
        let folder = tempfile::tempdir().unwrap();
        let figures = folder.path().join("bench");
        assert_eq!(read(&figures).unwrap(), []);
        let [one, other] = [210.5, 300.0].map(|value| Record::new("map/read/native", value, "ns"));
        write(&figures, "map_read", &[one.clone(), other.clone()]).unwrap();
        assert_eq!(read(&figures).unwrap(), [("map_read".to_owned(), vec![one, other.clone()])]);
        write(&figures, "map_read", std::slice::from_ref(&other)).unwrap();
        assert_eq!(read(&figures).unwrap(), [("map_read".to_owned(), vec![other])]);
        fs::write(figures.join("perf_read.json"), "{}\n").unwrap();
        let error = format!("{:#}", read(&figures).unwrap_err());
        assert!(error.contains("perf_read.json holds no figures"), "{error}");
    }

    #[test]
    fn a_name_is_a_case_and_who_did_it() {
        assert_eq!(Record::new("map/read/native", 1.0, "ns").parts(), ("map/read", "native"));
        assert_eq!(Record::new("native", 1.0, "ns").parts(), ("", "native"));
    }
}
