//! The plugin's command-line arguments (`ks-host plugin.wasm -- words`), and the plugin's exit.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::plain::Plain;
use crate::sys::args::{self, OptionSpec, OptionType, OptionValue, Parsed};

/// Returns the arguments that follow `--` on the command line, unparsed.
pub fn words() -> Vec<String> {
    args::words()
}

/// Returns the initial bytes of a config block: `defaults`, with the fields changed that the person who
/// started the plugin set (`ks-host --config block.field=value`). The host knows the block's fields from the
/// plugin's manifest.
pub fn config<T: Plain>(block: &str, defaults: &T) -> T {
    T::from_bytes(&args::config(block, &defaults.to_bytes()))
}

/// Whether the host starts a command that the plugin observes (`ks-host plugin.wasm --exec COMMAND`).
pub fn has_command() -> bool {
    args::has_command()
}

/// Starts the command again if it has ended: a new process, which runs when the plugin waits next, and which events
/// observe that are opened from now on. Returns whether it did: not if the plugin is asked to stop.
pub fn restart_command() -> bool {
    args::restart_command()
}

/// Ends the plugin immediately with this exit code. All that it attached is detached.
pub fn exit(code: u8) -> ! {
    args::exit(code);
    unreachable!("the host does not return from `exit`")
}

/// The long options of a plugin, `--name value` or `--name=value`, each with its default and a line for
/// `--help`.
///
/// ```no_run
/// use ks_guest::args::Options;
///
/// let mut options = Options::new();
/// let period = options.unsigned("period", 64, 1000, "events between two samples");
/// let verbose = options.flag("verbose", "say more");
/// let found = options.parse();
/// let (period, verbose): (u64, bool) = (found.unsigned(period), found.flag(verbose));
/// ```
#[derive(Debug, Default)]
pub struct Options {
    specs: Vec<OptionSpec>,
}

/// Identifies an unsigned option in [`ArgumentValues`].
#[derive(Debug, Clone, Copy)]
pub struct Unsigned(usize);

/// Identifies a signed option in [`ArgumentValues`].
#[derive(Debug, Clone, Copy)]
pub struct Signed(usize);

/// Identifies an option in [`ArgumentValues`] that is on or off.
#[derive(Debug, Clone, Copy)]
pub struct Flag(usize);

/// Identifies a text option in [`ArgumentValues`].
#[derive(Debug, Clone, Copy)]
pub struct Text(usize);

impl Options {
    /// Creates an empty list of options.
    pub fn new() -> Options {
        Options::default()
    }

    fn add(&mut self, name: &str, type_: OptionType, default: OptionValue, help: &str) -> usize {
        self.specs.push(OptionSpec { name: name.to_string(), type_, default, help: help.to_string() });
        self.specs.len() - 1
    }

    /// Declares an unsigned option of `bits` bits (8, 16, 32 or 64).
    pub fn unsigned(&mut self, name: &str, bits: u8, default: u64, help: &str) -> Unsigned {
        Unsigned(self.add(name, OptionType::Unsigned(bits), OptionValue::Unsigned(default), help))
    }

    /// Declares a signed option of `bits` bits (8, 16, 32 or 64).
    pub fn signed(&mut self, name: &str, bits: u8, default: i64, help: &str) -> Signed {
        Signed(self.add(name, OptionType::Signed(bits), OptionValue::Signed(default), help))
    }

    /// Declares a flag with the values `true false 1 0 yes no on off`; true if it is given without a value,
    /// false if it is not given.
    pub fn flag(&mut self, name: &str, help: &str) -> Flag {
        Flag(self.add(name, OptionType::Boolean, OptionValue::Boolean(false), help))
    }

    /// Declares a text option of at most `most` bytes.
    pub fn text(&mut self, name: &str, most: u32, default: &str, help: &str) -> Text {
        Text(self.add(name, OptionType::Text(most), OptionValue::Text(default.as_bytes().to_vec()), help))
    }

    /// Parses the arguments by these options. Ends the plugin with code 0 after `--help`, and with 1 after an
    /// invalid argument, which is reported on standard error.
    pub fn parse(self) -> ArgumentValues {
        match args::parse(&self.specs) {
            Parsed::Values(values) => ArgumentValues { values },
            Parsed::Exit(code) => exit(code),
        }
    }
}

/// Parsed options. Each is read by the identifier that its declaration returned.
#[derive(Debug)]
pub struct ArgumentValues {
    values: Vec<OptionValue>,
}

impl ArgumentValues {
    /// Returns the value of an unsigned option, or its default.
    pub fn unsigned(&self, option: Unsigned) -> u64 {
        match self.values.get(option.0) {
            Some(OptionValue::Unsigned(value)) => *value,
            _ => foreign(),
        }
    }

    /// Returns the value of a signed option, or its default.
    pub fn signed(&self, option: Signed) -> i64 {
        match self.values.get(option.0) {
            Some(OptionValue::Signed(value)) => *value,
            _ => foreign(),
        }
    }

    /// Whether the flag is on.
    pub fn flag(&self, option: Flag) -> bool {
        match self.values.get(option.0) {
            Some(OptionValue::Boolean(value)) => *value,
            _ => foreign(),
        }
    }

    /// Returns the text of an option, or its default; invalid UTF-8 is replaced.
    pub fn text(&self, option: Text) -> String {
        match self.values.get(option.0) {
            Some(OptionValue::Text(value)) => String::from_utf8_lossy(value).into_owned(),
            _ => foreign(),
        }
    }
}

/// Panics: the option was declared by other [`Options`] than these values.
fn foreign() -> ! {
    panic!("the option belongs to another set of options")
}
