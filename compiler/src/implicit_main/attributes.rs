//! What attributes say in a script without `main`: the names, parameters and results of programs that have no
//! head, and where programs go.

use std::collections::HashSet;

use ks_wit::program_kind::{Argument, Context, ProgramKind, ProgramKindRow};

use super::build::{At, DeclarationSpans};
use super::{Role, tracepoints};
use crate::ast::{
    AstFunction, Attribute, AttributeArg, Expr, ExprKind, Ident, Item, ItemKind, Param, Returns, StrLit,
};
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::hooks::ADDRESS_HOOKS;
use crate::kernel_types::{KernelType, KernelTypes};
use crate::lex;
use crate::parse;
use crate::spelling::{free_name as free_param, params_text};

/// Maximum number of parameters of a program at a function.
const MAX_PARAMS: usize = 6;
/// The keyword that `pid:` and `cpu:` accept besides numbers.
const ALL: &str = "all";

/// Where a program goes.
#[derive(Debug)]
pub(super) enum AttachPoint {
    /// To this target, as `attach` takes it: empty where the attribute names it.
    Target(Expr),
    /// To an event, with these fields of `perf_options`.
    Event(Vec<(Ident, Expr)>),
    /// It runs as soon as it is loaded.
    Load,
}

/// Writes down what `@profile(99)` stands for. Its other arguments are fields of `perf_options`.
pub(super) fn expand_profile(function: &mut AstFunction, diagnostics: &mut Diagnostics) {
    let Some(attribute) = function.attributes.first_mut().filter(|one| one.name.name == super::PROFILE.0)
    else {
        return;
    };
    let at = At(attribute.span);
    match attribute.more.first_mut().filter(|one| one.name.is_none()) {
        Some(frequency) if attribute.argument.is_none() => {
            frequency.name = Some(At(frequency.value.span).ident("freq"));
        }
        _ => {
            let error =
                Diagnostic::error(501, attribute.span, "`@profile` takes a number of samples per second");
            diagnostics.report(error.help("write `@profile(99)`: 99 samples per second on each CPU"));
            attribute.argument = None;
        }
    }
    attribute.name.name = ProgramKind::PerfEvent.name().to_owned();
    attribute.more.insert(0, AttributeArg { name: None, value: at.name("cpu_clock") });
}

/// Whether a function has a form that only scripts without `main` have.
pub(super) fn is_new_form(function: &AstFunction) -> bool {
    let Some(attribute) = function.attributes.first() else { return false };
    match Role::of(function) {
        Role::Program(row) => !function.has_head || attribute.optional || is_full(attribute, row),
        role => role.is_of_userspace(),
    }
}

/// Whether the attribute of a program says where it goes.
pub(super) fn names_attach_point(function: &AstFunction) -> bool {
    match (Role::of(function), function.attributes.first()) {
        (Role::Program(row), Some(attribute)) => !needs_more(row) || is_full(attribute, row),
        _ => true,
    }
}

/// Whether `@xdp` and its like, which `attach` completes in a script with `main`, say the whole target.
fn is_full(attribute: &Attribute, row: &ProgramKindRow) -> bool {
    if !needs_more(row) {
        return false;
    }
    match row.argument {
        Argument::None => attribute.argument.is_some() || !attribute.more.is_empty(),
        _ => attribute.argument.is_some() && !attribute.more.is_empty(),
    }
}

/// Whether an attach point is needed besides the argument that a script with `main` writes.
fn needs_more(row: &ProgramKindRow) -> bool {
    use ProgramKind::{Cgroup, PerfEvent, SocketFilter, Tc, Xdp};
    matches!(row.kind, PerfEvent | Xdp | Tc | Cgroup | SocketFilter)
}

/// Reports a program whose attribute does not say where it goes.
pub(super) fn no_attach_point(function: &AstFunction) -> Diagnostic {
    let attribute = &function.attributes[0];
    let name = &attribute.name.name;
    let (what, example) = match name.as_str() {
        "perf_event" => ("event", "@perf_event(\"cpu_clock\", freq: 99)"),
        "tc" => ("interface", "@tc(\"ingress\", \"eth0\")"),
        "cgroup" => ("control group", "@cgroup(\"connect4\", \"/sys/fs/cgroup\")"),
        "xdp" => ("interface", "@xdp(\"eth0\")"),
        _ => ("interface", "@socket_filter(\"eth0\")"),
    };
    Diagnostic::error(524, attribute.span, format!("`@{name}` names no {what}"))
        .note("a script without `main` attaches each program where its attribute says")
        .help(format!("write `{example}`, or a `main` that attaches the programs"))
}

/// Replaces a program without a name whose attribute has several targets, `@probe("vfs_read", "vfs_write")`, by one
/// program for each; one program serves several tracepoints that pass it the same. It is loaded once, and attached to
/// each of them.
pub(super) fn split_targets(items: &mut Vec<Item>, kernel: &KernelTypes, diagnostics: &mut Diagnostics) {
    let mut split = Vec::with_capacity(items.len());
    for item in items.drain(..) {
        match &item.kind {
            ItemKind::Function(function) if has_more_targets(function) => {
                report_repeated(&function.attributes[0], diagnostics);
                split.extend(targets(function, kernel));
            }
            _ => split.push(item),
        }
    }
    *items = split;
}

/// Whether all arguments of a program's attribute are targets.
fn has_more_targets(function: &AstFunction) -> bool {
    let (Role::Program(row), false, [attribute]) =
        (Role::of(function), function.has_head, function.attributes.as_slice())
    else {
        return false;
    };
    !needs_more(row)
        && attribute.argument.is_some()
        && !attribute.more.is_empty()
        && attribute.more.iter().all(|one| text(one).is_some())
}

/// Reports targets that an attribute names again: the program would run twice there.
fn report_repeated(attribute: &Attribute, diagnostics: &mut Diagnostics) {
    let mut seen: Vec<StrLit> = Vec::new();
    for target in all_targets(attribute) {
        if let Some(first) = seen.iter().find(|one| one.bytes == target.bytes) {
            let text = format!("the target `{}` is named twice", String::from_utf8_lossy(&target.bytes));
            diagnostics.report(Diagnostic::error(501, target.span, text).also(first.span, "first here"));
        }
        seen.push(target);
    }
}

/// Returns all targets of an attribute that has several.
fn all_targets(attribute: &Attribute) -> impl Iterator<Item = StrLit> {
    attribute.argument.clone().into_iter().chain(attribute.more.iter().filter_map(text))
}

/// Returns the text of an argument without a name.
pub(super) fn text(argument: &AttributeArg) -> Option<StrLit> {
    match &argument.value.kind {
        ExprKind::Str(bytes) if argument.name.is_none() => {
            Some(StrLit { bytes: bytes.clone(), span: argument.value.span })
        }
        _ => None,
    }
}

/// Returns the programs for the targets. Their names and attributes are at the source range of the first target of each.
fn targets(function: &AstFunction, kernel: &KernelTypes) -> impl Iterator<Item = Item> {
    let attribute = &function.attributes[0];
    let mut programs: Vec<Attribute> = Vec::new();
    for target in all_targets(attribute) {
        let serving = programs.iter_mut().find_map(|one| {
            let event = tracepoints::served(function, [one.argument.as_ref()?, &target], kernel)?;
            Some((one, event))
        });
        match serving {
            Some((one, event)) => one.also.push(StrLit { bytes: event.into_bytes(), span: target.span }),
            None => {
                let (name, span) = (attribute.name.clone(), target.span);
                let (argument, more, also) = (Some(target), Vec::new(), Vec::new());
                programs.push(Attribute { name, argument, more, also, optional: attribute.optional, span });
            }
        }
    }
    programs.into_iter().map(|attribute| {
        let span = attribute.span;
        let name = At(span).ident(&attribute.name.name);
        let function = AstFunction { attributes: vec![attribute], name, ..function.clone() };
        Item { docs: None, kind: ItemKind::Function(function), span }
    })
}

/// Returns a name for a program without one, from the last part of its target.
pub(super) fn free_name(function: &AstFunction, taken: &mut HashSet<String>) -> String {
    let attribute = &function.attributes[0];
    let names_device = matches!(attribute.name.name.as_str(), "xdp" | "tc" | "socket_filter");
    let target = attribute.argument.as_ref().filter(|_| !names_device);
    let target = target.map(|text| String::from_utf8_lossy(&text.bytes).replace('-', "_"));
    let word = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let last = target.as_deref().and_then(|target| target.rsplit(['/', ':']).next());
    let last = last.filter(|last| !last.is_empty() && word(last)).unwrap_or(&attribute.name.name);
    let base = format!("on_{last}");
    let numbered = (2..).map(|number| format!("{base}_{number}"));
    let name = std::iter::once(base.clone()).chain(numbered).find(|name| taken.insert(name.clone()));
    name.expect("some number is free")
}

/// Gives a program without a head the parameters and the result that its attribute implies. A target that
/// does not exist is reported when the program is checked.
///
/// `taken` has the names that the script declares.
pub(super) fn complete(
    function: &mut AstFunction,
    row: &ProgramKindRow,
    kernel: &KernelTypes,
    taken: &HashSet<String>,
    names: &mut DeclarationSpans,
) {
    let attribute = &function.attributes[0];
    let at = At(attribute.span);
    let target = attribute.argument.as_ref().map(|text| String::from_utf8_lossy(&text.bytes).into_owned());
    let target = target.unwrap_or_default();
    let context = |record: &str, names: &mut DeclarationSpans| {
        vec![Param { name: names.next().ident("ctx"), ty: at.pointer(record) }]
    };
    function.params = match row.context {
        Context::Struct { name, .. } => context(name, names),
        Context::Hook if ADDRESS_HOOKS.contains(&target.as_str()) => context("bpf_sock_addr", names),
        Context::Hook => context("__sk_buff", names),
        Context::Record => context(&record(&target, kernel), names),
        Context::Arguments => arguments(row.kind, &target, kernel, function.body.span, names),
        Context::Nothing => Vec::new(),
    };
    if has_registers(row.kind, &target) && !taken.contains(REGISTERS) {
        function.params.push(Param { name: names.next().ident(REGISTERS), ty: at.pointer("pt_regs") });
    }
    let ty = match row.context {
        Context::Struct { result, .. } => result,
        Context::Nothing => "void",
        _ => "i32",
    };
    // Without a `return` a program lets pass what it decides about.
    let default = match row.kind {
        ProgramKind::Xdp => Some(at.name("XDP_PASS")),
        // TC_ACT_OK would end the chain of programs at the interface.
        ProgramKind::Tc => Some(at.name("TC_ACT_UNSPEC")),
        ProgramKind::Cgroup => Some(at.int(1)),
        _ => None,
    };
    let name = (ty != "void").then(|| names.next().ident(RESULT));
    function.body.stmts.splice(0..0, default.map(|value| at.assign(RESULT, None, value)));
    function.ret = Some(Returns { name, ty: at.ty(ty) });
}

/// The result variable of a program without a head. No script can name it.
const RESULT: &str = "(result)";

/// The name of the registers in a program without a head.
const REGISTERS: &str = "regs";

/// Whether a program is a breakpoint in any case, so that it can have the registers at no cost.
fn has_registers(kind: ProgramKind, target: &str) -> bool {
    match kind {
        ProgramKind::Uprobe | ProgramKind::Uretprobe => true,
        ProgramKind::Probe => target.contains('+'),
        _ => false,
    }
}

/// Returns the struct of a tracepoint's record.
pub(super) fn record(target: &str, kernel: &KernelTypes) -> String {
    let (category, event) = target.split_once('/').unwrap_or(("", target));
    let found = kernel.tracepoint(category, event).ok();
    let likely = found.and_then(|found| kernel.likely_record(&found, event));
    likely.unwrap_or_else(|| format!("trace_event_raw_{event}"))
}

/// Returns the parameters of a program that gets those of what it is attached to, as far as they are known.
fn arguments(
    kind: ProgramKind,
    target: &str,
    kernel: &KernelTypes,
    from: crate::source::Span,
    names: &mut DeclarationSpans,
) -> Vec<Param> {
    let result = |params: &[crate::kernel_types::Param], ty| crate::kernel_types::Param {
        name: free_param("ret", params),
        ty,
    };
    let (params, most) = match kind {
        ProgramKind::Probe => match kernel.function(target) {
            Ok(mut found) => {
                found.proto.params.truncate(found.agreed);
                (found.proto.params, MAX_PARAMS)
            }
            Err(_) => (Vec::new(), MAX_PARAMS),
        },
        ProgramKind::Retprobe => match kernel.function(target) {
            Ok(found) if found.agreed == found.proto.params.len() => {
                let mut params = found.proto.params;
                if found.proto.result != KernelType::Void {
                    params.push(result(&params, found.proto.result));
                }
                (params, MAX_PARAMS + 1)
            }
            _ => (Vec::new(), MAX_PARAMS),
        },
        ProgramKind::RawTracepoint => (kernel.raw_tracepoint(target).unwrap_or_default(), usize::MAX),
        ProgramKind::Lsm => {
            (kernel.lsm_hook(target).map(|proto| proto.params).unwrap_or_default(), usize::MAX)
        }
        ProgramKind::SyscallEnter => (kernel.syscall(target).unwrap_or_default(), MAX_PARAMS),
        ProgramKind::SyscallExit | ProgramKind::Uretprobe => {
            (vec![result(&[], KernelType::signed_int(8))], MAX_PARAMS)
        }
        _ => return Vec::new(),
    };
    parsed(&params_text(&params, most).0, from, names)
}

/// Parses parameters as a script would write them.
fn parsed(params: &str, from: crate::source::Span, names: &mut DeclarationSpans) -> Vec<Param> {
    let text = format!("extern f({params})");
    let tokens = lex::scan(from.file, text.as_bytes());
    let file = parse::parse(&tokens, text.as_bytes(), &mut crate::diag::Diagnostics::default());
    let params = file.items.into_iter().next().map(|item| item.kind);
    let Some(ItemKind::Extern { params, .. }) = params else { return Vec::new() };
    params
        .into_iter()
        .map(|param| {
            let at = names.next();
            Param { name: at.ident(param.name.name), ty: at.moved(param.ty) }
        })
        .collect()
}

/// Takes the attach point of a program out of its attribute, which is then one that scripts with `main` have too.
/// Arguments that do not belong to it stay, and are reported when the attribute is checked.
pub(super) fn take_attach_point(function: &mut AstFunction, row: &ProgramKindRow) -> AttachPoint {
    let attribute = &mut function.attributes[0];
    let at = At(attribute.span);
    match row.kind {
        ProgramKind::PerfEvent => AttachPoint::Event(event(attribute)),
        ProgramKind::Timer => AttachPoint::Load,
        ProgramKind::Xdp | ProgramKind::SocketFilter => {
            let text = attribute.argument.take().map(text_expr);
            AttachPoint::Target(text.or_else(|| first_value(attribute)).unwrap_or_else(|| at.text("")))
        }
        ProgramKind::Tc | ProgramKind::Cgroup if attribute.argument.is_some() => {
            AttachPoint::Target(first_value(attribute).unwrap_or_else(|| at.text("")))
        }
        _ => AttachPoint::Target(at.text("")),
    }
}

fn text_expr(text: StrLit) -> Expr {
    Expr { kind: ExprKind::Str(text.bytes), span: text.span }
}

/// Removes the first argument from `more` if it has no name, and returns its value.
fn first_value(attribute: &mut Attribute) -> Option<Expr> {
    attribute.more.first().filter(|argument| argument.name.is_none())?;
    Some(attribute.more.remove(0).value)
}

/// Reports an event that says not how often it is sampled, or never.
pub(super) fn no_rate(attribute: &Attribute, attach_point: &AttachPoint) -> Option<Diagnostic> {
    let AttachPoint::Event(fields) = attach_point else { return None };
    // A name that the checker does not know is an error of its own.
    let is_rate = |name: &str| name.starts_with("freq") || name.starts_with("period");
    let mut rates = fields.iter().filter(|(name, _)| is_rate(&name.name)).peekable();
    if rates.peek().is_none() {
        let what = "nothing says how often this event is sampled";
        return Some(Diagnostic::error(524, attribute.span, what).help(
            "write `period: 1` to run the program at each event, or `freq: 99` for 99 times a second",
        ));
    }
    let zero = rates.find(|(_, value)| matches!(&value.kind, ExprKind::Int(0)))?;
    Some(Diagnostic::error(524, zero.1.span, format!("`{}` is 1 or more", zero.0.name)))
}

/// Takes the fields of `perf_options` out of an attribute. Without a task or a CPU the event is counted for
/// every task on every CPU.
fn event(attribute: &mut Attribute) -> Vec<(Ident, Expr)> {
    let at = At(attribute.span);
    let event = match attribute.argument.take() {
        Some(text) => Some(named_event(text)),
        None => first_value(attribute),
    };
    let mut fields: Vec<(Ident, Expr)> = event.map(|event| (at.ident("event"), event)).into_iter().collect();
    let (named, others) = attribute.more.drain(..).partition(|one| one.name.is_some());
    attribute.more = others;
    let named: Vec<AttributeArg> = named;
    let has =
        |wanted: &str| named.iter().any(|one| one.name.as_ref().is_some_and(|name| name.name == wanted));
    let is_all = |value: &Expr| matches!(&value.kind, ExprKind::Name(name) if name == ALL);
    let names_pid = named
        .iter()
        .any(|one| one.name.as_ref().is_some_and(|name| name.name == "pid") && !is_all(&one.value));
    let cpu = match () {
        () if has("cpu") || has("process") || has("command") => None,
        () if names_pid => Some(at.negative(1)),
        () => Some(at.name(super::ALL)),
    };
    for AttributeArg { name, value } in named {
        let Some(name) = name.filter(|name| name.name != "pid" || !is_all(&value)) else { continue };
        fields.push((name, value));
    }
    fields.extend(cpu.map(|cpu| (at.ident("cpu"), cpu)));
    fields
}

/// Returns the event of a text: a name of the language, or one that `perf list` has.
fn named_event(text: StrLit) -> Expr {
    let at = At(text.span);
    let name = String::from_utf8_lossy(&text.bytes).replace('-', "_");
    if ks_wit::event::EVENTS.iter().any(|event| event.name == name) {
        return at.name(name);
    }
    at.builtin("pmu", vec![text_expr(text)])
}
