//! The register of diagnostic codes: one page for each, in `codes/`, with the rule, its reason and two
//! examples.
//!
//! A page is Markdown that people read as it is:
//!
//! ````text
//! # KS0302: this name is already taken
//!
//! Error.
//!
//! The rule and its reason, a few lines.
//!
//! ```ks wrong
//! a file that causes this code
//! ```
//!
//! ```ks right
//! the same without it
//! ```
//! ````
//!
//! Words after `wrong` and `right`: `strict` (as KernelScript 0.1.1), `build` (reported only by the back
//! ends), `test` (compiled as by `ks test`), `module` (with a kernel module), `file=NAME` (the file's name,
//! else `main.ks`). A block with only `file=NAME` is a further file of the example before it. Tests compile
//! every example and compare the codes.

use super::DiagnosticCode;

/// The page of one code.
#[derive(Debug)]
pub struct Page {
    /// The code that the page explains.
    pub code: DiagnosticCode,
    text: &'static str,
}

/// One file of an example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExampleFile {
    /// The path relative to the main file's folder.
    pub name: String,
    /// The text of the file.
    pub text: String,
}

/// A small script that causes the code, or one that does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    /// Whether it causes the code.
    pub wrong: bool,
    /// The words after `wrong` or `right`, without `file=`.
    pub flags: Vec<String>,
    /// The main file, then the files that it imports and includes.
    pub files: Vec<ExampleFile>,
}

impl Page {
    /// Returns the whole page as Markdown.
    pub fn text(&self) -> &'static str {
        self.text
    }

    /// Returns the text of the first line after the code.
    pub fn title(&self) -> &'static str {
        let first = self.text.lines().next().unwrap_or_default();
        first.split_once(": ").map_or(first, |(_, title)| title)
    }

    /// Whether the code is a warning wherever it is used.
    pub fn is_warning(&self) -> bool {
        self.text.lines().any(|line| line == "Warning.")
    }

    /// Returns the page without title and examples.
    pub fn prose(&self) -> &'static str {
        let body = self.text.split_once('\n').map_or("", |(_, body)| body);
        body.find("```").map_or(body, |at| &body[..at]).trim()
    }

    /// Returns the examples in their order on the page.
    pub fn examples(&self) -> Vec<Example> {
        let mut examples: Vec<Example> = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            let Some(info) = line.strip_prefix("```ks") else { continue };
            let text: String =
                lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
            let mut parts = info.split_whitespace().peekable();
            let wrong = parts.next_if(|part| matches!(*part, "wrong" | "right")).map(|part| part == "wrong");
            let (names, flags): (Vec<_>, Vec<_>) = parts.partition(|part| part.starts_with("file="));
            let name = names.first().map_or("main.ks", |part| &part["file=".len()..]).to_owned();
            let file = ExampleFile { name, text };
            match (wrong, examples.last_mut()) {
                (None, Some(example)) => example.files.push(file),
                _ => examples.push(Example {
                    wrong: wrong.unwrap_or(false),
                    flags: flags.into_iter().map(str::to_owned).collect(),
                    files: vec![file],
                }),
            }
        }
        examples
    }
}

/// Returns the page of a code; none for an unknown code.
pub fn page(code: DiagnosticCode) -> Option<&'static Page> {
    PAGES.binary_search_by_key(&code, |page| page.code).ok().map(|at| &PAGES[at])
}

/// Returns all pages in the order of their codes.
pub fn pages() -> &'static [Page] {
    PAGES
}

/// Parses a code as people write it: `KS0123`, `ks123`, `123`.
pub fn parse(text: &str) -> Option<DiagnosticCode> {
    let digits = match text.get(..2) {
        Some(prefix) if prefix.eq_ignore_ascii_case("ks") => &text[2..],
        _ => text,
    };
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|number| plain && *number <= 9999).map(DiagnosticCode)
}

macro_rules! pages {
    ($($number:literal)*) => {
        &[$(Page {
            code: DiagnosticCode($number),
            text: include_str!(concat!("codes/KS", stringify!($number), ".md")),
        }),*]
    };
}

#[expect(clippy::zero_prefixed_literal, reason = "the digits are those of the file's name")]
static PAGES: &[Page] = pages![
    0101 0102 0103 0104 0105 0201 0202 0203 0204 0206 0208 0210 0211 0212 0213 0214 0301 0302
    0303 0304 0305 0306 0307 0308 0309 0310 0311 0312 0401 0402 0403 0404 0406 0407 0408 0409
    0410 0412 0413 0414 0415 0416 0417 0418 0419 0420 0421 0422 0423 0424 0425 0426 0427 0428
    0429 0430 0431 0501 0502 0503 0504 0505 0506 0507 0508 0509 0510 0511 0512 0513 0514 0515
    0516 0517 0518 0519 0520 0521 0522 0523 0524 0525 0526 0601 0602 0603 0604 0605 0606 0607 0608
    0609 0610 0611 0612 0613 0615 0616 0617 0618 0619 0620 0621 0622 0623 0624 0625 0626 0701
    0702 0703 0704 0705 0706 0707 0708 0709 0710 0711 0712 0713 0714 0715 0716 0717 0718 0719 0720
    0801 0802 0803 0804 0805 0806 0901 0902 0903 0904 0905 0906 0907 0908 0909 1001 1002 1003
    1004 1005 1006 1007 9902
];

#[cfg(test)]
mod tests {
    use super::{DiagnosticCode, page, pages, parse};

    #[test]
    fn codes_are_read_as_people_write_them() {
        for text in ["KS0101", "ks101", "Ks0101", "101", "0101"] {
            assert_eq!(parse(text), Some(DiagnosticCode(101)), "{text}");
        }
        for text in ["", "KS", "KS-1", "+101", "KS01x", "10000", "99999999", "\u{e9}1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn pages_are_in_order_and_carry_their_code() {
        assert!(pages().is_sorted_by(|a, b| a.code < b.code));
        for one in pages() {
            assert!(one.text().starts_with(&format!("# {}: ", one.code)), "{}", one.code);
            assert!(page(one.code).is_some_and(|found| found.code == one.code));
        }
    }

    #[test]
    fn every_page_teaches_with_both_examples() {
        for one in pages() {
            let kinds: Vec<bool> = one.examples().iter().map(|example| example.wrong).collect();
            // No example of an internal error stays valid: each is a defect that will be fixed.
            let wanted: &[bool] = if one.code.0 >= 9900 { &[] } else { &[true, false] };
            assert_eq!(kinds, wanted, "{}: a wrong example, then a right one", one.code);
            let lines: Vec<_> = one.prose().lines().filter(|line| !line.is_empty()).collect();
            let severity = lines.first().copied().unwrap_or_default();
            assert!(severity.starts_with("Error") || severity.starts_with("Warning"), "{}", one.code);
            assert!((3..=9).contains(&lines.len()), "{}: {} lines", one.code, lines.len());
            assert!(one.title().len() <= 80, "{}", one.code);
            assert!(one.text().lines().all(|line| line.chars().count() <= 100), "{}", one.code);
            assert!(one.text().is_ascii(), "{}: plain characters show everywhere", one.code);
        }
    }
}
