//! `ks init KIND NAME`: a script to start from, for every kind of program (language reference 9.3); or a plugin in Rust.
//!
//! In: the kind, a name, what is known of the kernel. Out: files as paths and texts; writing them is the caller's.
//!
//! ```text
//! probe/vfs_read -> Kind -> Script { program, main } -> vfs_read.ks, README.md
//!                     \-> structs and functions of the kernel -> tracepoint.kh, *_kfuncs.kh
//! ```

mod header;
mod kfuncs;
mod kind;
mod language;
mod programs;
pub mod rust;
mod script;
mod struct_ops;

pub use kind::KINDS;

use crate::diag::Diagnostics;
use crate::kernel_types::{KernelLookupError, KernelTypes};
use crate::source::SourceMap;
use crate::{fmt, lex, parse};
use kind::ScriptKind;
use script::Script;

/// What the user may choose besides kind and name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Also write the kernel functions that programs of this kind may call, as far as the BTF tells.
    pub kfuncs: bool,
}

/// Why there is nothing to start from.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InitError {
    /// No such kind of program.
    #[error("there is no kind of program `{kind}`{}", suggest(near))]
    UnknownKind {
        /// What was asked for.
        kind: String,
        /// Kinds with a name like it.
        near: Vec<String>,
    },
    /// The kind needs more than its word.
    #[error("`{kind}` needs to be told more: {form}")]
    Incomplete {
        /// The kind.
        kind: String,
        /// How it is written in full.
        form: &'static str,
    },
    /// The script's name cannot be the name of a file and of a plugin.
    #[error(
        "`{0}` cannot be the script's name: use letters, digits, `_` and `-`, and begin with a letter or `_`"
    )]
    Name(String),
    /// A package of this name would stand in the way of another one.
    #[error("`{0}` cannot be the plugin's name: a package that it needs has it, or cargo reserves it")]
    Taken(String),
    /// The kernel lacks what the kind names.
    #[error("the kernel has no {what} `{name}`{}", suggest(near))]
    Missing {
        /// What it is: a function, an event, a hook.
        what: &'static str,
        /// Its name.
        name: String,
        /// Names like it.
        near: Vec<String>,
    },
    /// Only the kernel's BTF can tell, and there is none.
    #[error("only the kernel's BTF tells what `{0}` looks like: name one with --btf")]
    NeedsBtf(String),
    /// The kernel has it, and no program can be written for it.
    #[error("`{name}` cannot be used: {why}")]
    Unusable {
        /// The function, event or struct.
        name: String,
        /// Why not.
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
    /// From the answer to a question about the kernel.
    fn unfound(why: KernelLookupError, what: &'static str, name: &str) -> InitError {
        let name = name.to_owned();
        match why {
            KernelLookupError::Missing { near } => InitError::Missing { what, name, near },
            KernelLookupError::NoBtf => InitError::NeedsBtf(name),
            KernelLookupError::Unreadable => InitError::Unusable { name, why: "its BTF makes no sense" },
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

/// The text in the one style, whatever the length of the kernel's names.
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
    // What only observes needs no word.
    let allow = match kind.split('/').next() {
        Some(class @ ("xdp" | "tc" | "cgroup" | "lsm" | "struct_ops")) => format!("--allow {class} "),
        _ => String::new(),
    };
    let mut text = format!(
        "# {name}\n\n{about}\n\nMade by `ks init {kind} {name}`.\n\n    ks check {name}.ks\n    ks build {name}.ks\n    \
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
