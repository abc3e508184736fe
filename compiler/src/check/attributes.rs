//! Attributes of functions: the caller of a function, and the attach point of a program (language reference,
//! 4.1, 11.8).

use ks_wit::program_kind::{Argument, PROGRAM_KINDS};
use ks_wit::target::{NO_LINES, Spot, UprobeTarget};

use super::Checker;
use super::builtin::literal_text;
use crate::ast::{self, Attribute, AttributeArg, StrLit};
use crate::diag::Diagnostic;
use crate::hir::hooks::{ADDRESS_HOOKS, PACKET_HOOKS};
use crate::hir::{FunctionKind, ProgramKind, Target};

/// The kind of function that an attribute declares, with the form of the attribute's argument.
struct AttributeSpec {
    name: &'static str,
    kind: FunctionKind,
    argument: Argument,
    /// Whether KernelScript 0.1.1 has it.
    in_011: bool,
}

/// The attributes of functions that are not programs.
const OTHERS: [(&str, FunctionKind); 4] = [
    ("helper", FunctionKind::Helper),
    ("kfunc", FunctionKind::Kfunc),
    ("private", FunctionKind::Private),
    ("test", FunctionKind::Test),
];

/// Returns all attributes of functions.
fn attribute_specs() -> impl Iterator<Item = AttributeSpec> {
    let others = OTHERS.into_iter().map(|(name, kind)| AttributeSpec {
        name,
        kind,
        argument: Argument::None,
        in_011: true,
    });
    others.chain(PROGRAM_KINDS.iter().map(|row| AttributeSpec {
        name: row.name,
        kind: FunctionKind::Program(row.kind),
        argument: row.argument,
        in_011: row.in_011,
    }))
}

/// Attribute names of other tools, and their equivalents here.
const FOREIGN: &[(&str, &str)] = &[
    ("kprobe", "@probe(\"function\")"),
    ("fentry", "@probe(\"function\")"),
    ("kretprobe", "@retprobe(\"function\")"),
    ("fexit", "@retprobe(\"function\")"),
    ("tp", "@tracepoint(\"category/event\")"),
    ("raw_tp", "@raw_tracepoint(\"event\")"),
    ("tp_btf", "@raw_tracepoint(\"event\")"),
    ("perf", "@perf_event"),
    ("classifier", "@tc(\"ingress\")"),
    ("sched_cls", "@tc(\"ingress\")"),
    ("kernel", "@helper"),
    ("bpf", "@helper"),
    ("inline", "@helper"),
];

impl Checker<'_> {
    /// Returns the kind and target that a function's attributes declare; none if they are invalid, which is
    /// reported.
    pub(super) fn attributes(&mut self, function: &ast::AstFunction) -> Option<(FunctionKind, Target)> {
        let Some((first, others)) = function.attributes.split_first() else {
            return Some((FunctionKind::Plain, Target::None));
        };
        if let Some(other) = others.first() {
            self.report(
                Diagnostic::error(502, other.span, "one function, one program kind")
                    .also(first.span, "the first stands here"),
            );
        }
        let Some(spec) = attribute_specs().find(|spec| spec.name == first.name.name) else {
            self.report_unknown(first);
            return None;
        };
        if !spec.in_011 {
            self.strict(first.span, &format!("attribute `@{}`", spec.name));
        }
        if let [abi] = first.more.as_slice()
            && spec.kind == FunctionKind::Program(ProgramKind::Uprobe)
            && abi.name.as_ref().is_some_and(|name| name.name == "abi")
        {
            return Some((spec.kind, self.go_target(&spec, first, &abi.value)?));
        }
        if let Some(argument) = first.more.first() {
            let error = Diagnostic::error(208, argument.span(), "an attribute takes one string or nothing");
            let is_target = |one: &AttributeArg| one.name.is_none() && literal_text(&one.value).is_some();
            let help = if first.argument.is_some() && first.more.iter().all(is_target) && function.has_head {
                "a program at several targets has no name, in a script without `main`: write a block behind the attribute"
            } else {
                "write its argument in quotes, for example `@tc(\"ingress\")`"
            };
            self.report(error.help(help));
            return None;
        }
        let target = self.target(&spec, first)?;
        Some((spec.kind, target))
    }

    /// Returns the attach point of `@uprobe("path:function", abi: "go")`; `None` if it was reported.
    fn go_target(&mut self, spec: &AttributeSpec, attribute: &Attribute, abi: &ast::Expr) -> Option<Target> {
        if literal_text(abi) != Some(b"go") {
            self.report(
                Diagnostic::error(417, abi.span, "the calling convention of `abi` is \"go\"")
                    .help("without `abi` it is that of C"),
            );
            return None;
        }
        match self.target(spec, attribute)? {
            Target::User { path, symbol, offset, .. } => {
                Some(Target::User { path, symbol, offset, go: true })
            }
            _ => None,
        }
    }

    fn report_unknown(&mut self, attribute: &Attribute) {
        let name = attribute.name.name.as_str();
        let error = match name {
            "struct_ops" => {
                Diagnostic::error(501, attribute.span, "`@struct_ops` stands before an impl block")
                    .help("write `@struct_ops(\"tcp_congestion_ops\") impl name { ... }`")
            }
            "flags" | "map" => {
                Diagnostic::error(501, attribute.span, format!("`@{name}` is not for functions")).help(
                    "the flags of a map stand before it: `@flags(no_prealloc) var m : hash<u32, u64>(64)`",
                )
            }
            _ => {
                let error = Diagnostic::error(501, attribute.span, format!("unknown attribute `@{name}`"));
                match FOREIGN.iter().find(|(foreign, _)| *foreign == name) {
                    Some((_, spelling)) => error.help(format!("write `{spelling}`")),
                    None => {
                        let names = attribute_specs().map(|spec| spec.name);
                        error.suggest_near(attribute.name.span, "attribute", name, names)
                    }
                }
            }
        };
        self.report(error);
    }

    /// Returns the attach point of a program; `None` if it was reported.
    fn target(&mut self, spec: &AttributeSpec, attribute: &Attribute) -> Option<Target> {
        let name = spec.name;
        let argument = match (&attribute.argument, spec.argument) {
            (None, Argument::None) => return Some(Target::None),
            (Some(argument), Argument::None) => {
                let text = format!("`@{name}` takes no argument");
                self.report(Diagnostic::error(501, argument.span, text).suggest(
                    attribute.span,
                    format!("@{name}"),
                    "without parentheses",
                ));
                return Some(Target::None);
            }
            (None, form) => {
                let text = format!("`@{name}` needs an argument");
                let help = format!("write `@{name}(\"{}\")`", form.example());
                self.report(Diagnostic::error(501, attribute.span, text).help(help));
                return None;
            }
            (Some(argument), _) => argument,
        };
        let found = parse(spec.argument, argument);
        if found.is_none() {
            self.report(malformed(spec, argument));
        }
        found
    }
}

fn malformed(spec: &AttributeSpec, argument: &StrLit) -> Diagnostic {
    let written = String::from_utf8_lossy(&argument.bytes).into_owned();
    let error = |code, text: &str| Diagnostic::error(code, argument.span, text);
    match spec.argument {
        Argument::Direction => error(504, "direction is \"ingress\" or \"egress\"").suggest_near(
            argument.span,
            "direction",
            &written,
            ["ingress", "egress"],
        ),
        Argument::Event => error(505, "tracepoint target is \"category/event\"")
            .help("for example `@tracepoint(\"sched/sched_switch\")`"),
        Argument::Function => error(506, "the target of `@retprobe` is \"function\""),
        Argument::FunctionAndOffset => error(506, "probe target is \"function\" or \"function+offset\"")
            .help("the offset is decimal or begins with `0x`: `@probe(\"vfs_read+0x10\")`"),
        Argument::UserLocation => {
            let text = format!("the target of `@{}` is \"path:symbol\" or \"path:+0xoffset\"", spec.name);
            match user_location(&written) {
                Err(reason) => error(506, &text).note(reason),
                Ok(_) => error(506, &text),
            }
        }
        Argument::Hook => error(504, "no such hook of a cgroup").note(format!(
            "hooks are {}",
            PACKET_HOOKS.into_iter().chain(ADDRESS_HOOKS).collect::<Vec<_>>().join(", ")
        )),
        Argument::Period => match period(&written) {
            Some(nanoseconds) if nanoseconds < *PERIODS.start() => error(
                501,
                "a timer runs at most once in a millisecond",
            )
            .note("the kernel has nothing that would slow down a timer which leaves no time for others")
            .help(
                "for shorter periods: `@perf_event` with the event `cpu_clock`, which the kernel throttles",
            ),
            Some(_) => error(501, "a timer runs at least once in 86400 seconds"),
            None => error(501, "the period of `@timer` is a number with `ns`, `us`, `ms` or `s`")
                .help("write `@timer(\"10ms\")`"),
        },
        Argument::Name(example) => error(
            if spec.name == "raw_tracepoint" { 505 } else { 506 },
            &format!("the target of `@{}` is a name alone", spec.name),
        )
        .help(format!("for example `@{}(\"{example}\")`", spec.name)),
        Argument::None => error(501, "no argument stands here"),
    }
}

fn parse(form: Argument, argument: &StrLit) -> Option<Target> {
    let text = std::str::from_utf8(&argument.bytes).ok()?;
    match form {
        Argument::None => None,
        Argument::Direction => match text {
            "ingress" => Some(Target::Egress(false)),
            "egress" => Some(Target::Egress(true)),
            _ => None,
        },
        Argument::Function => is_name(text).then(|| Target::Function { name: text.to_owned(), offset: None }),
        Argument::FunctionAndOffset => {
            let (name, offset) = match text.split_once('+') {
                Some((name, offset)) => (name, Some(number(offset)?)),
                None => (text, None),
            };
            is_name(name).then(|| Target::Function { name: name.to_owned(), offset })
        }
        Argument::Event => {
            let (category, event) = text.split_once('/')?;
            let fits = is_name(category) && is_name(event);
            fits.then(|| Target::Tracepoint { category: category.to_owned(), event: event.to_owned() })
        }
        Argument::Name(_) => is_name(text).then(|| Target::Name(text.to_owned())),
        Argument::Hook => {
            let known = PACKET_HOOKS.contains(&text) || ADDRESS_HOOKS.contains(&text);
            known.then(|| Target::Name(text.to_owned()))
        }
        Argument::UserLocation => user_location(text).ok(),
        Argument::Period => {
            let nanoseconds = period(text).filter(|nanoseconds| PERIODS.contains(nanoseconds))?;
            Some(Target::Period { nanoseconds })
        }
    }
}

/// Whether a text is a symbol of the kernel; symbols of the compiler's copies of functions contain a `.`.
fn is_name(text: &str) -> bool {
    let inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    !text.is_empty() && text.bytes().all(inside) && !text.starts_with(|first: char| first.is_ascii_digit())
}

/// Parses a number: decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Option<u64> {
    // `parse` accepts a sign, which is not allowed here.
    if text.starts_with(['+', '-']) {
        return None;
    }
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with(['+', '-']) => u64::from_str_radix(digits, 16).ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

/// Parses a location in a program, or returns the reason why it cannot be probed.
fn user_location(text: &str) -> Result<Target, String> {
    let UprobeTarget { path, spot } = UprobeTarget::parse(text).map_err(|error| error.to_string())?;
    let (symbol, offset) = match spot {
        Spot::Offset(offset) => (None, offset),
        Spot::Function { name, of, offset } => {
            let of = of.map(|of| format!("@{of}")).unwrap_or_default();
            (Some(format!("{name}{of}")), offset)
        }
        Spot::Line { .. } => return Err(NO_LINES.to_owned()),
    };
    Ok(Target::User { path: path.to_owned(), symbol, offset, go: false })
}

/// The allowed periods of a timer in nanoseconds, 1 ms to 1 day. A run may take as long as any run of a
/// program, some milliseconds at worst, and nothing else runs on its CPU meanwhile.
const PERIODS: std::ops::RangeInclusive<u64> = 1_000_000..=86_400_000_000_000;

/// Parses a period into nanoseconds; saturates on overflow.
pub(crate) fn period(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let scale = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let count = text[..digits]
        .bytes()
        .try_fold(0u64, |count, digit| count.checked_mul(10)?.checked_add(u64::from(digit - b'0')));
    (digits > 0).then(|| count.unwrap_or(u64::MAX).saturating_mul(scale))
}
