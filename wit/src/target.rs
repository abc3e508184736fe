//! Probe targets in programs and libraries, as scripts, sections of BPF objects and commands write them.
//!
//! ```text
//! PATH:FUNC              every function of this name
//! PATH:FUNC+OFFSET       bytes after its start
//! PATH:FUNC@VERSION      of a version that the file defines
//! PATH:FUNC@FILE.c       of a source file
//! PATH:+OFFSET           bytes after the start of the file
//! PATH@FILE.c:LINE       a source line
//! ```
//!
//! PATH ends at the first `:`. Digits alone after it are a line; then the source file follows the last `@`
//! before it. Anything else is a name, including `::` and brackets.

/// Error text for a probe at a [`Spot::Line`].
pub const NO_LINES: &str =
    "no probe is put at a source line yet: name the function, and an offset in it if need be";

/// The position of a probe in a program or library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UprobeTarget<'a> {
    /// The path of the file, as written.
    pub path: &'a str,
    /// The position in the file.
    pub spot: Spot<'a>,
}

/// A position in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot<'a> {
    /// All functions with this name.
    Function {
        /// The function's name, as written.
        name: &'a str,
        /// The symbol version or source file that selects among functions of this name; none selects all.
        of: Option<&'a str>,
        /// Bytes after the function's start; 0 probes the entry.
        offset: u64,
    },
    /// Bytes after the start of the file.
    Offset(u64),
    /// A line of a source file.
    Line {
        /// The source file, as written.
        file: &'a str,
        /// Line number, from 1.
        line: u64,
    },
}

/// The reason why a text is not a probe target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UprobeTargetError {
    /// The text has no colon, or no path before it.
    #[error("a place in a program is `path:function`")]
    NoPath,
    /// No function name follows the colon.
    #[error("the function is missing: a place in a program is `path:function`")]
    NoFunction,
    /// The `+` is not followed by a number.
    #[error("the offset into the file is not a number: `path:+0x1040`")]
    Offset,
    /// A line number without a source file.
    #[error(
        "a number alone is a source line, and its file is missing: `path@file.c:12`; an offset into the \
         file is `path:+0x1040`"
    )]
    NoSource,
}

impl<'a> UprobeTarget<'a> {
    /// Parses a probe target.
    ///
    /// # Errors
    /// [`UprobeTargetError`].
    pub fn parse(text: &'a str) -> Result<UprobeTarget<'a>, UprobeTargetError> {
        let (path, rest) = text.split_once(':').ok_or(UprobeTargetError::NoPath)?;
        if path.is_empty() {
            return Err(UprobeTargetError::NoPath);
        }
        if rest.is_empty() {
            return Err(UprobeTargetError::NoFunction);
        }
        if let Some(offset) = rest.strip_prefix('+') {
            let offset = number(offset).ok_or(UprobeTargetError::Offset)?;
            return Ok(UprobeTarget { path, spot: Spot::Offset(offset) });
        }
        if rest.bytes().all(|byte| byte.is_ascii_digit()) {
            let source = path.rsplit_once('@').filter(|(path, file)| !path.is_empty() && !file.is_empty());
            let (path, file) = source.ok_or(UprobeTargetError::NoSource)?;
            let line = rest.parse().map_err(|_| UprobeTargetError::NoSource)?;
            return Ok(UprobeTarget { path, spot: Spot::Line { file, line } });
        }
        let (function, offset) = with_offset(rest).unwrap_or((rest, 0));
        let (name, of) = match function.split_once('@') {
            // Linkers write the default version with two `@`.
            Some((name, of)) => (name, Some(of.strip_prefix('@').unwrap_or(of))),
            None => (function, None),
        };
        let (name, offset) = match (with_offset(name), of) {
            (Some((name, more)), Some(_)) if offset == 0 => (name, more),
            _ => (name, offset),
        };
        if name.is_empty() || of.is_some_and(str::is_empty) {
            return Err(UprobeTargetError::NoFunction);
        }
        Ok(UprobeTarget { path, spot: Spot::Function { name, of, offset } })
    }
}

/// Splits a name from the number after its last `+`. Names of C++ operators contain `+` themselves.
fn with_offset(text: &str) -> Option<(&str, u64)> {
    let (name, offset) = text.rsplit_once('+')?;
    Some((name, number(offset)?)).filter(|_| !name.is_empty())
}

/// Parses a decimal number, or a hexadecimal one after `0x`.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(text: &str) -> (&str, &str, Option<&str>, u64) {
        match UprobeTarget::parse(text) {
            Ok(UprobeTarget { path, spot: Spot::Function { name, of, offset } }) => (path, name, of, offset),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn a_path_ends_at_the_first_colon_and_the_rest_is_a_name() {
        assert_eq!(function("/bin/sh:main"), ("/bin/sh", "main", None, 0));
        assert_eq!(function("./a:ns::f"), ("./a", "ns::f", None, 0));
        assert_eq!(function("./a:draw(int, char*)"), ("./a", "draw(int, char*)", None, 0));
        assert_eq!(function("./a:<T as U>::f::{{closure}}"), ("./a", "<T as U>::f::{{closure}}", None, 0));
        assert_eq!(function("./a@b:f"), ("./a@b", "f", None, 0));
        assert_eq!(function("./a:4th"), ("./a", "4th", None, 0));
    }

    #[test]
    fn an_offset_is_a_number_after_the_last_plus() {
        assert_eq!(function("a:f+4"), ("a", "f", None, 4));
        assert_eq!(function("a:f+0x1F"), ("a", "f", None, 0x1f));
        assert_eq!(function("a:operator+"), ("a", "operator+", None, 0));
        assert_eq!(function("a:operator+(int)+8"), ("a", "operator+(int)", None, 8));
        assert_eq!(function("a:f+many"), ("a", "f+many", None, 0));
        assert_eq!(function("a:f@b.c+4"), ("a", "f", Some("b.c"), 4));
        assert_eq!(function("a:f+4@b.c"), ("a", "f", Some("b.c"), 4));
    }

    #[test]
    fn a_version_or_a_source_file_follows_the_name() {
        assert_eq!(function("a:f@GLIBC_2.2.5"), ("a", "f", Some("GLIBC_2.2.5"), 0));
        assert_eq!(function("a:f@@V2"), ("a", "f", Some("V2"), 0));
        assert_eq!(function("a:f@src/b.c"), ("a", "f", Some("src/b.c"), 0));
    }

    #[test]
    fn a_number_alone_is_a_line_of_the_file_after_the_last_at() {
        let line = |path, file, line| Ok(UprobeTarget { path, spot: Spot::Line { file, line } });
        assert_eq!(UprobeTarget::parse("./a@b.c:12"), line("./a", "b.c", 12));
        assert_eq!(UprobeTarget::parse("./a@2/bin@b.c:12"), line("./a@2/bin", "b.c", 12));
        let offset = |path, offset| Ok(UprobeTarget { path, spot: Spot::Offset(offset) });
        assert_eq!(UprobeTarget::parse("./a:+0x1040"), offset("./a", 0x1040));
        assert_eq!(UprobeTarget::parse("./a@b:+12"), offset("./a@b", 12));
    }

    #[test]
    fn invalid_targets_are_explained() {
        for (text, why) in [
            ("main", UprobeTargetError::NoPath),
            (":main", UprobeTargetError::NoPath),
            ("a:", UprobeTargetError::NoFunction),
            ("a:@V", UprobeTargetError::NoFunction),
            ("a:f@", UprobeTargetError::NoFunction),
            ("a:+", UprobeTargetError::Offset),
            ("a:+many", UprobeTargetError::Offset),
            ("a:+-1", UprobeTargetError::Offset),
            ("a:12", UprobeTargetError::NoSource),
            ("@b.c:12", UprobeTargetError::NoSource),
            ("a@:12", UprobeTargetError::NoSource),
            ("a@b.c:99999999999999999999", UprobeTargetError::NoSource),
        ] {
            assert_eq!(UprobeTarget::parse(text), Err(why), "{text}");
        }
    }
}
