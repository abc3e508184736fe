//! Untrusted text of a plugin, process or file, made safe before it reaches a terminal, a log or a recording.
//!
//! Not part of the contract. It is here because the commands `ks` and `ks-host` both need it.

use std::borrow::Cow;

/// Limit on the bytes of a name, title, target or message in output. No path is longer (PATH_MAX).
pub const MOST_BYTES: usize = 4096;

/// Limit on the bytes of a message with all its lines. A list of everything that a policy denies is far
/// shorter.
pub const MOST_MESSAGE_BYTES: usize = 64 << 10;

/// Limit on the bytes of the note after a truncated text.
pub const CUT_BYTES: usize = 32;

/// Makes characters visible that would otherwise act on the output, as Rust escapes them (`\n`, `\u{1b}`), in
/// at most `most_bytes` bytes. A longer text is cut, followed by a note with its size of at most
/// [`CUT_BYTES`].
///
/// Escaped are control characters (C0, DEL, C1), separators of lines and paragraphs, format characters
/// (writing direction, zero width, tags), private-use characters and noncharacters. So the result is one
/// line.
pub fn visible(text: &str, most_bytes: usize) -> Cow<'_, str> {
    if text.len() <= most_bytes && !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut display = String::new();
    for letter in text.chars() {
        let before = display.len();
        if acts(letter) {
            display.extend(letter.escape_default());
        } else {
            display.push(letter);
        }
        if display.len() > most_bytes {
            display.truncate(before);
            display.push_str(&format!(".. ({} bytes)", text.len()));
            break;
        }
    }
    Cow::Owned(display)
}

/// Joins the lines of a message by `; `, and makes all other characters visible.
pub fn one_line(message: &str) -> String {
    joined(message, |_| "; ")
}

/// Keeps indented lines of a message, as in the host's own messages; joins other lines to the previous one by
/// `; `. So no line can look like the start of another message.
pub fn indented(message: &str) -> String {
    joined(message, |line| if line.starts_with("  ") { "\n  " } else { "; " })
}

fn joined(message: &str, before: impl Fn(&str) -> &'static str) -> String {
    let mut text = String::new();
    for line in message.lines().filter(|line| !line.trim().is_empty()) {
        if !text.is_empty() {
            text.push_str(before(line));
        }
        text.push_str(&visible(line.trim(), MOST_BYTES));
        if text.len() > MOST_BYTES {
            text.truncate(text.floor_char_boundary(MOST_BYTES));
            text.push_str(&format!(".. ({} bytes)", message.len()));
            break;
        }
    }
    text
}

/// Makes a message of several lines safe to write, within [`MOST_MESSAGE_BYTES`]. Every line after the first
/// begins with `following`; if that is blank, lines that are indented already stay as they are unless another
/// line is not. So no text in the message can look like the start of another message.
pub fn message(message: &str, following: &str) -> String {
    let is_indented = |line: &str| line.starts_with("  ") || line.trim().is_empty();
    let needs_prefix = !following.trim().is_empty() || !message.lines().skip(1).all(is_indented);
    let mut text = String::new();
    for (index, line) in message.lines().enumerate() {
        if text.len() > MOST_MESSAGE_BYTES {
            text.push_str(&format!("\n{following}.. ({} bytes)", message.len()));
            break;
        }
        if index > 0 {
            text.push('\n');
            text.push_str(if needs_prefix { following } else { "" });
        }
        text.push_str(&visible(line, MOST_BYTES));
    }
    text
}

/// Escapes characters in JSON that would act on a terminal. The value stays the same: in JSON such characters
/// are only in strings, where `\u202e` is the character itself.
pub fn json(json: &str) -> Cow<'_, str> {
    // Line feeds are between tokens: those in strings are escaped already.
    escaped(
        json,
        |letter| letter != '\n' && acts(letter),
        |letter, out| {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        },
    )
}

/// Escapes quotes, backslashes and characters that would act on a terminal, as a TOML basic string writes
/// them.
pub fn toml(text: &str) -> Cow<'_, str> {
    escaped(
        text,
        |letter| matches!(letter, '"' | '\\') || acts(letter),
        |letter, out| {
            out.push_str(&match letter {
                '"' | '\\' => format!("\\{letter}"),
                _ if letter <= '\u{ffff}' => format!("\\u{:04X}", u32::from(letter)),
                _ => format!("\\U{:08X}", u32::from(letter)),
            });
        },
    )
}

fn escaped(
    text: &str,
    is_special: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    if !text.contains(&is_special) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_special(letter) {
            escape(letter, &mut out);
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

/// Makes the characters of each line visible and keeps the line feeds. For text whose lines the host has
/// formed.
pub fn lines(text: &str) -> String {
    text.split('\n').map(|line| visible(line, MOST_BYTES)).collect::<Vec<_>>().join("\n")
}

/// Whether a character is invisible, or changes how others are displayed.
///
/// Source: general categories Cc, Cf, Zl, Zp and Co, the noncharacters, and `Default_Ignorable_Code_Point`
/// without variation selectors, in `UnicodeData.txt` and `DerivedCoreProperties.txt`, Unicode 16.
pub fn acts(letter: char) -> bool {
    let is_noncharacter = u32::from(letter) & 0xfffe == 0xfffe;
    letter.is_control()
        || is_noncharacter
        || matches!(letter,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}' | '\u{fdd0}'..='\u{fdef}'
            | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}' | '\u{f0000}'..='\u{10ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_the_rest_is_unchanged() {
        for plain in ["", "eth0", "größer — 大きい", "a\\x1b %n {}"] {
            assert!(matches!(visible(plain, 64), Cow::Borrowed(text) if text == plain), "{plain}");
        }
        for (text, display) in [
            ("\x1b[2J\x07", "\\u{1b}[2J\\u{7}"),
            ("a\nb\r\tc\0", "a\\nb\\r\\tc\\u{0}"),
            ("\u{9b}31m\u{85}\x7f", "\\u{9b}31m\\u{85}\\u{7f}"),
            ("x\u{202e}y\u{2066}z\u{2028}", "x\\u{202e}y\\u{2066}z\\u{2028}"),
        ] {
            assert_eq!(visible(text, 64), display);
        }
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(visible("0123456789", 10), "0123456789");
        assert_eq!(visible("0123456789a", 10), "0123456789.. (11 bytes)");
        // Neither a character nor an escape is split.
        assert_eq!(visible("ab\x1b\x1b", 8), "ab\\u{1b}.. (4 bytes)");
        assert_eq!(visible("äää", 3), "ä.. (6 bytes)");
        let megabytes = "\u{1}".repeat(8 << 20);
        assert!(visible(&megabytes, MOST_BYTES).len() < MOST_BYTES + 32);
    }

    #[test]
    fn a_message_is_one_line() {
        assert_eq!(
            one_line("cannot open\n  kernel: EPERM\r\n\n  do: \x07it\n"),
            "cannot open; kernel: EPERM; do: \\u{7}it"
        );
        let many = one_line(&"a\n".repeat(1 << 20));
        assert!(many.starts_with("a; a; ") && many.ends_with(".. (2097152 bytes)") && many.len() < 5000);
        assert_eq!(indented("cannot\n  do: \x07it\nks-host: x\n"), "cannot\n  do: \\u{7}it; ks-host: x");
        assert_eq!(lines("a\tb\n  in main\n"), "a\\tb\n  in main\n");
    }

    #[test]
    fn no_line_of_a_message_can_begin_another_one() {
        assert_eq!(message("x: cannot\n  do: \x07it\n", "  "), "x: cannot\n  do: \\u{7}it");
        assert_eq!(message("x: a\nks-host: b\n  do: c", "  "), "x: a\n  ks-host: b\n    do: c");
        assert_eq!(message("x: a\n  do: b", "x: "), "x: a\nx:   do: b");
        for many in ["\n".repeat(60 << 20), "a\n".repeat(1 << 20), "\x1b".repeat(60 << 20)] {
            assert!(message(&many, "x: ").len() < MOST_MESSAGE_BYTES + MOST_BYTES + 2 * CUT_BYTES);
        }
    }

    #[test]
    fn escapes_of_json_and_toml_keep_the_value() {
        let text = "a\n\"\\\u{1b}\u{85}\u{202e}\u{2028}\u{e0001}ä";
        let written = serde_json::to_string_pretty(&[text]).expect("text");
        let safe = json(&written);
        assert!(safe.chars().all(|letter| letter == '\n' || !acts(letter)), "{safe}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&safe).expect("JSON"), [text]);
        assert_eq!(toml(text), "a\\u000A\\\"\\\\\\u001B\\u0085\\u202E\\u2028\\U000E0001ä");
    }
}
