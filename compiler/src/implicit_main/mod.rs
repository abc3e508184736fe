//! Scripts without `main`: their attributes say where the programs go, and the rest is the same for all of
//! them. This rule of the syntax tree, applied before names and types are resolved, writes it down: every
//! later stage sees an ordinary `main`.
//!
//! ```text
//! @tracepoint("sched/sched_switch") { seen[cpu()] += 1 }
//!
//! ->  @tracepoint("sched/sched_switch")
//!     fn on_sched_switch(ctx: *trace_event_raw_sched_switch) -> i32 { seen[cpu()] += 1 }
//!     fn main() -> i32 {
//!         var program = load(on_sched_switch)
//!         if (attach(program, "", 0) != 0) { return 1 }
//!         defer finish()
//!         defer detach(program)
//!         while (sleep(3600000) == 0) { }
//!         return 0
//!     }
//!     fn finish() -> void { print_kept() }
//! ```
//!
//! Not here: the types of maps that are not declared, which are inferred where they are used first
//! (`check/implied.rs`), and what `print_kept` prints (`hir/kept.rs`).

mod attributes;
mod build;
mod main_function;
mod optional;
mod options;
mod tracepoints;

use std::collections::HashSet;

use ks_wit::program_kind::{PROGRAM_KINDS, ProgramKind, ProgramKindRow};

use crate::ast::{AstFunction, AttributeArg, Item, ItemKind};
use crate::check;
use crate::diag::{Diagnostic, Diagnostics};
use crate::options::Options;
use crate::resolve::Program;
use attributes::AttachPoint;
pub(crate) use build::At;
use build::DeclarationSpans;
pub(crate) use options::names;

/// The attributes of functions of userspace in a script without `main`, with their forms and documentation
/// for editors.
pub const USERSPACE: [(&str, &str, &str); 3] = [
    ("begin", "@begin", "Runs in userspace before the programs are attached. For scripts without `main`."),
    (
        "end",
        "@end",
        "Runs in userspace after the programs are detached, before the results are printed. For scripts \
         without `main`.",
    ),
    (
        "interval",
        "@interval(\"1s\")",
        "Runs in userspace again and again while the programs are attached. For scripts without `main`.",
    ),
];

/// The attribute of programs that a clock runs, with its form and documentation for editors.
pub const PROFILE: (&str, &str, &str) = (
    "profile",
    "@profile(99)",
    "Runs in the kernel so many times a second on each CPU. For scripts without `main`: it stands for \
     `@perf_event(\"cpu_clock\", freq: 99)`, and takes the same fields.",
);

/// The struct whose fields are the options of a script without `main`.
const OPTIONS: &str = "Args";
/// The name of these options in functions of userspace.
const ARGS: &str = "args";

/// The keyword `all` of `cpu:` where no name of the script hides it.
pub const ALL: &str = "(all)";

/// Returns the builtin that a name of a generated call means, whatever the script declares: `(sleep)`. None
/// for other names.
pub fn builtin(name: &str) -> Option<&str> {
    name.strip_prefix('(')?.strip_suffix(')')
}

/// The role of a function in a script without `main`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Program(&'static ProgramKindRow),
    Begin,
    End,
    Interval,
    /// A function that others call.
    Called,
}

impl Role {
    fn of(function: &AstFunction) -> Role {
        let Some(attribute) = function.attributes.first() else { return Role::Called };
        let name = attribute.name.name.as_str();
        match name {
            "begin" => Role::Begin,
            "end" => Role::End,
            "interval" => Role::Interval,
            name if name == PROFILE.0 => Role::Program(ProgramKind::PerfEvent.row()),
            _ => PROGRAM_KINDS.iter().find(|row| row.name == name).map_or(Role::Called, Role::Program),
        }
    }

    fn is_of_userspace(self) -> bool {
        matches!(self, Role::Begin | Role::End | Role::Interval)
    }
}

/// A program, and where it goes.
struct Attached {
    name: String,
    names: DeclarationSpans,
    attach_point: AttachPoint,
}

/// A function of userspace that `main` calls.
struct Called {
    name: String,
    at: At,
    role: Role,
    /// The period of `@interval` in nanoseconds; 0 for others.
    period: u64,
    /// Whether it prints maps.
    prints_maps: bool,
}

/// Gives a script without `main` its `main`, if its attributes say where all programs go.
pub fn expand(program: &mut Program, options: &Options, diagnostics: &mut Diagnostics) {
    program.units.iter().for_each(|unit| report_nameless(&unit.ast.items, diagnostics));
    let Some(unit) = program.units.last_mut().filter(|_| !options.strict_011) else { return };
    let items = &mut unit.ast.items;
    if items.iter().filter_map(function).any(|one| one.has_head && one.name.name == "main") {
        report_main(items, diagnostics);
        return;
    }
    for item in items.iter_mut() {
        if let ItemKind::Function(function) = &mut item.kind {
            optional::take(function, diagnostics);
            attributes::expand_profile(function, diagnostics);
        }
    }
    let functions = || items.iter().filter_map(function);
    let is_new = functions().any(attributes::is_new_form);
    let has_impl = items.iter().any(|item| matches!(item.kind, ItemKind::Impl { .. }));
    let programs = || functions().filter(|one| matches!(Role::of(one), Role::Program(_)));
    let runs_itself = is_new
        || (!has_impl && programs().next().is_some() && programs().all(attributes::names_attach_point));
    if !runs_itself {
        return;
    }
    if let Some(function) =
        programs().find(|one| !attributes::names_attach_point(one)).filter(|_| !options.kernel_half_only)
    {
        diagnostics.report(attributes::no_attach_point(function));
        return;
    }
    program.infers_maps = true;
    // A script whose programs are all left out waits as it does where the host leaves them out.
    let has_programs = items.iter().filter_map(function).any(|one| matches!(Role::of(one), Role::Program(_)));
    program.left_out = optional::leave_out(items, &options.kernel, diagnostics);
    attributes::split_targets(items, &options.kernel, diagnostics);
    let mut taken: HashSet<String> = items.iter().filter_map(declared_name).collect();
    let has_options =
        items.iter().any(|item| matches!(&item.kind, ItemKind::Struct { name, .. } if name.name == OPTIONS));
    let (mut attached, mut called) = (Vec::new(), Vec::new());
    for item in items.iter_mut() {
        let ItemKind::Function(function) = &mut item.kind else { continue };
        let role = Role::of(function);
        if !function.has_head {
            function.name.name = attributes::free_name(function, &mut taken);
        }
        match role {
            Role::Called => {}
            Role::Program(row) => {
                let mut names = DeclarationSpans::of(function.attributes[0].span);
                if !function.has_head {
                    attributes::complete(function, row, &options.kernel, &taken, &mut names);
                }
                let attach_point = attributes::take_attach_point(function, row);
                let rate = attributes::no_rate(&function.attributes[0], &attach_point);
                if let Some(error) = rate.filter(|_| !diagnostics.has_errors()) {
                    diagnostics.report(error);
                }
                attached.push(Attached { name: function.name.name.clone(), names, attach_point });
            }
            Role::Begin | Role::End | Role::Interval => {
                called.extend(userspace(function, role, has_options, diagnostics));
            }
        }
    }
    if options.kernel_half_only {
        return;
    }
    let end = At(unit.ast.end);
    let shared = if has_options { options::shared(items, end) } else { None };
    let (declared, set) = shared.map_or((Vec::new(), None), |shared| (shared.items, Some(shared.set)));
    let first = attached.first().map(|one| one.names.whole()).or(called.first().map(|one| one.at));
    let at = first.unwrap_or(end).last_part();
    let refreshing = options.refresh.map(|period| main_function::refreshing(period, has_options, at));
    let (refreshed, refresh): (Vec<_>, Vec<_>) = refreshing.into_iter().unzip();
    called.extend(refresh);
    let mut made = main_function::functions(items, attached, called, has_programs, has_options, set, end);
    made.extend(refreshed);
    items.extend(declared);
    items.extend(made.into_iter().map(|function| {
        let span = function.name.span;
        Item { docs: None, kind: ItemKind::Function(function), span }
    }));
}

/// Makes `@begin`, `@end` and `@interval("1s")` functions plain ones of userspace; `None` if one was rejected.
fn userspace(
    function: &mut AstFunction,
    role: Role,
    has_options: bool,
    diagnostics: &mut Diagnostics,
) -> Option<Called> {
    let attribute = function.attributes.remove(0);
    let at = At(attribute.span);
    let mut period = 0;
    let own = attribute.argument.as_ref().map(|argument| argument.span);
    let more = attribute.more.first().map(AttributeArg::span);
    let (takes, excess) = match role {
        Role::Interval => ("one period", more),
        _ => ("no argument", own.or(more)),
    };
    if let Some(span) = excess {
        let text = format!("`@{}` takes {takes}", attribute.name.name);
        diagnostics.report(Diagnostic::error(501, span, text));
        return None;
    }
    if role == Role::Interval {
        let text = attribute.argument.as_ref().and_then(|text| std::str::from_utf8(&text.bytes).ok());
        let Some(found) = text.and_then(check::period).filter(|found| *found >= LEAST_INTERVAL) else {
            let error = Diagnostic::error(501, attribute.span, "the period of `@interval` is at least 1 ms");
            diagnostics.report(error.help("write `@interval(\"1s\")`: a number with `ms` or `s`"));
            return None;
        };
        period = found;
    }
    if let Some(param) = function.params.first() {
        let text = format!("a function with `@{}` takes no parameters", attribute.name.name);
        let error = Diagnostic::error(503, param.name.span, text);
        diagnostics.report(error.help("`args` are the fields of `struct Args`, the script's options"));
        return None;
    }
    if has_options {
        function.params.push(main_function::options_param(DeclarationSpans::of(attribute.span).next()));
    }
    if !function.has_head {
        function.ret = Some(crate::ast::Returns { name: None, ty: at.ty("void") });
    }
    let prints_maps = PRINTS.iter().any(|name| options::names(&function.body, name));
    Some(Called { name: function.name.name.clone(), at, role, period, prints_maps })
}

/// The builtins that print maps.
const PRINTS: [&str; 2] = ["print_map", "print_kept"];

/// The shortest period of `@interval` in nanoseconds: `sleep` counts milliseconds.
const LEAST_INTERVAL: u64 = 1_000_000;

/// Reports functions without a name that are called by one.
fn report_nameless(items: &[Item], diagnostics: &mut Diagnostics) {
    let nameless = |one: &&AstFunction| !one.has_head && Role::of(one) == Role::Called;
    for function in items.iter().filter_map(function).filter(nameless) {
        let attribute = &function.attributes[0];
        let text = format!("`@{}` stands before `fn name(..)`", attribute.name.name);
        diagnostics.report(Diagnostic::error(503, attribute.span, text));
    }
}

/// Reports what only a script without `main` may have.
fn report_main(items: &[Item], diagnostics: &mut Diagnostics) {
    for function in items.iter().filter_map(function) {
        let Some(attribute) = function.attributes.first() else { continue };
        let role = Role::of(function);
        let (span, what, help) = if role.is_of_userspace() {
            let what = format!("`@{}` belongs to a script without `main`", attribute.name.name);
            (attribute.span, what, "call the function in `main`, or remove `main`")
        } else if attribute.name.name == PROFILE.0 {
            let what = "`@profile` belongs to a script without `main`".to_owned();
            (attribute.span, what, "write `@perf_event`, and attach the program with `perf_options`")
        } else if !function.has_head {
            let what = "a program without a name belongs to a script without `main`".to_owned();
            (attribute.span, what, "write `fn name(..)` behind the attribute: `load` takes the name")
        } else if let Some(argument) = optional::argument(function) {
            let what = format!("`{}:` belongs to a script without `main`", optional::OPTIONAL);
            (argument.span(), what, "compare in `main` what `attach` returns with 0")
        } else {
            continue;
        };
        diagnostics.report(Diagnostic::error(523, span, what).help(help));
    }
}

fn function(item: &Item) -> Option<&AstFunction> {
    match &item.kind {
        ItemKind::Function(function) => Some(function),
        _ => None,
    }
}

fn declared_name(item: &Item) -> Option<String> {
    let name = match &item.kind {
        ItemKind::Config { name, .. }
        | ItemKind::Alias { name, .. }
        | ItemKind::Enum { name, .. }
        | ItemKind::Struct { name, .. }
        | ItemKind::Const { name, .. }
        | ItemKind::Counter { name, .. }
        | ItemKind::Extern { name, .. }
        | ItemKind::ExternVariable { name, .. }
        | ItemKind::Impl { name, .. } => name,
        ItemKind::Global(global) => &global.name,
        ItemKind::Function(function) if function.has_head => &function.name,
        ItemKind::Function(_) | ItemKind::Include(_) | ItemKind::Import { .. } => return None,
    };
    Some(name.name.clone())
}
