//! Variables, maps, constants and counters at top level (language reference, 2.1, 11.5, 11.12).

use super::types::LINEAR_HIST;
use super::{Parsed, Parser, Unreadable};
use crate::ast::{ColumnAttribute, Global, Ident, ItemKind, MapFlags, TypeExpr, TypeExprKind};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};

impl Parser<'_> {
    /// Whether `@flags(` follows. With a text behind it, it is an attribute that no function has.
    pub(super) fn at_flags(&self) -> bool {
        self.at_attribute("flags") && self.ahead(3).kind != TokenKind::Str
    }

    /// Whether `@column(` follows.
    pub(super) fn at_column(&self) -> bool {
        self.at_attribute("column")
    }

    fn at_attribute(&self, name: &str) -> bool {
        self.at_punct(Punct::At)
            && self.spelling(self.ahead(1).span) == name
            && self.punct_ahead(2, Punct::OpenParen)
    }

    /// Parses a variable behind `@flags(..)`, `@column(..)` or both.
    pub(super) fn attributed_global(&mut self) -> Parsed<ItemKind> {
        let (mut flags, mut column) = (None, None);
        while self.at_punct(Punct::At) {
            if flags.is_none() && self.at_flags() {
                flags = Some(self.map_flags()?);
            } else if column.is_none() && self.at_column() {
                column = Some(self.column()?);
            } else {
                return self.unexpected("`var` behind @flags and @column");
            }
        }
        self.global(flags, column)
    }

    /// Parses `@column("heading", "unit")`; the unit may be missing.
    pub(super) fn column(&mut self) -> Parsed<ColumnAttribute> {
        let start = self.advance().span;
        self.advance();
        self.advance();
        let heading = self.string("the heading of a column, as text")?;
        let unit = if self.eat_punct(Punct::Comma) { Some(self.string("a unit, as text")?) } else { None };
        let close = self.expect_punct(Punct::CloseParen)?;
        let span = start.to(close);
        self.since_011(span, "`@column`");
        Ok(ColumnAttribute { heading, unit, span })
    }

    fn map_flags(&mut self) -> Parsed<MapFlags> {
        let start = self.advance().span;
        self.advance();
        self.advance();
        let mut flags = Vec::new();
        loop {
            let name = self.ident("a map flag")?;
            let number = if self.eat_punct(Punct::OpenParen) {
                let number = self.int("a number")?;
                self.expect_punct(Punct::CloseParen)?;
                Some(number)
            } else {
                None
            };
            flags.push((name, number));
            if !self.eat_punct(Punct::Or) {
                break;
            }
        }
        let close = self.expect_punct(Punct::CloseParen)?;
        Ok(MapFlags { flags, span: start.to(close) })
    }

    pub(super) fn global(
        &mut self,
        flags: Option<MapFlags>,
        column: Option<ColumnAttribute>,
    ) -> Parsed<ItemKind> {
        let keyword_span = |parser: &mut Self, keyword| {
            let span = parser.span();
            parser.eat_keyword(keyword).then_some(span)
        };
        let pin = keyword_span(self, Keyword::Pin);
        if self.at_punct(Punct::At) {
            return self.unexpected("`var` (attributes stand before `pin`)");
        }
        let local = keyword_span(self, Keyword::Local);
        let per_cpu = self.ident_ahead(0, "percpu").then(|| self.advance().span);
        if let Some(span) = per_cpu {
            self.since_011(span, "variables of each CPU");
        }
        self.expect_keyword(Keyword::Var)?;
        let name = self.ident("the name of the variable")?;
        let ty = if self.eat_punct(Punct::Colon) {
            self.in_local = local.is_some();
            let ty = self.global_type();
            self.in_local = false;
            Some(ty?)
        } else {
            None
        };
        let init = if self.eat_punct(Punct::Eq) {
            Some(self.expr()?)
        } else if ty.is_none() {
            return self.unexpected("`:` and a type, or `=` and a value");
        } else {
            None
        };
        Ok(ItemKind::Global(Global { flags, column, pin, local, per_cpu, name, ty, init }))
    }

    /// Parses a type, or a map kind that is written without `<`.
    fn global_type(&mut self) -> Parsed<TypeExpr> {
        if self.ident_ahead(0, "map") && self.punct_ahead(1, Punct::Less) {
            self.report(
                Diagnostic::error(202, self.span(), "there is no map kind `map`")
                    .help("write `hash<K, V>(size)`"),
            );
            return Err(Unreadable);
        }
        let is_kind = self.kind() == TokenKind::Ident && !self.ident_ahead(0, LINEAR_HIST);
        if !is_kind || !self.punct_ahead(1, Punct::OpenParen) {
            return self.type_expr();
        }
        let span = self.advance().span;
        let kind = Ident { name: self.spelling(span), span };
        self.since_011_as(202, span, &format!("map kind `{}`", kind.name));
        let size = Some(self.map_size()?);
        let kind = TypeExprKind::Keyless { kind, value: None, size };
        Ok(TypeExpr { kind, span: span.to(self.last_span()) })
    }

    pub(super) fn top_level_const(&mut self) -> Parsed<ItemKind> {
        let keyword_span = self.advance().span;
        self.since_011(keyword_span, "`const` at top level");
        let name = self.ident("the name of the constant")?;
        let ty = if self.eat_punct(Punct::Colon) { Some(self.type_expr()?) } else { None };
        self.expect_punct(Punct::Eq)?;
        Ok(ItemKind::Const { name, ty, value: self.expr()? })
    }

    /// `counter name : event group leader`.
    pub(super) fn counter(&mut self) -> Parsed<ItemKind> {
        let keyword_span = self.advance().span;
        self.since_011(keyword_span, "`counter`");
        let name = self.ident("the name of the counter")?;
        self.expect_punct(Punct::Colon)?;
        let event = self.expr()?;
        let leader = if self.ident_ahead(0, "group") {
            self.advance();
            Some(self.ident("the counter that leads the group")?)
        } else {
            None
        };
        Ok(ItemKind::Counter { name, event, leader })
    }
}
