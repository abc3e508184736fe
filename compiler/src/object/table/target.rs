//! Target in the section name of a program: its attach point.

use std::fmt;

use ks_wit::target::{Spot, UprobeTarget};

use super::super::limits::MAX_TARGET_BYTES;

/// Form of the targets of a section kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TargetForm {
    /// No target. Loaders before libbpf 1.0 and Aya allow a free text there; it is dropped.
    Nothing,
    /// `FUNCTION`, `FUNCTION+OFFSET` or `MODULE:FUNCTION`, or none yet.
    Function,
    /// A pattern of functions with `*` and `?`, or none yet.
    Functions,
    /// `CATEGORY/EVENT`, or none yet.
    Event,
    /// A name, or none yet.
    Name,
    /// A position in a file ([`ks_wit::target`]), or none yet. Digits alone after the path are a file offset
    /// in bytes, as in libbpf.
    Binary,
    /// `PATH:PROVIDER:NAME`, or none yet.
    Usdt,
}

/// Attach point of a program, as far as its section names it. `Display` prints the part after the slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Target {
    /// No attach point, or one that is supplied later.
    #[default]
    None,
    /// A kernel function.
    Function {
        /// Module that has it; none for the kernel, or any.
        module: Option<String>,
        /// Symbol of the function.
        name: String,
        /// Offset in bytes from its start; none if not written.
        offset: Option<u64>,
    },
    /// All functions whose names match a pattern with `*` and `?`.
    Functions(String),
    /// A tracepoint, by category and name.
    Event {
        /// Category (directory) of the tracepoint.
        category: String,
        /// Name within the category.
        name: String,
    },
    /// A kind-specific name: a system call, a tracepoint's event, a hook, a method.
    Name(String),
    /// A position in a program or library.
    Binary {
        /// File: a path, or a name that is searched for in the directories of programs and libraries.
        path: String,
        /// Function or pattern of functions, with an optional selector after `@` among functions of this
        /// name; none for an offset in the file.
        symbol: Option<String>,
        /// Offset in bytes from the start of the function, or of the file.
        offset: Option<u64>,
    },
    /// A static probe (USDT) of a program or library.
    Usdt {
        /// Path of the file.
        path: String,
        /// Provider that defines the probe.
        provider: String,
        /// Name of the probe.
        name: String,
    },
}

impl Target {
    /// Parses a target; none if it does not have the form.
    #[must_use]
    pub fn parse(form: TargetForm, text: &str) -> Option<Target> {
        if text.len() > MAX_TARGET_BYTES || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return None;
        }
        if text.is_empty() {
            return Some(Target::None);
        }
        match form {
            TargetForm::Nothing => Some(Target::None),
            TargetForm::Function => function(text),
            TargetForm::Functions => text.bytes().all(is_pattern).then(|| Target::Functions(text.to_owned())),
            TargetForm::Event => {
                let (category, name) = text.split_once('/')?;
                let is_event = is_symbol_name(category) && is_symbol_name(name);
                is_event.then(|| Target::Event { category: category.to_owned(), name: name.to_owned() })
            }
            TargetForm::Name => is_symbol_name(text).then(|| Target::Name(text.to_owned())),
            TargetForm::Binary => binary(text),
            TargetForm::Usdt => usdt(text),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plus = |f: &mut fmt::Formatter<'_>, offset: &Option<u64>| match offset {
            Some(offset) => write!(f, "+{offset}"),
            None => Ok(()),
        };
        match self {
            Target::None => Ok(()),
            Target::Function { module, name, offset } => {
                if let Some(module) = module {
                    write!(f, "{module}:")?;
                }
                f.write_str(name)?;
                plus(f, offset)
            }
            Target::Functions(text) | Target::Name(text) => f.write_str(text),
            Target::Event { category, name } => write!(f, "{category}/{name}"),
            Target::Binary { path, symbol: Some(symbol), offset } => {
                write!(f, "{path}:{symbol}")?;
                plus(f, offset)
            }
            Target::Binary { path, symbol: None, offset: Some(offset) } => write!(f, "{path}:+{offset}"),
            Target::Binary { path, symbol: None, offset: None } => f.write_str(path),
            Target::Usdt { path, provider, name } => write!(f, "{path}:{provider}:{name}"),
        }
    }
}

/// Returns whether a byte may occur in a symbol: Rust's have `$`, the kernel's clones and constant-propagated
/// copies dots.
fn is_symbol_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'$')
}

fn is_symbol_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(is_symbol_byte)
}

fn is_pattern(byte: u8) -> bool {
    is_symbol_byte(byte) || matches!(byte, b'*' | b'?' | b':')
}

fn function(text: &str) -> Option<Target> {
    let (module, rest) = match text.split_once(':') {
        Some((module, rest)) => (Some(module), rest),
        None => (None, text),
    };
    let (name, offset) = match rest.split_once('+') {
        Some((name, offset)) => (name, Some(number(offset)?)),
        None => (rest, None),
    };
    let is_module =
        |module: &str| !module.is_empty() && module.bytes().all(|byte| is_symbol_byte(byte) || byte == b'-');
    let is_sound = is_symbol_name(name) && module.is_none_or(is_module);
    is_sound.then(|| Target::Function { module: module.map(str::to_owned), name: name.to_owned(), offset })
}

/// Parses a position in a file, or a file alone.
fn binary(text: &str) -> Option<Target> {
    if !text.contains(':') {
        return Some(Target::Binary { path: text.to_owned(), symbol: None, offset: None });
    }
    // A text that libbpf reads as an offset.
    if let Some((path, offset)) = text.split_once(':').filter(|(path, _)| !path.contains('@'))
        && let Some(offset) = number(offset)
    {
        let is_sound = !path.is_empty();
        return is_sound.then(|| Target::Binary {
            path: path.to_owned(),
            symbol: None,
            offset: Some(offset),
        });
    }
    let UprobeTarget { path, spot } = UprobeTarget::parse(text).ok()?;
    let (symbol, offset) = match spot {
        Spot::Offset(offset) => (None, Some(offset)),
        Spot::Function { name, of, offset } => {
            let of = of.map(|of| format!("@{of}")).unwrap_or_default();
            // An offset of 0 is the start, whether written or not; the written form is kept.
            let is_written = offset != 0 || text.ends_with("+0");
            (Some(format!("{name}{of}")), is_written.then_some(offset))
        }
        // A source line is not a valid attach point here.
        Spot::Line { .. } => return None,
    };
    let is_sound = offset.is_none_or(|offset| offset <= MAX_OFFSET);
    is_sound.then(|| Target::Binary { path: path.to_owned(), symbol, offset })
}

/// Largest offset: libbpf reads it into a signed long.
const MAX_OFFSET: u64 = 1 << 62;

fn usdt(text: &str) -> Option<Target> {
    let (rest, name) = text.rsplit_once(':')?;
    let (path, provider) = rest.rsplit_once(':')?;
    let is_sound = !path.is_empty() && is_symbol_name(provider) && is_symbol_name(name);
    is_sound.then(|| Target::Usdt {
        path: path.to_owned(),
        provider: provider.to_owned(),
        name: name.to_owned(),
    })
}

/// Parses a decimal or hexadecimal number like libbpf (`sscanf` with `%li`), except octal ones.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_octal = radix == 10 && digits.len() > 1 && digits.starts_with('0');
    (is_plain && !is_octal)
        .then(|| u64::from_str_radix(digits, radix).ok())
        .flatten()
        .filter(|n| *n <= MAX_OFFSET)
}
