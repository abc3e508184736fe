//! Attributes: the program kinds with their signatures, from the contract's table, and the others.

use ks_wit::program_kind::PROGRAM_KINDS;

use crate::implicit_main::{PROFILE, USERSPACE};

/// An attribute and its documentation.
#[derive(Clone, Copy)]
pub struct Attribute {
    /// The name after `@`.
    pub name: &'static str,
    /// The attribute as it is written, with its argument.
    pub form: &'static str,
    /// The head of the function after it, as far as it is fixed.
    pub signature: &'static str,
    /// The documentation in Markdown.
    pub docs: &'static str,
    /// A declaration with it as a snippet, with placeholders `${1:word}`; empty if it declares no program.
    pub snippet: &'static str,
}

const fn plain(name: &'static str, form: &'static str, docs: &'static str) -> Attribute {
    Attribute { name, form, signature: "fn name(..)", docs, snippet: "" }
}

/// The attributes that declare no program.
const OTHERS: &[Attribute] = &[
    Attribute {
        name: "helper",
        form: "@helper",
        signature: "fn name(..)",
        docs: "A function of the kernel half that programs and other helpers call. Userspace cannot call it.",
        snippet: "@helper\nfn ${1:name}($2) -> ${3:u32} {\n    $0\n}",
    },
    plain(
        "kfunc",
        "@kfunc",
        "A function of the kernel half that programs call like a helper. It may allocate with `new T(FLAG)`.",
    ),
    plain(
        "private",
        "@private",
        "A function of the kernel half that only `@kfunc` and `@private` functions call.",
    ),
    Attribute {
        name: "test",
        form: "@test",
        signature: "fn name() -> i32",
        docs: "A test: `ks test` runs it in userspace, 0 is success. `test(program, context)` may be \
               called in it.",
        snippet: "@test\nfn ${1:name}() -> i32 {\n    $0\n    return 0\n}",
    },
    Attribute {
        name: "struct_ops",
        form: "@struct_ops(\"kernel struct\")",
        signature: "impl name { .. }",
        docs: "The functions of the impl block become the members of a struct of the kernel. `register` \
               hands it over.",
        snippet: "@struct_ops(\"${1:tcp_congestion_ops}\")\nimpl ${2:name} {\n    $0\n}",
    },
    Attribute {
        name: "flags",
        form: "@flags(flag | flag)",
        signature: "var name : kind<K, V>(N)",
        docs: "Flags of the map below: `no_prealloc`, `no_common_lru`, `numa_node(n)`, `rdonly`, \
               `wronly`, `clone`.",
        snippet: "",
    },
    Attribute {
        name: "column",
        form: "@column(\"heading\", \"unit\")",
        signature: "field: type",
        docs: "How tables show the field of a struct, or the values of the map or variable below: `print_map`, \
               `print_kept`, `--json` and `--watch`. The unit may be missing.",
        snippet: "@column(\"${1:heading}\", \"${2:ns}\")",
    },
];

/// Returns all attributes of the language: the program kinds, then the others.
pub fn attributes() -> impl Iterator<Item = Attribute> {
    let programs = PROGRAM_KINDS.iter().map(|row| Attribute {
        name: row.name,
        form: row.form,
        signature: row.signature,
        docs: row.docs,
        snippet: row.snippet,
    });
    let userspace = USERSPACE.iter().chain([&PROFILE]).map(|(name, form, docs)| Attribute {
        name,
        form,
        signature: "{ .. }",
        docs,
        snippet: "",
    });
    programs.chain(userspace).chain(OTHERS.iter().copied())
}
