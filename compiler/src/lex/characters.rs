//! Characters outside ASCII that scripts contain by accident: their names, and their likely meaning.
//!
//! Source: the Unicode Character Database, UnicodeData.txt, 16.0; Unicode Standard Annex 9 for those that
//! change the order.

use super::Token;
use crate::diag::{Diagnostic, Diagnostics};
use crate::source::Span;

/// A character and its replacement; an empty replacement means to remove it.
struct Named {
    character: char,
    name: &'static str,
    meant: &'static str,
}

const fn named(character: char, name: &'static str, meant: &'static str) -> Named {
    Named { character, name, meant }
}

const NAMED: &[Named] = &[
    named('\u{a0}', "no-break space", " "),
    named('\u{1680}', "ogham space mark", " "),
    named('\u{2002}', "en space", " "),
    named('\u{2003}', "em space", " "),
    named('\u{2007}', "figure space", " "),
    named('\u{2009}', "thin space", " "),
    named('\u{200a}', "hair space", " "),
    named('\u{202f}', "narrow no-break space", " "),
    named('\u{205f}', "medium mathematical space", " "),
    named('\u{3000}', "ideographic space", " "),
    named('\u{2028}', "line separator", "\n"),
    named('\u{2029}', "paragraph separator", "\n"),
    named('\u{85}', "next line", "\n"),
    named('\u{b}', "line tabulation", " "),
    named('\u{c}', "form feed", " "),
    named('\u{0}', "null", ""),
    named('\u{ad}', "soft hyphen", ""),
    named('\u{200b}', "zero width space", ""),
    named('\u{200c}', "zero width non-joiner", ""),
    named('\u{200d}', "zero width joiner", ""),
    named('\u{2060}', "word joiner", ""),
    named('\u{feff}', "byte order mark", ""),
    named('\u{61c}', "arabic letter mark", ""),
    named('\u{200e}', "left-to-right mark", ""),
    named('\u{200f}', "right-to-left mark", ""),
    named('\u{202a}', "left-to-right embedding", ""),
    named('\u{202b}', "right-to-left embedding", ""),
    named('\u{202c}', "pop directional formatting", ""),
    named('\u{202d}', "left-to-right override", ""),
    named('\u{202e}', "right-to-left override", ""),
    named('\u{2066}', "left-to-right isolate", ""),
    named('\u{2067}', "right-to-left isolate", ""),
    named('\u{2068}', "first strong isolate", ""),
    named('\u{2069}', "pop directional isolate", ""),
    named('\u{201c}', "left double quotation mark", "\""),
    named('\u{201d}', "right double quotation mark", "\""),
    named('\u{201e}', "double low-9 quotation mark", "\""),
    named('\u{ab}', "left-pointing double angle quotation mark", "\""),
    named('\u{bb}', "right-pointing double angle quotation mark", "\""),
    named('\u{2033}', "double prime", "\""),
    named('\u{2018}', "left single quotation mark", "'"),
    named('\u{2019}', "right single quotation mark", "'"),
    named('\u{201a}', "single low-9 quotation mark", "'"),
    named('\u{2032}', "prime", "'"),
    named('\u{b4}', "acute accent", "'"),
    named('\u{2010}', "hyphen", "-"),
    named('\u{2011}', "non-breaking hyphen", "-"),
    named('\u{2012}', "figure dash", "-"),
    named('\u{2013}', "en dash", "-"),
    named('\u{2014}', "em dash", "-"),
    named('\u{2212}', "minus sign", "-"),
    named('\u{d7}', "multiplication sign", "*"),
    named('\u{f7}', "division sign", "/"),
    named('\u{2260}', "not equal to", "!="),
    named('\u{2264}', "less-than or equal to", "<="),
    named('\u{2265}', "greater-than or equal to", ">="),
    named('\u{2192}', "rightwards arrow", "->"),
    named('\u{2026}', "horizontal ellipsis", ".."),
    named('\u{37e}', "greek question mark", ""),
];

/// Full-width forms of ASCII, `FULL_WIDTH_OFFSET` code points above the ASCII characters.
const FULL_WIDTH: std::ops::RangeInclusive<char> = '\u{ff01}'..='\u{ff5e}';
const FULL_WIDTH_OFFSET: u32 = 0xfee0;

/// Characters with a meaning in other languages that this one does not have, with advice.
const HABITS: &[(&[u8], &str)] = &[
    (b"?", "there is no `? :`: write `if` and `else`, or `match (condition) { true: a, default: b }`"),
    (b"#", "a comment begins with `//`; headers are named by `include \"file.kh\"`"),
    (b"$", "names have no `$`"),
    (b"`", "text stands in double quotes"),
    (b"\\", "a statement goes on with the next line where an operator asks for it: leave the `\\` out"),
];

/// Reports a byte sequence that starts no token.
pub(super) fn stray(span: Span, bytes: &[u8]) -> Diagnostic {
    let printable = String::from_utf8_lossy(bytes);
    let known = std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next());
    let Some(known) = known else {
        let text = "this byte has no meaning here, and is not UTF-8";
        let printable: Vec<_> = bytes.iter().map(|byte| format!("{byte:#04x}")).collect();
        return Diagnostic::error(101, span, text).label(printable.join(" "));
    };
    let named = NAMED.iter().find(|one| one.character == known);
    let number = u32::from(known);
    let what = match named {
        Some(one) if one.meant.trim_ascii().is_empty() => format!("U+{number:04X} ({})", one.name),
        Some(one) => format!("`{known}`, U+{number:04X} ({})", one.name),
        None if known.is_control() => format!("U+{number:04X}, a control character"),
        // It may look like a letter that has a meaning.
        None if !known.is_ascii() => format!("`{printable}`, U+{number:04X}"),
        None => format!("`{printable}`"),
    };
    let error = Diagnostic::error(101, span, format!("this character has no meaning here: {what}"));
    let wide = FULL_WIDTH.contains(&known).then(|| number - FULL_WIDTH_OFFSET).and_then(char::from_u32);
    match (named, wide) {
        (Some(Named { meant: "", .. }), _) => error.suggest(span, "", "remove it"),
        (Some(Named { meant: " ", .. }), _) => error.suggest(span, " ", "write a space"),
        (Some(Named { meant: "\n", .. }), _) => error.suggest(span, "\n", "write a line end"),
        (Some(one), _) => error.suggest(span, one.meant, "write it in ASCII"),
        (None, Some(wide)) => error.suggest(span, wide.to_string(), "write it in ASCII"),
        (None, None) => {
            let habit = HABITS.iter().find(|(text, _)| *text == bytes);
            error.maybe_help(habit.map(|(_, help)| (*help).to_owned()))
        }
    }
}

/// Warns of characters in a comment or a literal that display the surrounding text in another order than its
/// bytes.
pub(super) fn report_order(token: &Token, bytes: &[u8], diagnostics: &mut Diagnostics) {
    // All of them begin with this byte, which is rare.
    if !bytes.contains(&0xe2) {
        return;
    }
    let sequences = bytes.windows(3).enumerate();
    for (at, bytes) in sequences.filter(|(_, bytes)| changes_order(bytes)) {
        let start = token.span.start + at as u32;
        let span = Span { start, end: start + 3, ..token.span };
        let known = std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next()).unwrap_or_default();
        let name = NAMED.iter().find(|one| one.character == known).map_or("", |one| one.name);
        let text = format!("this text is shown in another order than it is read: U+{:04X}", u32::from(known));
        diagnostics.report(
            Diagnostic::warning(101, span, text)
                .label(name)
                .note("a reader may take a comment for code, or code for a comment")
                .help("remove it; in a string write its bytes, `\\xE2\\x80\\xAE`"),
        );
    }
}

/// Whether there are embeddings, overrides or isolates: U+202A to U+202E and U+2066 to U+2069.
fn changes_order(bytes: &[u8]) -> bool {
    matches!(bytes, [0xe2, 0x80, 0xaa..=0xae] | [0xe2, 0x81, 0xa6..=0xa9])
}
