//! Names of a closed set of characters, which do nothing on a terminal, in a path or in a pattern.

use std::fmt;
use std::sync::Arc;

use super::limits::MAX_NAME_BYTES;

/// A name: 1 to [`MAX_NAME_BYTES`] characters of `[A-Za-z0-9_.]`, of which the first is a letter or `_`; of numeric types also spaces (`unsigned int`).
///
/// Cheap to clone: many parts of an object may share one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Why text is no name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// Nothing.
    #[error("a name is empty")]
    Empty,
    /// More than [`MAX_NAME_BYTES`].
    #[error("a name has {0} bytes; the limit is {MAX_NAME_BYTES}")]
    TooLong(usize),
    /// A character outside of the set, or a digit or dot at the start.
    #[error(
        "the name `{0}` has characters other than letters, digits, `_` and `.`, or does not begin with a letter or `_`"
    )]
    Character(String),
}

impl Name {
    /// The name of a map, a program, a variable, a function or variable of the kernel.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn new(text: &str) -> Result<Name, NameError> {
        if text.starts_with(|first: char| first == '.' || first.is_ascii_digit()) {
            return Err(NameError::Character(visible(text)));
        }
        Name::suffix(text)
    }

    /// The part of the name of a section after a dot, which may begin with any character of the set.
    ///
    /// # Errors
    /// See [`NameError`].
    pub(super) fn suffix(text: &str) -> Result<Name, NameError> {
        check_length(text.as_bytes())?;
        if !text.bytes().all(is_name_byte) {
            return Err(NameError::Character(visible(text)));
        }
        Ok(Name(text.into()))
    }

    /// As [`Name::new`], from bytes of a file.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Name, NameError> {
        check_length(bytes)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Name::new(text),
            Err(_) => Err(NameError::Character(visible(&String::from_utf8_lossy(bytes)))),
        }
    }

    /// The name of a type, a member, a parameter, an enumerator or a subprogram.
    ///
    /// Rust's have characters that the kernel refuses (`Option<u32>`, `{closure#0}`, `_ZN4$LT$..`). They mean nothing to
    /// it, so each printable ASCII character outside of the set becomes `_`, as does a digit or dot at the start.
    ///
    /// # Errors
    /// See [`NameError`]: control characters and bytes outside of ASCII are refused here, too.
    pub(super) fn sanitised(bytes: &[u8]) -> Result<Name, NameError> {
        clean(bytes, |byte| is_name_byte(byte).then_some(byte))
    }

    /// The name of an integer or floating-point type, which may have spaces inside: `long unsigned int`.
    ///
    /// # Errors
    /// As [`Name::sanitised`].
    pub(super) fn of_number(bytes: &[u8]) -> Result<Name, NameError> {
        clean(bytes, |byte| (is_name_byte(byte) || byte == b' ').then_some(byte))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.0)
    }
}

fn clean(bytes: &[u8], keep: impl Fn(u8) -> Option<u8>) -> Result<Name, NameError> {
    check_length(bytes)?;
    if !bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(NameError::Character(visible(&String::from_utf8_lossy(bytes))));
    }
    let clean = bytes.iter().enumerate().map(|(at, &byte)| match keep(byte) {
        Some(byte) if at != 0 || byte.is_ascii_alphabetic() => char::from(byte),
        _ => '_',
    });
    Ok(Name(clean.collect::<String>().into()))
}

fn check_length(bytes: &[u8]) -> Result<(), NameError> {
    match bytes.len() {
        0 => Err(NameError::Empty),
        1..=MAX_NAME_BYTES => Ok(()),
        bytes => Err(NameError::TooLong(bytes)),
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')
}

/// Longest text of a file that a message quotes.
const QUOTED_CHARACTERS: usize = 64;

/// Text of a file for a message: cut, with control characters and what is not ASCII as escapes.
pub(super) fn visible(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED_CHARACTERS).flat_map(char::escape_default).collect();
    if text.chars().nth(QUOTED_CHARACTERS).is_some() {
        quoted.push_str("..");
    }
    quoted
}

/// A source line, or the name of a source file: cut, control characters become spaces.
pub(super) fn source_text(bytes: &[u8], limit: usize) -> Arc<str> {
    let text = String::from_utf8_lossy(bytes.get(..limit).unwrap_or(bytes));
    let clean = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut clean: String = clean.collect();
    // A character that was cut in two has become one of three bytes.
    while clean.len() > limit {
        clean.pop();
    }
    clean.into()
}
