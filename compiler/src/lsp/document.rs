//! A text that is open in the editor.

use std::sync::Arc;

use lsp_types::{TextDocumentContentChangeEvent, Uri};

use super::position::{Encoding, Lines};

/// An open text. It takes precedence over the file on disk.
#[derive(Debug)]
pub struct Document {
    /// The URI in the editor.
    pub uri: Uri,
    /// The editor's version number of the text.
    pub version: i32,
    /// The current text, UTF-8.
    pub text: Arc<[u8]>,
    /// The line starts of the text.
    pub lines: Lines,
    encoding: Encoding,
}

impl Document {
    /// Creates a text as it was opened.
    pub fn new(uri: Uri, version: i32, text: String, encoding: Encoding) -> Document {
        let lines = Lines::of(text.as_bytes(), encoding);
        Document { uri, version, text: text.into_bytes().into(), lines, encoding }
    }

    /// Applies the editor's changes, each to the result of the one before.
    pub fn change(&mut self, version: i32, changes: Vec<TextDocumentContentChangeEvent>) {
        self.version = version;
        for change in changes {
            let text = match change.range {
                None => change.text.into_bytes(),
                Some(range) => {
                    let start = self.lines.offset(&self.text, range.start) as usize;
                    let end = (self.lines.offset(&self.text, range.end) as usize).max(start);
                    [&self.text[..start], change.text.as_bytes(), &self.text[end..]].concat()
                }
            };
            self.lines = Lines::of(&text, self.encoding);
            self.text = text.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use lsp_types::{Position, Range};

    use super::*;

    fn change(range: Option<((u32, u32), (u32, u32))>, text: &str) -> TextDocumentContentChangeEvent {
        let range = range.map(|((a, b), (c, d))| Range::new(Position::new(a, b), Position::new(c, d)));
        TextDocumentContentChangeEvent { range, range_length: None, text: text.into() }
    }

    #[test]
    fn changes_are_applied_in_order() {
        let uri = Uri::from_str("file:///a.ks").expect("an address");
        let mut document = Document::new(uri, 1, "one\ntwo\u{1f600}x\n".into(), Encoding::Utf16);
        document.change(
            2,
            vec![
                change(Some(((1, 3), (1, 5))), "-"),
                change(Some(((0, 0), (0, 3))), "a\nb"),
                change(Some(((9, 9), (9, 9))), "end"),
            ],
        );
        assert_eq!(&*document.text, b"a\nb\ntwo-x\nend");
        document.change(3, vec![change(Some(((1, 1), (0, 0))), "!"), change(None, "new")]);
        assert_eq!((&*document.text, document.version), (&b"new"[..], 3));
    }
}
