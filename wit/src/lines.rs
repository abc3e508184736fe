//! Line tables of core modules, so that the host reports a trap with the script's own lines.
//!
//! The section belongs to the core module that it describes. A compiler may leave it out; traps are then
//! reported without lines. The section holds only source positions, so a wrong one misleads a reader and does
//! no other harm.

use crate::section::{self, SectionError};

/// Limit of functions per module. It stops a reader from allocating for a section of millions of empty
/// functions.
const MAX_FUNCTIONS: usize = 1 << 20;

/// The line table of one core module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// The module's name from its name section, which distinguishes the modules of a component.
    pub module: String,
    /// File names without folders.
    pub files: Vec<String>,
    /// The functions compiled from a script, by ascending index. Functions that the compiler adds have no
    /// entry.
    pub functions: Vec<ScriptFunction>,
}

/// The source positions of one function of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFunction {
    /// Index in the module's function index space, where imports come first.
    pub index: u32,
    /// The function's name as the script declares it.
    pub name: String,
    /// The source file, as an index into [`Lines::files`].
    pub file: u32,
    /// The start of each line's code, by ascending offset.
    pub points: Vec<Point>,
}

/// Maps the code from this offset up to the next point to one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Bytes from the start of the function's body, whose local declarations come first.
    pub offset: u32,
    /// Line in the script, from 1.
    pub line: u32,
}

/// A position in a script, as traps report it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePosition<'a> {
    /// Name of the script function.
    pub function: &'a str,
    /// File name without folders.
    pub file: &'a str,
    /// Line in the file, from 1.
    pub line: u32,
}

impl Lines {
    /// Returns the source position of an instruction, or none if it is outside of a script's functions.
    pub fn position(&self, function: u32, offset: u32) -> Option<SourcePosition<'_>> {
        let at = self.functions.binary_search_by_key(&function, |one| one.index).ok()?;
        let found = self.functions.get(at)?;
        let after = found.points.partition_point(|point| point.offset <= offset);
        let point = found.points.get(after.checked_sub(1)?)?;
        Some(SourcePosition {
            function: &found.name,
            file: self.files.get(found.file as usize)?,
            line: point.line,
        })
    }

    /// Encodes this record without its length: the module's name, the number of files, their names, the
    /// number of functions, and for each function its index, name, file, number of points and points (offset,
    /// line). Numbers are u32, little-endian; a length precedes each text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        section::push_record(&mut out, self.module.as_bytes());
        push_number(&mut out, self.files.len());
        self.files.iter().for_each(|file| section::push_record(&mut out, file.as_bytes()));
        push_number(&mut out, self.functions.len());
        for function in &self.functions {
            out.extend_from_slice(&function.index.to_le_bytes());
            section::push_record(&mut out, function.name.as_bytes());
            out.extend_from_slice(&function.file.to_le_bytes());
            push_number(&mut out, function.points.len());
            for point in &function.points {
                out.extend_from_slice(&point.offset.to_le_bytes());
                out.extend_from_slice(&point.line.to_le_bytes());
            }
        }
        out
    }

    /// Decodes one record.
    ///
    /// # Errors
    /// If the record is cut short, a name is not UTF-8, or indices or offsets do not ascend.
    pub fn from_bytes(bytes: &[u8]) -> Result<Lines, SectionError> {
        let mut reader = Reader { bytes, at: 0 };
        let module = reader.text()?;
        let files = (0..reader.number()?).map(|_| reader.text()).collect::<Result<_, _>>()?;
        let count = reader.number()?;
        let mut functions: Vec<ScriptFunction> = Vec::new();
        for _ in 0..count {
            let function = reader.function()?;
            if functions.last().is_some_and(|last| last.index >= function.index)
                || functions.len() == MAX_FUNCTIONS
            {
                return Err(SectionError::BadLines { offset: reader.at });
            }
            functions.push(function);
        }
        if reader.at == bytes.len() {
            Ok(Lines { module, files, functions })
        } else {
            Err(SectionError::BadLines { offset: reader.at })
        }
    }
}

/// A cursor over the bytes of a record.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self) -> Result<u32, SectionError> {
        let left = &self.bytes[self.at..];
        let found = left.first_chunk::<4>().ok_or(SectionError::Truncated {
            offset: self.at,
            needed: 4,
            left: left.len(),
        })?;
        self.at += 4;
        Ok(u32::from_le_bytes(*found))
    }

    fn text(&mut self) -> Result<String, SectionError> {
        let (text, rest) = section::split_record(&self.bytes[self.at..], self.at)?;
        self.at = self.bytes.len() - rest.len();
        Ok(std::str::from_utf8(text).map_err(|_| SectionError::BadName)?.to_owned())
    }

    fn function(&mut self) -> Result<ScriptFunction, SectionError> {
        let index = self.number()?;
        let name = self.text()?;
        let file = self.number()?;
        let mut points: Vec<Point> = Vec::new();
        for _ in 0..self.number()? {
            let point = Point { offset: self.number()?, line: self.number()? };
            if points.last().is_some_and(|last| last.offset >= point.offset) {
                return Err(SectionError::BadLines { offset: self.at });
            }
            points.push(point);
        }
        Ok(ScriptFunction { index, name, file, points })
    }
}

fn push_number(out: &mut Vec<u8>, number: usize) {
    // Saturates: Wasm allows no module with more parts than a u32 counts.
    out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Lines {
        let point = |offset, line| Point { offset, line };
        Lines {
            module: "script".into(),
            files: vec!["a.ks".into(), "b.ks".into()],
            functions: vec![
                ScriptFunction {
                    index: 3,
                    name: "one".into(),
                    file: 1,
                    points: vec![point(2, 7), point(9, 8)],
                },
                ScriptFunction { index: 5, name: "two".into(), file: 0, points: Vec::new() },
            ],
        }
    }

    #[test]
    fn an_offset_belongs_to_the_point_before_it() {
        let lines = lines();
        let position = |function, offset| {
            lines.position(function, offset).map(|position| (position.function, position.file, position.line))
        };
        assert_eq!(
            [2, 8, 9, 999].map(|offset| position(3, offset).map(|position| position.2)),
            [7, 7, 8, 8].map(Some)
        );
        assert_eq!(position(3, 2), Some(("one", "b.ks", 7)));
        assert_eq!([position(3, 1), position(4, 5), position(5, 5)], [None; 3]);
    }

    #[test]
    fn a_record_survives_the_round_trip_and_no_cut_is_accepted() {
        let bytes = lines().to_bytes();
        assert_eq!(Lines::from_bytes(&bytes), Ok(lines()));
        for len in 0..bytes.len() {
            assert!(Lines::from_bytes(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(Lines::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn unsorted_lines_are_refused() {
        let mut twice = lines();
        twice.functions[1].index = 3;
        let mut back = lines();
        back.functions[0].points.swap(0, 1);
        for wrong in [twice, back] {
            let found = Lines::from_bytes(&wrong.to_bytes());
            assert!(matches!(found, Err(SectionError::BadLines { .. })), "{found:?}");
        }
    }
}
