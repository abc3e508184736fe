//! `attach`, `read` and the struct `perf_options` (language reference, chapter 10).

use super::expr::Typed;
use super::function::Body;
use super::names::Symbol;
use super::prescan::strip;
use crate::ast;
use crate::builtins::perf::{EVENTS, attachment, options};
use crate::diag::{Diagnostic, near};
use crate::hir::{Expr, ExprKind, ReadForm, UserBuiltin};
use crate::source::Span;
use crate::types::TypeKind;

/// Fields that `perf_options` had, and what to write now.
pub(super) const OLD_FIELDS: &[(&str, &str)] = &[
    ("perf_type", "event: cache_misses"),
    ("perf_config", "event: cache_misses"),
    ("group_fd", "group: leader"),
];

/// What to write for a function of the old perf interface.
pub(super) fn old_call(name: &str) -> Option<&'static str> {
    match name {
        "read_raw" => Some("write `read(attachment).raw`"),
        "read_details" => Some("write `read(attachment)`"),
        "read_group" => Some("write `read(leader).values`"),
        _ => None,
    }
}

impl Body<'_, '_> {
    pub(super) fn check_old_fields(&mut self, fields: &[(ast::Ident, ast::Expr)]) {
        for (field, _) in fields {
            let Some((_, new)) = OLD_FIELDS.iter().find(|(old, _)| *old == field.name) else { continue };
            let text = format!("`perf_options` has no field `{}`", field.name);
            self.report(
                Diagnostic::error(304, field.span, text)
                    .label("an old spelling (KS0902)")
                    .help(format!("write `{new}`")),
            );
        }
    }

    /// The default of a field of `perf_options`; `event` has none.
    pub(super) fn default_option(&mut self, field: usize, span: Span) -> Option<Expr> {
        let common = self.checker.types.common();
        let (value, ty) = match field {
            options::PID => (u64::from(u32::MAX), common.i32),
            options::CPU => (0, common.i32),
            options::PERIOD => (1_000_000, common.u64),
            options::WAKEUP => (1, common.u32),
            options::INHERIT | options::EXCLUDE_KERNEL | options::EXCLUDE_USER => (0, common.bool),
            options::GROUP => return Some(self.attachment_constant(attachment::NONE, span)),
            _ => return None,
        };
        Some(Expr { kind: ExprKind::Const(value), ty, span })
    }

    fn attachment_constant(&mut self, perf_fd: i32, span: Span) -> Expr {
        let common = self.checker.types.common();
        let int = |value: i32| Expr { kind: ExprKind::Const(u64::from(value as u32)), ty: common.i32, span };
        let generation = Expr { kind: ExprKind::Const(0), ty: common.u64, span };
        let fields = vec![int(perf_fd), int(-1), int(-1), generation];
        Expr { kind: ExprKind::Struct(fields), ty: self.checker.known.perf_attachment, span }
    }

    /// The value given for a field of `perf_options`.
    pub(super) fn option_value(&mut self, field: usize, value: &ast::Expr, ty: crate::types::TypeId) -> Expr {
        match field {
            options::EVENT => self.event_value(value),
            options::GROUP => self.group_value(value),
            _ => self.value(value, ty),
        }
    }

    fn event_value(&mut self, value: &ast::Expr) -> Expr {
        let known = self.checker.known;
        if let ast::ExprKind::Name(name) = &strip(value).kind
            && self.lookup(name).is_none()
            && self.checker.names.get(name).is_none()
        {
            let help = near(name, EVENTS.iter().map(|event| event.name)).map_or(
                "the events are those of `enum perf_event`, such as `page_faults`".to_owned(),
                |near| format!("a similar event exists: `{near}`"),
            );
            self.report(
                Diagnostic::error(417, value.span, format!("no event named `{name}`"))
                    .label("unknown event")
                    .help(help),
            );
            return self.error_expr(value.span).expr;
        }
        let found = self.expr(value, Some(known.perf_event)).expr;
        if found.ty != known.perf_event && !self.checker.types.is_error(found.ty) {
            let text = format!("event must be a perf event, not `{}`", self.type_name(found.ty));
            self.report(
                Diagnostic::error(903, value.span, text)
                    .help("name one of `enum perf_event`, such as `cache_misses` or `page_faults`"),
            );
            return self.error_expr(value.span).expr;
        }
        found
    }

    fn group_value(&mut self, value: &ast::Expr) -> Expr {
        let known = self.checker.known;
        if matches!(strip(value).kind, ast::ExprKind::Null) {
            return self.attachment_constant(attachment::INVALID, value.span);
        }
        let found = self.expr(value, Some(known.perf_attachment)).expr;
        if found.ty != known.perf_attachment && !self.checker.types.is_error(found.ty) {
            let text = format!("group takes the leader's attachment, not `{}`", self.type_name(found.ty));
            let help = match self.checker.types.kind(found.ty) {
                TypeKind::Program => "`attach` gives the attachment; this is the program's handle",
                _ => "name what `attach` gave for the leader",
            };
            self.report(Diagnostic::error(904, value.span, text).help(help));
            return self.error_expr(value.span).expr;
        }
        found
    }

    /// Reports options that cannot work whatever the machine.
    pub(super) fn check_options_literal(&mut self, values: &[Expr], span: Span) {
        let constant = |field: usize| match values.get(field) {
            Some(Expr { kind: ExprKind::Const(bits), .. }) => Some(*bits as u32 as i32),
            _ => None,
        };
        if let (Some(-1), Some(-1)) = (constant(options::PID), constant(options::CPU)) {
            self.report(
                Diagnostic::error(905, span, "pid -1 with cpu -1 would be every task on every CPU")
                    .note("the kernel opens an event for a task, for a CPU, or for both")
                    .help("give `pid: 0` for this plugin's own thread, or a `cpu`"),
            );
        }
    }

    pub(super) fn attach(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        if args.is_empty() || args.len() > 3 {
            let text = format!("`attach` takes 1 or 3 arguments, {} given", args.len());
            self.report(Diagnostic::error(404, span, text).help(ATTACH_FORMS));
            return self.error_expr(span);
        }
        let values: Vec<Expr> = args.iter().map(|arg| self.expr(arg, None).expr).collect();
        if values.iter().any(|value| self.checker.types.is_error(value.ty)) {
            return self.error_expr(span);
        }
        let known = self.checker.known;
        let common = self.checker.types.common();
        let attach = |program, options, flags| {
            ExprKind::User(UserBuiltin::Attach { program, options: Box::new(options), flags })
        };
        match <[Expr; 3]>::try_from(values) {
            Ok([program, options, flags]) if options.ty == known.perf_options => {
                if program.ty != common.program {
                    let text = format!("expected a program handle, found `{}`", self.type_name(program.ty));
                    self.report(
                        Diagnostic::error(906, program.span, text).help("`load(program)` gives the handle"),
                    );
                    return self.error_expr(span);
                }
                let flags = self.attach_flags(&args[2], flags);
                let kind = attach(Some(Box::new(program)), options, Some(Box::new(flags)));
                self.make(kind, known.perf_attachment, span)
            }
            Ok([_, target, _]) => self.bad_target(&target),
            Err(mut values) if values.len() == 1 && values[0].ty == known.perf_options => {
                let kind = attach(None, values.remove(0), None);
                self.make(kind, known.perf_attachment, span)
            }
            Err(values) => {
                let text = format!("`attach` takes 1 or 3 arguments, {} given", values.len());
                let text = if values.len() == 1 {
                    "`attach` with one argument takes `perf_options`".into()
                } else {
                    text
                };
                self.report(Diagnostic::error(404, span, text).help(ATTACH_FORMS));
                self.error_expr(span)
            }
        }
    }

    /// Every program of this version is a perf program, and that is attached with options.
    fn bad_target(&mut self, target: &Expr) -> Typed {
        let text =
            format!("a perf program is attached with `perf_options`, not `{}`", self.type_name(target.ty));
        self.report(Diagnostic::error(901, target.span, text).help(ATTACH_FORMS));
        self.error_expr(target.span)
    }

    fn attach_flags(&mut self, written: &ast::Expr, flags: Expr) -> Expr {
        let common = self.checker.types.common();
        if self.checker.types.int(flags.ty).is_none() {
            return self.mismatch(&Typed::of(flags), common.u64);
        }
        match flags.kind {
            ExprKind::Const(bits) if bits != 0 => {
                self.report(Diagnostic::error(907, written.span, "perf attach flags must be 0"));
                flags
            }
            ExprKind::Const(_) => Expr { ty: common.u64, ..flags },
            _ => {
                let span = flags.span;
                Expr { kind: ExprKind::Convert(Box::new(flags)), ty: common.u64, span }
            }
        }
    }

    pub(super) fn read(&mut self, args: &[ast::Expr], span: Span) -> Typed {
        if !self.arguments("read(attachment)", 1, args, span) {
            return self.error_expr(span);
        }
        if let Some(attachment) = self.attachment_arg(&args[0], "read") {
            let builtin = UserBuiltin::Read { attachment: Box::new(attachment), form: ReadForm::Snapshot };
            return self.make(ExprKind::User(builtin), self.checker.known.perf_read, span);
        }
        self.error_expr(span)
    }

    /// `enable`, `disable` and `reset`.
    pub(super) fn switch(
        &mut self,
        form: &str,
        builtin: fn(Box<Expr>) -> UserBuiltin,
        args: &[ast::Expr],
        span: Span,
    ) -> Typed {
        if !self.arguments(form, 1, args, span) {
            return self.error_expr(span);
        }
        let name = form.split('(').next().unwrap_or(form).to_owned();
        match self.attachment_arg(&args[0], &name) {
            Some(attachment) => {
                let u32 = self.checker.types.common().u32;
                self.make(ExprKind::User(builtin(Box::new(attachment))), u32, span)
            }
            None => self.error_expr(span),
        }
    }

    fn attachment_arg(&mut self, arg: &ast::Expr, name: &str) -> Option<Expr> {
        let map = match &strip(arg).kind {
            ast::ExprKind::Name(word) if self.lookup(word).is_none() => {
                matches!(self.checker.names.get(word), Some(Symbol::Map(_)))
            }
            _ => false,
        };
        let found = if map { None } else { Some(self.expr(arg, None).expr) };
        match found {
            Some(value) if value.ty == self.checker.known.perf_attachment => Some(value),
            Some(value) if self.checker.types.is_error(value.ty) => None,
            other => {
                let found =
                    other.map_or("a map".to_owned(), |value| format!("`{}`", self.type_name(value.ty)));
                let help =
                    if map { "an element of a map is `name[key]`" } else { "`attach` gives an attachment" };
                let text = format!("`{name}` takes a perf attachment, not {found}");
                self.report(Diagnostic::error(908, arg.span, text).help(help));
                None
            }
        }
    }
}

const ATTACH_FORMS: &str = "write `attach(handle, perf_options { event: page_faults, pid: 0, cpu: -1 }, 0)`, or `attach(perf_options { .. })` to count without a program";
