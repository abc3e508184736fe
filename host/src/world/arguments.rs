//! Parser of a plugin's arguments (`args.parse`). Pure: arguments and specs in, values or text out.

use std::fmt::Write as _;

use super::bindings::kernelscript::host::args::{OptionSpec, OptionType, OptionValue};
use crate::text::{MOST_BYTES, visible};

/// Upper limit of options of one plugin. Guards against an endless usage text.
const MAX_OPTIONS: usize = 1024;

/// Upper limit of a column's width in the usage. Guards against one long name that all rows are aligned with.
const MAX_COLUMN: usize = 26;

/// Result of parsing the arguments.
#[derive(Debug, Clone)]
pub(super) enum ParsedArguments {
    /// One value per option, in the order of the specs.
    Values(Vec<OptionValue>),
    /// The usage, because of `--help`.
    Help(String),
    /// The error and the usage.
    Wrong(String),
}

/// Invalid specs: a bug of the plugin.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum SpecError {
    #[error("args.parse: {0} options; at most {MAX_OPTIONS} are possible")]
    TooMany(usize),
    #[error("args.parse: option `{name}` has {bits} bits; 8, 16, 32 and 64 are possible")]
    Bits { name: String, bits: u8 },
}

/// Parses the arguments of the plugin of this name, which a user calls with options by `called_as`.
pub(super) fn parse(
    plugin: &str,
    called_as: &str,
    arguments: &[String],
    specs: &[OptionSpec],
) -> Result<ParsedArguments, SpecError> {
    check(specs)?;
    let mut values: Vec<OptionValue> = specs.iter().map(|spec| spec.default.clone()).collect();
    let mut arguments = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            return Ok(ParsedArguments::Help(usage(called_as, specs)));
        }
        match option(argument, &mut arguments, specs) {
            Ok((index, value)) => {
                if let Some(slot) = values.get_mut(index) {
                    *slot = value;
                }
            }
            Err(reason) => {
                let reason = visible(&reason, MOST_BYTES);
                return Ok(ParsedArguments::Wrong(format!(
                    "{plugin}: {reason}\n{}",
                    usage(called_as, specs)
                )));
            }
        }
    }
    Ok(ParsedArguments::Values(values))
}

fn check(specs: &[OptionSpec]) -> Result<(), SpecError> {
    if specs.len() > MAX_OPTIONS {
        return Err(SpecError::TooMany(specs.len()));
    }
    for spec in specs {
        if let OptionType::Unsigned(bits) | OptionType::Signed(bits) = spec.type_
            && !matches!(bits, 8 | 16 | 32 | 64)
        {
            return Err(SpecError::Bits { name: display(&spec.name), bits });
        }
    }
    Ok(())
}

/// Parses one option. Returns the index of its spec and its value, or the error.
fn option<'w>(
    argument: &'w str,
    arguments: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>,
    specs: &[OptionSpec],
) -> Result<(usize, OptionValue), String> {
    let (name, attached) = match argument.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (argument, None),
    };
    let (index, spec) = match (name.strip_prefix("--"), name.strip_prefix('-')) {
        (Some(long), _) => {
            let found = specs.iter().enumerate().find(|(_, spec)| same_name(&spec.name, long));
            found.ok_or_else(|| format!("there is no option `{name}`"))?
        }
        (None, Some(short)) => abbreviated(short, specs)?,
        (None, None) => return Err(format!("`{argument}` is not an option")),
    };
    let value = match (attached, &spec.type_) {
        (Some(value), _) => value,
        // A boolean needs no value, so the next argument is its value only if it can be one.
        (None, OptionType::Boolean) => arguments.next_if(|next| boolean(next).is_some()).unwrap_or("true"),
        (None, _) => arguments
            .next_if(|next| !next.starts_with("--"))
            .ok_or_else(|| format!("`{name}` needs a value: {}", type_name(&spec.type_)))?,
    };
    let value = read_value(value, &spec.type_).map_err(|reason| format!("`{name}`: {reason}"))?;
    Ok((index, value))
}

/// Returns the only option that begins with this letter, of whatever case: `-p` is `--pid`.
fn abbreviated<'s>(letter: &str, specs: &'s [OptionSpec]) -> Result<(usize, &'s OptionSpec), String> {
    let begins = |spec: &OptionSpec| {
        let first = spec.name.get(..letter.len());
        letter.len() == 1 && first.is_some_and(|first| first.eq_ignore_ascii_case(letter))
    };
    let found: Vec<(usize, &OptionSpec)> = specs.iter().enumerate().filter(|(_, one)| begins(one)).collect();
    match found[..] {
        [one] => Ok(one),
        [] => Err(format!("there is no option `-{letter}`")),
        _ => {
            let names: Vec<String> =
                found.iter().map(|(_, spec)| format!("`--{}`", display(&spec.name))).collect();
            Err(format!("`-{letter}` may be {}", names.join(" or ")))
        }
    }
}

/// Compares option names; `-` and `_` are the same.
fn same_name(spec: &str, given: &str) -> bool {
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte };
    spec.len() == given.len() && spec.bytes().map(plain).eq(given.bytes().map(plain))
}

/// Parses a value of this type. The error is text for a person.
pub(super) fn read_value(text: &str, ty: &OptionType) -> Result<OptionValue, String> {
    match *ty {
        OptionType::Unsigned(bits) => unsigned(text, bits).map(OptionValue::Unsigned),
        OptionType::Signed(bits) => signed(text, bits).map(OptionValue::Signed),
        OptionType::Boolean => boolean(text)
            .map(OptionValue::Boolean)
            .ok_or_else(|| format!("`{text}` is none of true, false, 1, 0, yes, no, on, off")),
        OptionType::Text(max) if text.len() > max as usize => {
            Err(format!("the text has {} bytes; at most {max} fit", text.len()))
        }
        OptionType::Text(_) => Ok(OptionValue::Text(text.as_bytes().to_vec())),
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn unsigned(text: &str, bits: u8) -> Result<u64, String> {
    let max = u64::MAX >> 64_u32.saturating_sub(u32::from(bits));
    if let Some(positive) = text.strip_prefix('-')
        && magnitude(positive).is_some()
    {
        return Err(format!("{text} is negative; the least is 0"));
    }
    match magnitude(text).ok_or_else(|| no_number(text))? {
        Some(number) if number <= max => Ok(number),
        _ => Err(format!("{text} is too large; the most is {max}")),
    }
}

fn signed(text: &str, bits: u8) -> Result<i64, String> {
    let max = i64::MAX >> 64_u32.saturating_sub(u32::from(bits));
    let min = -max - 1;
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let magnitude = magnitude(digits).ok_or_else(|| no_number(text))?;
    let number = magnitude.and_then(|number| {
        if negative { 0_i64.checked_sub_unsigned(number) } else { i64::try_from(number).ok() }
    });
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("{text} is out of range; from {min} to {max}")),
    }
}

/// Parses decimal, `0x` or `0b` digits. `None` if it is not a number, `Some(None)` if it exceeds 64 bits.
fn magnitude(text: &str) -> Option<Option<u64>> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix("0b")) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 2),
        _ => (text, 10),
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    Some(u64::from_str_radix(digits, radix).ok())
}

fn no_number(text: &str) -> String {
    format!("`{text}` is not a number (decimal, 0x or 0b digits)")
}

fn type_name(ty: &OptionType) -> String {
    match ty {
        OptionType::Unsigned(bits) => format!("u{bits}"),
        OptionType::Signed(bits) => format!("i{bits}"),
        OptionType::Boolean => "bool".into(),
        OptionType::Text(max) => format!("text of at most {max} bytes"),
    }
}

/// Formats the usage: each option with its type, its default and its line of help, aligned.
fn usage(called_as: &str, specs: &[OptionSpec]) -> String {
    if specs.is_empty() {
        let without = called_as.trim_end_matches(" --");
        return format!("usage: {without}\n\nThe plugin takes no options.\n");
    }
    let mut out = format!("usage: {called_as} [OPTIONS]\n\n");
    let rows: Vec<[String; 3]> = specs
        .iter()
        .map(|spec| {
            let default = display(&default_text(&spec.default));
            [format!("--{}", display(&spec.name)), type_name(&spec.type_), default]
        })
        .collect();
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0).min(MAX_COLUMN)
    };
    let (names, types, defaults) = (width(0), width(1), width(2));
    for (row, spec) in rows.iter().zip(specs) {
        let [name, ty, default] = row;
        let line =
            format!("  {name:names$}  {ty:types$}  default {default:defaults$}  {}", display(&spec.help));
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// Escapes and truncates a text of the plugin for its usage.
fn display(text: &str) -> String {
    visible(text, MOST_BYTES).into_owned()
}

fn default_text(value: &OptionValue) -> String {
    match value {
        OptionValue::Unsigned(number) => number.to_string(),
        OptionValue::Signed(number) => number.to_string(),
        OptionValue::Boolean(on) => on.to_string(),
        OptionValue::Text(text) => format!("\"{}\"", String::from_utf8_lossy(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(name: &str, ty: OptionType, default: OptionValue) -> OptionSpec {
        OptionSpec { name: name.into(), type_: ty, default, help: String::new() }
    }

    fn specs() -> Vec<OptionSpec> {
        vec![
            spec("packet_limit", OptionType::Unsigned(8), OptionValue::Unsigned(10)),
            spec("offset", OptionType::Signed(16), OptionValue::Signed(0)),
            spec("quiet", OptionType::Boolean, OptionValue::Boolean(false)),
            spec("interface", OptionType::Text(4), OptionValue::Text(Vec::new())),
        ]
    }

    fn read(arguments: &[&str]) -> ParsedArguments {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).into()).collect();
        parse("p.wasm", "ks-host p.wasm --", &arguments, &specs()).expect("the specs make sense")
    }

    /// Parses arguments and returns the values as text, in the order of the specs.
    #[track_caller]
    fn values(arguments: &[&str]) -> Vec<String> {
        match read(arguments) {
            ParsedArguments::Values(values) => values.iter().map(default_text).collect(),
            other => panic!("{arguments:?} gave {other:?}"),
        }
    }

    #[track_caller]
    fn wrong(arguments: &[&str], reason: &str) {
        match read(arguments) {
            ParsedArguments::Wrong(text) => {
                assert!(text.contains(reason), "{text:?} does not say {reason:?}");
                assert!(text.contains("usage: ks-host p.wasm"), "{text:?} has no usage");
            }
            other => panic!("{arguments:?} gave {other:?}"),
        }
    }

    #[test]
    fn an_option_that_is_not_given_has_its_default() {
        assert_eq!(values(&[]), ["10", "0", "false", "\"\""]);
    }

    #[test]
    fn a_value_follows_or_is_attached() {
        assert_eq!(values(&["--packet_limit", "7", "--offset=-9"]), ["7", "-9", "false", "\"\""]);
        assert_eq!(values(&["--offset", "-0x10", "--packet-limit=0b11"]), ["3", "-16", "false", "\"\""]);
        assert_eq!(values(&["--interface=--x"]), ["10", "0", "false", "\"--x\""]);
    }

    #[test]
    fn the_last_of_two_equal_options_counts() {
        assert_eq!(values(&["--packet_limit=1", "--packet_limit=2"])[0], "2");
    }

    #[test]
    fn a_boolean_stands_alone_or_takes_a_value() {
        assert_eq!(values(&["--quiet"])[2], "true");
        assert_eq!(values(&["--quiet", "--offset=1"])[1..3], ["1", "true"]);
        for (argument, value) in [("yes", "true"), ("off", "false"), ("0", "false"), ("1", "true")] {
            assert_eq!(values(&["--quiet", argument])[2], value);
            assert_eq!(values(&[&format!("--quiet={argument}")])[2], value);
        }
        wrong(&["--quiet=maybe"], "`--quiet`: `maybe` is none of true, false");
        wrong(&["--quiet", "maybe"], "`maybe` is not an option");
    }

    #[test]
    fn numbers_keep_their_range() {
        assert_eq!(values(&["--packet_limit=255", "--offset=-32768"])[..2], ["255", "-32768"]);
        wrong(&["--packet_limit=256"], "`--packet_limit`: 256 is too large; the most is 255");
        wrong(&["--packet_limit=99999999999999999999"], "too large");
        wrong(&["--packet_limit=-1"], "-1 is negative");
        wrong(&["--offset=32768"], "from -32768 to 32767");
        wrong(&["--offset=-99999999999999999999"], "out of range");
        for text in ["", "x", "1x", "0x", "0b2", "--1", "+1", " 1"] {
            wrong(&[&format!("--offset={text}")], "is not a number");
        }
    }

    #[test]
    fn sixty_four_bits_are_read_in_full() {
        let specs = [
            spec("u", OptionType::Unsigned(64), OptionValue::Unsigned(0)),
            spec("s", OptionType::Signed(64), OptionValue::Signed(0)),
        ];
        let arguments = [format!("--u={}", u64::MAX), format!("--s={}", i64::MIN)];
        let Ok(ParsedArguments::Values(values)) = parse("p", "p", &arguments, &specs) else {
            panic!("not read")
        };
        assert!(matches!(values[..], [OptionValue::Unsigned(u64::MAX), OptionValue::Signed(i64::MIN)]));
    }

    #[test]
    fn text_keeps_its_length() {
        assert_eq!(values(&["--interface", "eth0"])[3], "\"eth0\"");
        wrong(&["--interface", "enp0s3"], "the text has 6 bytes; at most 4 fit");
    }

    #[test]
    fn wrong_arguments_are_named() {
        wrong(&["--speed=1"], "there is no option `--speed`");
        wrong(&["surplus"], "`surplus` is not an option");
        wrong(&["--offset"], "`--offset` needs a value: i16");
        wrong(&["--interface", "--quiet"], "`--interface` needs a value");
    }

    #[test]
    fn a_letter_stands_for_the_only_option_that_begins_with_it() {
        assert_eq!(values(&["-p", "7", "-O=-9", "-q", "-i", "-x"]), ["7", "-9", "true", "\"-x\""]);
        wrong(&["-s"], "there is no option `-s`");
        wrong(&["-pa", "7"], "there is no option `-pa`");
        wrong(&["-"], "there is no option `-`");
        let specs = [spec("port", OptionType::Boolean, OptionValue::Boolean(false)), specs().remove(0)];
        let Ok(ParsedArguments::Wrong(text)) = parse("p", "p", &["-p".into()], &specs) else {
            panic!("accepted")
        };
        assert!(text.contains("`-p` may be `--port` or `--packet_limit`"), "{text}");
    }

    #[test]
    fn help_wins_over_what_follows_it() {
        for help in ["--help", "-h"] {
            let ParsedArguments::Help(text) = read(&[help, "--speed"]) else { panic!("no help") };
            assert!(text.contains("--packet_limit  u8"), "{text}");
            assert!(text.contains("default 10"), "{text}");
        }
    }

    #[test]
    fn names_and_help_are_one_line_and_have_an_end() {
        let bool = |name: &str| spec(name, OptionType::Boolean, OptionValue::Boolean(false));
        let mut odd = bool("x\nks-host: forged\x1b[2J");
        odd.help = "a\nb".repeat(70_000);
        let text = usage("p", &[odd, bool(&"n".repeat(70_000)), bool("y")]);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.contains("  --x\\nks-host: forged\\u{1b}[2J") && text.len() < 20_000, "{text}");
    }

    #[test]
    fn specs_that_make_no_sense_are_the_plugins_defect() {
        let odd = [spec("x", OptionType::Signed(7), OptionValue::Signed(0))];
        assert_eq!(parse("p", "p", &[], &odd).err(), Some(SpecError::Bits { name: "x".into(), bits: 7 }));
    }
}
