//! String table of `.BTF`.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::super::error::Reason;
use super::super::super::limits::MAX_LINE_BYTES;
use super::super::super::name::{Name, source_text};
use super::super::bytes::string_at;

/// String table of `.BTF`, with the names and lines made from it: many records share one.
///
/// An offset must be that of a string's first byte. The kept strings therefore have no more bytes than the
/// table.
pub(in super::super) struct Strings<'a> {
    bytes: &'a [u8],
    names: HashMap<u32, Name>,
    lines: HashMap<u32, Arc<str>>,
}

impl<'a> Strings<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Reason> {
        if bytes.first() != Some(&0) || bytes.last() != Some(&0) {
            return Err(Reason::TypeHeader("the strings do not begin and end with a zero"));
        }
        Ok(Strings { bytes, names: HashMap::new(), lines: HashMap::new() })
    }

    /// Returns the bytes of a string.
    pub(in super::super) fn bytes(&self, offset: u32) -> Result<&'a [u8], Reason> {
        let before = match offset.checked_sub(1) {
            Some(before) => self.bytes.get(before as usize).copied(),
            None => Some(0),
        };
        let string = string_at(self.bytes, offset).filter(|_| before == Some(0));
        string.ok_or(Reason::StringOffset(offset))
    }

    /// Returns the name of a type, member or function; none for the empty string.
    pub(in super::super) fn name(&mut self, offset: u32) -> Result<Option<Name>, Reason> {
        if let Some(known) = self.names.get(&offset) {
            return Ok(Some(known.clone()));
        }
        let bytes = self.bytes(offset)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        let name = Name::sanitised(bytes)?;
        self.names.insert(offset, name.clone());
        Ok(Some(name))
    }

    /// Returns a source line, or the name of a source file.
    pub(in super::super) fn line(&mut self, offset: u32) -> Result<Arc<str>, Reason> {
        if let Some(known) = self.lines.get(&offset) {
            return Ok(known.clone());
        }
        let line = source_text(self.bytes(offset)?, MAX_LINE_BYTES);
        self.lines.insert(offset, line.clone());
        Ok(line)
    }
}
