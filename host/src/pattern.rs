//! Patterns for targets and event names: `*` matches any text, `?` any character, and `\` escapes a
//! character.

use std::fmt;

/// A parsed pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pattern {
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
    /// Parses a pattern. A `\` at the end stands for itself.
    pub(crate) fn new(text: &str) -> Pattern {
        let (mut parts, mut chars) = (Vec::with_capacity(text.len()), text.chars());
        while let Some(char) = chars.next() {
            parts.push(match char {
                '*' => Part::Text,
                '?' => Part::Character,
                '\\' => Part::Exactly(chars.next().unwrap_or('\\')),
                char => Part::Exactly(char),
            });
        }
        // Consecutive `*` are equivalent to one, and would only multiply the attempts.
        parts.dedup_by(|one, before| *one == Part::Text && *before == Part::Text);
        Pattern { text: text.to_owned(), parts }
    }

    /// Creates the pattern that matches only this text.
    pub(crate) fn exactly(text: &str) -> Pattern {
        let escaped = text.chars().flat_map(|char| {
            let escape = matches!(char, '*' | '?' | '\\').then_some('\\');
            escape.into_iter().chain([char])
        });
        Pattern { text: escaped.collect(), parts: text.chars().map(Part::Exactly).collect() }
    }

    /// Whether it matches every text.
    pub(crate) fn is_any(&self) -> bool {
        self.parts == [Part::Text]
    }

    /// Whether it matches only one text.
    pub(crate) fn is_exact(&self) -> bool {
        self.parts.iter().all(|part| matches!(part, Part::Exactly(_)))
    }

    /// Returns the source text of the pattern.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches the whole text. The text is not copied, and the cost of a pattern beyond the length
    /// of any text is that of reading it.
    pub(crate) fn fits(&self, text: &str) -> bool {
        let (mut at, mut rest) = (0, text.chars());
        // Where to resume after a mismatch: the part after the last `*`, and the end of the text that this
        // `*` matches.
        let mut retry = None;
        loop {
            let mut after = rest.clone();
            let letter = after.next();
            match (self.parts.get(at), letter) {
                (Some(Part::Text), _) => {
                    at += 1;
                    retry = Some((at, rest.clone()));
                }
                (Some(Part::Character), Some(_)) => (at, rest) = (at + 1, after),
                (Some(Part::Exactly(wanted)), Some(letter)) if *wanted == letter => {
                    (at, rest) = (at + 1, after)
                }
                (None, None) => return true,
                _ => {
                    // Only the last `*` is retried: extending an earlier one would only leave less text.
                    let Some((from, mut taken)) = retry else { return false };
                    if taken.next().is_none() {
                        return false;
                    }
                    (at, rest) = (from, taken.clone());
                    retry = Some((from, taken));
                }
            }
        }
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
            ("?", "", false),
            ("?", "ä", true),
            ("a", "", false),
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*a", "banana", true),
            ("*a*a", "nab", false),
            ("**b**", "abc", true),
            ("b*", "abc", false),
            ("cache_*", "cache_misses", true),
            ("cache_*", "cache-misses", false),
            ("*misses", "cache_misses", true),
            ("*a*b*", "xaxxbx", true),
            ("?s", "cgs", false),
            ("cache", "cache_misses", false),
            ("sched/*", "sched/sched_switch", true),
        ] {
            assert_eq!(Pattern::new(pattern).fits(text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn exact_patterns_match_one_text() {
        for text in ["*", "a*", "?", r"\", r"\*", r"a\b?c", "fentry/*"] {
            let pattern = Pattern::exactly(text);
            assert!(pattern.fits(text) && !pattern.is_any(), "{text}");
            assert_eq!(Pattern::new(pattern.as_str()), pattern);
            assert!(!pattern.fits("x") && !pattern.fits(&format!("{text}x")) && !pattern.fits(""), "{text}");
        }
        assert!(Pattern::new("*").is_any() && Pattern::new("**").is_any() && !Pattern::new("?*").is_any());
    }
}
