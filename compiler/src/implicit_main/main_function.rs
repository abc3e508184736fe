//! `main` of a script that has none, and the function that runs when the script ends.

use std::collections::HashSet;

use super::attributes::AttachPoint;
use super::build::{At, DeclarationSpans};
use super::{ARGS, Attached, Called, OPTIONS, Role};
use crate::ast::{
    AstFunction, BinaryOp, Expr, Global, Ident, Item, ItemKind, Param, Returns, Stmt, TypeExprKind,
};

/// The function that runs when the script ends. No script can name it, nor the variables below.
const FINISH: &str = "(finish)";
/// The function that prints what the script keeps, while it runs.
const REFRESH: &str = "(refresh)";
/// Milliseconds of one wait. The host ends it when the script is to stop.
const WAIT_MS: u64 = 3_600_000;
const NANOSECONDS_PER_MS: u64 = 1_000_000;

/// Returns `main`, which begins with the statement `first` if there is one, and the function that runs at the
/// end.
pub(super) fn functions(
    items: &[Item],
    mut attached: Vec<Attached>,
    called: Vec<Called>,
    has_programs: bool,
    has_options: bool,
    first: Option<Stmt>,
    end: At,
) -> Vec<AstFunction> {
    let args = |at: At| if has_options { vec![at.name(ARGS)] } else { Vec::new() };
    let calls = |role: Role| {
        let called = called.iter().filter(move |one| one.role == role);
        called.map(move |one| one.at.run(one.at.call(&one.name, args(one.at)))).collect::<Vec<_>>()
    };
    let at = attached.first().map(|one| one.names.whole()).or(called.first().map(|one| one.at));
    let at = at.unwrap_or(end);
    let mut body: Vec<Stmt> = first.into_iter().collect();
    let handles: Vec<(At, String)> =
        attached.iter_mut().map(|one| (one.names.next(), format!("({})", one.name))).collect();
    for ((at, handle), one) in handles.iter().zip(&attached) {
        body.push(at.var(handle, at.builtin("load", vec![at.name(&one.name)])));
    }
    body.extend(calls(Role::Begin));
    for ((_, handle), one) in handles.iter().zip(&mut attached) {
        body.extend(attach(handle, one));
    }
    for name in items.iter().filter_map(impl_name) {
        let at = At(name.span);
        let registered = at.builtin("register", vec![at.name(&name.name)]);
        body.push(at.when(at.binary(BinaryOp::Ne, registered, at.int(0)), vec![at.returns(1)]));
    }
    body.push(at.defer(at.call(FINISH, args(at))));
    for ((at, handle), _) in handles.iter().zip(&attached) {
        body.push(at.defer(at.builtin("detach", vec![at.name(handle)])));
    }
    let intervals: Vec<&Called> = called.iter().filter(|one| one.role == Role::Interval).collect();
    let rings = handled_rings(items);
    if !intervals.is_empty() {
        body.extend(wait_with_intervals(&intervals, &rings, at, &args));
    } else if has_programs {
        body.push(wait(&rings, at));
    }
    body.push(at.returns(0));
    let mut finish: Vec<Stmt> = (!rings.is_empty()).then(|| drain(&rings, end)).into_iter().collect();
    finish.extend(calls(Role::End));
    finish.push(at.run(at.builtin("print_kept", Vec::new())));
    let params = |at: At| if has_options { vec![options_param(at)] } else { Vec::new() };
    let mut names = DeclarationSpans::of(end.0);
    vec![
        function("main", params(at), "i32", body, names.next()),
        function(FINISH, params(at), "void", finish, end),
    ]
}

/// Returns the function that prints what the script keeps, and its call each period of so many nanoseconds.
pub(super) fn refreshing(period: u64, has_options: bool, at: At) -> (AstFunction, Called) {
    let params = if has_options { vec![options_param(at)] } else { Vec::new() };
    let body = vec![at.run(at.builtin("print_kept", Vec::new()))];
    let (name, role, prints_maps) = (REFRESH.to_owned(), Role::Interval, false);
    let called = Called { name, at, role, period, prints_maps };
    (function(REFRESH, params, "void", body, at), called)
}

pub(super) fn function(name: &str, params: Vec<Param>, ret: &str, body: Vec<Stmt>, at: At) -> AstFunction {
    AstFunction {
        docs: None,
        attributes: Vec::new(),
        has_head: true,
        name: at.ident(name),
        params,
        ret: Some(Returns { name: None, ty: at.ty(ret) }),
        body: at.block(body),
    }
}

/// The parameter with the script's options.
pub(super) fn options_param(at: At) -> Param {
    Param { name: at.ident(ARGS), ty: at.ty(OPTIONS) }
}

/// Attaches a program, and ends the script if it cannot be attached: what the host reports then names it.
fn attach(handle: &str, one: &mut Attached) -> Vec<Stmt> {
    let at = one.names.next();
    let program = at.name(handle);
    match std::mem::replace(&mut one.attach_point, AttachPoint::Load) {
        AttachPoint::Load => Vec::new(),
        AttachPoint::Target(target) => {
            let attached = at.builtin("attach", vec![program, target, at.int(0)]);
            vec![at.when(at.binary(BinaryOp::Ne, attached, at.int(0)), vec![at.returns(1)])]
        }
        AttachPoint::Event(fields) => {
            let variable = format!("(event of {})", one.name);
            let options = at.structure("perf_options", fields);
            let attached = at.builtin("attach", vec![program, options, at.int(0)]);
            let is_null = at.binary(BinaryOp::Eq, at.name(&variable), at.null());
            vec![at.var(&variable, attached), at.when(is_null, vec![at.returns(1)])]
        }
    }
}

/// Waits until the script is to stop, and calls the handlers of ring buffers.
fn wait(rings: &[&str], at: At) -> Stmt {
    let waited = slept(rings, at.int(WAIT_MS), at);
    at.while_loop(at.not(at.builtin("stopping", Vec::new())), vec![at.when(waited, vec![at.leave_loop()])])
}

/// Calls the handlers of ring buffers for the records that are there: nothing adds any more.
fn drain(rings: &[&str], at: At) -> Stmt {
    let args = rings.iter().map(|ring| at.name(*ring)).chain([at.int(0)]).collect();
    let handled = at.builtin("dispatch", args);
    at.while_loop(at.binary(BinaryOp::Gt, handled, at.int(0)), Vec::new())
}

/// Waits some milliseconds. Returns the condition that ends the script.
fn slept(rings: &[&str], ms: Expr, at: At) -> Expr {
    if rings.is_empty() {
        return at.binary(BinaryOp::Ne, at.builtin("sleep", vec![ms]), at.int(0));
    }
    let args = rings.iter().map(|ring| at.name(*ring)).chain([ms]).collect();
    at.binary(BinaryOp::Lt, at.builtin("dispatch", args), at.int(0))
}

/// Waits, and calls the functions with `@interval` at whole periods after the start. A period that passes
/// while a function runs is left out.
fn wait_with_intervals(
    intervals: &[&Called],
    rings: &[&str],
    at: At,
    args: &impl Fn(At) -> Vec<Expr>,
) -> Vec<Stmt> {
    let now = || at.builtin("time_ns", Vec::new());
    let next = |index: usize| format!("(due {index})");
    let mut stmts = Vec::new();
    let mut spans = DeclarationSpans::of(intervals[0].at.0);
    for (index, one) in intervals.iter().enumerate() {
        let at = if index == 0 { spans.next() } else { one.at };
        stmts.push(at.var(&next(index), at.binary(BinaryOp::Add, now(), at.int(one.period))));
    }
    let (until_at, now_at) = (spans.next(), spans.next());
    let (until, current) = ("(until)", "(now)");
    let mut body = vec![until_at.var(until, at.name(next(0)))];
    for index in 1..intervals.len() {
        let is_sooner = at.binary(BinaryOp::Lt, at.name(next(index)), at.name(until));
        body.push(at.when(is_sooner, vec![at.assign(until, None, at.name(next(index)))]));
    }
    body.push(now_at.var(current, now()));
    let left = at.binary(BinaryOp::Sub, at.name(until), at.name(current));
    let rounded = at.binary(BinaryOp::Add, left, at.int(NANOSECONDS_PER_MS - 1));
    let ms = at.binary(BinaryOp::Div, rounded, at.int(NANOSECONDS_PER_MS));
    let waited = at.when(slept(rings, at.cast(ms, "u32"), at), vec![at.leave_loop()]);
    let renewed = at.assign(current, None, now());
    let is_early = at.binary(BinaryOp::Lt, at.name(current), at.name(until));
    body.push(at.when(is_early, vec![waited, renewed]));
    body.push(at.when(at.builtin("stopping", Vec::new()), vec![at.leave_loop()]));
    for (index, one) in intervals.iter().enumerate() {
        let (at, next) = (one.at, next(index));
        let late = at.binary(BinaryOp::Sub, at.name(current), at.name(&next));
        let periods = at.binary(BinaryOp::Div, late, at.int(one.period));
        let passed = at.binary(BinaryOp::Add, periods, at.int(1));
        let step = at.binary(BinaryOp::Mul, passed, at.int(one.period));
        let is_due = at.binary(BinaryOp::Ge, at.name(current), at.name(&next));
        let mut due = vec![at.assign(&next, Some(BinaryOp::Add), step)];
        if one.prints_maps {
            due.push(at.run(at.builtin("redraw", Vec::new())));
        }
        due.push(at.run(at.call(&one.name, args(at))));
        body.push(at.when(is_due, due));
    }
    stmts.push(at.while_loop(at.not(at.builtin("stopping", Vec::new())), body));
    stmts
}

/// Returns the ring buffers that have a handler: the function `NAME_callback`.
fn handled_rings(items: &[Item]) -> Vec<&str> {
    let functions: HashSet<&str> =
        items.iter().filter_map(super::function).map(|one| one.name.name.as_str()).collect();
    let handled = |ring: &&str| functions.contains(format!("{ring}_callback").as_str());
    items.iter().filter_map(ring_name).filter(handled).collect()
}

fn ring_name(item: &Item) -> Option<&str> {
    match &item.kind {
        ItemKind::Global(Global { name, ty: Some(ty), .. }) if matches!(ty.kind, TypeExprKind::Ring(..)) => {
            Some(&name.name)
        }
        _ => None,
    }
}

fn impl_name(item: &Item) -> Option<&Ident> {
    match &item.kind {
        ItemKind::Impl { name, .. } => Some(name),
        _ => None,
    }
}
