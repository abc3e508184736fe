//! Expressions (language reference, 1.6 and 2.4).

use super::{Parsed, Parser};
use crate::ast::{Arm, ArmResult, BinaryOp, Expr, ExprKind, Ident, UnaryOp};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};
use crate::source::Span;

fn boxed(expr: Expr) -> Box<Expr> {
    Box::new(expr)
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.deeper(|parser| parser.binary(1))
    }

    /// What may bound a range: everything but `||`, `&&` and comparisons.
    pub(super) fn range_end(&mut self) -> Parsed<Expr> {
        self.deeper(|parser| parser.binary(BinaryOp::Or.level()))
    }

    fn binary(&mut self, level: u8) -> Parsed<Expr> {
        let mut left = self.unary()?;
        while let Some((op, tokens)) = self.binary_op() {
            if op.level() < level || self.starts_store(op) {
                break;
            }
            self.warn_continuation();
            (0..tokens).for_each(|_| {
                self.advance();
            });
            let right = self.deeper(|parser| parser.binary(op.level() + 1))?;
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Binary(op, boxed(left), boxed(right)), span };
        }
        Ok(left)
    }

    /// The operator here and how many tokens it takes. Nothing if an assignment follows it.
    fn binary_op(&self) -> Option<(BinaryOp, usize)> {
        let TokenKind::Punct(punct) = self.kind() else { return None };
        let next_joined = |count, punct| {
            let next = self.ahead(count);
            next.joined && next.kind == TokenKind::Punct(punct)
        };
        let (op, tokens) = match punct {
            Punct::OrOr => (BinaryOp::OrOr, 1),
            Punct::AndAnd => (BinaryOp::AndAnd, 1),
            Punct::EqEq => (BinaryOp::Eq, 1),
            Punct::NotEq => (BinaryOp::Ne, 1),
            Punct::Less if next_joined(1, Punct::Less) => (BinaryOp::Shl, 2),
            Punct::Greater if next_joined(1, Punct::Greater) => (BinaryOp::Shr, 2),
            Punct::Less if next_joined(1, Punct::LessEq) => return None,
            Punct::Greater if next_joined(1, Punct::GreaterEq) => return None,
            Punct::Less => (BinaryOp::Lt, 1),
            Punct::LessEq => (BinaryOp::Le, 1),
            Punct::Greater => (BinaryOp::Gt, 1),
            Punct::GreaterEq => (BinaryOp::Ge, 1),
            Punct::Or => (BinaryOp::Or, 1),
            Punct::Caret => (BinaryOp::Xor, 1),
            Punct::And => (BinaryOp::And, 1),
            Punct::Plus => (BinaryOp::Add, 1),
            Punct::Minus => (BinaryOp::Sub, 1),
            Punct::Star => (BinaryOp::Mul, 1),
            Punct::Slash => (BinaryOp::Div, 1),
            Punct::Percent => (BinaryOp::Rem, 1),
            _ => return None,
        };
        let assigns = next_joined(tokens, Punct::Eq)
            && matches!(op, BinaryOp::Or | BinaryOp::Xor | BinaryOp::And | BinaryOp::Shl | BinaryOp::Shr);
        (!assigns).then_some((op, tokens))
    }

    /// A line that begins with `*p =` is a store through a pointer, not a product.
    fn starts_store(&mut self, op: BinaryOp) -> bool {
        if op != BinaryOp::Mul || !self.item().starts_line || self.enclosed > 0 {
            return false;
        }
        let (at, diagnostics) = (self.at, self.diagnostics.clone());
        let stores = self.unary().is_ok() && self.assign_op().is_some();
        (self.at, self.diagnostics) = (at, diagnostics);
        stores
    }

    /// Warns where a line goes on with the statement above although it looks like a new one.
    fn warn_continuation(&mut self) {
        let item = self.item();
        let surprising = matches!(
            item.kind,
            TokenKind::Punct(Punct::Minus | Punct::Star | Punct::And | Punct::OpenParen | Punct::OpenBracket)
        );
        if self.enclosed == 0 && item.starts_line && surprising {
            self.report(
                Diagnostic::warning(214, item.span, "this line continues the statement above")
                    .also(self.last_span(), "which goes on here")
                    .help("put the operator at the end of the line above if that is meant"),
            );
        }
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let op = match self.kind() {
            TokenKind::Punct(Punct::Minus) => UnaryOp::Neg,
            TokenKind::Punct(Punct::Not) => UnaryOp::Not,
            TokenKind::Punct(Punct::Star) => UnaryOp::Deref,
            TokenKind::Punct(Punct::And) => UnaryOp::AddrOf,
            TokenKind::Punct(Punct::Tilde) => UnaryOp::BitNot,
            _ => return self.cast(),
        };
        let start = self.advance().span;
        let operand = self.deeper(Self::unary)?;
        let span = start.to(operand.span);
        let prefixed = Expr { kind: ExprKind::Unary(op, boxed(operand)), span };
        Ok(prefixed)
    }

    fn cast(&mut self) -> Parsed<Expr> {
        let mut expr = self.postfix()?;
        while self.kind() == TokenKind::Ident
            && self.spelling(self.span()) == "as"
            && !self.item().starts_line
        {
            self.advance();
            let ty = self.type_expr()?;
            let span = expr.span.to(ty.span);
            expr = Expr { kind: ExprKind::Cast(boxed(expr), ty), span };
        }
        Ok(expr)
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let mut expr = self.atom()?;
        loop {
            let kind = match self.kind() {
                TokenKind::Punct(punct @ (Punct::Dot | Punct::Arrow)) => {
                    // `..` is a range, not a member.
                    if punct == Punct::Dot && self.ahead(1).kind == TokenKind::Punct(Punct::Dot) {
                        return Ok(expr);
                    }
                    self.advance();
                    let name = self.field_name()?;
                    ExprKind::Field { base: boxed(expr.clone()), arrow: punct == Punct::Arrow, name }
                }
                TokenKind::Punct(Punct::OpenBracket) => {
                    self.warn_continuation();
                    self.advance();
                    let index = self.enclosed(Self::expr)?;
                    self.expect_punct(Punct::CloseBracket)?;
                    ExprKind::Index(boxed(expr.clone()), boxed(index))
                }
                TokenKind::Punct(Punct::OpenParen) => {
                    self.warn_continuation();
                    self.advance();
                    let (args, _) = self.enclosed(|parser| parser.list(Punct::CloseParen, Self::expr))?;
                    ExprKind::Call { callee: boxed(expr.clone()), args }
                }
                _ => return Ok(expr),
            };
            expr = Expr { kind, span: expr.span.to(self.last_span()) };
        }
    }

    fn atom(&mut self) -> Parsed<Expr> {
        let item = self.item();
        let kind = match item.kind {
            TokenKind::Int => {
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
                let (elements, _) = self.enclosed(|parser| parser.list(Punct::CloseBracket, Self::expr))?;
                ExprKind::Array(elements)
            }
            _ => return self.unexpected("an expression"),
        };
        Ok(Expr { kind, span: item.span.to(self.last_span()) })
    }

    fn char_value(&self, span: Span) -> u8 {
        self.string_bytes(span).first().copied().unwrap_or(0)
    }

    fn name_or_struct(&mut self) -> Parsed<Expr> {
        let name = self.ident("a name")?;
        if !self.at_punct(Punct::OpenBrace) {
            return Ok(Expr { span: name.span, kind: ExprKind::Name(name.name) });
        }
        let open = self.advance().span;
        let (fields, close) = self.enclosed(|parser| {
            parser.list(Punct::CloseBrace, |parser| {
                let field = parser.field_name()?;
                parser.expect_punct(Punct::Colon)?;
                Ok((field, parser.expr()?))
            })
        })?;
        if fields.is_empty() {
            let text = format!("expected a field of `{}`, found `}}`", name.name);
            self.report(
                Diagnostic::error(201, open.to(close), text).help("a struct literal names its fields"),
            );
        }
        let span = name.span.to(close);
        Ok(Expr { kind: ExprKind::Struct { name, fields }, span })
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
        self.expect_punct(Punct::OpenParen)?;
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
            let digits = self.int("an integer", false)?;
            let value = Expr { kind: ExprKind::Int(digits.value), span: digits.span };
            return Ok(Expr {
                kind: ExprKind::Unary(UnaryOp::Neg, boxed(value)),
                span: start.to(digits.span),
            });
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
