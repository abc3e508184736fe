//! Conversion between the protocol's lines and columns and our byte offsets.

use lsp_types::{Position, Range};

use crate::source::Span;

/// The unit of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Encoding {
    /// Bytes of the UTF-8 text.
    Utf8,
    /// UTF-16 code units, the protocol's default.
    #[default]
    Utf16,
}

impl Encoding {
    fn len(self, character: char) -> u32 {
        match self {
            Encoding::Utf8 => character.len_utf8() as u32,
            Encoding::Utf16 => character.len_utf16() as u32,
        }
    }
}

/// The line starts of a text.
#[derive(Debug, Clone)]
pub struct Lines {
    starts: Vec<u32>,
    encoding: Encoding,
}

impl Lines {
    /// Finds the lines of a text; LF, CR and CRLF end one.
    pub fn of(text: &[u8], encoding: Encoding) -> Lines {
        let mut starts = vec![0];
        for (at, byte) in text.iter().enumerate() {
            if *byte == b'\n' || (*byte == b'\r' && text.get(at + 1) != Some(&b'\n')) {
                starts.push(at as u32 + 1);
            }
        }
        Lines { starts, encoding }
    }

    /// Returns the byte offset of a position. A position outside the text is moved to the nearest one inside:
    /// the end of a line, or the end of the text.
    pub fn offset(&self, text: &[u8], position: Position) -> u32 {
        let Some(start) = self.starts.get(position.line as usize).copied() else { return text.len() as u32 };
        let line = self.line(text, position.line as usize);
        let (mut bytes, mut column) = (0, 0);
        for chunk in line.utf8_chunks() {
            for character in chunk.valid().chars() {
                if column >= position.character {
                    return start + bytes;
                }
                column += self.encoding.len(character);
                bytes += character.len_utf8() as u32;
            }
            if column >= position.character {
                return start + bytes;
            }
            column += u32::from(!chunk.invalid().is_empty());
            bytes += chunk.invalid().len() as u32;
        }
        start + bytes
    }

    /// Returns the position of a byte.
    pub fn position(&self, text: &[u8], offset: u32) -> Position {
        let offset = offset.min(text.len() as u32);
        let line = self.starts.partition_point(|start| *start <= offset).saturating_sub(1);
        let start = self.starts.get(line).copied().unwrap_or(0);
        let before = text.get(start as usize..offset as usize).unwrap_or_default();
        let column = before.utf8_chunks().map(|chunk| {
            let valid: u32 = chunk.valid().chars().map(|character| self.encoding.len(character)).sum();
            valid + u32::from(!chunk.invalid().is_empty())
        });
        Position { line: line as u32, character: column.sum() }
    }

    /// Returns the positions of a span's start and end.
    pub fn range(&self, text: &[u8], span: Span) -> Range {
        Range { start: self.position(text, span.start), end: self.position(text, span.end) }
    }

    /// Returns a line without its line terminator.
    fn line<'t>(&self, text: &'t [u8], line: usize) -> &'t [u8] {
        let start = self.starts.get(line).map_or(text.len(), |start| *start as usize);
        let end = self.starts.get(line + 1).map_or(text.len(), |start| *start as usize);
        let mut line = text.get(start..end).unwrap_or_default();
        while let Some((b'\n' | b'\r', rest)) = line.split_last() {
            line = rest;
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ab\r\n\u{e9}\u{1f600}x\nlast";

    fn both(encoding: Encoding, line: u32, character: u32) -> (u32, Position) {
        let lines = Lines::of(TEXT.as_bytes(), encoding);
        let offset = lines.offset(TEXT.as_bytes(), Position { line, character });
        (offset, lines.position(TEXT.as_bytes(), offset))
    }

    #[test]
    fn columns_count_units_of_the_encoding() {
        assert_eq!(both(Encoding::Utf16, 1, 1), (6, Position::new(1, 1)));
        assert_eq!(both(Encoding::Utf16, 1, 3), (10, Position::new(1, 3)));
        assert_eq!(both(Encoding::Utf8, 1, 2), (6, Position::new(1, 2)));
        assert_eq!(both(Encoding::Utf8, 1, 6), (10, Position::new(1, 6)));
    }

    #[test]
    fn positions_outside_the_text_are_clamped() {
        assert_eq!(both(Encoding::Utf16, 0, 99), (2, Position::new(0, 2)));
        assert_eq!(both(Encoding::Utf16, 2, 99), (16, Position::new(2, 4)));
        assert_eq!(both(Encoding::Utf16, 99, 0), (16, Position::new(2, 4)));
        assert_eq!(both(Encoding::Utf16, u32::MAX, u32::MAX).0, 16);
    }

    #[test]
    fn invalid_utf_8_bytes_count_once() {
        let text = b"a\xff\xffb";
        let lines = Lines::of(text, Encoding::Utf16);
        let column = lines.position(text, 3).character;
        assert_eq!(lines.offset(text, Position::new(0, column)), 3);
    }
}
