//! Formatting of a line for `console.print`. Pure: a format and values in, bytes out.

use super::bindings::kernelscript::host::console::Value;
use super::columns;

/// Upper limit of a field's width and of digits by precision. Guards against `%999999999d`, ten bytes that
/// would cost a gigabyte.
const MAX_FIELD: usize = 4096;

/// Upper limit of a line in bytes; the rest is cut. Guards against a long format full of wide fields.
const MAX_LINE: usize = 1 << 20;

/// Formats a line, with its newline.
pub(super) fn line(format: &[u8], values: &[Value]) -> Vec<u8> {
    let mut out = Vec::with_capacity(format.len() + 16);
    let mut values = values.iter();
    let mut rest = format;
    while let Some((&byte, after)) = rest.split_first() {
        rest = match byte {
            b'%' => conversion(after, &mut values, &mut out),
            b'{' if after.first() == Some(&b'}') => braces(after, &mut values, &mut out),
            _ => {
                out.push(byte);
                after
            }
        };
        if out.len() > MAX_LINE {
            break;
        }
    }
    append_surplus(values, &mut out);
    if out.len() > MAX_LINE {
        out.truncate(MAX_LINE);
    }
    if out.last() != Some(&b'\n') {
        out.push(b'\n');
    }
    out
}

/// Formats a text as a line, with its newline.
pub(super) fn plain_line(text: &[u8]) -> Vec<u8> {
    let mut out = text[..text.len().min(MAX_LINE)].to_vec();
    if out.last() != Some(&b'\n') {
        out.push(b'\n');
    }
    out
}

/// Appends values beyond the last conversion, each after a space, before a newline at the end of the format.
fn append_surplus<'v>(values: impl Iterator<Item = &'v Value>, out: &mut Vec<u8>) {
    let mut values = values.peekable();
    if values.peek().is_none() {
        return;
    }
    let ended = out.pop_if(|last| *last == b'\n').is_some();
    for value in values {
        if !out.is_empty() {
            out.push(b' ');
        }
        out.extend_from_slice(&natural(value));
        if out.len() > MAX_LINE {
            return;
        }
    }
    if ended {
        out.push(b'\n');
    }
}

/// Formats `{}`: the next value in its natural form. `rest` begins with `}`.
fn braces<'f, 'v>(
    rest: &'f [u8],
    values: &mut impl Iterator<Item = &'v Value>,
    out: &mut Vec<u8>,
) -> &'f [u8] {
    match values.next() {
        Some(value) => out.extend_from_slice(&natural(value)),
        None => out.extend_from_slice(b"{}"),
    }
    rest.get(1..).unwrap_or_default()
}

/// The part of a conversion between `%` and the letter.
#[derive(Debug, Default, Clone, Copy)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    alternate: bool,
    width: usize,
    precision: Option<usize>,
}

/// Formats one conversion; `rest` follows its `%`. Returns what follows the conversion.
fn conversion<'f, 'v>(
    rest: &'f [u8],
    values: &mut impl Iterator<Item = &'v Value>,
    out: &mut Vec<u8>,
) -> &'f [u8] {
    let (spec, after) = parse_spec(rest);
    let as_it_stands = |end: &'f [u8], out: &mut Vec<u8>| {
        out.push(b'%');
        out.extend_from_slice(&rest[..rest.len() - end.len()]);
        end
    };
    let Some((&letter, end)) = after.split_first() else {
        return as_it_stands(after, out);
    };
    match letter {
        b'%' if after.len() == rest.len() => out.push(b'%'),
        b'd' | b'i' | b'u' | b'x' | b'X' | b'o' | b'c' | b's' | b'p' => match values.next() {
            Some(value) => out.extend_from_slice(&converted(value, letter, &spec)),
            None => return as_it_stands(end, out),
        },
        // The letter itself is left to the caller: it may be the `%` of the next conversion.
        _ => return as_it_stands(after, out),
    }
    end
}

/// Parses flags, width, precision and length. Returns the rest.
fn parse_spec(format: &[u8]) -> (Spec, &[u8]) {
    let mut spec = Spec::default();
    let mut rest = format;
    while let Some((&flag, after)) = rest.split_first() {
        match flag {
            b'-' => spec.left = true,
            b'+' => spec.plus = true,
            b' ' => spec.space = true,
            b'0' => spec.zero = true,
            b'#' => spec.alternate = true,
            _ => break,
        }
        rest = after;
    }
    (spec.width, rest) = parse_number(rest);
    if let Some(after) = rest.strip_prefix(b".") {
        let precision;
        (precision, rest) = parse_number(after);
        spec.precision = Some(precision);
    }
    for length in [&b"hh"[..], b"h", b"ll", b"l", b"z"] {
        if let Some(after) = rest.strip_prefix(length) {
            rest = after;
            break;
        }
    }
    (spec, rest)
}

/// Parses digits, at most [`MAX_FIELD`]. No digits are 0.
fn parse_number(format: &[u8]) -> (usize, &[u8]) {
    let digits = format.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = format.split_at(digits);
    let number =
        digits.iter().fold(0, |number, digit| (number * 10 + usize::from(digit - b'0')).min(MAX_FIELD));
    (number, rest)
}

/// Formats a value with a conversion. If the conversion does not suit the value, uses the natural form.
fn converted(value: &Value, letter: u8, spec: &Spec) -> Vec<u8> {
    if let Value::Text(text) = value {
        return pad(spec.precision.map_or(text, |most| columns::cut(text, most)), spec);
    }
    match letter {
        b'd' | b'i' => signed(as_signed(value), spec),
        // A byte is a column, as in C, whatever it is shown as.
        b'c' => pad_columns(&[as_unsigned(value).to_le_bytes()[0]], 1, spec),
        b's' => pad(&natural(value), spec),
        b'p' => unsigned(as_unsigned(value), b'p', spec),
        _ => unsigned(as_unsigned(value), letter, spec),
    }
}

/// Formats a value in its natural form.
pub(super) fn natural(value: &Value) -> Vec<u8> {
    match value {
        Value::Unsigned8(_) | Value::Unsigned16(_) | Value::Unsigned32(_) | Value::Unsigned64(_) => {
            as_unsigned(value).to_string().into_bytes()
        }
        Value::Signed8(_) | Value::Signed16(_) | Value::Signed32(_) | Value::Signed64(_) => {
            as_signed(value).to_string().into_bytes()
        }
        Value::Boolean(true) => b"true".to_vec(),
        Value::Boolean(false) => b"false".to_vec(),
        Value::Character(byte) => vec![*byte],
        Value::Text(text) => text.clone(),
        Value::Pointer(address) => format!("{address:#x}").into_bytes(),
        Value::Float64(number) => number.to_string().into_bytes(),
        Value::None => b"-".to_vec(),
    }
}

/// Converts to the signed number of the value's own width. What an `int` holds stays what it is, as C promotes it.
fn as_signed(value: &Value) -> i64 {
    match *value {
        Value::Character(number) => i64::from(number.cast_signed()),
        Value::Unsigned8(number) => i64::from(number),
        Value::Unsigned16(number) => i64::from(number),
        Value::Unsigned32(number) => i64::from(number.cast_signed()),
        Value::Unsigned64(number) | Value::Pointer(number) => number.cast_signed(),
        Value::Signed8(number) => i64::from(number),
        Value::Signed16(number) => i64::from(number),
        Value::Signed32(number) => i64::from(number),
        Value::Signed64(number) => number,
        Value::Boolean(on) => i64::from(on),
        Value::Float64(number) => number as i64,
        Value::Text(_) | Value::None => 0,
    }
}

/// Converts to the unsigned number of the value's own width.
fn as_unsigned(value: &Value) -> u64 {
    match *value {
        Value::Unsigned8(number) | Value::Character(number) => u64::from(number),
        Value::Unsigned16(number) => u64::from(number),
        Value::Unsigned32(number) => u64::from(number),
        Value::Unsigned64(number) | Value::Pointer(number) => number,
        Value::Signed8(number) => u64::from(number.cast_unsigned()),
        Value::Signed16(number) => u64::from(number.cast_unsigned()),
        Value::Signed32(number) => u64::from(number.cast_unsigned()),
        Value::Signed64(number) => number.cast_unsigned(),
        Value::Boolean(on) => u64::from(on),
        Value::Float64(number) => number as i64 as u64,
        Value::Text(_) | Value::None => 0,
    }
}

fn signed(number: i64, spec: &Spec) -> Vec<u8> {
    let sign = match number {
        ..0 => "-",
        _ if spec.plus => "+",
        _ if spec.space => " ",
        _ => "",
    };
    number_field(sign, number.unsigned_abs().to_string(), number == 0, spec)
}

fn unsigned(number: u64, letter: u8, spec: &Spec) -> Vec<u8> {
    let alternate = spec.alternate && number != 0;
    let (prefix, digits) = match letter {
        b'x' => (if alternate { "0x" } else { "" }, format!("{number:x}")),
        b'X' => (if alternate { "0X" } else { "" }, format!("{number:X}")),
        // The leading zero of the alternate octal form is a digit, which counts for the precision.
        b'o' if alternate => ("", format!("0{number:o}")),
        b'o' => ("", format!("{number:o}")),
        b'p' => ("0x", format!("{number:x}")),
        _ => ("", number.to_string()),
    };
    let vanishes = number == 0 && !(letter == b'o' && spec.alternate);
    number_field(prefix, digits, vanishes, spec)
}

/// Combines sign or prefix, digits and padding by the rules of printf(3). A precision is the minimum number
/// of digits and disables the `0` flag; zero with precision 0 has no digits.
fn number_field(prefix: &str, digits: String, vanishes: bool, spec: &Spec) -> Vec<u8> {
    let digits = if vanishes && spec.precision == Some(0) { String::new() } else { digits };
    let least = match spec.precision {
        Some(precision) => precision,
        None if spec.zero && !spec.left => spec.width.saturating_sub(prefix.len()),
        None => 0,
    };
    pad(format!("{prefix}{digits:0>least$}").as_bytes(), spec)
}

/// Pads to the width with spaces, by the columns that the text takes on a terminal.
fn pad(text: &[u8], spec: &Spec) -> Vec<u8> {
    pad_columns(text, columns::count(text), spec)
}

/// Pads a text of so many columns to the width with spaces.
fn pad_columns(text: &[u8], columns: usize, spec: &Spec) -> Vec<u8> {
    let fill = vec![b' '; spec.width.saturating_sub(columns)];
    if spec.left { [text, &fill].concat() } else { [&fill, text].concat() }
}

#[cfg(test)]
mod printf;
#[cfg(test)]
mod tests;
