//! `ks init KIND NAME`: a new script, for every kind of program (language reference 9.3); or a plugin in
//! Rust.
//!
//! In: the kind, a name, the kernel's types. Out: files as paths and texts, which the caller writes.
//!
//! ```text
//! probe/vfs_read -> ScriptKind -> Script { program, main } -> vfs_read.ks, README.md
//!                     \-> structs and functions of the kernel -> tracepoint.kh, *_kfuncs.kh
//! ```

mod header;
mod kfuncs;
mod kind;
mod programs;
pub mod rust;
mod script;
mod struct_ops;

pub use kind::{InitKind, KINDS};

use crate::diag::Diagnostics;
use crate::kernel_types::{KernelLookupError, KernelTypes};
use crate::source::SourceMap;
use crate::{fmt, lex, parse};
use kind::ScriptKind;
use script::Script;

/// Options besides kind and name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Also declares the kernel functions that programs of this kind may call, as far as the BTF marks them.
    pub kfuncs: bool,
}

/// The reason why no files can be created.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InitError {
    /// There is no such kind of program.
    #[error("there is no kind of program `{kind}`{}", suggest(near))]
    UnknownKind {
        /// The kind on the command line.
        kind: String,
        /// Kinds with a similar name.
        near: Vec<String>,
    },
    /// The kind needs a target.
    #[error("`{kind}` needs to be told more: {form}")]
    Incomplete {
        /// The kind on the command line.
        kind: String,
        /// The full form, with its target.
        form: &'static str,
    },
    /// The script's name cannot be the name of a file and of a plugin.
    #[error(
        "`{0}` cannot be the script's name: use letters, digits, `_` and `-`, and begin with a letter or `_`"
    )]
    Name(String),
    /// A package of this name would conflict with another one.
    #[error("`{0}` cannot be the plugin's name: a package that it needs has it, or cargo reserves it")]
    Taken(String),
    /// The kernel lacks what the kind names.
    #[error("the kernel has no {what} `{name}`{}", suggest(near))]
    Missing {
        /// The kind of item: a function, an event, a hook.
        what: &'static str,
        /// The name of the item.
        name: String,
        /// Similar names of items that the kernel has.
        near: Vec<String>,
    },
    /// Only the kernel's BTF has the answer, and there is none.
    #[error("only the kernel's BTF tells what `{0}` looks like: name one with --btf")]
    NeedsBtf(String),
    /// The kernel has it, but no program can be written for it.
    #[error("`{name}` cannot be used: {why}")]
    Unusable {
        /// The name of the function, event or struct.
        name: String,
        /// The reason as text for the message.
        why: &'static str,
    },
}

fn suggest(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; did you mean `{one}`?"),
        several => {
            let quoted: Vec<_> = several.iter().map(|name| format!("`{name}`")).collect();
            format!("; did you mean one of {}?", quoted.join(", "))
        }
    }
}

impl InitError {
    /// Converts a failed lookup in the kernel's types.
    fn unfound(why: KernelLookupError, what: &'static str, name: &str) -> InitError {
        let name = name.to_owned();
        match why {
            KernelLookupError::Missing { near } => InitError::Missing { what, name, near },
            KernelLookupError::NoBtf => InitError::NeedsBtf(name),
            KernelLookupError::Unreadable => InitError::Unusable { name, why: "its BTF is malformed" },
        }
    }
}

/// The files of a new script: path relative to its folder, and text. The script is the first.
///
/// # Errors
/// An unknown kind, a name that cannot be used, or a function, event, hook or struct that the kernel lacks.
pub fn starter(
    kind: &str,
    name: &str,
    kernel: &KernelTypes,
    options: Options,
) -> Result<Vec<(String, String)>, InitError> {
    if !is_script_name(name) {
        return Err(InitError::Name(name.to_owned()));
    }
    let parsed = ScriptKind::parse(kind, kernel)?;
    let mut script = programs::script(&parsed, name, kernel)?;
    if options.kfuncs
        && let Some((path, text)) = kfuncs::header(&parsed, kernel, &script)
    {
        script.headers.push((path, text));
    }
    Ok(files(kind, name, script))
}

fn files(kind: &str, name: &str, script: Script) -> Vec<(String, String)> {
    let readme = readme(kind, name, &script);
    let mut files = vec![(format!("{name}.ks"), script.text())];
    files.extend(script.headers);
    for (_, text) in &mut files {
        *text = formatted(std::mem::take(text));
    }
    files.push(("README.md".to_owned(), readme));
    files
}

/// Formats the script, since the kernel's names may be long.
fn formatted(text: String) -> String {
    let Some(file) = SourceMap::default().add("made", text.as_bytes()) else { return text };
    let mut diagnostics = Diagnostics::default();
    let tokens = lex::scan(file, text.as_bytes());
    let ast = parse::parse(&tokens, text.as_bytes(), &mut diagnostics);
    let formatted = fmt::format(&tokens, text.as_bytes(), &ast).ok();
    formatted.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or(text)
}

fn readme(kind: &str, name: &str, script: &Script) -> String {
    let Script { about, usage, .. } = script;
    // A program that only observes needs no permission.
    let allow = match kind.split('/').next() {
        Some(class @ ("xdp" | "tc" | "cgroup" | "lsm" | "struct_ops")) => format!("--allow {class} "),
        _ => String::new(),
    };
    let mut text = format!(
        "# {name}\n\n{about}\n\nMade by `ks init {kind} {name}`.\n\n    ks check {name}.ks\n    ks build \
         {name}.ks\n    \
         ks-host {allow}{name}.wasm{usage}\n"
    );
    if !script.headers.is_empty() {
        text.push_str("\nHeaders:\n\n");
        for (path, _) in &script.headers {
            text.push_str(&format!(
                "- `{path}`: declarations of the kernel; the layout is taken from the kernel itself\n"
            ));
        }
    }
    text
}

fn is_script_name(name: &str) -> bool {
    let rest = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    name.bytes().next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && name.bytes().all(rest)
}
