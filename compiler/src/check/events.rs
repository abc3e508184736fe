//! Events: names of `enum perf_event` and the constructors (language reference, 10.2 and 11.1).

use ks_wit::event::{BREAKPOINT, CACHE_OPS, CACHE_RESULTS, CACHES, CacheTerm, EVENTS, HW_CACHE, TRACEPOINT};
use ks_wit::target::{NO_LINES, Spot, UprobeTarget};

use super::builtin::literal_text;
use super::builtin_table::{Builtin, named};
use super::expr::Typed;
use super::function::Body;
use super::prescan::strip;
use crate::ast;
use crate::builtins::perf::OPTION_TEXT;
use crate::diag::Diagnostic;
use crate::hir::{BreakpointAddress, EventSpec, Expr, ExprKind, Lvalue, LvalueKind};
use crate::implicit_main;
use crate::source::Span;

/// The accesses that a breakpoint waits for, with the kernel's bits.
///
/// Source: include/uapi/linux/hw_breakpoint.h, HW_BREAKPOINT_R 1, _W 2, _X 4.
const ACCESSES: &[(&str, u8)] = &[("r", ACCESS_LOADS), ("w", 2), ("rw", 3), ("x", ACCESS_FETCHES)];
const ACCESS_LOADS: u8 = 1;
const ACCESS_FETCHES: u8 = 4;

/// The tracepoint at the entry of a system call, before the call's name.
const SYSCALL_ENTRY: &str = "syscalls/sys_enter_";

/// The value of an event constructor.
enum EventValue {
    /// The packed form, `type << 32 | config`.
    Packed(u64),
    /// An event that the packed form cannot hold.
    Spec(Box<EventSpec>),
}

fn spec(spec: EventSpec) -> EventValue {
    EventValue::Spec(Box::new(spec))
}

impl Body<'_, '_> {
    /// Checks the value of `event:` or of a counter: an enumerator or a constructor.
    pub(super) fn event_value(&mut self, value: &ast::Expr) -> Expr {
        let bare = strip(value);
        match &bare.kind {
            ast::ExprKind::Name(name) if self.lookup(name).is_none() => {
                if self.checker.names.get(name).is_none() {
                    self.unknown_event(name, value.span);
                    return self.error_expr(value.span).expr;
                }
                let ours = EVENTS.iter().any(|event| !event.in_011 && event.name == *name);
                if ours && self.checker.names.own(name).is_none() {
                    self.checker.strict(value.span, &format!("event `{name}`"));
                }
            }
            ast::ExprKind::Call { callee, args } => {
                if let Some(constructor) = self.constructor(callee) {
                    return self.constructed(constructor, args, callee.span, bare.span);
                }
            }
            _ => {}
        }
        let wanted = self.checker.known.perf_event;
        let found = self.expr(value, Some(wanted)).expr;
        if found.ty == wanted || self.checker.types.is_error(found.ty) {
            return found;
        }
        let text = format!("event must be a perf event, not `{}`", self.type_name(found.ty));
        let diagnostic = Diagnostic::error(903, value.span, text)
            .help("name one, such as `cache_misses` or `page_faults`");
        self.report(match self.checker.types.int(found.ty) {
            Some(_) => diagnostic.help("a number of the PMU's own goes into `raw_event(type, config)`"),
            None => diagnostic,
        });
        self.error_expr(value.span).expr
    }

    /// Checks the value of a variable of type `perf_event`: it must fit the packed form.
    pub(super) fn event_variable(&mut self, value: &ast::Expr) -> Expr {
        let found = self.event_value(value);
        if let ExprKind::Event(_) = found.kind {
            self.unpacked_event(found.span);
            return self.error_expr(found.span).expr;
        }
        found
    }

    /// Checks a value assigned to an lvalue of type `perf_event`: a member of options takes every event.
    pub(super) fn assigned_event(&mut self, target: &Lvalue, value: &ast::Expr) -> Expr {
        match &target.kind {
            LvalueKind::Field { base, .. } if base.ty == self.checker.known.perf_options => {
                self.event_value(value)
            }
            _ => self.event_variable(value),
        }
    }

    fn unpacked_event(&mut self, span: Span) {
        self.report(
            Diagnostic::error(903, span, "this event does not fit a value of type `perf_event`")
                .note("a value holds a type and a config of 32 bits each")
                .help("write it as the value of `event:` or of a `counter`"),
        );
    }

    /// Returns the constructor that a call names, unless the script declares that name.
    fn constructor(&self, callee: &ast::Expr) -> Option<&'static Builtin> {
        let ast::ExprKind::Name(name) = &strip(callee).kind else { return None };
        if let Some(builtin) = implicit_main::builtin(name) {
            return named(builtin).filter(|builtin| builtin.makes_event);
        }
        let hidden = self.lookup(name).is_some() || self.checker.names.own(name).is_some();
        named(name).filter(|builtin| !hidden && builtin.makes_event)
    }

    fn constructed(
        &mut self,
        constructor: &'static Builtin,
        args: &[ast::Expr],
        name_span: Span,
        span: Span,
    ) -> Expr {
        let name = constructor.name;
        self.checker.strict(name_span, &format!("builtin `{name}`"));
        let ty = self.checker.known.perf_event;
        let fits = self.count_fits(constructor, args, span);
        match if fits { self.construct(name, args, span) } else { None } {
            Some(EventValue::Packed(bits)) => Expr { kind: ExprKind::Const(bits), ty, span },
            Some(EventValue::Spec(spec)) => Expr { kind: ExprKind::Event(spec), ty, span },
            None => self.error_expr(span).expr,
        }
    }

    /// Checks a constructor in any other expression: it must fit the packed form, which a variable can hold.
    pub(super) fn packed_event(&mut self, name: &'static str, args: &[ast::Expr], span: Span) -> Typed {
        match self.construct(name, args, span) {
            Some(EventValue::Packed(bits)) => {
                let ty = self.checker.known.perf_event;
                self.integer(i128::from(bits), ty, span)
            }
            Some(EventValue::Spec(_)) => {
                self.unpacked_event(span);
                self.error_expr(span)
            }
            None => self.error_expr(span),
        }
    }

    fn construct(&mut self, name: &str, args: &[ast::Expr], span: Span) -> Option<EventValue> {
        match (name, args) {
            ("raw_event", [ty, config]) => self.raw_event(ty, config, None, span),
            ("raw_event", [ty, config, config1, config2]) => {
                self.raw_event(ty, config, Some((config1, config2)), span)
            }
            ("hw_cache", [cache, op, result]) => self.hw_cache(cache, op, result),
            ("breakpoint", [address, len, access]) => self.breakpoint(address, len, access, span),
            ("tracepoint", [name]) => self.tracepoint_event(name),
            ("syscall_event", [name]) => self.syscall_event(name),
            ("pmu", [name]) if literal_text(name).is_none() => self.named_at_run_time(name),
            ("pmu", [name]) => {
                let text = self.event_text(name)?;
                (self.well_formed(name, is_pmu_event(&text), "a PMU's event is `name` or `pmu/terms/`"))
                    .then_some(spec(EventSpec::Pmu(text)))
            }
            ("kprobe_event", [name]) => {
                let text = self.event_text(name)?;
                (self.well_formed(name, !text.is_empty(), "name a function of the kernel"))
                    .then_some(spec(EventSpec::Kprobe(text)))
            }
            ("uprobe_event", [name]) => {
                let text = self.event_text(name)?;
                let reason = match UprobeTarget::parse(&text) {
                    Ok(UprobeTarget { spot: Spot::Line { .. }, .. }) => NO_LINES.to_owned(),
                    Ok(_) => return Some(spec(EventSpec::Uprobe(text))),
                    Err(error) => error.to_string(),
                };
                self.well_formed(name, false, &reason);
                None
            }
            _ => None,
        }
    }

    /// Checks a name that is known when the event is attached, such as an option of the script.
    fn named_at_run_time(&mut self, name: &ast::Expr) -> Option<EventValue> {
        let text = self.text_arg(name)?;
        let ty = self.checker.types.str_type(OPTION_TEXT);
        if self.checker.types.size(text.ty) > u64::from(OPTION_TEXT) {
            let longest = OPTION_TEXT - 1;
            let problem = format!("this text may be longer than the {longest} bytes that name an event");
            self.report(
                Diagnostic::error(417, name.span, problem)
                    .help(format!("declare it as `str({OPTION_TEXT})`, or shorter")),
            );
            return None;
        }
        let text = match text.ty == ty {
            true => text,
            false => Expr { span: text.span, kind: ExprKind::Convert(Box::new(text)), ty },
        };
        Some(spec(EventSpec::Named(text)))
    }

    fn raw_event(
        &mut self,
        ty: &ast::Expr,
        config: &ast::Expr,
        more: Option<(&ast::Expr, &ast::Expr)>,
        span: Span,
    ) -> Option<EventValue> {
        let common = self.common();
        let ty = self.number(ty, common.u32);
        let config = self.number(config, common.u64);
        let zero = Expr { kind: ExprKind::Const(0), ty: common.u64, span };
        let (config1, config2) = match more {
            Some((config1, config2)) => (self.number(config1, common.u64), self.number(config2, common.u64)),
            None => (zero.clone(), zero),
        };
        if [&ty, &config, &config1, &config2].iter().any(|one| self.checker.types.is_error(one.ty)) {
            return None;
        }
        let constructor = match ty.kind {
            ExprKind::Const(ty) if ty == u64::from(TRACEPOINT) => Some("tracepoint(\"category/event\")"),
            ExprKind::Const(ty) if ty == u64::from(BREAKPOINT) => Some("breakpoint(address, len, access)"),
            _ => None,
        };
        if let Some(constructor) = constructor {
            self.report(
                Diagnostic::error(417, span, "a raw event cannot have this type")
                    .note(
                        "2 is the type of tracepoints, 5 that of breakpoints: the host checks what they name",
                    )
                    .help(format!("write `{constructor}`")),
            );
            return None;
        }
        match (&ty.kind, &config.kind, &config1.kind, &config2.kind) {
            (ExprKind::Const(ty), ExprKind::Const(low), ExprKind::Const(0), ExprKind::Const(0))
                if u32::try_from(*low).is_ok() =>
            {
                Some(EventValue::Packed(ty << 32 | low))
            }
            _ => Some(spec(EventSpec::Raw { ty, config: [config, config1, config2] })),
        }
    }

    fn hw_cache(&mut self, cache: &ast::Expr, op: &ast::Expr, result: &ast::Expr) -> Option<EventValue> {
        let cache = self.keyword(cache, "cache", &CACHES);
        let op = self.keyword(op, "operation on a cache", &CACHE_OPS);
        let result = self.keyword(result, "result", &CACHE_RESULTS);
        Some(EventValue::Packed(u64::from(HW_CACHE) << 32 | cache? | op? << 8 | result? << 16))
    }

    /// Returns the number of a string literal that is one of a few keywords.
    fn keyword(&mut self, arg: &ast::Expr, what: &str, keywords: &[CacheTerm]) -> Option<u64> {
        let text = self.event_text(arg)?;
        if let Some((number, _)) = (0..).zip(keywords).find(|(_, keyword)| keyword.name == text) {
            return Some(number);
        }
        let names: Vec<_> = keywords.iter().map(|keyword| format!("\"{}\"", keyword.name)).collect();
        let mut diagnostic = Diagnostic::error(417, arg.span, format!("no {what} named `{text}`"))
            .note(format!("one of {}", names.join(", ")));
        for near in crate::diag::nears(&text, keywords.iter().map(|keyword| keyword.name)) {
            diagnostic = diagnostic.suggest(arg.span, format!("\"{near}\""), "a similar name exists");
        }
        self.report(diagnostic);
        None
    }

    fn tracepoint_event(&mut self, arg: &ast::Expr) -> Option<EventValue> {
        let text = self.event_text(arg)?;
        let form = text.split_once('/').is_some_and(|(category, event)| {
            !category.is_empty() && !event.is_empty() && !event.contains('/')
        });
        if !form {
            self.report(
                Diagnostic::error(505, arg.span, "a tracepoint is \"category/event\"")
                    .help("write it like `tracepoint(\"sched/sched_switch\")`"),
            );
        }
        form.then_some(spec(EventSpec::Tracepoint(text)))
    }

    /// Returns the tracepoint at the entry of a system call. The call is looked up as for `@syscall_enter`.
    fn syscall_event(&mut self, arg: &ast::Expr) -> Option<EventValue> {
        let call = self.event_text_after(SYSCALL_ENTRY, arg)?;
        let form = !call.is_empty() && call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !self.well_formed(arg, form, "name a system call, such as `openat`: letters, digits and `_`") {
            return None;
        }
        if let Err(unfound) = self.checker.find_syscall(&call) {
            self.checker.report_unfound_at(arg.span, &format!("system call `{call}`"), &unfound);
        }
        Some(spec(EventSpec::Tracepoint(format!("{SYSCALL_ENTRY}{call}"))))
    }

    fn breakpoint(
        &mut self,
        address: &ast::Expr,
        len: &ast::Expr,
        access: &ast::Expr,
        span: Span,
    ) -> Option<EventValue> {
        let at = match literal_text(address) {
            Some(_) => {
                let symbol = self.event_text(address)?;
                self.well_formed(address, !symbol.is_empty(), "name a symbol of the kernel")
                    .then_some(BreakpointAddress::Symbol(symbol))
            }
            None => {
                let value = self.number(address, self.common().u64);
                (!self.checker.types.is_error(value.ty)).then_some(BreakpointAddress::Address(value))
            }
        };
        let given = len.span;
        let len = self.breakpoint_len(len);
        let text = self.event_text(access)?;
        let Some((_, access)) = ACCESSES.iter().find(|(keyword, _)| *keyword == text) else {
            self.report(
                Diagnostic::error(417, access.span, format!("no access named `{text}`"))
                    .note("one of \"r\", \"w\", \"rw\", \"x\""),
            );
            return None;
        };
        let (at, len) = (at?, len?);
        if *access == ACCESS_LOADS {
            self.report(
                Diagnostic::warning(417, span, "only arm64 can watch loads alone")
                    .note("x86-64 has stores (\"w\"), and loads and stores together (\"rw\")"),
            );
        }
        self.breakpoint_can_be(&at, address.span, len, given, *access)
            .then(|| spec(EventSpec::Breakpoint { at, len, access: *access }))
    }

    /// Reports a breakpoint that no machine supports.
    ///
    /// Source: arch/x86/kernel/hw_breakpoint.c, `arch_build_bp_info` and `hw_breakpoint_arch_parse`, v6.12;
    /// arch/arm64/kernel/hw_breakpoint.c, v6.12, which takes the length of a long for instructions, and moves
    /// a breakpoint that does not begin at a multiple of 8 into the following bytes.
    fn breakpoint_can_be(
        &mut self,
        at: &BreakpointAddress,
        address: Span,
        len: u8,
        given: Span,
        access: u8,
    ) -> bool {
        if access == ACCESS_FETCHES {
            if len != 8 {
                self.report(
                    Diagnostic::error(417, given, "a breakpoint on instructions has the length 8")
                        .note(
                            "the kernel wants the size of an address there, however long the instruction is",
                        )
                        .suggest(given, "8", "the only length"),
                );
            }
            return len == 8;
        }
        match at {
            BreakpointAddress::Address(Expr { kind: ExprKind::Const(at), .. })
                if at % u64::from(len) != 0 =>
            {
                let text = format!("{len} bytes to watch cannot begin at {at:#x}");
                self.report(
                    Diagnostic::error(417, address, text)
                        .note("the bytes that a debug register watches begin at a multiple of their number"),
                );
                false
            }
            _ => true,
        }
    }

    fn breakpoint_len(&mut self, len: &ast::Expr) -> Option<u8> {
        let found = self.expr(len, None);
        if self.checker.types.is_error(found.expr.ty) {
            return None;
        }
        match found.constant {
            Some(len @ (1 | 2 | 4 | 8)) => Some(len as u8),
            _ => {
                self.report(Diagnostic::error(417, len.span, "a breakpoint covers 1, 2, 4 or 8 bytes"));
                None
            }
        }
    }

    /// Returns the text of a string literal. Names are checked now, or looked up when the event is attached.
    fn event_text(&mut self, arg: &ast::Expr) -> Option<String> {
        self.event_text_after("", arg)
    }

    /// Returns the text of a string literal that follows `prefix` in the name of an event.
    fn event_text_after(&mut self, prefix: &str, arg: &ast::Expr) -> Option<String> {
        // A zero byte ends the text.
        let longest = OPTION_TEXT as usize - 1 - prefix.len();
        match literal_text(arg) {
            Some(bytes) if bytes.len() > longest => {
                let text = format!("this text is longer than the {longest} bytes that name an event");
                self.report(Diagnostic::error(417, arg.span, text));
                None
            }
            Some(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            None => {
                self.report(Diagnostic::error(401, arg.span, "expected a string literal"));
                None
            }
        }
    }

    fn well_formed(&mut self, arg: &ast::Expr, form: bool, rule: &str) -> bool {
        if !form {
            self.report(Diagnostic::error(417, arg.span, "this names no event").help(rule));
        }
        form
    }

    fn unknown_event(&mut self, name: &str, span: Span) {
        let names = EVENTS.iter().map(|event| event.name);
        let near = crate::diag::nears(name, names.clone());
        let diagnostic =
            Diagnostic::error(417, span, format!("no event named `{name}`")).label("unknown event");
        self.report(if near.is_empty() {
            diagnostic.help("the events are those of `enum perf_event`, such as `page_faults`")
        } else {
            diagnostic.suggest_near(span, "event", name, names)
        });
    }
}

/// `name`, `name:modifiers`, `pmu/terms/` or `pmu/terms/modifiers`.
fn is_pmu_event(text: &str) -> bool {
    let mut parts = text.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(name), None, ..) => !name.is_empty(),
        (Some(pmu), Some(terms), Some(_), None) => !pmu.is_empty() && !terms.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_a_pmu_are_a_name_or_terms_between_slashes() {
        for good in ["msr/tsc/", "cpu/event=0x3c,umask=1/u", "L1-dcache-load-misses", "cache-misses:u"] {
            assert!(is_pmu_event(good), "{good}");
        }
        for bad in ["", "/", "msr/tsc", "msr//", "/tsc/", "a/b/c/d"] {
            assert!(!is_pmu_event(bad), "{bad}");
        }
    }
}
