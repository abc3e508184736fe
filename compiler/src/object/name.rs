//! Names with a closed set of characters, which have no special meaning on a terminal, in a path or in a
//! pattern.

use std::fmt;
use std::sync::Arc;

use super::limits::MAX_NAME_BYTES;

/// A name: 1 to [`MAX_NAME_BYTES`] characters of `[A-Za-z0-9_.]`, the first of which is a letter or `_`.
/// Names of numeric types may also have spaces (`unsigned int`).
///
/// Cheap to clone: many parts of an object may share one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// Reasons for the rejection of a name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// The name is empty.
    #[error("a name is empty")]
    Empty,
    /// The name has more than [`MAX_NAME_BYTES`] bytes.
    #[error("a name has {0} bytes; the limit is {MAX_NAME_BYTES}")]
    TooLong(usize),
    /// The name has a character outside the set, or starts with a digit or dot.
    #[error(
        "the name `{0}` has characters other than letters, digits, `_` and `.`, or does not begin with a \
         letter or `_`"
    )]
    Character(String),
}

impl Name {
    /// Creates the name of a map, a program, a variable, a function or variable of the kernel.
    ///
    /// # Errors
    /// See [`NameError`].
    pub fn new(text: &str) -> Result<Name, NameError> {
        if text.starts_with(|first: char| first == '.' || first.is_ascii_digit()) {
            return Err(NameError::Character(visible(text)));
        }
        Name::suffix(text)
    }

    /// Creates the suffix of a section name, which may begin with any character of the set.
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

    /// Creates a name like [`Name::new`], from bytes of a file.
    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Name, NameError> {
        check_length(bytes)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Name::new(text),
            Err(_) => Err(NameError::Character(visible(&String::from_utf8_lossy(bytes)))),
        }
    }

    /// Creates the name of a type, a member, a parameter, an enumerator or a subprogram.
    ///
    /// Rust's names have characters that the kernel rejects (`Option<u32>`, `{closure#0}`, `_ZN4$LT$..`).
    /// They have no meaning to the kernel, so each printable ASCII character outside the set becomes `_`, as
    /// does a digit or dot at the start.
    ///
    /// # Errors
    /// See [`NameError`]: control characters and bytes outside ASCII are rejected here, too.
    pub(super) fn sanitised(bytes: &[u8]) -> Result<Name, NameError> {
        clean(bytes, |byte| is_name_byte(byte).then_some(byte))
    }

    /// Creates the name of an integer or floating-point type, which may have spaces inside: `long unsigned
    /// int`.
    ///
    /// # Errors
    /// As [`Name::sanitised`].
    pub(super) fn of_number(bytes: &[u8]) -> Result<Name, NameError> {
        clean(bytes, |byte| (is_name_byte(byte) || byte == b' ').then_some(byte))
    }

    /// Returns the name as text.
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

/// Maximum number of characters that a message quotes from a file.
const QUOTED_CHARACTERS: usize = 64;

/// Prepares text of a file for a message: truncated, with control and non-ASCII characters escaped.
pub(super) fn visible(text: &str) -> String {
    let mut quoted: String = text.chars().take(QUOTED_CHARACTERS).flat_map(char::escape_default).collect();
    if text.chars().nth(QUOTED_CHARACTERS).is_some() {
        quoted.push_str("..");
    }
    quoted
}

/// Prepares a source line or file name: truncated, with spaces for control characters.
pub(super) fn source_text(bytes: &[u8], limit: usize) -> Arc<str> {
    let text = String::from_utf8_lossy(bytes.get(..limit).unwrap_or(bytes));
    let clean = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    let mut clean: String = clean.collect();
    // A character cut in two was replaced by one of three bytes.
    while clean.len() > limit {
        clean.pop();
    }
    clean.into()
}
