//! Operands: literals, names, struct literals, objects, matches (language reference, 2.4).

use super::expressions::boxed;
use super::{Parsed, Parser};
use crate::ast::{Arm, ArmResult, Expr, ExprKind, Ident, UnaryOp};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};
use crate::source::Span;

impl Parser<'_> {
    pub(super) fn atom(&mut self) -> Parsed<Expr> {
        let item = self.item();
        let kind = match item.kind {
            TokenKind::Int => {
                self.check_number_ends()?;
                self.advance();
                ExprKind::Int(self.int_value(item.span))
            }
            TokenKind::Str => {
                self.advance();
                ExprKind::Str(self.string_bytes(item.span))
            }
            TokenKind::Char => {
                self.advance();
                ExprKind::Char(self.char_value(item.span))
            }
            TokenKind::Ident => return self.name_or_struct(),
            TokenKind::Keyword(Keyword::Str) if self.punct_ahead(1, Punct::OpenParen) => {
                self.since_011(item.span, "`str(..)` of a pointer");
                self.advance();
                ExprKind::Name(Keyword::Str.text().into())
            }
            TokenKind::Keyword(Keyword::True | Keyword::False) => {
                self.advance();
                ExprKind::Bool(item.kind == TokenKind::Keyword(Keyword::True))
            }
            TokenKind::Keyword(Keyword::Null) => {
                self.advance();
                ExprKind::Null
            }
            TokenKind::Keyword(Keyword::New) => self.new_object()?,
            TokenKind::Keyword(Keyword::Match) => self.match_expr()?,
            TokenKind::Punct(Punct::OpenParen) => {
                self.advance();
                let inner = self.enclosed(Self::expr)?;
                self.expect_punct(Punct::CloseParen)?;
                ExprKind::Paren(boxed(inner))
            }
            TokenKind::Punct(Punct::OpenBracket) => {
                self.advance();
                ExprKind::Array(self.enclosed(Self::array_elements)?)
            }
            TokenKind::Punct(Punct::At) => {
                let hint = "maps have no `@`: write `name[key]`, and declare `var name : hash<K, V>(size)`";
                return self.unexpected_because("an expression", Some(hint));
            }
            _ => return self.unexpected("an expression"),
        };
        Ok(Expr { kind, span: item.span.to(self.last_span()) })
    }

    fn char_value(&self, span: Span) -> u8 {
        self.string_bytes(span).first().copied().unwrap_or(0)
    }

    /// Parses the rest of an array literal: literals and enumerators, without a trailing comma.
    fn array_elements(&mut self) -> Parsed<Vec<Expr>> {
        let mut elements = Vec::new();
        if self.eat_punct(Punct::CloseBracket) {
            return Ok(elements);
        }
        loop {
            elements.push(self.array_element()?);
            if self.eat_punct(Punct::CloseBracket) {
                return Ok(elements);
            }
            if !self.eat_punct(Punct::Comma) {
                return self.unexpected("`,` or `]`");
            }
        }
    }

    fn array_element(&mut self) -> Parsed<Expr> {
        let element = self.expr()?;
        match &element.kind {
            ExprKind::Int(_)
            | ExprKind::Str(_)
            | ExprKind::Char(_)
            | ExprKind::Bool(_)
            | ExprKind::Null
            | ExprKind::Array(_) => {}
            ExprKind::Name(_) => self.since_011(element.span, "names in an array literal"),
            ExprKind::Unary(UnaryOp::Neg, digits) if matches!(digits.kind, ExprKind::Int(_)) => {
                self.since_011(element.span, "negative literal here");
            }
            _ => self.report(
                Diagnostic::error(201, element.span, "an array literal holds literals and enumerators")
                    .help("declare the array and assign its elements: `a[0] = ...`"),
            ),
        }
        Ok(element)
    }

    fn name_or_struct(&mut self) -> Parsed<Expr> {
        let name = self.ident("a name")?;
        let start = name.span;
        if !self.at_punct(Punct::OpenBrace) {
            return Ok(Expr { span: start, kind: ExprKind::Name(name.name) });
        }
        let kind = self.struct_literal(None, name)?;
        Ok(Expr { kind, span: start.to(self.last_span()) })
    }

    /// Parses `{ a: 1 }` after the name of a struct.
    pub(super) fn struct_literal(&mut self, module: Option<Ident>, name: Ident) -> Parsed<ExprKind> {
        let open = self.advance().span;
        let (fields, close) = self.enclosed(|parser| {
            parser.list(Punct::CloseBrace, |parser| {
                let field = parser.field_name()?;
                parser.expect_punct(Punct::Colon)?;
                Ok((field, parser.expr()?))
            })
        })?;
        if fields.is_empty() {
            self.since_011(open.to(close), "struct literal without fields");
        }
        Ok(ExprKind::Struct { module, name, fields })
    }

    fn new_object(&mut self) -> Parsed<ExprKind> {
        self.advance();
        let ty = self.type_expr()?;
        self.expect_punct(Punct::OpenParen)?;
        let flag =
            if self.at_punct(Punct::CloseParen) { None } else { Some(boxed(self.enclosed(Self::expr)?)) };
        self.expect_punct(Punct::CloseParen)?;
        Ok(ExprKind::New(ty, flag))
    }

    fn match_expr(&mut self) -> Parsed<ExprKind> {
        self.advance();
        if !self.at_punct(Punct::OpenParen) {
            let hint = "write `match (value) { pattern: result, default: result }`";
            return self.unexpected_because("`(`", Some(hint));
        }
        self.advance();
        let value = self.enclosed(Self::expr)?;
        self.expect_punct(Punct::CloseParen)?;
        let open = self.expect_punct(Punct::OpenBrace)?;
        let outside = std::mem::replace(&mut self.enclosed, 0);
        let arms = self.list(Punct::CloseBrace, Self::arm);
        self.enclosed = outside;
        let (arms, close) = arms?;
        if arms.is_empty() {
            self.report(Diagnostic::error(201, open.to(close), "expected an arm of the match, found `}`"));
        }
        Ok(ExprKind::Match { value: boxed(value), arms })
    }

    fn arm(&mut self) -> Parsed<Arm> {
        let pattern = if self.eat_keyword(Keyword::Default) { None } else { Some(self.pattern()?) };
        self.expect_punct(Punct::Colon)?;
        let result = if self.at_punct(Punct::OpenBrace) {
            ArmResult::Block(self.block()?)
        } else {
            ArmResult::Expr(self.expr()?)
        };
        Ok(Arm { pattern, result })
    }

    fn pattern(&mut self) -> Parsed<Expr> {
        let start = self.span();
        if self.eat_punct(Punct::Minus) {
            let digits = self.int("an integer")?;
            let span = start.to(digits.span);
            self.since_011(span, "negative literal here");
            let value = Expr { kind: ExprKind::Int(digits.value), span: digits.span };
            return Ok(Expr { kind: ExprKind::Unary(UnaryOp::Neg, boxed(value)), span });
        }
        let literal = matches!(
            self.kind(),
            TokenKind::Int
                | TokenKind::Str
                | TokenKind::Char
                | TokenKind::Keyword(Keyword::True | Keyword::False)
        );
        if literal {
            return self.atom();
        }
        let Ident { name, span } = self.ident("a literal, an enumerator or `default`")?;
        Ok(Expr { kind: ExprKind::Name(name), span })
    }
}
