//! Types (language reference, 2.2).

use super::{Parsed, Parser};
use crate::ast::{Ident, TypeExpr, TypeExprKind};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};

/// The words that are types by themselves.
const SCALARS: &[Keyword] = &[
    Keyword::U8,
    Keyword::U16,
    Keyword::U32,
    Keyword::U64,
    Keyword::I8,
    Keyword::I16,
    Keyword::I32,
    Keyword::I64,
    Keyword::Bool,
    Keyword::Char,
    Keyword::Void,
];

impl Parser<'_> {
    pub(super) fn type_expr(&mut self) -> Parsed<TypeExpr> {
        self.deeper(|parser| {
            let element = parser.type_element()?;
            parser.array_suffixes(element)
        })
    }

    fn type_element(&mut self) -> Parsed<TypeExpr> {
        let start = self.span();
        let kind = match self.kind() {
            TokenKind::Punct(Punct::Star) => {
                self.advance();
                TypeExprKind::Ptr(Box::new(self.type_expr()?))
            }
            TokenKind::Keyword(Keyword::Str) => self.str_type()?,
            TokenKind::Keyword(Keyword::Fn) => self.fn_type()?,
            TokenKind::Keyword(word) if SCALARS.contains(&word) => {
                self.advance();
                TypeExprKind::Name(word.text().into())
            }
            TokenKind::Ident => {
                let name = self.ident("a type")?;
                if self.at_punct(Punct::Less) {
                    self.kernel_type(name)?
                } else {
                    TypeExprKind::Name(name.name)
                }
            }
            _ => return self.unexpected("a type"),
        };
        Ok(TypeExpr { kind, span: start.to(self.last_span()) })
    }

    fn str_type(&mut self) -> Parsed<TypeExprKind> {
        self.advance();
        self.expect_punct(Punct::OpenParen)?;
        let size = self.int("the size of the string", false)?;
        self.expect_punct(Punct::CloseParen)?;
        Ok(TypeExprKind::Str(size))
    }

    fn fn_type(&mut self) -> Parsed<TypeExprKind> {
        self.advance();
        self.expect_punct(Punct::OpenParen)?;
        let (params, _) = self.list(Punct::CloseParen, |parser| {
            let named =
                parser.kind() == TokenKind::Ident && parser.ahead(1).kind == TokenKind::Punct(Punct::Colon);
            if named {
                parser.advance();
                parser.advance();
            }
            parser.type_expr()
        })?;
        self.expect_punct(Punct::Arrow)?;
        Ok(TypeExprKind::Fn(params, Box::new(self.type_expr()?)))
    }

    /// `kind<K, V>(N)` or `ringbuf<T>(N)`; `<` is next.
    fn kernel_type(&mut self, kind: Ident) -> Parsed<TypeExprKind> {
        self.advance();
        let first = Box::new(self.type_expr()?);
        if kind.name == "ringbuf" {
            self.expect_punct(Punct::Greater)?;
            return Ok(TypeExprKind::Ring(first, self.map_size()?));
        }
        self.expect_punct(Punct::Comma)?;
        let value = Box::new(self.type_expr()?);
        self.expect_punct(Punct::Greater)?;
        Ok(TypeExprKind::Map { kind, key: first, value, size: self.map_size()? })
    }

    fn map_size(&mut self) -> Parsed<crate::ast::IntLit> {
        let literal = self.at_punct(Punct::OpenParen)
            && self.ahead(1).kind == TokenKind::Int
            && self.ahead(2).kind == TokenKind::Punct(Punct::CloseParen);
        if !literal {
            let span = self.span();
            self.report(
                Diagnostic::error(204, span, "a map needs a literal size in parentheses")
                    .help("write the number of entries behind the type, for example `(1024)`"),
            );
            return Err(super::Unreadable);
        }
        self.advance();
        let size = self.int("the size", false)?;
        self.advance();
        Ok(size)
    }

    /// `[N]` on the same line: an array. A pointer takes its suffix before the star.
    fn array_suffixes(&mut self, mut element: TypeExpr) -> Parsed<TypeExpr> {
        while self.at_punct(Punct::OpenBracket)
            && !self.item().starts_line
            && !matches!(element.kind, TypeExprKind::Ptr(_) | TypeExprKind::Fn(..))
        {
            self.advance();
            let len = self.int("the length of the array", false)?;
            self.expect_punct(Punct::CloseBracket)?;
            let span = element.span.to(self.last_span());
            element = TypeExpr { kind: TypeExprKind::Array(Box::new(element), len), span };
        }
        Ok(element)
    }
}
