//! Columns of a terminal that texts take: two for a wide character, none for a combining one.
//!
//! Characters that the output makes visible count as what they are shown as.

use unicode_width::UnicodeWidthStr as _;

use super::streams;

/// Returns the number of columns.
pub(super) fn count(text: &[u8]) -> usize {
    if is_plain(text) {
        return text.len();
    }
    String::from_utf8_lossy(&streams::display(text)).width()
}

/// Returns the first characters of a text, which take at most so many columns.
pub(super) fn cut(text: &[u8], most: usize) -> &[u8] {
    if is_plain(text) {
        return &text[..most.min(text.len())];
    }
    let mut taken = (0, 0);
    for chunk in text.utf8_chunks() {
        let parts = chunk
            .valid()
            .char_indices()
            .map(|(at, char)| &chunk.valid().as_bytes()[at..at + char.len_utf8()]);
        let invalid = Some(chunk.invalid()).filter(|bytes| !bytes.is_empty());
        for part in parts.chain(invalid) {
            let columns = taken.1 + count(part);
            if columns > most {
                return &text[..taken.0];
            }
            taken = (taken.0 + part.len(), columns);
        }
    }
    text
}

/// Pads a text with spaces to a number of columns, on its left or on its right.
pub(super) fn padded(text: &str, width: usize, is_right: bool) -> String {
    let fill = " ".repeat(width.saturating_sub(count(text.as_bytes())));
    if is_right { fill + text } else { text.to_owned() + &fill }
}

/// Whether each byte is a character of one column.
fn is_plain(text: &[u8]) -> bool {
    text.iter().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_and_combining_characters_have_their_columns() {
        let texts = ["plain", "", "é", "e\u{301}", "日本", "🦀", "ｱ"];
        assert_eq!(texts.map(|text| count(text.as_bytes())), [5, 0, 1, 1, 4, 2, 1]);
    }

    #[test]
    fn what_is_made_visible_counts_as_shown() {
        assert_eq!(count(b"\x1b[31m"), "\\u{1b}[31m".len());
        assert_eq!(count(b"\xff"), 4);
    }

    #[test]
    fn a_character_is_not_cut() {
        assert_eq!(cut("日本".as_bytes(), 3), "日".as_bytes());
        assert_eq!(cut("日本".as_bytes(), 4), "日本".as_bytes());
        assert_eq!(
            (cut(b"plain", 3), cut(b"plain", 9), cut("é".as_bytes(), 0)),
            (&b"pla"[..], &b"plain"[..], &b""[..])
        );
        assert_eq!((cut(b"a\xffb", 2), cut(b"a\xffb", 5)), (&b"a"[..], &b"a\xff"[..]));
    }

    #[test]
    fn padding_is_on_either_side() {
        assert_eq!((padded("日", 4, true), padded("日", 4, false)), ("  日".into(), "日  ".into()));
    }
}
