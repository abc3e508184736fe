//! Declarations (language reference, 2.1).

use super::{Parsed, Parser, Unreadable};
use crate::ast::{
    Attribute, Expr, ExprKind, FieldDecl, File, Function, Global, Ident, IntLit, Item, ItemKind, MapFlags,
    Param, Returns, TypeExprKind, UnaryOp,
};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};
use crate::source::Span;

/// The words that begin a declaration.
const STARTS: &[Keyword] = &[
    Keyword::Include,
    Keyword::Import,
    Keyword::Config,
    Keyword::Type,
    Keyword::Enum,
    Keyword::Struct,
    Keyword::Pin,
    Keyword::Local,
    Keyword::Var,
    Keyword::Extern,
    Keyword::Fn,
    Keyword::Impl,
];

impl Parser<'_> {
    pub(super) fn file(&mut self) -> File {
        let mut items = Vec::new();
        while !self.at_end() {
            match self.declaration() {
                Ok(item) => items.push(item),
                Err(Unreadable) => self.skip_declaration(),
            }
        }
        File { items, end: self.span() }
    }

    /// Goes on at the next line that begins like a declaration.
    fn skip_declaration(&mut self) {
        let starts = |parser: &Self| {
            parser.item().starts_line
                && match parser.kind() {
                    TokenKind::Keyword(word) => STARTS.contains(&word),
                    TokenKind::Punct(Punct::At) => true,
                    _ => false,
                }
        };
        if !starts(self) || self.at == 0 {
            self.advance();
        }
        while !self.at_end() && !starts(self) {
            self.skip_until(starts);
            // A `}` on its own closes what could not be read.
            if self.at_punct(Punct::CloseBrace) {
                self.advance();
            }
        }
    }

    fn declaration(&mut self) -> Parsed<Item> {
        let start = self.span();
        let kind = match self.kind() {
            TokenKind::Punct(Punct::At) => self.attributed()?,
            TokenKind::Keyword(Keyword::Include) => {
                self.advance();
                ItemKind::Include(self.string("the path of a header")?)
            }
            TokenKind::Keyword(Keyword::Import) => self.import()?,
            TokenKind::Keyword(Keyword::Config) => self.config()?,
            TokenKind::Keyword(Keyword::Type) => self.alias()?,
            TokenKind::Keyword(Keyword::Enum) => self.enumeration()?,
            TokenKind::Keyword(Keyword::Struct) => self.structure(Vec::new())?,
            TokenKind::Keyword(Keyword::Pin | Keyword::Local | Keyword::Var) => self.global(None)?,
            TokenKind::Keyword(Keyword::Extern) => self.external()?,
            TokenKind::Keyword(Keyword::Fn) => ItemKind::Function(self.function(Vec::new())?),
            TokenKind::Keyword(Keyword::Impl) => {
                self.report(
                    Diagnostic::error(201, start, "expected an attribute before `impl`")
                        .help("write `@struct_ops(\"name\")` above it"),
                );
                self.implementation(Vec::new())?
            }
            _ => return self.no_declaration(),
        };
        Ok(Item { kind, span: start.to(self.last_span()) })
    }

    fn no_declaration<T>(&mut self) -> Parsed<T> {
        let hint = match self.spelling(self.span()).as_str() {
            "map" => Some("write `var name : hash<K, V>(size)`"),
            "let" => Some("`var` declares a variable"),
            "pub" | "priv" => Some("there are no visibility words: leave it out"),
            "const" => Some("a constant stands inside a function"),
            _ => None,
        };
        let before = self.diagnostics.clone();
        let result = self.unexpected("a declaration");
        if let (Some(hint), Some(last)) = (hint, self.diagnostics.iter().last().cloned()) {
            self.diagnostics = before;
            self.report(last.help(hint));
        }
        result
    }

    fn attributed(&mut self) -> Parsed<ItemKind> {
        if self.spelling(self.ahead(1).span) == "flags"
            && self.ahead(2).kind == TokenKind::Punct(Punct::OpenParen)
            && self.ahead(3).kind != TokenKind::Str
        {
            let flags = self.map_flags()?;
            return self.global(Some(flags));
        }
        let mut attributes = Vec::new();
        while self.at_punct(Punct::At) {
            attributes.push(self.attribute()?);
        }
        match self.kind() {
            TokenKind::Keyword(Keyword::Fn) => Ok(ItemKind::Function(self.function(attributes)?)),
            TokenKind::Keyword(Keyword::Struct) => self.structure(attributes),
            TokenKind::Keyword(Keyword::Impl) => self.implementation(attributes),
            TokenKind::Keyword(Keyword::Var | Keyword::Pin) => {
                let span = attributes[0].span;
                self.report(
                    Diagnostic::error(203, span, "only @flags may stand before a map")
                        .help("write `@flags(no_prealloc)`, or remove the attribute"),
                );
                Err(Unreadable)
            }
            _ => self.unexpected("`fn`, `struct` or `impl` behind the attribute"),
        }
    }

    fn attribute(&mut self) -> Parsed<Attribute> {
        let start = self.advance().span;
        let name = self.ident("the name of an attribute")?;
        if !self.at_punct(Punct::OpenParen) {
            return Ok(Attribute { span: start.to(name.span), name, argument: None });
        }
        let open = self.advance().span;
        let string = self.kind() == TokenKind::Str;
        if !string || self.ahead(1).kind != TokenKind::Punct(Punct::CloseParen) {
            self.report(
                Diagnostic::error(208, open.to(self.span()), "an attribute takes one string or nothing")
                    .help("write its argument in quotes, for example `@tc(\"ingress\")`"),
            );
            return Err(Unreadable);
        }
        let argument = self.string("a string")?;
        let close = self.advance().span;
        Ok(Attribute { name, argument: Some(argument), span: start.to(close) })
    }

    fn map_flags(&mut self) -> Parsed<MapFlags> {
        let start = self.advance().span;
        self.advance();
        self.advance();
        let mut flags = Vec::new();
        loop {
            let name = self.ident("a map flag")?;
            let number = if self.eat_punct(Punct::OpenParen) {
                let number = self.int("a number", false)?;
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

    fn import(&mut self) -> Parsed<ItemKind> {
        self.advance();
        let name = self.ident("the name of the module")?;
        self.expect_keyword(Keyword::From)?;
        Ok(ItemKind::Import { name, path: self.string("the path of a module")? })
    }

    fn config(&mut self) -> Parsed<ItemKind> {
        self.advance();
        let name = self.ident("the name of the config")?;
        Ok(ItemKind::Config { name, fields: self.fields()? })
    }

    fn structure(&mut self, attributes: Vec<Attribute>) -> Parsed<ItemKind> {
        self.advance();
        let name = self.ident("the name of the struct")?;
        Ok(ItemKind::Struct { attributes, name, fields: self.fields()? })
    }

    fn fields(&mut self) -> Parsed<Vec<FieldDecl>> {
        self.expect_punct(Punct::OpenBrace)?;
        let (fields, _) = self.list(Punct::CloseBrace, |parser| {
            let name = parser.field_name()?;
            parser.expect_punct(Punct::Colon)?;
            let ty = parser.type_expr()?;
            let default = if parser.eat_punct(Punct::Eq) { Some(parser.literal()?) } else { None };
            Ok(FieldDecl { name, ty, default })
        })?;
        Ok(fields)
    }

    /// A literal with an optional sign: the default of a field, a static field.
    fn literal(&mut self) -> Parsed<Expr> {
        let start = self.span();
        if !self.eat_punct(Punct::Minus) {
            return self.expr();
        }
        let IntLit { value, span, .. } = self.int("an integer", false)?;
        let digits = Box::new(Expr { kind: ExprKind::Int(value), span });
        Ok(Expr { kind: ExprKind::Unary(UnaryOp::Neg, digits), span: start.to(span) })
    }

    fn alias(&mut self) -> Parsed<ItemKind> {
        self.advance();
        let name = self.ident("the name of the type")?;
        self.expect_punct(Punct::Eq)?;
        Ok(ItemKind::Alias { name, ty: self.type_expr()? })
    }

    fn enumeration(&mut self) -> Parsed<ItemKind> {
        self.advance();
        let name = self.ident("the name of the enum")?;
        self.expect_punct(Punct::OpenBrace)?;
        let (enumerators, _) = self.list(Punct::CloseBrace, |parser| {
            let name = parser.ident("an enumerator")?;
            let value =
                if parser.eat_punct(Punct::Eq) { Some(parser.int("an integer", true)?) } else { None };
            Ok((name, value))
        })?;
        Ok(ItemKind::Enum { name, enumerators })
    }

    fn global(&mut self, flags: Option<MapFlags>) -> Parsed<ItemKind> {
        let word = |parser: &mut Self, keyword| {
            let span = parser.span();
            parser.eat_keyword(keyword).then_some(span)
        };
        let pin = word(self, Keyword::Pin);
        if self.at_punct(Punct::At) {
            return self.unexpected("`var` (@flags stands before `pin`)");
        }
        let local = word(self, Keyword::Local);
        self.expect_keyword(Keyword::Var)?;
        let name = self.ident("the name of the variable")?;
        let ty = if self.eat_punct(Punct::Colon) { Some(self.global_type()?) } else { None };
        let init = if self.eat_punct(Punct::Eq) {
            Some(self.expr()?)
        } else if ty.is_none() {
            return self.unexpected("`:` and a type, or `=` and a value");
        } else {
            None
        };
        Ok(ItemKind::Global(Global { flags, pin, local, name, ty, init }))
    }

    fn global_type(&mut self) -> Parsed<crate::ast::TypeExpr> {
        let old_spelling =
            self.spelling(self.span()) == "map" && self.ahead(1).kind == TokenKind::Punct(Punct::Less);
        if old_spelling {
            self.report(
                Diagnostic::error(202, self.span(), "there is no map kind `map`")
                    .help("write `hash<K, V>(size)`"),
            );
            return Err(Unreadable);
        }
        let ty = self.type_expr()?;
        debug_assert!(!matches!(ty.kind, TypeExprKind::Name(ref name) if name.is_empty()));
        Ok(ty)
    }

    fn external(&mut self) -> Parsed<ItemKind> {
        self.advance();
        if self.at_keyword(Keyword::Fn) {
            let span = self.span();
            self.report(
                Diagnostic::error(201, span, "expected the name of the function, found `fn`")
                    .help("write `extern name(a: u32) -> u64`, without `fn`"),
            );
            self.advance();
        }
        let name = self.ident("the name of the function")?;
        let params = self.params()?;
        let ret = if self.eat_punct(Punct::Arrow) { Some(self.type_expr()?) } else { None };
        Ok(ItemKind::Extern { name, params, ret })
    }

    fn params(&mut self) -> Parsed<Vec<Param>> {
        self.expect_punct(Punct::OpenParen)?;
        let (params, _) = self.list(Punct::CloseParen, |parser| {
            let name = parser.ident("the name of a parameter")?;
            parser.expect_punct(Punct::Colon)?;
            Ok(Param { name, ty: parser.type_expr()? })
        })?;
        Ok(params)
    }

    fn function(&mut self, attributes: Vec<Attribute>) -> Parsed<Function> {
        self.expect_keyword(Keyword::Fn)?;
        let name = self.ident("the name of the function")?;
        let params = self.params()?;
        let ret = if self.eat_punct(Punct::Arrow) { Some(self.returns()?) } else { None };
        Ok(Function { attributes, name, params, ret, body: self.block()? })
    }

    fn returns(&mut self) -> Parsed<Returns> {
        let named = self.kind() == TokenKind::Ident && self.ahead(1).kind == TokenKind::Punct(Punct::Colon);
        let name: Option<Ident> = if named {
            let name = self.ident("the name of the result")?;
            self.advance();
            Some(name)
        } else {
            None
        };
        Ok(Returns { name, ty: self.type_expr()? })
    }

    fn implementation(&mut self, attributes: Vec<Attribute>) -> Parsed<ItemKind> {
        self.advance();
        let name = self.ident("the name of the impl block")?;
        let open: Span = self.expect_punct(Punct::OpenBrace)?;
        let (mut methods, mut fields) = (Vec::new(), Vec::new());
        while !self.eat_punct(Punct::CloseBrace) {
            if self.at_end() {
                return self.ends_inside(open, "this block is not closed");
            }
            if self.at_keyword(Keyword::Fn) {
                methods.push(self.function(Vec::new())?);
                continue;
            }
            let field = self.field_name()?;
            self.expect_punct(Punct::Colon)?;
            fields.push((field, self.literal()?));
            if !self.eat_punct(Punct::Comma) && !self.at_punct(Punct::CloseBrace) {
                return self.unexpected("`,` behind the static field");
            }
        }
        Ok(ItemKind::Impl { attributes, name, methods, fields })
    }
}
