//! Patterns of targets: `*` is any text, `?` any character, and a character after `\` is itself.

use std::fmt;

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pattern {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Text,
    Character,
    Exactly(char),
}

impl Pattern {
    /// Reads a pattern. A `\` at the end is itself.
    pub(super) fn new(text: &str) -> Pattern {
        let (mut parts, mut chars) = (Vec::new(), text.chars());
        while let Some(char) = chars.next() {
            parts.push(match char {
                '*' => Part::Text,
                '?' => Part::Character,
                '\\' => Part::Exactly(chars.next().unwrap_or('\\')),
                char => Part::Exactly(char),
            });
        }
        // Several in a row are one, and would be tried for each other.
        parts.dedup_by(|one, before| *one == Part::Text && *before == Part::Text);
        Pattern { text: text.to_owned(), parts }
    }

    /// The pattern that fits this text alone.
    pub(super) fn exactly(text: &str) -> Pattern {
        let escaped = text.chars().flat_map(|char| {
            let escape = matches!(char, '*' | '?' | '\\').then_some('\\');
            escape.into_iter().chain([char])
        });
        Pattern::new(&escaped.collect::<String>())
    }

    /// Whether it fits everything.
    pub(super) fn is_any(&self) -> bool {
        self.parts == [Part::Text]
    }

    /// The pattern as it was written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it fits a whole text. In time by the product of both lengths.
    pub(super) fn fits(&self, text: &str) -> bool {
        let text: Vec<char> = text.chars().collect();
        let (mut at, mut next) = (0, 0);
        // Where to go on when what follows the last `*` does not fit: that `*`, and how much of the text it takes.
        let mut retry: Option<(usize, usize)> = None;
        while next < text.len() {
            match self.parts.get(at) {
                Some(Part::Text) => {
                    retry = Some((at, next));
                    at += 1;
                }
                Some(Part::Character) => (at, next) = (at + 1, next + 1),
                Some(Part::Exactly(char)) if text.get(next) == Some(char) => (at, next) = (at + 1, next + 1),
                _ => match retry {
                    Some((star, taken)) => {
                        retry = Some((star, taken + 1));
                        (at, next) = (star + 1, taken + 1);
                    }
                    None => return false,
                },
            }
        }
        self.parts.iter().skip(at).all(|part| *part == Part::Text)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_are_wild_unless_they_are_escaped() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("*", "a/b", true),
            ("veth*", "veth7", true),
            ("veth?", "veth", false),
            ("a*b*c", "a12b34c", true),
            ("a*b*c", "a12b34", false),
            ("**a", "ba", true),
            (r"\*", "*", true),
            (r"\*", "a", false),
            (r"a\?b", "a?b", true),
            (r"a\?b", "axb", false),
            (r"a\\", r"a\", true),
            (r"a\", r"a\", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(Pattern::new(pattern).fits(text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn what_fits_exactly_fits_nothing_else() {
        for text in ["*", "a*", "?", r"\", r"\*", r"a\b?c", "fentry/*"] {
            let pattern = Pattern::exactly(text);
            assert!(pattern.fits(text) && !pattern.is_any(), "{text}");
            assert_eq!(Pattern::new(pattern.as_str()), pattern);
            assert!(!pattern.fits("x") && !pattern.fits(&format!("{text}x")) && !pattern.fits(""), "{text}");
        }
        assert!(Pattern::new("*").is_any() && Pattern::new("**").is_any() && !Pattern::new("?*").is_any());
    }
}
