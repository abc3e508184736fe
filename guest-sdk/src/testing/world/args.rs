//! `args`: arguments, options, and the plugin's exit.

use std::boxed::Box;
use std::format;
use std::panic::resume_unwind;
use std::string::String;
use std::vec::Vec;

pub(crate) use crate::bindings::kernelscript::host::args::{OptionSpec, OptionType, OptionValue, Parsed};

use super::super::state::{Exit, with};

pub(crate) fn words() -> Vec<String> {
    with(|state| state.arguments.clone())
}

/// Tests start no commands.
pub(crate) fn has_command() -> bool {
    false
}

/// As [`has_command`].
pub(crate) fn restart_command() -> bool {
    false
}

/// A test's config blocks always have their defaults.
pub(crate) fn config(_block: &str, defaults: &[u8]) -> Vec<u8> {
    defaults.to_vec()
}

pub(crate) fn exit(code: u8) {
    resume_unwind(Box::new(Exit(code)))
}

pub(crate) fn parse(options: &[OptionSpec]) -> Parsed {
    let mut values: Vec<_> = options.iter().map(|option| option.default.clone()).collect();
    let mut words = words().into_iter().peekable();
    while let Some(argument) = words.next() {
        let Some(argument) = argument.strip_prefix("--") else {
            return wrong(&format!("unexpected `{argument}`"));
        };
        let (name, mut given) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(String::from(value))),
            None => (argument, None),
        };
        let Some(at) = options.iter().position(|option| option.name == name) else {
            return if name == "help" { Parsed::Exit(0) } else { wrong(&format!("no option `--{name}`")) };
        };
        let flag = matches!(options[at].type_, OptionType::Boolean);
        if given.is_none() {
            given = if flag { Some(String::from("true")) } else { words.next() };
        }
        match given.and_then(|given| value(options[at].type_, &given)) {
            Some(value) => values[at] = value,
            None => return wrong(&format!("`--{name}` has no value that it can take")),
        }
    }
    Parsed::Values(values)
}

fn wrong(message: &str) -> Parsed {
    super::console::warn(message);
    Parsed::Exit(1)
}

fn value(ty: OptionType, given: &str) -> Option<OptionValue> {
    match ty {
        OptionType::Unsigned(bits) => {
            let number: u64 = given.parse().ok()?;
            (number.checked_shr(bits.into()).unwrap_or(0) == 0).then_some(OptionValue::Unsigned(number))
        }
        OptionType::Signed(bits) => {
            let number: i64 = given.parse().ok()?;
            let unused = 64 - u32::from(bits.min(64));
            (number << unused >> unused == number).then_some(OptionValue::Signed(number))
        }
        OptionType::Boolean => match given {
            "true" | "1" | "yes" | "on" => Some(OptionValue::Boolean(true)),
            "false" | "0" | "no" | "off" => Some(OptionValue::Boolean(false)),
            _ => None,
        },
        OptionType::Text(most) => {
            (given.len() <= most as usize).then(|| OptionValue::Text(given.as_bytes().to_vec()))
        }
    }
}
