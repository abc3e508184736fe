//! The words a person gave the plugin (`ks-host plugin.wasm -- words`), and the plugin's end.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::plain::Plain;
use crate::sys::args::{self, OptionSpec, OptionType, OptionValue, Parsed};

/// The words, as they were given.
pub fn words() -> Vec<String> {
    args::words()
}

/// The first bytes of a config block: `defaults`, in which the fields that the person who started the plugin set
/// (`ks-host --config block.field=value`) have their values. The host knows the block by the plugin's manifest.
pub fn config<T: Plain>(block: &str, defaults: &T) -> T {
    T::from_bytes(&args::config(block, &defaults.to_bytes()))
}

/// Whether the host starts a command that the plugin observes (`ks-host plugin.wasm --exec COMMAND`).
pub fn has_command() -> bool {
    args::has_command()
}

/// Ends the plugin now with this exit code. What it attached is detached.
pub fn exit(code: u8) -> ! {
    args::exit(code);
    unreachable!("the host does not return from `exit`")
}

/// The long options of a plugin, `--name value` or `--name=value`, each with its default and a line for `--help`.
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

/// Names an option with a number in [`Values`].
#[derive(Debug, Clone, Copy)]
pub struct Unsigned(usize);

/// Names an option with a signed number in [`Values`].
#[derive(Debug, Clone, Copy)]
pub struct Signed(usize);

/// Names an option that is on or off in [`Values`].
#[derive(Debug, Clone, Copy)]
pub struct Flag(usize);

/// Names an option with text in [`Values`].
#[derive(Debug, Clone, Copy)]
pub struct Text(usize);

impl Options {
    /// No options.
    pub fn new() -> Options {
        Options::default()
    }

    fn add(&mut self, name: &str, type_: OptionType, default: OptionValue, help: &str) -> usize {
        self.specs.push(OptionSpec { name: name.to_string(), type_, default, help: help.to_string() });
        self.specs.len() - 1
    }

    /// A number of so many bits (8, 16, 32 or 64).
    pub fn unsigned(&mut self, name: &str, bits: u8, default: u64, help: &str) -> Unsigned {
        Unsigned(self.add(name, OptionType::Unsigned(bits), OptionValue::Unsigned(default), help))
    }

    /// A signed number of so many bits (8, 16, 32 or 64).
    pub fn signed(&mut self, name: &str, bits: u8, default: i64, help: &str) -> Signed {
        Signed(self.add(name, OptionType::Signed(bits), OptionValue::Signed(default), help))
    }

    /// `true false 1 0 yes no on off`; true if it stands alone, false if it is not given.
    pub fn flag(&mut self, name: &str, help: &str) -> Flag {
        Flag(self.add(name, OptionType::Boolean, OptionValue::Boolean(false), help))
    }

    /// Text of at most so many bytes.
    pub fn text(&mut self, name: &str, most: u32, default: &str, help: &str) -> Text {
        Text(self.add(name, OptionType::Text(most), OptionValue::Text(default.as_bytes().to_vec()), help))
    }

    /// Reads the words by these options. Ends the plugin with code 0 after `--help`, and with 1 after a word that is
    /// wrong, which is then said on standard error.
    pub fn parse(self) -> Values {
        match args::parse(&self.specs) {
            Parsed::Values(values) => Values { values },
            Parsed::Exit(code) => exit(code),
        }
    }
}

/// What was given. Options are named by what their declaration gave.
#[derive(Debug)]
pub struct Values {
    values: Vec<OptionValue>,
}

impl Values {
    /// A number.
    pub fn unsigned(&self, option: Unsigned) -> u64 {
        match self.values.get(option.0) {
            Some(OptionValue::Unsigned(value)) => *value,
            _ => foreign(),
        }
    }

    /// A signed number.
    pub fn signed(&self, option: Signed) -> i64 {
        match self.values.get(option.0) {
            Some(OptionValue::Signed(value)) => *value,
            _ => foreign(),
        }
    }

    /// Whether it is on.
    pub fn flag(&self, option: Flag) -> bool {
        match self.values.get(option.0) {
            Some(OptionValue::Boolean(value)) => *value,
            _ => foreign(),
        }
    }

    /// Text, bytes that are no UTF-8 replaced.
    pub fn text(&self, option: Text) -> String {
        match self.values.get(option.0) {
            Some(OptionValue::Text(value)) => String::from_utf8_lossy(value).into_owned(),
            _ => foreign(),
        }
    }
}

/// The option was declared with other [`Options`] than these values are of.
fn foreign() -> ! {
    panic!("the option belongs to another set of options")
}
