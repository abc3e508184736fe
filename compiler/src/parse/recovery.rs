//! Error recovery: continues at the next statement or declaration, so that no error is reported twice.

use super::{Parsed, Parser, Unreadable};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};
use crate::source::Span;

/// Keywords that begin a declaration.
const DECLARATIONS: &[Keyword] = &[
    Keyword::Include,
    Keyword::Import,
    Keyword::Config,
    Keyword::Type,
    Keyword::Enum,
    Keyword::Struct,
    Keyword::Pin,
    Keyword::Local,
    Keyword::Var,
    Keyword::Const,
    Keyword::Extern,
    Keyword::Fn,
    Keyword::Impl,
];

/// Keywords that begin a statement.
const STATEMENTS: &[Keyword] = &[
    Keyword::Var,
    Keyword::Const,
    Keyword::If,
    Keyword::For,
    Keyword::While,
    Keyword::Return,
    Keyword::Break,
    Keyword::Continue,
    Keyword::Delete,
    Keyword::Try,
    Keyword::Throw,
    Keyword::Defer,
];

impl Parser<'_> {
    /// Whether a line begins here in the form of a declaration.
    fn starts_declaration(&self) -> bool {
        self.item().starts_line
            && match self.kind() {
                TokenKind::Keyword(keyword) => DECLARATIONS.contains(&keyword),
                TokenKind::Punct(Punct::At) => true,
                _ => self.starts_counter() || self.starts_per_cpu(),
            }
    }

    /// Whether a variable with a value for each CPU begins here.
    pub(super) fn starts_per_cpu(&self) -> bool {
        let is_variable = matches!(self.ahead(1).kind, TokenKind::Keyword(Keyword::Var | Keyword::Extern));
        self.ident_ahead(0, "percpu") && is_variable
    }

    /// Whether a counter begins here.
    pub(super) fn starts_counter(&self) -> bool {
        self.ident_ahead(0, "counter")
            && self.ahead(1).kind == TokenKind::Ident
            && self.punct_ahead(2, Punct::Colon)
    }

    /// Whether a declaration that cannot stand inside a block begins at the very start of a line: the block
    /// before was not closed.
    pub(super) fn leaves_blocks(&self) -> bool {
        self.item().flush
            && match self.kind() {
                TokenKind::Keyword(Keyword::Struct | Keyword::Enum) => {
                    self.ahead(1).kind == TokenKind::Ident && self.punct_ahead(2, Punct::OpenBrace)
                }
                TokenKind::Keyword(Keyword::Fn) => {
                    self.ahead(1).kind == TokenKind::Ident && self.punct_ahead(2, Punct::OpenParen)
                }
                TokenKind::Keyword(
                    Keyword::Include | Keyword::Import | Keyword::Extern | Keyword::Impl | Keyword::Pin,
                )
                | TokenKind::Punct(Punct::At) => true,
                _ => false,
            }
    }

    pub(super) fn starts_statement(&self) -> bool {
        matches!(self.kind(), TokenKind::Keyword(keyword) if STATEMENTS.contains(&keyword)) || self.at_lock()
    }

    /// Skips to the next declaration after the one that began with token `start`. If that one was at the
    /// start of a line, the next one must be, too: a `var` further right is part of the text with the error.
    pub(super) fn skip_declaration(&mut self, start: usize) {
        if self.at == start {
            self.advance();
        }
        let flush = self.tokens.items[start].flush;
        let mut open = self.open_braces(start);
        while !self.at_end() {
            let at_margin = self.item().flush || !flush;
            if self.leaves_blocks() || (open == 0 && at_margin && self.starts_declaration()) {
                return;
            }
            match self.kind() {
                TokenKind::Punct(Punct::OpenBrace) => open += 1,
                TokenKind::Punct(Punct::CloseBrace) => open = open.saturating_sub(1),
                _ => {}
            }
            self.advance();
        }
    }

    /// Skips to the next statement after the one that began with token `start`, but never beyond the `}` that
    /// closes the block of that statement.
    pub(super) fn skip_statement(&mut self, start: usize) {
        let mut open = self.open_braces(start);
        if self.at == start && !self.at_punct(Punct::OpenBrace) {
            self.advance();
        }
        while !self.at_end() && !self.leaves_blocks() {
            match self.kind() {
                TokenKind::Keyword(_) if open == 0 && self.item().starts_line && self.starts_statement() => {
                    return;
                }
                TokenKind::Ident if open == 0 && self.item().starts_line => return,
                TokenKind::Punct(Punct::OpenBrace) => open += 1,
                TokenKind::Punct(Punct::CloseBrace) if open == 0 => return,
                TokenKind::Punct(Punct::CloseBrace) => open -= 1,
                _ => {}
            }
            self.advance();
        }
    }

    /// Returns the number of braces that were opened and not closed between token `start` and here.
    fn open_braces(&self, start: usize) -> usize {
        self.tokens.items[start..self.at].iter().fold(0, |open: usize, item| match item.kind {
            TokenKind::Punct(Punct::OpenBrace) => open + 1,
            TokenKind::Punct(Punct::CloseBrace) => open.saturating_sub(1),
            _ => open,
        })
    }

    /// After a head (`if (...)`, a function's first line) with a syntax error: skips to the `{` of its body,
    /// if that stands on the same line.
    pub(super) fn skip_to_body(&mut self) -> Parsed<()> {
        let mut ahead = 0;
        loop {
            let item = self.ahead(ahead);
            match item.kind {
                TokenKind::Punct(Punct::OpenBrace) => break,
                TokenKind::End | TokenKind::Punct(Punct::CloseBrace) => return Err(Unreadable),
                _ if item.starts_line && ahead > 0 => return Err(Unreadable),
                _ => ahead += 1,
            }
        }
        self.skip(ahead);
        Ok(())
    }

    /// Whether the block that began at `open` can no longer be closed; reports that once.
    pub(super) fn is_unclosed(&mut self, open: Span) -> bool {
        if !self.at_end() && !self.leaves_blocks() {
            return false;
        }
        let known = if self.at_end() {
            std::mem::replace(&mut self.ended, true)
        } else {
            self.unclosed_at.replace(self.at) == Some(self.at)
        };
        if !known {
            let found = match self.kind() {
                TokenKind::End => "the end of the file".to_owned(),
                _ => format!("`{}`", self.spelling(self.span())),
            };
            self.report(
                Diagnostic::error(201, self.span(), format!("expected `}}`, found {found}"))
                    .also(open, "this block is not closed"),
            );
        }
        true
    }
}
