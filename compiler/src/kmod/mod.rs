//! Compiles a script's `@kfunc` functions to a kernel module: typed tree in, C and Kbuild out (`ks build
//! --emit kmod=DIR`).
//!
//! ```text
//! Hir -> call graph -> C of each function \
//!                   -> registration        -- source tree
//! ```
//!
//! Unlike BPF, nothing but the C compiler checks a module, so it has no pointers and all its loops are
//! bounded. Not here: how the BPF object prefers the module's functions to its own ([`crate::hir::module`]).

mod code;
mod expr;
mod print;
mod types;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::diag::Diagnostic;
use crate::hir::module;
use crate::hir::visit::{self, Visitor};
use crate::hir::{FuncId, FunctionKind, Hir};
use crate::index::Id as _;
use crate::source::Span;
use types::Definitions;

/// A module's source tree: names and contents of its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// The module's name, also of its folder in `/sys/module`.
    pub name: String,
    /// The files, each with its name and text.
    pub files: Vec<(String, String)>,
}

/// C source of types, the language's arithmetic, and compatibility with kernels: `__bpf_kfunc` exists since
/// 6.3, its block since 6.7, the marks around the set of functions since 6.9. Source: include/linux/btf.h,
/// include/linux/btf_ids.h.
const PRELUDE: &str = include_str!("prelude.c");

const KBUILD_RULES: &str = "\
# The kernel's types are needed for the module's own: `make` takes those of the running kernel where the \
build folder has
# none. Needs the kernel's headers and pahole.
KERNEL ?= /lib/modules/$(shell uname -r)/build

all:
\t[ -e $(KERNEL)/vmlinux ] || cp /sys/kernel/btf/vmlinux $(KERNEL)/vmlinux
\t$(MAKE) -C $(KERNEL) M=$(CURDIR) modules

clean:
\t$(MAKE) -C $(KERNEL) M=$(CURDIR) clean
";

/// Writes the module of a program.
///
/// # Errors
/// Constructs that a module cannot have (KS1006), or no `@kfunc` at all.
pub fn source(hir: &Hir) -> Result<Module, Vec<Diagnostic>> {
    let exported = module::exported(hir);
    let mut errors = module::callers_that_cannot(hir);
    if exported.is_empty() {
        errors.extend(nothing_to_export(hir));
    }
    let mut definitions = Definitions::new(&hir.types);
    let (mut declared, mut defined) = (String::new(), String::new());
    for id in reached(hir, &exported) {
        let function = &hir.functions[id];
        match code::function(hir, function, &mut definitions) {
            Ok(one) => {
                if function.kind == FunctionKind::Private {
                    // Writing to a string cannot fail.
                    let _ = writeln!(declared, "{};", one.head);
                }
                let _ = write!(defined, "\n{} {}", one.head, indented(&one.body));
            }
            Err(error) => errors.push(*error),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let name = module::name(hir);
    let text = format!(
        "{PRELUDE}\n{}{declared}\n__bpf_kfunc_start_defs();\n{defined}\n__bpf_kfunc_end_defs();\n\n{}",
        definitions.text(),
        registration(hir, &name, &exported),
    );
    let files = [
        (format!("{name}.c"), text),
        ("Kbuild".into(), format!("obj-m := {name}.o\n")),
        ("Makefile".into(), KBUILD_RULES.into()),
    ];
    Ok(Module { name, files: files.into() })
}

/// Indents lines with one tab for each block around them.
fn indented(text: &str) -> String {
    let mut depth = 0usize;
    let mut out = String::new();
    for line in text.lines() {
        let here = depth.saturating_sub(usize::from(line.starts_with('}')));
        let tabs = if line.is_empty() { 0 } else { here };
        out.extend(std::iter::repeat_n('\t', tabs).chain(line.chars()).chain(['\n']));
        depth = (depth + line.matches('{').count()).saturating_sub(line.matches('}').count());
    }
    out
}

fn nothing_to_export(hir: &Hir) -> Option<Diagnostic> {
    let span = hir.functions.iter().next()?.span;
    let text = "a kernel module needs a `@kfunc` function that a program reaches";
    Some(Diagnostic::error(1006, span, text).help("build without `--emit kmod`"))
}

/// Returns the functions and all functions that they call, in source order.
fn reached(hir: &Hir, from: &[FuncId]) -> BTreeSet<FuncId> {
    let mut found = ReachedFunctions::default();
    found.open.extend(from);
    while let Some(id) = found.open.pop() {
        if found.seen.insert(id) {
            visit::block(&mut found, &hir.functions[id].body);
        }
    }
    found.seen
}

#[derive(Default)]
struct ReachedFunctions {
    seen: BTreeSet<FuncId>,
    open: Vec<FuncId>,
}

impl Visitor for ReachedFunctions {
    fn function(&mut self, id: FuncId) {
        self.open.push(id);
    }
}

/// Writes the set of functions, and the types of programs that it is registered for. The first of these types
/// exist in every kernel that has kfuncs of modules; each registration succeeds or fails on its own.
fn registration(hir: &Hir, name: &str, exported: &[FuncId]) -> String {
    let mut out = String::from("BTF_KFUNCS_START(ks_functions)\n");
    for id in exported {
        let _ = writeln!(out, "BTF_ID_FLAGS(func, {})", hir.functions[*id].name);
    }
    let _ = write!(
        out,
        "BTF_KFUNCS_END(ks_functions)

static const struct btf_kfunc_id_set ks_set = {{ .owner = THIS_MODULE, .set = &ks_functions }};

static int __init ks_start(void)
{{
\tstatic const enum bpf_prog_type kinds[] = {{ {} }};
\tint i, refused = 0;

\tfor (i = 0; i < ARRAY_SIZE(kinds) && !refused; i++)
\t\trefused = register_btf_kfunc_id_set(kinds[i], &ks_set);
\treturn refused;
}}

static void __exit ks_end(void)
{{
}}

module_init(ks_start);
module_exit(ks_end);
MODULE_LICENSE(\"GPL\");
MODULE_DESCRIPTION(\"Functions of {name}.ks for BPF programs\");
",
        module::PROGRAM_TYPES.join(", "),
    );
    out
}

/// Returns the error for a construct that a module cannot have.
fn refused<T>(span: Span, what: &str) -> Result<T, Box<Diagnostic>> {
    let text = format!("{what} not possible in a kernel module");
    Err(Box::new(
        Diagnostic::error(1006, span, text)
            .note(
                "nothing checks a module when it is loaded, so it has no pointers, and it is apart from \
                   the BPF object",
            )
            .help(
                "build without `--emit kmod`: then `@kfunc` and `@private` functions are part of the BPF \
                   object",
            ),
    ))
}

/// Returns the name of a function in C: exported ones keep theirs, so that programs find them.
fn symbol(hir: &Hir, id: FuncId) -> String {
    let function = &hir.functions[id];
    match function.kind {
        FunctionKind::Kfunc => function.name.clone(),
        _ => format!("ks_{}_{}", id.index(), function.name),
    }
}
