//! What a bench leaves for the summary: one line of JSON for each figure, in `target/bench/BENCH.json`.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// A figure of one run of a bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// What was measured: the case, a slash, and who did it, as in `map/read/native`. Figures of one case can be divided.
    pub name: String,
    /// How much, in `unit`.
    pub value: f64,
    /// Of `value`: `ns`, `ms`, `records/s`, `bytes`.
    pub unit: String,
}

impl Record {
    /// A figure with its name and unit.
    pub fn new(name: impl Into<String>, value: f64, unit: &str) -> Record {
        Record { name: name.into(), value, unit: unit.to_owned() }
    }

    /// What was measured, and who did it.
    pub fn parts(&self) -> (&str, &str) {
        self.name.rsplit_once('/').unwrap_or(("", &self.name))
    }
}

/// Whether this run measures (`cargo bench`), or a test runs the bench once.
pub fn is_measured() -> bool {
    std::env::args().any(|argument| argument == "--bench")
}

/// Replaces what an earlier run of a bench left. A test leaves nothing.
///
/// # Errors
/// If the file cannot be written.
pub fn leave(bench: &str, records: &[Record]) -> Result<()> {
    if is_measured() { write(&folder()?, bench, records) } else { Ok(()) }
}

/// The figures that the last run of each bench left, by the name of the bench.
///
/// # Errors
/// If a file cannot be read, or holds anything else.
pub fn all() -> Result<Vec<(String, Vec<Record>)>> {
    read(&folder()?)
}

/// `bench` in the target folder, three above the bench.
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

/// The figures in one file, and the name of their bench.
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
    fn what_a_bench_leaves_is_read_again_and_replaced_by_its_next_run() {
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
