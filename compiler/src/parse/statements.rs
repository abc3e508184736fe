//! Statements (language reference, 2.3 and 2.5).

use super::{Parsed, Parser};
use crate::ast::{BinaryOp, Block, Catch, CatchPattern, Cond, Else, Expr, If, Stmt, StmtKind};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};

/// The words that begin a statement: where reading goes on after one that could not be read.
const STARTS: &[Keyword] = &[
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
    pub(super) fn block(&mut self) -> Parsed<Block> {
        let open = self.expect_punct(Punct::OpenBrace)?;
        let outside = std::mem::replace(&mut self.enclosed, 0);
        let block = self.deeper(|parser| parser.rest_of_block(open));
        self.enclosed = outside;
        block
    }

    fn rest_of_block(&mut self, open: crate::source::Span) -> Parsed<Block> {
        let mut stmts = Vec::new();
        while !self.at_punct(Punct::CloseBrace) {
            if self.at_end() {
                return self.ends_inside(open, "this block is not closed");
            }
            match self.stmt() {
                Ok(stmt) => stmts.push(stmt),
                Err(_) => self.skip_statement(),
            }
        }
        let close = self.advance().span;
        Ok(Block { stmts, span: open.to(close) })
    }

    /// Goes on at the next line that begins like a statement.
    fn skip_statement(&mut self) {
        if matches!(self.kind(), TokenKind::Keyword(word) if STARTS.contains(&word))
            && self.item().starts_line
        {
            return;
        }
        if !self.at_punct(Punct::CloseBrace) && !self.at_punct(Punct::OpenBrace) {
            self.advance();
        }
        self.skip_until(|parser| match parser.kind() {
            TokenKind::Keyword(word) => STARTS.contains(&word) && parser.item().starts_line,
            TokenKind::Ident => parser.item().starts_line,
            _ => false,
        });
    }

    fn stmt(&mut self) -> Parsed<Stmt> {
        let start = self.span();
        let kind = match self.kind() {
            TokenKind::Keyword(Keyword::Var) => self.var()?,
            TokenKind::Keyword(Keyword::Const) => self.constant()?,
            TokenKind::Keyword(Keyword::Return) => self.return_stmt()?,
            TokenKind::Keyword(Keyword::If) => StmtKind::If(self.if_stmt()?),
            TokenKind::Keyword(Keyword::While) => self.while_stmt()?,
            TokenKind::Keyword(Keyword::For) => self.for_stmt()?,
            TokenKind::Keyword(Keyword::Try) => self.try_stmt()?,
            TokenKind::Keyword(Keyword::Break) => {
                self.advance();
                StmtKind::Break
            }
            TokenKind::Keyword(Keyword::Continue) => {
                self.advance();
                StmtKind::Continue
            }
            TokenKind::Keyword(Keyword::Delete) => {
                self.advance();
                StmtKind::Delete(self.expr()?)
            }
            TokenKind::Keyword(Keyword::Throw) => {
                self.advance();
                StmtKind::Throw(self.expr()?)
            }
            TokenKind::Keyword(Keyword::Defer) => {
                self.advance();
                StmtKind::Defer(self.expr()?)
            }
            TokenKind::Punct(Punct::OpenBrace) => return self.bare_block(),
            _ => self.assign_or_expr()?,
        };
        Ok(Stmt { kind, span: start.to(self.last_span()) })
    }

    fn bare_block(&mut self) -> Parsed<Stmt> {
        self.report(
            Diagnostic::error(201, self.span(), "expected a statement, found `{`")
                .help("a block stands only behind `if`, `else`, `while`, `for`, `try` and `catch`"),
        );
        Err(super::Unreadable)
    }

    fn var(&mut self) -> Parsed<StmtKind> {
        self.advance();
        let name = self.ident("the name of the variable")?;
        let ty = if self.eat_punct(Punct::Colon) { Some(self.type_expr()?) } else { None };
        let init = if ty.is_none() || self.at_punct(Punct::Eq) {
            self.expect_punct(Punct::Eq)?;
            Some(self.expr()?)
        } else {
            None
        };
        Ok(StmtKind::Var { name, ty, init })
    }

    fn constant(&mut self) -> Parsed<StmtKind> {
        self.advance();
        let name = self.ident("the name of the constant")?;
        let ty = if self.eat_punct(Punct::Colon) { Some(self.type_expr()?) } else { None };
        self.expect_punct(Punct::Eq)?;
        Ok(StmtKind::Const { name, ty, value: self.expr()? })
    }

    fn return_stmt(&mut self) -> Parsed<StmtKind> {
        let word = self.advance().span;
        let next = self.item();
        let bare = match next.kind {
            TokenKind::Punct(Punct::CloseBrace) | TokenKind::End => true,
            TokenKind::Keyword(keyword) => STARTS.contains(&keyword),
            _ => false,
        };
        if bare {
            return Ok(StmtKind::Return(None));
        }
        if next.starts_line {
            self.report(
                Diagnostic::warning(214, next.span, "this line continues the statement above")
                    .also(word, "this returns the value below"),
            );
        }
        Ok(StmtKind::Return(Some(self.expr()?)))
    }

    fn if_stmt(&mut self) -> Parsed<If> {
        self.deeper(|parser| {
            parser.advance();
            parser.expect_punct(Punct::OpenParen)?;
            let cond = parser.enclosed(Self::cond)?;
            parser.expect_punct(Punct::CloseParen)?;
            let then = parser.block()?;
            let otherwise =
                if parser.eat_keyword(Keyword::Else) { Some(parser.else_branch()?) } else { None };
            Ok(If { cond, then, otherwise })
        })
    }

    fn else_branch(&mut self) -> Parsed<Else> {
        if !self.at_keyword(Keyword::If) {
            return Ok(Else::Block(self.block()?));
        }
        let start = self.span();
        let nested = Box::new(self.if_stmt()?);
        Ok(Else::If(nested, start.to(self.last_span())))
    }

    fn cond(&mut self) -> Parsed<Cond> {
        if !self.eat_keyword(Keyword::Var) {
            return Ok(Cond::Expr(self.expr()?));
        }
        let name = self.ident("the name of the variable")?;
        self.expect_punct(Punct::Eq)?;
        Ok(Cond::Var { name, value: self.expr()? })
    }

    fn while_stmt(&mut self) -> Parsed<StmtKind> {
        self.advance();
        self.expect_punct(Punct::OpenParen)?;
        let cond = self.enclosed(Self::expr)?;
        self.expect_punct(Punct::CloseParen)?;
        Ok(StmtKind::While { cond, body: self.block()? })
    }

    fn for_stmt(&mut self) -> Parsed<StmtKind> {
        self.advance();
        self.expect_punct(Punct::OpenParen)?;
        let name = self.ident("the name of the loop variable")?;
        if self.eat_punct(Punct::Comma) {
            let value = self.ident("the name of the value")?;
            self.expect_keyword(Keyword::In)?;
            let over = self.enclosed(Self::expr)?;
            self.expect_punct(Punct::CloseParen)?;
            return Ok(StmtKind::ForEach { key: name, value, over, body: self.block()? });
        }
        self.expect_keyword(Keyword::In)?;
        let start = self.enclosed(Self::range_end)?;
        self.expect_punct(Punct::Dot)?;
        self.expect_punct(Punct::Dot)?;
        let end = self.enclosed(Self::range_end)?;
        self.expect_punct(Punct::CloseParen)?;
        Ok(StmtKind::For { name, start, end, body: self.block()? })
    }

    fn try_stmt(&mut self) -> Parsed<StmtKind> {
        self.advance();
        let body = self.block()?;
        let mut catches = Vec::new();
        while self.eat_keyword(Keyword::Catch) {
            let pattern = if self.kind() == TokenKind::Int {
                CatchPattern::Int(self.int("an error code", false)?)
            } else {
                CatchPattern::Name(self.ident("an error code or `_`")?)
            };
            catches.push(Catch { pattern, body: self.block()? });
        }
        Ok(StmtKind::Try { body, catches })
    }

    fn assign_or_expr(&mut self) -> Parsed<StmtKind> {
        let left = self.expr()?;
        let Some((op, tokens)) = self.assign_op() else {
            self.check_statement_end(&left)?;
            return Ok(StmtKind::Expr(left));
        };
        (0..tokens).for_each(|_| {
            self.advance();
        });
        Ok(StmtKind::Assign { place: left, op, value: self.expr()? })
    }

    /// Words of other languages in front of a name are a likely slip; anything else may follow a statement.
    fn check_statement_end(&mut self, expr: &Expr) -> Parsed<()> {
        let crate::ast::ExprKind::Name(word) = &expr.kind else { return Ok(()) };
        let next = self.item();
        let hint = match word.as_str() {
            "let" => "`var` declares a variable",
            "loop" => "write `while (condition) { ... }`",
            _ => return Ok(()),
        };
        if next.starts_line || !matches!(next.kind, TokenKind::Ident | TokenKind::Punct(Punct::OpenBrace)) {
            return Ok(());
        }
        self.report(
            Diagnostic::error(201, expr.span, format!("expected a statement, found `{word}`")).help(hint),
        );
        Err(super::Unreadable)
    }

    /// The assignment operator here and how many tokens it takes.
    pub(super) fn assign_op(&self) -> Option<(Option<BinaryOp>, usize)> {
        let TokenKind::Punct(punct) = self.kind() else { return None };
        let next = |count, punct| {
            let item = self.ahead(count);
            item.joined && item.kind == TokenKind::Punct(punct)
        };
        Some(match punct {
            Punct::Eq => (None, 1),
            Punct::PlusEq => (Some(BinaryOp::Add), 1),
            Punct::MinusEq => (Some(BinaryOp::Sub), 1),
            Punct::StarEq => (Some(BinaryOp::Mul), 1),
            Punct::SlashEq => (Some(BinaryOp::Div), 1),
            Punct::PercentEq => (Some(BinaryOp::Rem), 1),
            Punct::And if next(1, Punct::Eq) => (Some(BinaryOp::And), 2),
            Punct::Or if next(1, Punct::Eq) => (Some(BinaryOp::Or), 2),
            Punct::Caret if next(1, Punct::Eq) => (Some(BinaryOp::Xor), 2),
            Punct::Less if next(1, Punct::LessEq) => (Some(BinaryOp::Shl), 2),
            Punct::Greater if next(1, Punct::GreaterEq) => (Some(BinaryOp::Shr), 2),
            _ => return None,
        })
    }
}
