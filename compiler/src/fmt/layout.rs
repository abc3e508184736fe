//! Line breaking: text with optional line breaks, and the choice among them.
//!
//! A group stands on one line if it fits and nothing in it needs a line of its own; else all its
//! [`Op::Line`]s are line ends. Decided from the outermost group inwards, from left to right, so that the
//! same operations always result in the same text.

use std::borrow::Cow;

/// Maximum length of a line in columns, where it can be broken.
const WIDTH: usize = 100;

/// Columns per level of indentation.
const INDENT: usize = 4;

/// One operation of the output.
#[derive(Debug, Clone)]
pub(super) enum Op<'a> {
    /// Text that is written as it is.
    Text(Cow<'a, [u8]>),
    /// Text that is written only where the group breaks.
    IfBroken(&'static str),
    /// A space on the same line.
    Space,
    /// A space, or a line end where the group breaks.
    Line,
    /// Nothing, or a line end where the group breaks.
    Soft,
    /// A line end in any case.
    Hard,
    /// An empty line before the next line.
    Blank,
    /// A comment: nothing else follows it on its line.
    Comment {
        /// The comment including `//`.
        text: &'a [u8],
        /// Whether it has a line of its own.
        own_line: bool,
    },
    /// The start of a group.
    Open(Break),
    /// The end of a group.
    Close,
    /// Indents the following lines one level deeper.
    Indent,
    /// Undoes the last [`Op::Indent`].
    Dedent,
}

/// Condition under which a group breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Break {
    /// If it does not fit into its line.
    IfTooLong,
    /// In any case.
    Always,
}

/// Chooses the line breaks and returns the text.
pub(super) fn layout(ops: &mut [Op<'_>]) -> Vec<u8> {
    break_around_lines(ops);
    let mut page = Page::default();
    let mut broken = vec![true];
    for (at, op) in ops.iter().enumerate() {
        let breaks = broken.last().copied().unwrap_or(true);
        match op {
            Op::Text(text) => page.text(text),
            Op::IfBroken(text) if breaks => page.text(text.as_bytes()),
            Op::Line | Op::Soft if breaks => page.line_end(),
            Op::Space | Op::Line => page.space = true,
            Op::IfBroken(_) | Op::Soft => {}
            Op::Hard => page.line_end(),
            Op::Blank => page.blank = true,
            Op::Comment { text, own_line } => page.comment(text, *own_line),
            Op::Open(when) => {
                broken.push(breaks && (*when == Break::Always || !fits(&ops[at..], page.column())));
            }
            Op::Close => {
                broken.pop();
            }
            Op::Indent => page.indent += 1,
            Op::Dedent => page.indent -= 1,
        }
    }
    page.line_end();
    page.bytes
}

/// Marks every group that contains a forced line end as broken.
fn break_around_lines(ops: &mut [Op<'_>]) {
    let mut breaks = vec![false];
    for op in ops.iter_mut().rev() {
        match op {
            Op::Hard | Op::Comment { .. } => {
                if let Some(inner) = breaks.last_mut() {
                    *inner = true;
                }
            }
            Op::Close => breaks.push(false),
            Op::Open(when) => {
                if breaks.pop().unwrap_or(false) {
                    *when = Break::Always;
                }
                if let Some(outer) = breaks.last_mut() {
                    *outer |= *when == Break::Always;
                }
            }
            _ => {}
        }
    }
}

/// Whether the group that begins here fits into its line, with the text after it up to the next optional line
/// break.
fn fits(ops: &[Op<'_>], column: usize) -> bool {
    let mut left = WIDTH.saturating_sub(column);
    let mut depth = 0usize;
    let mut past_end = false;
    for op in ops {
        let width = match op {
            Op::Open(_) => {
                depth += 1;
                0
            }
            Op::Close => {
                depth = depth.saturating_sub(1);
                past_end |= depth == 0;
                0
            }
            Op::Line | Op::Soft | Op::Hard | Op::Comment { .. } if past_end => return true,
            Op::Text(text) => match text.iter().position(|byte| *byte == b'\n') {
                Some(line) => return line <= left,
                None => text.len(),
            },
            Op::IfBroken(text) if past_end && depth == 0 => text.len(),
            Op::Space | Op::Line => 1,
            _ => 0,
        };
        if width > left {
            return false;
        }
        left -= width;
    }
    true
}

/// The output so far.
#[derive(Debug, Default)]
struct Page {
    bytes: Vec<u8>,
    /// Byte offset of the last line's start.
    line: usize,
    indent: usize,
    /// Whether a space precedes the next text on this line.
    space: bool,
    /// Whether an empty line precedes the next line.
    blank: bool,
    /// Whether the line ends in a comment.
    commented: bool,
}

impl Page {
    fn at_line_start(&self) -> bool {
        self.bytes.len() == self.line
    }

    /// Returns the column of the next text.
    fn column(&self) -> usize {
        if self.at_line_start() || self.commented {
            return self.indent * INDENT;
        }
        self.bytes.len() - self.line + usize::from(self.space)
    }

    fn text(&mut self, text: &[u8]) {
        if self.commented {
            self.line_end();
        }
        self.start_line();
        if std::mem::take(&mut self.space) {
            self.bytes.push(b' ');
        }
        self.bytes.extend_from_slice(text);
        if let Some(end) = text.iter().rposition(|byte| *byte == b'\n') {
            self.line = self.bytes.len() - (text.len() - end - 1);
        }
    }

    fn comment(&mut self, text: &[u8], own_line: bool) {
        if own_line || self.commented {
            self.line_end();
        }
        self.space = !self.at_line_start();
        self.text(text);
        self.commented = true;
    }

    /// Writes, at the start of a line, the pending empty line and the indentation.
    fn start_line(&mut self) {
        let blank = std::mem::take(&mut self.blank);
        if !self.at_line_start() {
            return;
        }
        self.space = false;
        if blank && !self.bytes.is_empty() {
            self.bytes.push(b'\n');
            self.line += 1;
        }
        self.bytes.resize(self.bytes.len() + self.indent * INDENT, b' ');
    }

    fn line_end(&mut self) {
        (self.space, self.commented) = (false, false);
        if !self.at_line_start() {
            self.bytes.push(b'\n');
            self.line = self.bytes.len();
        }
    }
}
