//! Types (language reference, 2.2).

use super::{Parsed, Parser, Unreadable};
use crate::ast::{Ident, Size, TypeExpr, TypeExprKind};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};

/// Map kinds whose values belong to a kernel object and that have no size of their own.
const STORAGE: &[&str] = &["task_storage", "inode_storage", "sk_storage", "cgroup_storage"];

/// The histogram whose type has its scale in parentheses.
pub(super) const LINEAR_HIST: &str = "linear_hist";

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
            TokenKind::Keyword(keyword) if Keyword::SCALARS.contains(&keyword) => {
                self.advance();
                TypeExprKind::Name(keyword.text().into())
            }
            TokenKind::Ident => self.named_type()?,
            _ => return self.unexpected("a type"),
        };
        Ok(TypeExpr { kind, span: start.to(self.last_span()) })
    }

    fn str_type(&mut self) -> Parsed<TypeExprKind> {
        self.advance();
        self.expect_punct(Punct::OpenParen)?;
        let size = self.int("the size of the string")?;
        self.expect_punct(Punct::CloseParen)?;
        Ok(TypeExprKind::Str(size))
    }

    fn fn_type(&mut self) -> Parsed<TypeExprKind> {
        self.advance();
        self.expect_punct(Punct::OpenParen)?;
        let (params, _) = self.list(Punct::CloseParen, |parser| {
            if parser.kind() == TokenKind::Ident && parser.punct_ahead(1, Punct::Colon) {
                parser.skip(2);
            }
            parser.type_expr()
        })?;
        self.expect_punct(Punct::Arrow)?;
        Ok(TypeExprKind::Fn(params, Box::new(self.type_expr()?)))
    }

    /// Parses a type that begins with a name: `T`, `module.T`, `kind<...>(N)`.
    fn named_type(&mut self) -> Parsed<TypeExprKind> {
        let name = self.ident("a type")?;
        if self.at_punct(Punct::Less) && !self.in_cast {
            return self.kernel_type(name);
        }
        if name.name == LINEAR_HIST && self.at_punct(Punct::OpenParen) && !self.in_cast {
            self.since_011(name.span, "type `linear_hist`");
            return self.linear_hist();
        }
        if !self.at_punct(Punct::Dot) || self.punct_ahead(1, Punct::Dot) {
            return Ok(TypeExprKind::Name(name.name));
        }
        self.since_011(name.span, "types of a module");
        self.advance();
        Ok(TypeExprKind::Qualified { module: name, name: self.ident("the name of a type")? })
    }

    /// Parses `(low, step, n)`.
    fn linear_hist(&mut self) -> Parsed<TypeExprKind> {
        self.advance();
        let low = self.int("the lowest value of the first slot")?;
        self.expect_punct(Punct::Comma)?;
        let step = self.int("the width of a slot")?;
        self.expect_punct(Punct::Comma)?;
        let slots = self.int("the number of slots")?;
        self.expect_punct(Punct::CloseParen)?;
        Ok(TypeExprKind::LinearHist { low, step, slots })
    }

    /// Parses a type after `as`, where `<` is a comparison.
    pub(super) fn cast_type(&mut self) -> Parsed<TypeExpr> {
        let outside = std::mem::replace(&mut self.in_cast, true);
        let ty = self.type_expr();
        self.in_cast = outside;
        ty
    }

    /// Parses `kind<K, V>(N)`, `kind<V>(N)`, `kind<V>` or `ringbuf<T>(N)`; `<` is next.
    fn kernel_type(&mut self, kind: Ident) -> Parsed<TypeExprKind> {
        let help = match kind.name.as_str() {
            "map" => Some("write `hash<K, V>(size)`"),
            "option" => Some("there are no options: a pointer may be null, a map entry may be absent"),
            "list" => Some(
                "lists of objects came after KernelScript 0.1.1: `queue<T>(size)` and `hash<K, V>(size)` hold values",
            ),
            _ => None,
        };
        if let Some(help) = help {
            let text = format!("there is no map kind `{}`", kind.name);
            self.report(Diagnostic::error(202, kind.span, text).help(help));
            return Err(Unreadable);
        }
        self.advance();
        let first = Box::new(self.type_expr()?);
        if self.eat_punct(Punct::Comma) {
            // Maps as values are refused later, with or without a size.
            let outside = std::mem::replace(&mut self.in_map, true);
            let value = self.type_expr();
            self.in_map = outside;
            let value = Box::new(value?);
            self.expect_punct(Punct::Greater)?;
            let is_sized = !(self.in_local || self.in_map) || self.at_size();
            let size = if is_sized { Some(self.map_size()?) } else { None };
            return Ok(TypeExprKind::Map { kind, key: first, value, size });
        }
        if !self.at_punct(Punct::Greater) {
            return self.unexpected("`,` or `>`");
        }
        self.advance();
        if kind.name == "ringbuf" {
            return Ok(TypeExprKind::Ring(first, self.map_size()?));
        }
        self.since_011_as(202, kind.span, &format!("map kind `{}`", kind.name));
        let sized = !STORAGE.contains(&kind.name.as_str()) || self.at_size();
        let size = if sized { Some(self.map_size()?) } else { None };
        Ok(TypeExprKind::Keyless { kind, value: Some(first), size })
    }

    /// Whether a type that needs no size has one. A parenthesis on the next line begins a statement.
    fn at_size(&self) -> bool {
        self.at_punct(Punct::OpenParen) && !self.item().starts_line
    }

    pub(super) fn map_size(&mut self) -> Parsed<Size> {
        if self.at_punct(Punct::OpenParen)
            && self.ahead(1).kind == TokenKind::Ident
            && self.punct_ahead(2, Punct::Dot)
        {
            return self.size_option();
        }
        let literal = self.at_punct(Punct::OpenParen)
            && matches!(self.ahead(1).kind, TokenKind::Int | TokenKind::Ident)
            && self.punct_ahead(2, Punct::CloseParen);
        if !literal {
            let span = if self.at_punct(Punct::OpenParen) { self.ahead(1).span } else { self.last_span() };
            self.report(
                Diagnostic::error(204, span, "a map needs a literal size in parentheses")
                    .help("write the number of entries behind the type, for example `(1024)`"),
            );
            return Err(Unreadable);
        }
        self.advance();
        let size = self.size(204)?;
        self.advance();
        Ok(size)
    }

    /// Parses `(args.field)`.
    fn size_option(&mut self) -> Parsed<Size> {
        self.advance();
        let options = self.ident("the options")?;
        self.since_011_as(204, options.span, "sizes by options");
        self.advance();
        let field = self.ident("an option")?;
        self.expect_punct(Punct::CloseParen)?;
        Ok(Size::Option { options, field })
    }

    /// Parses a size: a literal or the name of a constant.
    fn size(&mut self, code: u16) -> Parsed<Size> {
        if self.kind() != TokenKind::Ident {
            return Ok(Size::Int(self.int("a size")?));
        }
        let name = self.ident("a size")?;
        self.since_011_as(code, name.span, "named sizes");
        Ok(Size::Const(name))
    }

    /// Parses `[N]` on the same line: an array. A pointer takes its suffix before the star.
    fn array_suffixes(&mut self, mut element: TypeExpr) -> Parsed<TypeExpr> {
        while self.at_punct(Punct::OpenBracket)
            && !self.item().starts_line
            && !matches!(element.kind, TypeExprKind::Ptr(_) | TypeExprKind::Fn(..))
        {
            self.link()?;
            if !matches!(element.kind, TypeExprKind::Name(_)) {
                self.since_011_as(210, element.span, "array of this element type without a type alias");
            }
            self.advance();
            let len = self.size(201)?;
            self.expect_punct(Punct::CloseBracket)?;
            let span = element.span.to(self.last_span());
            element = TypeExpr { kind: TypeExprKind::Array(Box::new(element), len), span };
        }
        Ok(element)
    }

    /// Whether the next tokens, after any stars, are a type that no expression can begin with.
    pub(super) fn only_a_type_ahead(&self) -> bool {
        let mut ahead = 0;
        while self.punct_ahead(ahead, Punct::Star) {
            ahead += 1;
        }
        match self.ahead(ahead).kind {
            TokenKind::Keyword(Keyword::Str | Keyword::Fn) => true,
            TokenKind::Keyword(keyword) => Keyword::SCALARS.contains(&keyword),
            _ => false,
        }
    }
}
