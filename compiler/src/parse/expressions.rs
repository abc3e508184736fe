//! Expressions (language reference, 1.6 and 2.4).

use super::strict::is_primary;
use super::{Parsed, Parser};
use crate::ast::{BinaryOp, Expr, ExprKind, Ident, UnaryOp};
use crate::diag::Diagnostic;
use crate::lex::{Punct, TokenKind};

pub(super) fn boxed(expr: Expr) -> Box<Expr> {
    Box::new(expr)
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.deeper(|parser| parser.binary(1))
    }

    /// Parses the end of a range: everything but `||`, `&&` and comparisons.
    pub(super) fn range_end(&mut self) -> Parsed<Expr> {
        self.deeper(|parser| parser.binary(BinaryOp::Or.level()))
    }

    fn binary(&mut self, level: u8) -> Parsed<Expr> {
        let outside = std::mem::take(&mut self.chain);
        let mut left = self.cast()?;
        while let Some((op, tokens)) = self.binary_op() {
            if op.level() < level || (op == BinaryOp::Mul && self.starts_store()) {
                break;
            }
            self.warn_continuation();
            if op.is_bitwise() {
                self.since_011(self.span(), "operators on bits");
            }
            self.skip(tokens);
            let right = self.deeper(|parser| parser.binary(op.level() + 1))?;
            self.link()?;
            let span = left.span.to(right.span);
            left = Expr { kind: ExprKind::Binary(op, boxed(left), boxed(right)), span };
        }
        self.chain = self.chain.max(outside);
        Ok(left)
    }

    /// Returns the operator at this token and its number of tokens; none if an assignment follows it.
    fn binary_op(&self) -> Option<(BinaryOp, usize)> {
        let TokenKind::Punct(punct) = self.kind() else { return None };
        let next_joined = |count, punct| self.joined_ahead(count, punct);
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

    /// Whether a line begins with `*p =`, which is a store through a pointer, not a product. Looks at tokens
    /// only: the operand may contain whole blocks, which would be parsed twice.
    pub(super) fn starts_store(&self) -> bool {
        if !self.at_punct(Punct::Star) || !self.item().starts_line || self.enclosed > 0 {
            return false;
        }
        let mut ahead = 0;
        while let TokenKind::Punct(Punct::Star | Punct::And | Punct::Minus | Punct::Not | Punct::Tilde) =
            self.ahead(ahead).kind
        {
            ahead += 1;
        }
        // An operand: a name or parentheses, then members, calls and indices.
        ahead = match self.ahead(ahead).kind {
            TokenKind::Ident => ahead + 1,
            TokenKind::Punct(Punct::OpenParen) => self.after_brackets(ahead),
            _ => return false,
        };
        loop {
            ahead = match self.ahead(ahead).kind {
                TokenKind::Punct(Punct::Dot | Punct::Arrow) => ahead + 2,
                TokenKind::Punct(Punct::OpenParen | Punct::OpenBracket) => self.after_brackets(ahead),
                _ => return self.assign_op_ahead(ahead).is_some(),
            };
        }
    }

    /// Returns how many tokens ahead the token after the matching closing bracket is; the bracket opens
    /// `ahead` tokens from here.
    fn after_brackets(&self, mut ahead: usize) -> usize {
        let mut open = 0u32;
        loop {
            match self.ahead(ahead).kind {
                TokenKind::Punct(Punct::OpenParen | Punct::OpenBracket | Punct::OpenBrace) => open += 1,
                TokenKind::Punct(Punct::CloseParen | Punct::CloseBracket | Punct::CloseBrace) => open -= 1,
                TokenKind::End => return ahead,
                _ => {}
            }
            ahead += 1;
            if open == 0 {
                return ahead;
            }
        }
    }

    /// Warns where a line continues the statement above although it looks like a new one.
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

    /// `e as T`, which binds tighter than `*` and looser than prefix operators.
    fn cast(&mut self) -> Parsed<Expr> {
        let mut expr = self.unary()?;
        while self.at_cast() {
            self.since_011(self.span(), "`as`");
            self.advance();
            self.link()?;
            let ty = self.cast_type()?;
            let span = expr.span.to(ty.span);
            expr = Expr { kind: ExprKind::Cast(boxed(expr), ty), span };
        }
        Ok(expr)
    }

    /// Whether `as` starts a cast. The word is not reserved: at the start of a line it may be a variable, but
    /// not before a type.
    fn at_cast(&self) -> bool {
        let next = self.ahead(1);
        let before_type = !next.starts_line && matches!(next.kind, TokenKind::Ident | TokenKind::Keyword(_));
        self.ident_ahead(0, "as") && (!self.item().starts_line || before_type)
    }

    fn unary(&mut self) -> Parsed<Expr> {
        let op = match self.kind() {
            TokenKind::Punct(Punct::Minus) => UnaryOp::Neg,
            TokenKind::Punct(Punct::Not) => UnaryOp::Not,
            TokenKind::Punct(Punct::Star) => UnaryOp::Deref,
            TokenKind::Punct(Punct::And) => UnaryOp::AddrOf,
            TokenKind::Punct(Punct::Tilde) => UnaryOp::BitNot,
            _ => return self.postfix(),
        };
        let start = self.advance().span;
        if op == UnaryOp::BitNot {
            self.since_011(start, "operators on bits");
        }
        let operand = self.deeper(Self::unary)?;
        let span = start.to(operand.span);
        Ok(Expr { kind: ExprKind::Unary(op, boxed(operand)), span })
    }

    fn postfix(&mut self) -> Parsed<Expr> {
        let mut expr = self.atom()?;
        loop {
            let TokenKind::Punct(punct) = self.kind() else { return Ok(expr) };
            let start = expr.span;
            let kind = match punct {
                // `..` belongs to a range, not to a member.
                Punct::Dot if self.punct_ahead(1, Punct::Dot) => return Ok(expr),
                Punct::Dot | Punct::Arrow => {
                    self.check_base_since_011(&expr);
                    self.member(expr, punct == Punct::Arrow)?
                }
                Punct::OpenBracket => {
                    self.warn_continuation();
                    // An array literal on a line of its own is no key of the statement above.
                    let is_index = self.enclosed > 0 || !self.item().starts_line;
                    self.advance();
                    let index = self.enclosed(if is_index { Self::index } else { Self::expr })?;
                    self.expect_punct(Punct::CloseBracket)?;
                    ExprKind::Index(boxed(expr), boxed(index))
                }
                Punct::OpenParen => {
                    self.check_base_since_011(&expr);
                    self.call(expr)?
                }
                _ => return Ok(expr),
            };
            self.link()?;
            expr = Expr { kind, span: start.to(self.last_span()) };
        }
    }

    /// Parses an index, or the parts of a key: `a, b`.
    fn index(&mut self) -> Parsed<Expr> {
        let first = self.expr()?;
        if !self.at_punct(Punct::Comma) {
            return Ok(first);
        }
        self.since_011(self.span(), "several values as a key");
        let start = first.span;
        let mut parts = vec![first];
        while self.eat_punct(Punct::Comma) {
            parts.push(self.expr()?);
        }
        Ok(Expr { kind: ExprKind::Keys(parts), span: start.to(self.last_span()) })
    }

    /// Refuses, in strict mode, a base that 0.1.1 cannot parse: there an index, a struct literal and a match
    /// end an expression. It only accepts `m[k].f += e`.
    fn check_base_since_011(&mut self, base: &Expr) {
        let entry = matches!(&base.kind, ExprKind::Index(map, _) if matches!(map.kind, ExprKind::Name(_)))
            && self.at_punct(Punct::Dot)
            && matches!(self.assign_op_ahead(2), Some((Some(_), _)));
        if !is_primary(base) && !entry {
            self.since_011(self.span(), "member or call behind this");
        }
    }

    /// Parses `.name` or `->name`, and `module.S { ... }`.
    fn member(&mut self, base: Expr, arrow: bool) -> Parsed<ExprKind> {
        self.advance();
        if let (ExprKind::Name(module), false, true) = (&base.kind, arrow, self.struct_literal_follows()) {
            let module = Ident { name: module.clone(), span: base.span };
            self.since_011(base.span, "types of a module");
            let name = self.ident("the name of a struct")?;
            return self.struct_literal(Some(module), name);
        }
        if self.kind() == TokenKind::Int && self.item().joined {
            return self.unexpected_because("a field name", Some("there are no numbers with a fraction"));
        }
        Ok(ExprKind::Field { base: boxed(base), arrow, name: self.member_name()? })
    }

    fn struct_literal_follows(&self) -> bool {
        self.kind() == TokenKind::Ident && self.punct_ahead(1, Punct::OpenBrace)
    }

    /// Parses `top: 10`.
    fn named_argument(&mut self) -> Parsed<Expr> {
        let name = self.ident("the name of an argument")?;
        self.since_011(name.span, "arguments with names");
        self.advance();
        let value = self.expr()?;
        Ok(Expr { span: name.span.to(value.span), kind: ExprKind::Named(name, boxed(value)) })
    }

    fn call(&mut self, callee: Expr) -> Parsed<ExprKind> {
        self.warn_continuation();
        self.advance();
        let of_type = matches!(&callee.kind, ExprKind::Name(name) if name == "sizeof");
        let (args, _) = self.enclosed(|parser| {
            parser.list(Punct::CloseParen, |parser| {
                if of_type && parser.only_a_type_ahead() {
                    let ty = parser.type_expr()?;
                    parser.since_011(ty.span, "`sizeof`");
                    return Ok(Expr { span: ty.span, kind: ExprKind::Type(ty) });
                }
                if parser.kind() == TokenKind::Ident && parser.punct_ahead(1, Punct::Colon) {
                    return parser.named_argument();
                }
                parser.expr()
            })
        })?;
        Ok(ExprKind::Call { callee: boxed(callee), args })
    }
}
