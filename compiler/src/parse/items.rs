//! Declarations (language reference, 2.1).

use super::statements::C_TYPES;
use super::{Parsed, Parser, Unreadable};
use crate::ast::{
    AstFunction, Attribute, AttributeArg, Expr, ExprKind, FieldDecl, File, Ident, Item, ItemKind, Param,
    Returns, UnaryOp,
};
use crate::diag::Diagnostic;
use crate::lex::{Keyword, Punct, TokenKind};
use crate::source::Span;

impl Parser<'_> {
    pub(super) fn file(&mut self) -> File {
        let mut items = Vec::new();
        self.eat_semicolons();
        while !self.at_end() {
            let start = self.at;
            self.chain = 0;
            match self.declaration() {
                Ok(item) => items.push(item),
                Err(Unreadable) => self.skip_declaration(start),
            }
            self.eat_semicolons();
        }
        File { items, end: self.span() }
    }

    fn declaration(&mut self) -> Parsed<Item> {
        let start = self.span();
        let docs = self.docs();
        let mut kind = match self.kind() {
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
            TokenKind::Keyword(Keyword::Pin | Keyword::Local | Keyword::Var) => self.global(None, None)?,
            TokenKind::Keyword(Keyword::Const) => self.top_level_const()?,
            TokenKind::Keyword(Keyword::Extern) => self.external(None)?,
            TokenKind::Keyword(Keyword::Fn) => ItemKind::Function(self.function(Vec::new())?),
            TokenKind::Keyword(Keyword::Impl) => {
                self.report(
                    Diagnostic::error(201, start, "expected an attribute before `impl`")
                        .help("write `@struct_ops(\"name\")` above it"),
                );
                self.implementation(Vec::new())?
            }
            _ if self.starts_per_cpu() && self.ahead(1).kind == TokenKind::Keyword(Keyword::Extern) => {
                let per_cpu = self.advance().span;
                self.external(Some(per_cpu))?
            }
            _ if self.starts_per_cpu() => self.global(None, None)?,
            _ if self.starts_counter() => self.counter()?,
            _ => return self.no_declaration(),
        };
        let span = start.to(self.last_span());
        if let ItemKind::Function(function) = &mut kind {
            function.docs = docs;
            return Ok(Item { docs: None, kind, span });
        }
        Ok(Item { docs, kind, span })
    }

    fn no_declaration<T>(&mut self) -> Parsed<T> {
        if self.at_punct(Punct::CloseBrace) && self.unclosed_at.is_some() {
            // This brace ends a block that was already reported as unclosed.
            return Err(Unreadable);
        }
        let hint = match self.spelling(self.span()).as_str() {
            "map" => Some("write `var name : hash<K, V>(size)`"),
            "let" => Some("`var` declares a variable"),
            "pub" | "priv" => Some("there are no visibility words: leave it out"),
            "option" => Some("there are no options: a pointer may be null, a map entry may be absent"),
            "program" => Some("a program is a function with an attribute, for example `@xdp fn name(...)`"),
            "func" | "function" | "def" => Some("`fn` declares a function"),
            "SEC" => Some("an attribute names the hook of a program, for example `@xdp fn name(...)`"),
            "tracepoint" | "kprobe" | "kretprobe" | "uprobe" | "uretprobe" | "fentry" | "fexit"
            | "profile" => {
                Some("an attribute names the hook: `@tracepoint(\"sched/sched_switch\") fn name(...)`")
            }
            "BEGIN" | "END" | "interval" => {
                Some("`fn main() -> i32` runs in userspace: it attaches and prints")
            }
            "use" | "mod" | "require" | "using" => Some("`import name from \"file.ks\"` names a module"),
            "typedef" => Some("write `type Name = u32`, or `struct Name { field: u32 }`"),
            "class" => Some("write `struct Name { field: u32 }`"),
            name if C_TYPES.contains(&name) => {
                Some("`var name: type = value` declares a variable, `fn name() -> type` a function")
            }
            _ => None,
        };
        self.unexpected_because("a declaration", hint)
    }

    fn attributed(&mut self) -> Parsed<ItemKind> {
        if self.at_flags() || self.at_column() {
            return self.attributed_global();
        }
        let mut attributes = Vec::new();
        while self.at_punct(Punct::At) {
            attributes.push(self.attribute()?);
        }
        match self.kind() {
            TokenKind::Keyword(Keyword::Fn) => Ok(ItemKind::Function(self.function(attributes)?)),
            TokenKind::Keyword(Keyword::Struct) => {
                self.only_strings(&attributes)?;
                self.structure(attributes)
            }
            TokenKind::Keyword(Keyword::Impl) => {
                self.only_strings(&attributes)?;
                self.implementation(attributes)
            }
            TokenKind::Punct(Punct::OpenBrace) | TokenKind::Keyword(Keyword::If) => {
                Ok(ItemKind::Function(self.headless(attributes)?))
            }
            TokenKind::Keyword(Keyword::Var | Keyword::Pin) => {
                let span = attributes[0].span;
                self.report(
                    Diagnostic::error(203, span, "only @flags and @column may stand before a variable")
                        .help("write `@flags(no_prealloc)`, or remove the attribute"),
                );
                Err(Unreadable)
            }
            _ => self.unexpected("`fn`, `struct`, `impl`, `{` or `if` behind the attribute"),
        }
    }

    fn attribute(&mut self) -> Parsed<Attribute> {
        let start = self.advance().span;
        let name = self.ident("the name of an attribute")?;
        if !self.at_punct(Punct::OpenParen) {
            let span = start.to(name.span);
            return Ok(Attribute {
                name,
                argument: None,
                more: Vec::new(),
                also: Vec::new(),
                optional: false,
                span,
            });
        }
        let open = self.advance().span;
        let is_alone = |next| matches!(next, Punct::Comma | Punct::CloseParen);
        let first_is_text = self.kind() == TokenKind::Str
            && matches!(self.ahead(1).kind, TokenKind::Punct(next) if is_alone(next));
        if self.options.strict_011 && !(first_is_text && self.punct_ahead(1, Punct::CloseParen)) {
            self.report(one_string(open.to(self.span())));
            return Err(Unreadable);
        }
        let argument = if first_is_text { Some(self.string("a string")?) } else { None };
        let goes_on = argument.is_none() || self.eat_punct(Punct::Comma);
        if goes_on && self.at_punct(Punct::CloseParen) {
            self.report(one_string(open.to(self.span())));
            return Err(Unreadable);
        }
        let (more, close) = self.enclosed(|parser| parser.list(Punct::CloseParen, Self::attribute_arg))?;
        Ok(Attribute { name, argument, more, also: Vec::new(), optional: false, span: start.to(close) })
    }

    /// Parses `value` or `name: value`.
    fn attribute_arg(&mut self) -> Parsed<AttributeArg> {
        let is_named = self.kind() == TokenKind::Ident && self.punct_ahead(1, Punct::Colon);
        let name = if is_named {
            let name = self.ident("the name of an argument")?;
            self.advance();
            Some(name)
        } else {
            None
        };
        Ok(AttributeArg { name, value: self.expr()? })
    }

    /// Reports attributes with other arguments than one string, which only functions may have.
    fn only_strings(&mut self, attributes: &[Attribute]) -> Parsed<()> {
        match attributes.iter().flat_map(|attribute| &attribute.more).next() {
            Some(argument) => {
                self.report(one_string(argument.span()));
                Err(Unreadable)
            }
            None => Ok(()),
        }
    }

    /// Parses the body of a function whose attribute says all: `@tracepoint("sched/sched_switch") { .. }`.
    fn headless(&mut self, attributes: Vec<Attribute>) -> Parsed<AstFunction> {
        let name = attributes.first().expect("an attribute stands before the body").name.clone();
        self.since_011(name.span, "function without a name");
        let (params, ret) = (Vec::new(), None);
        let body = if self.at_keyword(Keyword::If) { self.only_an_if()? } else { self.block()? };
        Ok(AstFunction { docs: None, attributes, has_head: false, name, params, ret, body })
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
        Ok(ItemKind::Config { name, fields: self.fields("config")? })
    }

    fn structure(&mut self, attributes: Vec<Attribute>) -> Parsed<ItemKind> {
        self.advance();
        let name = self.ident("the name of the struct")?;
        Ok(ItemKind::Struct { attributes, name, fields: self.fields("struct")? })
    }

    /// Parses fields with a type and an optional default.
    fn fields(&mut self, what: &str) -> Parsed<Vec<FieldDecl>> {
        self.expect_punct(Punct::OpenBrace)?;
        let (fields, _) = self.list(Punct::CloseBrace, |parser| {
            let docs = parser.docs();
            let column = if what == "struct" && parser.at_column() { Some(parser.column()?) } else { None };
            let name = parser.field_name()?;
            parser.expect_punct(Punct::Colon)?;
            let ty = parser.type_expr()?;
            let default = if parser.eat_punct(Punct::Eq) {
                if what == "struct" {
                    parser.since_011(name.span, "defaults in structs");
                }
                Some(parser.literal(201, "a default needs a literal")?)
            } else {
                None
            };
            Ok(FieldDecl { docs, column, name, ty, default })
        })?;
        Ok(fields)
    }

    /// Parses a literal with an optional sign: the default of a field, or a static field. Reports anything
    /// else with `code` and the text `otherwise`.
    fn literal(&mut self, code: u16, otherwise: &str) -> Parsed<Expr> {
        let value = self.expr()?;
        if let ExprKind::Unary(UnaryOp::Neg, _) = value.kind {
            self.since_011(value.span, "negative literal here");
        }
        if !is_literal(&value) {
            self.report(Diagnostic::error(code, value.span, otherwise));
        }
        Ok(value)
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
                if parser.eat_punct(Punct::Eq) { Some(parser.signed_int("an integer")?) } else { None };
            Ok((name, value))
        })?;
        Ok(ItemKind::Enum { name, enumerators })
    }

    fn external(&mut self, per_cpu: Option<Span>) -> Parsed<ItemKind> {
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
        if self.at_punct(Punct::Colon) {
            self.since_011(name.span, "variable of the kernel");
            self.advance();
            return Ok(ItemKind::ExternVariable { per_cpu, name, ty: self.type_expr()? });
        }
        if per_cpu.is_some() {
            return self.unexpected("`:` and the type of the variable");
        }
        let params = self.params()?;
        let ret = if self.eat_punct(Punct::Arrow) { Some(self.type_expr()?) } else { None };
        if self.at_punct(Punct::Colon) {
            return self.unexpected_because("a declaration", Some("the result of an extern has no name"));
        }
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

    fn function(&mut self, attributes: Vec<Attribute>) -> Parsed<AstFunction> {
        let docs = self.docs();
        self.expect_keyword(Keyword::Fn)?;
        let name = self.ident("the name of the function")?;
        let Ok((params, ret)) = self.signature() else {
            // Errors in the body are independent of errors in the head.
            self.skip_to_body()?;
            self.block()?;
            return Err(Unreadable);
        };
        Ok(AstFunction { docs, attributes, has_head: true, name, params, ret, body: self.block()? })
    }

    fn signature(&mut self) -> Parsed<(Vec<Param>, Option<Returns>)> {
        let params = self.params()?;
        let ret = if self.eat_punct(Punct::Arrow) { Some(self.returns()?) } else { None };
        if !self.at_punct(Punct::OpenBrace) {
            return self.unexpected("`{`");
        }
        Ok((params, ret))
    }

    fn returns(&mut self) -> Parsed<Returns> {
        let named = self.kind() == TokenKind::Ident && self.punct_ahead(1, Punct::Colon);
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
        let open = self.expect_punct(Punct::OpenBrace)?;
        let (mut methods, mut fields) = (Vec::new(), Vec::new());
        loop {
            self.eat_semicolons();
            if self.eat_punct(Punct::CloseBrace) {
                break;
            }
            if self.at_end() {
                self.is_unclosed(open);
                return Err(Unreadable);
            }
            match self.kind() {
                TokenKind::Keyword(Keyword::Fn) => methods.push(self.function(Vec::new())?),
                TokenKind::Punct(Punct::At) => {
                    let hint = "the attribute of the impl block is that of its functions";
                    return self.unexpected_because("`fn` or a static field", Some(hint));
                }
                _ => fields.push(self.static_field()?),
            }
        }
        Ok(ItemKind::Impl { attributes, name, methods, fields })
    }

    fn static_field(&mut self) -> Parsed<(Ident, Expr)> {
        let name = self.field_name()?;
        self.expect_punct(Punct::Colon)?;
        let value = self.literal(206, "a static field needs a literal")?;
        if !self.eat_punct(Punct::Comma) {
            if !self.at_punct(Punct::CloseBrace) {
                return self.unexpected("`,` behind the static field");
            }
            self.since_011(name.span, "static field without a comma behind it");
        }
        Ok((name, value))
    }
}

fn one_string(span: Span) -> Diagnostic {
    Diagnostic::error(208, span, "an attribute takes one string or nothing")
        .help("write its argument in quotes, for example `@tc(\"ingress\")`")
}

/// Whether an expression is a literal, with or without a sign.
fn is_literal(expr: &Expr) -> bool {
    match &expr.kind {
        ExprKind::Int(_)
        | ExprKind::Str(_)
        | ExprKind::Char(_)
        | ExprKind::Bool(_)
        | ExprKind::Null
        | ExprKind::Array(_) => true,
        ExprKind::Unary(UnaryOp::Neg, digits) => matches!(digits.kind, ExprKind::Int(_)),
        _ => false,
    }
}
