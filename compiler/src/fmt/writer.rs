//! Copies the source to the new text token by token. Comments stay between the tokens where they were
//! written.

use std::borrow::Cow;

use super::layout::{Break, Op};
use crate::ast::{Expr, ExprKind, Stmt, StmtKind, UnaryOp};
use crate::lex::{Punct, Token, TokenKind};

/// The output of the tree's tokens.
pub(super) struct Writer<'a> {
    pub ops: Vec<Op<'a>>,
    /// The text that the tree was parsed from; none if only the tree is printed.
    source: Option<Source<'a>>,
    /// Comments that are written after the next token instead of before it.
    pending: Vec<Comment<'a>>,
    /// The treatment of empty lines before the next token and its comments.
    blanks: Blanks,
    /// Whether the source has a token other than the tree's.
    lost: bool,
}

/// The treatment of empty lines, of which at most one in a row is kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Blanks {
    Drop,
    /// Drops those at the start of a block.
    KeepAfterComment,
    Keep,
}

/// The brackets around a list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Brackets {
    /// `(a, b)`: without spaces inside and without empty lines.
    Round,
    /// `{ a, b }`: with spaces inside. Empty lines between the elements are kept.
    Curly,
}

struct Source<'a> {
    tokens: Vec<Written<'a>>,
    at: usize,
}

/// A token of the source, with its layout.
struct Written<'a> {
    kind: TokenKind,
    text: &'a [u8],
    /// The comments between the token before it and this one.
    comments: Vec<Comment<'a>>,
    starts_line: bool,
    blank_before: bool,
    /// Whether a `;` stands before it.
    separated: bool,
}

#[derive(Clone, Copy)]
struct Comment<'a> {
    text: &'a [u8],
    own_line: bool,
    blank_before: bool,
}

impl Comment<'_> {
    /// Whether it is a doc comment, which must keep its position.
    fn is_doc(&self) -> bool {
        self.text.starts_with(b"///")
    }
}

impl<'a> Writer<'a> {
    /// Creates a writer for a tree without a source.
    pub fn plain() -> Writer<'a> {
        Writer { ops: Vec::new(), source: None, pending: Vec::new(), blanks: Blanks::Drop, lost: false }
    }

    /// Creates a writer for a tree and its source.
    pub fn of_source(tokens: &[Token], text: &'a [u8]) -> Writer<'a> {
        Writer { source: Some(Source { tokens: written(tokens, text), at: 0 }), ..Writer::plain() }
    }

    /// Whether every token of the source was written.
    pub fn is_complete(&self) -> bool {
        let ended = self.source.as_ref().is_none_or(|source| source.at + 1 == source.tokens.len());
        ended && !self.lost
    }

    pub fn has_source(&self) -> bool {
        self.source.is_some()
    }

    fn ahead(&self, count: usize) -> Option<&Written<'a>> {
        let source = self.source.as_ref()?;
        source.tokens.get(source.at + count)
    }

    /// Whether the next token of the source has this text.
    pub fn next_is(&self, text: &str) -> bool {
        self.ahead_is(0, text)
    }

    pub fn ahead_is(&self, count: usize, text: &str) -> bool {
        self.ahead(count).is_some_and(|token| token.text == text.as_bytes())
    }

    /// Writes the separator of two statements: a `;` of the source stays where the second statement would
    /// otherwise continue the first.
    pub fn separator(&mut self, first: &Stmt, second: &Stmt) {
        let Some(next) = self.ahead(0).filter(|token| token.separated) else { return };
        let is_store =
            matches!(&second.kind, StmtKind::Assign { lvalue, .. } if next.text == b"*" && is_deref(lvalue));
        let continues = matches!(next.text, b"-" | b"*" | b"&" | b"(" | b"[" | b"as") && !is_store;
        let is_returned =
            matches!(first.kind, StmtKind::Return(None)) && !matches!(next.kind, TokenKind::Keyword(_));
        if continues || is_returned {
            self.ops.push(Op::Text(Cow::Borrowed(b";")));
        }
    }

    /// Whether the author starts a line with the next token.
    pub fn starts_line(&self) -> bool {
        self.ahead(0).is_some_and(|token| token.starts_line)
    }

    /// Returns the author's choice for a group whose content begins with the next token; `otherwise` without
    /// a source.
    pub fn written_break(&self, otherwise: Break) -> Break {
        match self.ahead(0) {
            Some(token) if token.starts_line => Break::Always,
            Some(_) => Break::IfTooLong,
            None => otherwise,
        }
    }

    /// Whether there is a comment up to the bracket that closes the next one.
    pub fn comments_in_brackets(&self) -> bool {
        let mut open = 0usize;
        let tokens = self.source.iter().flat_map(|source| &source.tokens[source.at..]);
        for token in tokens {
            if !token.comments.is_empty() {
                return true;
            }
            match token.text {
                b"(" | b"[" | b"{" => open += 1,
                b")" | b"]" | b"}" => open = open.saturating_sub(1),
                _ => {}
            }
            if open == 0 {
                break;
            }
        }
        !self.pending.is_empty()
    }

    /// Writes a token, with the comments before it.
    pub fn token(&mut self, text: &'static str) {
        self.comments();
        self.advance(text);
    }

    /// Writes a token on the line of the one before: comments between the two follow it.
    pub fn same_line(&mut self, text: &'static str) {
        let doc = |comments: &[Comment]| comments.iter().any(Comment::is_doc);
        let docs = doc(&self.pending) || self.ahead(0).is_some_and(|token| doc(&token.comments));
        if docs { self.token(text) } else { self.stick(text) }
    }

    /// Writes a token that would have another meaning on a line of its own.
    pub fn stick(&mut self, text: &'static str) {
        if let Some(token) = self.ahead(0) {
            let comments = token.comments.clone();
            self.pending.extend(comments);
        }
        self.advance(text);
    }

    fn advance(&mut self, text: &'static str) {
        self.lost |= self.has_source() && !self.next_is(text);
        self.ops.push(Op::Text(Cow::Borrowed(text.as_bytes())));
        self.step();
    }

    fn step(&mut self) {
        if let Some(source) = &mut self.source {
            source.at += 1;
        }
    }

    /// Writes a name or literal: as in the source, or `canonical` without one.
    pub fn verbatim(&mut self, canonical: impl FnOnce() -> Vec<u8>) {
        self.comments();
        let text = match self.ahead(0) {
            Some(token) => {
                let meant = matches!(
                    token.kind,
                    TokenKind::Ident
                        | TokenKind::Keyword(_)
                        | TokenKind::Int
                        | TokenKind::Str
                        | TokenKind::Char
                );
                let text = token.text;
                self.lost |= !meant;
                Cow::Borrowed(text)
            }
            None => Cow::Owned(canonical()),
        };
        self.ops.push(Op::Text(text));
        self.step();
    }

    pub fn name(&mut self, name: &str) {
        self.verbatim(|| name.as_bytes().to_vec());
    }

    /// Writes a comma after the last element where the group breaks, whether the source has it or not.
    fn trailing_comma(&mut self) {
        self.omit_trailing_comma();
        self.ops.push(Op::IfBroken(","));
    }

    /// Skips a comma that the source may have after the last element, and keeps its comments.
    pub fn omit_trailing_comma(&mut self) {
        if self.next_is(",") {
            let comments = self.ahead(0).map(|token| token.comments.clone()).unwrap_or_default();
            self.pending.extend(comments);
            self.step();
        }
    }

    /// Begins the element at an index of a block or list, or its end: empty lines before it are kept, except
    /// before the first.
    pub fn element(&mut self, index: usize) {
        self.blanks = if index == 0 { Blanks::KeepAfterComment } else { Blanks::Keep };
    }

    /// Writes a comma in any case, whether the source has it or not.
    pub fn comma(&mut self) {
        if self.has_source() && !self.next_is(",") {
            self.ops.push(Op::Text(Cow::Borrowed(b",")));
        } else {
            self.same_line(",");
        }
    }

    /// Writes the documentation in the tree; with a source it is among the comments.
    pub fn docs(&mut self, docs: Option<&str>) {
        if self.has_source() {
            return;
        }
        for line in docs.into_iter().flat_map(|docs| docs.split('\n')) {
            let line = if line.is_empty() { "///".to_owned() } else { format!("/// {line}") };
            self.ops.push(Op::Text(Cow::Owned(line.into_bytes())));
            self.ops.push(Op::Hard);
        }
    }

    /// Writes an empty line unless there is a source, in which the author chooses.
    pub fn blank_without_source(&mut self) {
        if !self.has_source() {
            self.ops.push(Op::Blank);
        }
    }

    /// Writes all comments before the next token.
    pub fn comments(&mut self) {
        self.some_comments(|_| true);
        let blank = self.ahead(0).is_some_and(|token| token.blank_before);
        if std::mem::replace(&mut self.blanks, Blanks::Drop) == Blanks::Keep && blank {
            self.ops.push(Op::Blank);
        }
    }

    /// Writes the comments before a closing bracket, which still belong inside.
    pub fn last_comments(&mut self) {
        self.some_comments(|_| true);
        self.blanks = Blanks::Drop;
    }

    /// Writes the comments on the line of the token before.
    fn trailing_comments(&mut self) {
        self.some_comments(|comment| !comment.own_line);
    }

    fn some_comments(&mut self, wanted: impl Fn(&Comment) -> bool) {
        let mut waiting = std::mem::take(&mut self.pending);
        let own = match &mut self.source {
            Some(Source { tokens, at }) => {
                tokens.get_mut(*at).map(|token| std::mem::take(&mut token.comments))
            }
            None => None,
        };
        let mut own = own.unwrap_or_default();
        // On a line of its own it would document the next item. Another comment may stand there.
        let stays = own.first().is_some_and(|first| first.is_doc() && !first.own_line);
        waiting.splice(0..0, own.drain(..usize::from(stays)));
        waiting.append(&mut own);
        let count = waiting.iter().position(|comment| !wanted(comment)).unwrap_or(waiting.len());
        self.pending = waiting.split_off(count);
        for comment in waiting {
            if self.blanks == Blanks::Keep && comment.blank_before {
                self.ops.push(Op::Blank);
            }
            if self.blanks == Blanks::KeepAfterComment && comment.own_line {
                self.blanks = Blanks::Keep;
            }
            self.ops.push(Op::Comment { text: comment.text, own_line: comment.own_line });
        }
    }

    pub fn space(&mut self) {
        self.ops.push(Op::Space);
    }

    pub fn line(&mut self) {
        self.trailing_comments();
        self.ops.push(Op::Line);
    }

    pub fn soft(&mut self) {
        self.trailing_comments();
        self.ops.push(Op::Soft);
    }

    pub fn hard(&mut self) {
        self.trailing_comments();
        self.ops.push(Op::Hard);
    }

    pub fn indent(&mut self) {
        self.ops.push(Op::Indent);
    }

    pub fn dedent(&mut self) {
        self.ops.push(Op::Dedent);
    }

    /// Runs `inner` as a group.
    pub fn group(&mut self, when: Break, inner: impl FnOnce(&mut Self)) {
        self.ops.push(Op::Open(when));
        inner(self);
        self.ops.push(Op::Close);
    }

    /// Writes elements separated by commas; the caller writes the brackets. Either every element has a line
    /// or none.
    pub fn list<T>(&mut self, elements: &[T], brackets: Brackets, mut write: impl FnMut(&mut Self, &T)) {
        self.indent();
        for (at, element) in elements.iter().enumerate() {
            if at == 0 {
                self.edge(brackets);
            } else {
                self.same_line(",");
                self.line();
            }
            if brackets == Brackets::Curly {
                self.element(at);
            }
            write(self, element);
        }
        if !elements.is_empty() {
            self.trailing_comma();
        }
        if brackets == Brackets::Curly {
            self.element(elements.len());
        }
        self.last_comments();
        self.dedent();
        if !elements.is_empty() {
            self.edge(brackets);
        }
    }

    /// Writes the optional line break inside an opening or closing bracket.
    fn edge(&mut self, brackets: Brackets) {
        match brackets {
            Brackets::Round => self.soft(),
            Brackets::Curly => self.line(),
        }
    }
}

/// Whether an lvalue is `*p` or a part of a pointee.
fn is_deref(lvalue: &Expr) -> bool {
    match &lvalue.kind {
        ExprKind::Unary(UnaryOp::Deref, _) => true,
        ExprKind::Field { base, .. } | ExprKind::Index(base, _) => is_deref(base),
        _ => false,
    }
}

/// Returns the tokens other than blanks and comments, each with the comments before it.
fn written<'a>(tokens: &[Token], text: &'a [u8]) -> Vec<Written<'a>> {
    let mut found = Vec::with_capacity(tokens.len() / 2 + 1);
    let mut comments = Vec::new();
    // The number of line ends since the last token or comment, and whether none of these stands on this line.
    let (mut line_ends, mut starts_line) = (0u32, true);
    let mut separated = false;
    for token in tokens {
        let bytes = &text[token.span.range()];
        match token.kind {
            TokenKind::Blank => {}
            TokenKind::LineEnd => {
                line_ends += 1;
                starts_line = true;
            }
            TokenKind::Punct(Punct::Semicolon) => separated = true,
            TokenKind::Comment => {
                let own_line = starts_line;
                comments.push(Comment {
                    text: bytes.trim_ascii_end(),
                    own_line,
                    blank_before: line_ends > 1,
                });
                line_ends = 0;
            }
            kind => {
                let comments = std::mem::take(&mut comments);
                let blank_before = line_ends > 1;
                found.push(Written { kind, text: bytes, comments, starts_line, blank_before, separated });
                (line_ends, starts_line, separated) = (0, false, false);
            }
        }
    }
    found
}
