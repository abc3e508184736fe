//! Source files and ranges in them.
//!
//! In: file names and texts. Out: [`Span`]s that every later stage keeps, and lines and columns for messages.

use std::ops::Range;
use std::path::PathBuf;

/// The id of a file in its [`SourceMap`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(u32);

/// A range of bytes of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// The file that contains the range.
    pub file: FileId,
    /// Byte offset of the first byte.
    pub start: u32,
    /// Byte offset one past the last byte.
    pub end: u32,
}

impl Span {
    /// The span from the start of `self` to the end of `last`, which must be of the same file.
    pub fn to(self, last: Span) -> Span {
        debug_assert_eq!(self.file, last.file, "a span lies in one file");
        Span { end: last.end.max(self.end), ..self }
    }

    /// The empty span at the end of this one: where something is missing.
    pub fn after(self) -> Span {
        Span { start: self.end, ..self }
    }

    /// The bytes of the file that this span covers.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// One file's text, with its line starts.
#[derive(Debug, Clone)]
pub struct SourceFile {
    name: String,
    text: Vec<u8>,
    line_starts: Vec<u32>,
}

impl SourceFile {
    fn new(name: String, text: Vec<u8>) -> SourceFile {
        let mut line_starts = vec![0];
        for (at, byte) in text.iter().enumerate() {
            let ends_line = *byte == b'\n' || (*byte == b'\r' && text.get(at + 1) != Some(&b'\n'));
            if ends_line {
                line_starts.push(at as u32 + 1);
            }
        }
        SourceFile { name, text, line_starts }
    }

    /// The name as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text as bytes; it need not be UTF-8.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Line and column of a byte, both from 1; the column counts bytes.
    pub fn line_column(&self, offset: u32) -> (u32, u32) {
        let line = self.line_starts.partition_point(|start| *start <= offset);
        let start = self.line_starts.get(line.wrapping_sub(1)).copied().unwrap_or(0);
        (line as u32, offset - start + 1)
    }

    /// The text of a line (from 1) without its end; empty if there is no such line.
    pub fn line_text(&self, line: u32) -> &[u8] {
        let Some(start) = line.checked_sub(1).and_then(|index| self.line_starts.get(index as usize)) else {
            return &[];
        };
        let end = self.line_starts.get(line as usize).map_or(self.text.len(), |next| *next as usize);
        self.text[*start as usize..end].trim_ascii_end()
    }
}

/// All files of one compilation.
#[derive(Debug, Clone, Default)]
pub struct SourceMap {
    files: Vec<SourceFile>,
}

/// Reads the texts of modules and headers: from the disk, an editor's buffers, or memory.
pub trait Files: std::fmt::Debug {
    /// Returns the text of a file; none if it cannot be read. Paths are as written in the script, joined with
    /// `/` to the folder of the file that names them.
    fn read(&self, path: &str) -> Option<Vec<u8>>;
}

/// Files on disk, by their paths relative to a folder; if that is empty, relative to the current folder.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    /// The folder of the script; empty for the current folder.
    pub folder: PathBuf,
}

impl Files for Disk {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let path = self.folder.join(path);
        let small = std::fs::metadata(&path)
            .is_ok_and(|found| found.is_file() && found.len() <= MAX_FILE_BYTES as u64);
        // A file that cannot be read counts as missing: the diagnostic is at the line that names it.
        small.then(|| std::fs::read(path).ok()).flatten()
    }
}

/// No files: for a script without modules and headers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &str) -> Option<Vec<u8>> {
        None
    }
}

/// Maximum size of a file in bytes, so that a byte offset fits a [`Span`].
pub const MAX_FILE_BYTES: usize = 16 << 20;

impl SourceMap {
    /// Adds a file; `None` if it is longer than [`MAX_FILE_BYTES`].
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<Vec<u8>>) -> Option<FileId> {
        let text = text.into();
        if text.len() > MAX_FILE_BYTES {
            return None;
        }
        self.files.push(SourceFile::new(name.into(), text));
        Some(FileId(self.files.len() as u32 - 1))
    }

    /// All files, in the order in which they were read.
    pub fn files(&self) -> std::slice::Iter<'_, SourceFile> {
        self.files.iter()
    }

    /// Returns the file of an id.
    pub fn file(&self, id: FileId) -> &SourceFile {
        &self.files[id.0 as usize]
    }

    /// Returns file name, line and column of a span's start.
    pub fn position(&self, span: Span) -> (&str, u32, u32) {
        let file = self.file(span.file);
        let (line, column) = file.line_column(span.start);
        (file.name(), line, column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_line_end_counts_once() {
        let mut map = SourceMap::default();
        let id = map.add("t.ks", "a\nbc\r\nd\re").expect("short");
        let file = map.file(id);
        let lines: Vec<_> = [0, 2, 3, 6, 8].iter().map(|at| file.line_column(*at)).collect();
        assert_eq!(lines, [(1, 1), (2, 1), (2, 2), (3, 1), (4, 1)]);
        assert_eq!(file.line_text(2), b"bc");
        assert_eq!(file.line_text(9), b"");
    }
}
