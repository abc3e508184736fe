//! Where the code of a core module stands in its script, so that a trap can be told in the script's own lines.
//!
//! The section lies in the core module that it describes. A compiler may leave it out: a trap is then told without
//! lines. It says where code came from and nothing else, so that a wrong one misleads a reader and does no more harm.

use crate::section::{self, SectionError};

/// Most functions of one module. Guards a reader against a section of millions of empty ones.
const MAX_FUNCTIONS: usize = 1 << 20;

/// The lines of one core module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    /// The name of the module, as its name section has it: a component may hold several.
    pub module: String,
    /// File names without folders.
    pub files: Vec<String>,
    /// The functions that come from a script, by rising index. Others are the compiler's own.
    pub functions: Vec<ScriptFunction>,
}

/// A function of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptFunction {
    /// Its index in the module, imports counted.
    pub index: u32,
    /// Its name in the script.
    pub name: String,
    /// Its file, an index into [`Lines::files`].
    pub file: u32,
    /// Where a line's code begins, by rising offset.
    pub points: Vec<Point>,
}

/// From this offset on, up to the next point, the code belongs to this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Bytes from the start of the function's body, its locals counted.
    pub offset: u32,
    /// From 1.
    pub line: u32,
}

/// A place in a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourcePosition<'a> {
    /// The function's name.
    pub function: &'a str,
    /// The file's name.
    pub file: &'a str,
    /// From 1.
    pub line: u32,
}

impl Lines {
    /// Where an instruction of the module comes from; none if it is not of a script's function.
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

    /// The bytes of this record, without its length: the module's name, the number of files, their names, the number of
    /// functions, and of each its index, name, file, number of points and points (offset, line). Numbers are u32,
    /// little-endian; texts have their length in front.
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

    /// Reads the bytes of one record.
    ///
    /// # Errors
    /// If the record is cut short, a name is no text, or indices and offsets do not rise.
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
        match reader.at == bytes.len() {
            true => Ok(Lines { module, files, functions }),
            false => Err(SectionError::BadLines { offset: reader.at }),
        }
    }
}

/// What is left of a record.
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
    // A module of more parts than fit here is beyond what Wasm allows.
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
    fn what_does_not_rise_is_refused() {
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
