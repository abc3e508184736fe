//! Statements (language reference, 2.3 and 2.5).

use super::strict::is_primary;
use super::{Parsed, Parser, Unreadable};
use crate::ast::{
    BinaryOp, Block, Catch, CatchPattern, Cond, Else, Expr, ExprKind, Ident, If, Stmt, StmtKind, UnaryOp,
};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};
use crate::source::Span;

/// Help text for a declaration in the syntax of C.
const C_DECLARATION: &str = "`var name: type = value` declares a variable";

/// The word that begins a block under the lock of a map entry.
const LOCK: &str = "lock";

/// Type names that begin a declaration in C.
pub(super) const C_TYPES: &[&str] = &[
    "int", "unsigned", "signed", "long", "short", "float", "double", "auto", "static", "volatile",
    "register", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t",
    "size_t", "__u8", "__u16", "__u32", "__u64", "__s8", "__s16", "__s32", "__s64",
];

impl Parser<'_> {
    pub(super) fn block(&mut self) -> Parsed<Block> {
        let open = self.expect_punct(Punct::OpenBrace)?;
        let outside = std::mem::replace(&mut self.enclosed, 0);
        let block = self.deeper(|parser| parser.rest_of_block(open));
        self.enclosed = outside;
        block
    }

    /// Parses a body without braces: one `if`.
    pub(super) fn only_an_if(&mut self) -> Parsed<Block> {
        let stmt = self.deeper(Self::stmt)?;
        let span = stmt.span;
        Ok(Block { stmts: vec![stmt], span })
    }

    fn rest_of_block(&mut self, open: Span) -> Parsed<Block> {
        let mut stmts = Vec::new();
        loop {
            self.eat_semicolons();
            if self.at_punct(Punct::CloseBrace) {
                break;
            }
            if self.is_unclosed(open) {
                return Err(Unreadable);
            }
            let (start, chain) = (self.at, std::mem::take(&mut self.chain));
            match self.stmt() {
                Ok(stmt) => stmts.push(stmt),
                Err(Unreadable) => self.skip_statement(start),
            }
            self.chain = self.chain.max(chain);
        }
        let close = self.advance().span;
        Ok(Block { stmts, span: open.to(close) })
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
            TokenKind::Keyword(keyword)
                if Keyword::SCALARS.contains(&keyword)
                    && self.ahead(1).kind == TokenKind::Ident
                    && !self.ahead(1).starts_line =>
            {
                return self.unexpected_because("a statement", Some(C_DECLARATION));
            }
            TokenKind::Keyword(Keyword::Struct) => {
                let hint = "a struct is declared at top level; `var name: Name` declares a variable of one";
                return self.unexpected_because("a statement", Some(hint));
            }
            TokenKind::Punct(Punct::OpenBrace) => return self.bare_block(),
            TokenKind::Keyword(Keyword::Fn) => {
                let hint = "functions stand at top level, not inside each other";
                return self.unexpected_because("a statement", Some(hint));
            }
            TokenKind::Keyword(Keyword::Else) => {
                return self
                    .unexpected_because("a statement", Some("`else` stands behind the `}` of an `if`"));
            }
            TokenKind::Keyword(Keyword::Catch) => {
                return self
                    .unexpected_because("a statement", Some("`catch` stands behind the `}` of a `try`"));
            }
            _ if self.at_lock() => self.lock_stmt()?,
            TokenKind::Ident => {
                self.refuse_foreign_keyword()?;
                self.assign_or_expr()?
            }
            _ => self.assign_or_expr()?,
        };
        Ok(Stmt { kind, span: start.to(self.last_span()) })
    }

    fn bare_block(&mut self) -> Parsed<Stmt> {
        let help = "a block stands only behind `if`, `else`, `while`, `for`, `try` and `catch`";
        self.unexpected_because("a statement", Some(help))
    }

    /// Reports a statement of another language. Its keyword may be a name here, so the next tokens decide.
    fn refuse_foreign_keyword(&mut self) -> Parsed<()> {
        let (keyword, next) = (self.span(), self.ahead(1));
        let block = next.kind == TokenKind::Punct(Punct::OpenBrace) && !self.punct_ahead(3, Punct::Colon);
        let name = next.kind == TokenKind::Ident && !next.starts_line;
        let parenthesis = next.kind == TokenKind::Punct(Punct::OpenParen);
        let text = self.spelling(keyword);
        let help = match text.as_str() {
            "let" if name => "`var` declares a variable",
            "loop" if block => "write `while (condition) { ... }`",
            "do" if block => "the condition comes first: `while (condition) { ... }`",
            "switch" if parenthesis && self.block_after_parentheses() => {
                "write `match (value) { pattern: ... }`"
            }
            "elif" | "elsif" if parenthesis && self.block_after_parentheses() => {
                "write `else if (condition)`"
            }
            "def" | "func" | "function" if name => {
                "`fn` declares a function, at top level and not inside another"
            }
            "goto" if name => "there is no `goto`",
            _ if name && C_TYPES.contains(&text.as_str()) => C_DECLARATION,
            _ if self.joined_ahead(1, Punct::Not) && self.punct_ahead(2, Punct::OpenParen) => {
                "there are no macros: `print(\"%d\", x)` prints"
            }
            _ => return Ok(()),
        };
        self.report(
            Diagnostic::error(201, keyword, format!("expected a statement, found `{text}`")).help(help),
        );
        if block {
            self.skip_foreign_loop();
        }
        Err(Unreadable)
    }

    /// Whether a `{` follows the parentheses after this word.
    fn block_after_parentheses(&self) -> bool {
        let (mut open, mut ahead) = (0u32, 1);
        loop {
            match self.ahead(ahead).kind {
                TokenKind::Punct(Punct::OpenParen) => open += 1,
                TokenKind::Punct(Punct::CloseParen) => open -= 1,
                TokenKind::Punct(Punct::OpenBrace | Punct::CloseBrace) | TokenKind::End => return false,
                _ => {}
            }
            ahead += 1;
            if open == 0 {
                return self.punct_ahead(ahead, Punct::OpenBrace);
            }
        }
    }

    /// Parses the block of `loop { ... }` or `do { ... } while (...)` only to report the errors in it.
    fn skip_foreign_loop(&mut self) {
        self.advance();
        if self.block().is_ok() && self.eat_keyword(Keyword::While) {
            while !self.at_end() && !self.item().starts_line && !self.at_punct(Punct::CloseBrace) {
                self.advance();
            }
        }
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
        let keyword = self.advance().span;
        let next = self.item();
        let bare = match next.kind {
            TokenKind::Punct(Punct::CloseBrace | Punct::Comma | Punct::Semicolon) | TokenKind::End => true,
            TokenKind::Punct(Punct::Star) => self.starts_store(),
            _ => self.starts_statement(),
        };
        if bare {
            return Ok(StmtKind::Return(None));
        }
        if next.starts_line {
            self.report(
                Diagnostic::warning(214, next.span, "this line continues the statement above")
                    .also(keyword, "this returns the value below"),
            );
        }
        Ok(StmtKind::Return(Some(self.expr()?)))
    }

    /// Parses `( ... )` after a statement's keyword. If that fails, the body is still parsed.
    fn head<T>(
        &mut self,
        inner: impl FnOnce(&mut Self) -> Parsed<T>,
        unread: impl FnOnce(Expr) -> T,
    ) -> Parsed<T> {
        let start = self.span();
        let keyword = self.last_span();
        let read = (|| {
            if !self.at_punct(Punct::OpenParen) {
                let hint = match self.spelling(keyword).as_str() {
                    "for" => {
                        "write `for (i in 0..10) { .. }`, or `for (key, value in map) { .. }`".to_owned()
                    }
                    keyword => format!("a condition stands in parentheses: `{keyword} (x == 1) {{ .. }}`"),
                };
                return self.unexpected_because("`(`", Some(hint.as_str()));
            }
            self.advance();
            let head = self.enclosed(inner)?;
            if self.assign_op().is_some() {
                return self.unexpected_because("`)`", Some("an assignment has no value; `==` compares"));
            }
            self.expect_punct(Punct::CloseParen)?;
            if !self.at_punct(Punct::OpenBrace) {
                let hint = "a body stands in braces, also if it is one statement";
                return self.unexpected_because("`{`", Some(hint));
            }
            Ok(head)
        })();
        read.or_else(|Unreadable| {
            self.skip_to_body()?;
            Ok(unread(Expr { kind: ExprKind::Bool(true), span: start }))
        })
    }

    /// Parses an `if` with all its `else if` in a loop, not by recursion: a long chain is not deep.
    fn if_stmt(&mut self) -> Parsed<If> {
        let mut branches = Vec::new();
        let mut last = None;
        loop {
            let start = self.advance().span;
            let cond = self.head(Self::cond, Cond::Expr)?;
            branches.push((start, cond, self.block()?));
            if !self.eat_keyword(Keyword::Else) {
                break;
            }
            if !self.at_keyword(Keyword::If) {
                last = Some(Else::Block(self.block()?));
                break;
            }
            self.link()?;
        }
        let end = self.last_span();
        while branches.len() > 1 {
            if let Some((start, cond, then)) = branches.pop() {
                last = Some(Else::If(Box::new(If { cond, then, otherwise: last }), start.to(end)));
            }
        }
        let Some((_, cond, then)) = branches.pop() else { return Err(Unreadable) };
        Ok(If { cond, then, otherwise: last })
    }

    fn cond(&mut self) -> Parsed<Cond> {
        if !self.eat_keyword(Keyword::Var) {
            return Ok(Cond::Expr(self.expr()?));
        }
        let name = self.ident("the name of the variable")?;
        if self.at_punct(Punct::Colon) {
            return self
                .unexpected_because("`=`", Some("a variable in a condition has the type of its value"));
        }
        self.expect_punct(Punct::Eq)?;
        Ok(Cond::Var { name, value: self.expr()? })
    }

    fn while_stmt(&mut self) -> Parsed<StmtKind> {
        self.advance();
        let cond = self.head(Self::expr, |unread| unread)?;
        Ok(StmtKind::While { cond, body: self.block()? })
    }

    /// Whether a `lock` statement begins here. `lock` is a name everywhere else.
    pub(super) fn at_lock(&self) -> bool {
        self.kind() == TokenKind::Ident
            && self.punct_ahead(1, Punct::OpenParen)
            && self.spelling(self.span()) == LOCK
            && self.block_after_parentheses()
    }

    fn lock_stmt(&mut self) -> Parsed<StmtKind> {
        self.since_011(self.span(), "`lock`");
        self.advance();
        self.expect_punct(Punct::OpenParen)?;
        let name = self.ident("the variable that is bound to the entry")?;
        self.expect_punct(Punct::CloseParen)?;
        Ok(StmtKind::Lock { name, body: self.block()? })
    }

    fn for_stmt(&mut self) -> Parsed<StmtKind> {
        self.advance();
        let head = self.head(Self::for_head, ForHead::Unread)?;
        let body = self.block()?;
        Ok(match head {
            ForHead::Range(name, start, end) => StmtKind::For { name, start, end, body },
            ForHead::Each(key, value, over) => StmtKind::ForEach { key, value, over, body },
            ForHead::Unread(cond) => StmtKind::While { cond, body },
        })
    }

    fn for_head(&mut self) -> Parsed<ForHead> {
        let next = self.ahead(1).kind;
        let counts = match self.kind() {
            TokenKind::Punct(Punct::Semicolon) => true,
            TokenKind::Keyword(keyword) => keyword == Keyword::Var || Keyword::SCALARS.contains(&keyword),
            _ => matches!(next, TokenKind::Ident | TokenKind::Punct(Punct::Eq)),
        };
        if counts {
            let hint = "a loop counts by `for (i in 0..10)`; `while (condition)` asks each time";
            return self.unexpected_because("the name of the loop variable and `in`", Some(hint));
        }
        let name = self.ident("the name of the loop variable")?;
        if self.at_punct(Punct::Comma) {
            self.since_011(self.span(), "loop over the entries of a map");
            self.advance();
            let value = self.ident("the name of the value")?;
            self.expect_keyword(Keyword::In)?;
            return Ok(ForHead::Each(name, value, self.expr()?));
        }
        self.expect_keyword(Keyword::In)?;
        let start = self.checked_range_end()?;
        if !self.at_punct(Punct::Dot) {
            let hint = "entries of a map and elements of a list have two names: `for (key, value in m)`";
            return self.unexpected_because("`..` and the end of the range", Some(hint));
        }
        self.expect_punct(Punct::Dot)?;
        self.expect_punct(Punct::Dot)?;
        let end = self.checked_range_end()?;
        Ok(ForHead::Range(name, start, end))
    }

    fn checked_range_end(&mut self) -> Parsed<Expr> {
        let end = self.range_end()?;
        if !is_primary(&end) {
            self.since_011(end.span, "computed end of a range without parentheses");
        }
        Ok(end)
    }

    fn try_stmt(&mut self) -> Parsed<StmtKind> {
        self.advance();
        let body = self.block()?;
        let mut catches = Vec::new();
        while self.eat_keyword(Keyword::Catch) {
            let pattern = if self.kind() == TokenKind::Int {
                CatchPattern::Int(self.int("an error code")?)
            } else {
                let name = self.ident("an error code or `_`")?;
                if name.name != "_" {
                    self.since_011(name.span, "name as a pattern of `catch`");
                }
                CatchPattern::Name(name)
            };
            catches.push(Catch { pattern, body: self.block()? });
        }
        Ok(StmtKind::Try { body, catches })
    }

    fn assign_or_expr(&mut self) -> Parsed<StmtKind> {
        let left = self.expr()?;
        let Some((op, tokens)) = self.assign_op() else { return Ok(StmtKind::Expr(left)) };
        self.check_assignment_since_011(&left, op);
        self.skip(tokens);
        Ok(StmtKind::Assign { lvalue: left, op, value: self.expr()? })
    }

    fn check_assignment_since_011(&mut self, lvalue: &Expr, op: Option<BinaryOp>) {
        if op.is_some_and(|op| !op.is_arithmetic()) {
            self.since_011(self.span(), "operators on bits");
        }
        match &lvalue.kind {
            ExprKind::Unary(UnaryOp::Deref, _) => self.since_011(lvalue.span, "store through a pointer"),
            ExprKind::Field { name, .. } if op.is_none() && name.name == "type" => {
                self.since_011(name.span, "assignment to a field `type`");
            }
            ExprKind::Field { base, .. } if op.is_some() && !matches!(base.kind, ExprKind::Index(..)) => {
                self.since_011(lvalue.span, "such assignment to a field");
            }
            _ => {}
        }
    }

    /// Returns the assignment operator at this token and its number of tokens.
    pub(super) fn assign_op(&self) -> Option<(Option<BinaryOp>, usize)> {
        self.assign_op_ahead(0)
    }

    /// Returns the assignment operator `ahead` tokens from here and its number of tokens.
    pub(super) fn assign_op_ahead(&self, ahead: usize) -> Option<(Option<BinaryOp>, usize)> {
        let TokenKind::Punct(punct) = self.ahead(ahead).kind else { return None };
        let next = |count, punct| self.joined_ahead(ahead + count, punct);
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

/// The text between the parentheses of a `for`.
enum ForHead {
    /// A range: `name in start..end`.
    Range(Ident, Expr, Expr),
    /// `key, value in over`.
    Each(Ident, Ident, Expr),
    /// A head with a syntax error, already reported; the tree has a `while` with this condition instead.
    Unread(Expr),
}
