//! The struct `perf_options`, the only one whose fields have defaults (language reference, 10.3 and 11.2).

use ks_wit::event::EVENTS;

use super::expr::Typed;
use super::function::Body;
use super::prescan::strip;
use crate::ast;
use crate::builtins::perf::{OPTION_TEXT, attachment, options};
use crate::diag::Diagnostic;
use crate::hir::{Expr, ExprKind};
use crate::implicit_main;
use crate::source::Span;
use crate::types::{Field, TypeId, TypeKind};

/// Fields of `perf_options` in older versions.
const OLD_FIELDS: &[&str] = &["perf_type", "perf_config", "group_fd"];
/// The keyword that `cpu:` accepts besides numbers: one event for every CPU.
const ALL: &str = "all";

/// The values of a literal, by the position of the field.
struct GivenOptions {
    values: Vec<Option<Expr>>,
    spans: Vec<Option<Span>>,
    /// Whether no error was reported.
    sound: bool,
}

impl Body<'_, '_> {
    /// Checks `perf_options { .. }`.
    pub(super) fn options_literal(
        &mut self,
        name: &ast::Ident,
        fields: &[(ast::Ident, ast::Expr)],
        span: Span,
    ) -> Typed {
        let ty = self.checker.known.perf_options;
        let TypeKind::Struct(id) = *self.checker.types.kind(ty) else { return self.error_expr(span) };
        let declared = self.checker.types.struct_def(id).fields.clone();
        let old = self.old_fields(fields);
        let mut given = self.given_options(&declared, fields);
        if old || !given.sound {
            return self.error_expr(span);
        }
        if given.values[options::EVENT].is_none() {
            self.report(
                Diagnostic::error(408, name.span, "missing field `event` of `perf_options`")
                    .help("add `event: ...`, of type `perf_event`"),
            );
            return self.error_expr(span);
        }
        self.check_combinations(&given, span);
        if names_a_task(&given) && given.values[options::CPU].is_none() {
            // CPU 0, the default, would only count a part of the work of these tasks.
            given.values[options::CPU] = Some(self.any_cpu(span));
        }
        let values = (0..declared.len())
            .map(|field| match given.values[field].take() {
                Some(value) => value,
                None => self.default_option(field, span),
            })
            .collect();
        self.make(ExprKind::Struct(values), ty, span)
    }

    fn given_options(&mut self, declared: &[Field], fields: &[(ast::Ident, ast::Expr)]) -> GivenOptions {
        let mut given = GivenOptions {
            values: vec![None; declared.len()],
            spans: vec![None; declared.len()],
            sound: true,
        };
        for (field, value) in fields {
            if OLD_FIELDS.contains(&field.name.as_str()) {
                continue;
            }
            let position = declared.iter().position(|one| one.name == field.name);
            let Some(position) = position.filter(|position| !options::is_hidden(*position)) else {
                let visible: Vec<Field> = declared
                    .iter()
                    .enumerate()
                    .filter(|(position, _)| !options::is_hidden(*position))
                    .map(|(_, field)| field.clone())
                    .collect();
                self.unknown_field("perf_options", field, &visible);
                given.sound = false;
                continue;
            };
            if position >= options::OURS {
                self.checker.strict(field.span, &format!("field `{}` in `perf_options`", field.name));
            }
            if let Some(first) = given.spans[position].replace(field.span) {
                self.report(
                    Diagnostic::error(409, field.span, format!("field `{}` given twice", field.name))
                        .also(first, "first given here"),
                );
                given.sound = false;
            }
            if position == options::CPU && self.is_every_cpu(value) {
                self.checker.strict(value.span, "`cpu: all`");
                let all = Expr { kind: ExprKind::Const(1), ty: self.common().bool, span: value.span };
                given.values[options::EVERY_CPU] = Some(all);
                continue;
            }
            let value = self.option_value(position, value, declared[position].ty);
            given.sound &= !self.checker.types.is_error(value.ty);
            given.values[position] = Some(value);
        }
        given
    }

    /// Whether a value is the keyword `all`, unless the script declares that name.
    fn is_every_cpu(&self, value: &ast::Expr) -> bool {
        match &strip(value).kind {
            ast::ExprKind::Name(name) => {
                let is_free = self.lookup(name).is_none() && self.checker.names.get(name).is_none();
                (name == ALL && is_free) || name == implicit_main::ALL
            }
            _ => false,
        }
    }

    /// Checks the value of a field of `perf_options`.
    pub(super) fn option_value(&mut self, field: usize, value: &ast::Expr, ty: TypeId) -> Expr {
        match field {
            options::EVENT => self.event_value(value),
            options::GROUP => self.group_value(value),
            _ => self.value(value, ty),
        }
    }

    /// Returns the default of a field of `perf_options`; that of `event`, which has none, is never used.
    fn default_option(&mut self, field: usize, span: Span) -> Expr {
        let common = self.common();
        let (value, ty) = match field {
            options::PID => (u64::from(u32::MAX), common.i32),
            options::CPU => (0, common.i32),
            options::PERIOD => (1_000_000, common.u64),
            options::WAKEUP => (1, common.u32),
            options::FREQ | options::EVENT_CONFIG | options::EVENT_CONFIG1 | options::EVENT_CONFIG2 => {
                (0, common.u64)
            }
            options::PRECISE | options::EVENT_TYPE => (0, common.u32),
            options::GROUP => return self.attachment_constant(attachment::NONE, span),
            options::PROCESS | options::CGROUP | options::EVENT_TEXT => {
                let ty = self.checker.types.str_type(OPTION_TEXT);
                return Expr { kind: ExprKind::Bytes(Vec::new()), ty, span };
            }
            _ => (0, common.bool),
        };
        Expr { kind: ExprKind::Const(value), ty, span }
    }

    /// Returns the options of a counter's event: every task on every CPU.
    pub(super) fn counter_options(&mut self, event: Expr, span: Span) -> Expr {
        let ty = self.checker.known.perf_options;
        let TypeKind::Struct(id) = *self.checker.types.kind(ty) else { return self.error_expr(span).expr };
        let fields = self.checker.types.struct_def(id).fields.len();
        let mut values: Vec<Expr> = (0..fields).map(|field| self.default_option(field, span)).collect();
        values[options::EVENT] = event;
        values[options::EVERY_CPU].kind = ExprKind::Const(1);
        Expr { kind: ExprKind::Struct(values), ty, span }
    }

    fn any_cpu(&self, span: Span) -> Expr {
        Expr { kind: ExprKind::Const(u64::from(u32::MAX)), ty: self.common().i32, span }
    }

    fn attachment_constant(&mut self, perf_fd: i32, span: Span) -> Expr {
        let common = self.common();
        let int = |value: i32| Expr { kind: ExprKind::Const(u64::from(value as u32)), ty: common.i32, span };
        let generation = Expr { kind: ExprKind::Const(0), ty: common.u64, span };
        let fields = vec![int(perf_fd), int(-1), int(-1), generation];
        Expr { kind: ExprKind::Struct(fields), ty: self.checker.known.perf_attachment, span }
    }

    fn group_value(&mut self, value: &ast::Expr) -> Expr {
        let known = self.checker.known;
        if matches!(strip(value).kind, ast::ExprKind::Null) {
            // `null` is not a failed attachment, whose error would already be reported.
            return self.attachment_constant(0, value.span);
        }
        let found = self.expr(value, Some(known.perf_attachment)).expr;
        if found.ty == known.perf_attachment || self.checker.types.is_error(found.ty) {
            return found;
        }
        let text = format!("group takes the leader's attachment, not `{}`", self.type_name(found.ty));
        let help = match self.checker.types.kind(found.ty) {
            TypeKind::Program => "`attach` gives the attachment; this is the program's handle",
            _ => "name what `attach` gave for the leader",
        };
        self.report(Diagnostic::error(904, value.span, text).help(help));
        self.error_expr(value.span).expr
    }

    /// Reports combinations of options that cannot work on any machine.
    fn check_combinations(&mut self, given: &GivenOptions, span: Span) {
        let constant = |field: usize, default: i32| match &given.values[field] {
            Some(Expr { kind: ExprKind::Const(bits), .. }) => Some(*bits as u32 as i32),
            Some(_) => None,
            None => Some(default),
        };
        let every_cpu = given.values[options::EVERY_CPU].is_some();
        let task_named = names_a_task(given);
        let pair = (constant(options::PID, -1), constant(options::CPU, 0));
        if pair == (Some(-1), Some(-1)) && !every_cpu && !task_named {
            self.report(
                Diagnostic::error(905, span, "pid -1 with cpu -1 would be every task on every CPU")
                    .note("the kernel opens an event for a task, for a CPU, or for both")
                    .help("give `pid: 0` for this plugin's own thread, or a `cpu`"),
            );
        }
        if let (Some(period), Some(freq)) = (given.spans[options::PERIOD], given.spans[options::FREQ]) {
            let (first, second) = if period < freq { (period, freq) } else { (freq, period) };
            self.report(
                Diagnostic::error(905, second, "`period` and `freq` exclude each other")
                    .also(first, "the other is given here")
                    .note(
                        "`period` is a number of events between two samples, `freq` one of samples per \
                           second",
                    ),
            );
        }
    }

    /// Reports the fields of older versions, with their replacement.
    fn old_fields(&mut self, fields: &[(ast::Ident, ast::Expr)]) -> bool {
        let position = |name: &str| fields.iter().position(|(field, _)| field.name == name);
        let (ty, config) = (position("perf_type"), position("perf_config"));
        if let Some(first) = [ty, config].into_iter().flatten().min() {
            let last = [ty, config].into_iter().flatten().max().unwrap_or(first);
            let (field, _) = &fields[first];
            let diagnostic = Diagnostic::error(902, field.span, format!("old spelling `{}`", field.name))
                .note("type and config of an event are one value now: `event`");
            let event = config.and_then(|config| event_name(&fields[config].1));
            self.report(match event {
                Some(event) if last <= first + 1 => {
                    let span = Span { end: fields[last].1.span.end, ..field.span };
                    diagnostic.suggest(span, format!("event: {event}"), "now written")
                }
                _ => diagnostic.help("write `event: cache_misses`, or another of `enum perf_event`"),
            });
        }
        let group = position("group_fd");
        if let Some((field, value)) = group.map(|group| &fields[group]) {
            let diagnostic = Diagnostic::error(304, field.span, "`perf_options` has no field `group_fd`")
                .label("an old spelling (KS0902)");
            let leader = match &strip(value).kind {
                ast::ExprKind::Field { base, name, .. } if name.name == "perf_fd" => Some(base),
                _ => None,
            };
            self.report(match leader.map(|leader| &strip(leader).kind) {
                Some(ast::ExprKind::Name(leader)) => {
                    let span = Span { end: value.span.end, ..field.span };
                    diagnostic.suggest(span, format!("group: {leader}"), "now written")
                }
                _ => diagnostic.help("write `group: leader`"),
            });
        }
        ty.is_some() || config.is_some() || group.is_some()
    }
}

/// Whether tasks are selected by a field other than `pid`.
fn names_a_task(given: &GivenOptions) -> bool {
    [options::PROCESS, options::COMMAND].iter().any(|field| given.values[*field].is_some())
}

/// Returns the event that a value names.
fn event_name(value: &ast::Expr) -> Option<&str> {
    let ast::ExprKind::Name(name) = &strip(value).kind else { return None };
    EVENTS.iter().any(|event| event.name == *name).then_some(name)
}
