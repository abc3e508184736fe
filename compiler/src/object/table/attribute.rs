//! Attributes of declarations and types: BTF's `DECL_TAG` and `TYPE_TAG`.

use super::target::{Target, TargetForm};

/// An attribute that the kernel's verifier knows and that has no effect outside the program.
///
/// Excluded, and so rejected: `exception_callback:` (names a function that nothing calls), `arg:arena` and
/// `address_space(1)` (arenas are rejected), `uptr` (a map's value then pins pages of a user's process).
///
/// Source: tools/lib/bpf/bpf_helpers.h, v1.7; kernel/bpf/btf.c, `btf_get_field_type` and
/// `btf_prepare_func_args`, v6.18.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Attribute(String);

/// The attribute of a program that reads the arguments of a function as C passes them. The kernel ignores it;
/// the host compares it with the function's language.
pub const ARGUMENTS_OF_C: &str = "arguments:c";
/// The attribute of a program that reads the arguments of a function as Go passes them.
pub const ARGUMENTS_OF_GO: &str = "arguments:go";

/// The attribute of a program that is left out at those of its targets that the kernel lacks. The kernel ignores it; the
/// host attaches the program at the others.
pub const OPTIONAL: &str = "optional";

/// Prefix of the attribute of a program that is for another tracepoint besides that of its section:
/// `also:syscalls/sys_enter_pread64`. The kernel ignores it; the host shows it, judges it
/// and attaches the program there as it does at the section's.
const ALSO: &str = "also:";

/// Accepted attributes of declarations.
const DECLARATIONS: [&str; 10] = [
    "arg:ctx",
    "arg:nonnull",
    "arg:nullable",
    "arg:trusted",
    "arg:untrusted",
    ARGUMENTS_OF_C,
    ARGUMENTS_OF_GO,
    "bpf_fastcall",
    "bpf_kfunc",
    OPTIONAL,
];

/// Accepted attributes of types.
const TYPES: [&str; 7] = ["kptr", "kptr_untrusted", "percpu", "percpu_kptr", "rcu", "uninit", "user"];

/// Prefix of the struct and member of a list's or tree's nodes: `contains:node:link`.
const CONTAINS: &str = "contains:";

impl Attribute {
    /// Parses an attribute of a declaration; none if it is not accepted.
    #[must_use]
    pub fn of_declaration(text: &str) -> Option<Attribute> {
        let is_known = DECLARATIONS.contains(&text)
            || text.strip_prefix(CONTAINS).is_some_and(is_node)
            || text.strip_prefix(ALSO).and_then(tracepoint).is_some();
        is_known.then(|| Attribute(text.to_owned()))
    }

    /// Returns the attribute of a program that is for this tracepoint (`category/event`), too.
    #[must_use]
    pub fn also(target: &str) -> String {
        format!("{ALSO}{target}")
    }

    /// Returns the tracepoint that a program is for besides that of its section, if the attribute says one.
    #[must_use]
    pub fn also_target(&self) -> Option<Target> {
        self.0.strip_prefix(ALSO).and_then(tracepoint)
    }

    /// Parses an attribute of a type; none if it is not accepted.
    #[must_use]
    pub fn of_type(text: &str) -> Option<Attribute> {
        TYPES.contains(&text).then(|| Attribute(text.to_owned()))
    }

    /// Returns the attribute's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn tracepoint(text: &str) -> Option<Target> {
    Target::parse(TargetForm::Event, text).filter(|target| *target != Target::None)
}

/// Returns whether a text has the form `STRUCT:MEMBER`.
fn is_node(text: &str) -> bool {
    let is_identifier = |name: &str| {
        !name.is_empty() && name.len() < 128 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    text.split_once(':').is_some_and(|(ty, member)| is_identifier(ty) && is_identifier(member))
}
