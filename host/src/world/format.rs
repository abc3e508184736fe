//! How `console.print` turns a format and its values into a line. Pure: bytes and values in, bytes out.

use super::bindings::kernelscript::host::console::Value;

/// Widest field, and longest run of digits by precision. Guards against `%999999999d`, ten bytes that would cost a
/// gigabyte.
const MAX_FIELD: usize = 4096;

/// Longest line; the rest is cut. Guards against a long format full of wide fields.
const MAX_LINE: usize = 1 << 20;

/// The line, with its line end.
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

/// Values beyond the last conversion, each after a space; before the line end that the text may already have.
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

/// `{}`: the next value in its natural form. `rest` begins with `}`.
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

/// What stands between `%` and the letter.
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

/// One conversion; `rest` is what follows `%`. Returns what follows the conversion.
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

/// Reads flags, width, precision and length.
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

/// Reads digits; a number above [`MAX_FIELD`] is that. None is 0.
fn parse_number(format: &[u8]) -> (usize, &[u8]) {
    let digits = format.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = format.split_at(digits);
    let number =
        digits.iter().fold(0, |number, digit| (number * 10 + usize::from(digit - b'0')).min(MAX_FIELD));
    (number, rest)
}

/// A value under a conversion that takes one. A conversion that does not suit the value shows its natural form.
fn converted(value: &Value, letter: u8, spec: &Spec) -> Vec<u8> {
    if let Value::Text(text) = value {
        let shown = spec.precision.map_or(text.len(), |precision| precision.min(text.len()));
        return pad(&text[..shown], spec);
    }
    match letter {
        b'd' | b'i' => signed(as_signed(value), spec),
        b'c' => pad(&[as_unsigned(value).to_le_bytes()[0]], spec),
        b's' => pad(&natural(value), spec),
        b'p' => unsigned(as_unsigned(value), b'p', spec),
        _ => unsigned(as_unsigned(value), letter, spec),
    }
}

/// A value without a conversion of its own.
fn natural(value: &Value) -> Vec<u8> {
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
    }
}

/// The value as the signed number of its own width.
fn as_signed(value: &Value) -> i64 {
    match *value {
        Value::Unsigned8(number) | Value::Character(number) => i64::from(number.cast_signed()),
        Value::Unsigned16(number) => i64::from(number.cast_signed()),
        Value::Unsigned32(number) => i64::from(number.cast_signed()),
        Value::Unsigned64(number) | Value::Pointer(number) => number.cast_signed(),
        Value::Signed8(number) => i64::from(number),
        Value::Signed16(number) => i64::from(number),
        Value::Signed32(number) => i64::from(number),
        Value::Signed64(number) => number,
        Value::Boolean(on) => i64::from(on),
        Value::Text(_) => 0,
    }
}

/// The value as the unsigned number of its own width.
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
        Value::Text(_) => 0,
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
        b'o' => (if alternate { "0" } else { "" }, format!("{number:o}")),
        b'p' => ("0x", format!("{number:x}")),
        _ => ("", number.to_string()),
    };
    number_field(prefix, digits, number == 0, spec)
}

/// Sign or prefix, digits and padding, by the rules of printf(3): a precision is the least number of digits and
/// switches the `0` flag off; zero with precision 0 has no digits at all.
fn number_field(prefix: &str, digits: String, is_zero: bool, spec: &Spec) -> Vec<u8> {
    let digits = if is_zero && spec.precision == Some(0) { String::new() } else { digits };
    let least = match spec.precision {
        Some(precision) => precision,
        None if spec.zero && !spec.left => spec.width.saturating_sub(prefix.len()),
        None => 0,
    };
    pad(format!("{prefix}{digits:0>least$}").as_bytes(), spec)
}

/// Fills up to the width with spaces.
fn pad(text: &[u8], spec: &Spec) -> Vec<u8> {
    let fill = vec![b' '; spec.width.saturating_sub(text.len())];
    if spec.left { [text, &fill].concat() } else { [&fill, text].concat() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: &str, values: &[Value], expected: &str) {
        let line = line(format.as_bytes(), values);
        assert_eq!(String::from_utf8_lossy(&line), format!("{expected}\n"), "format {format:?}");
    }

    fn text(text: &str) -> Value {
        Value::Text(text.as_bytes().to_vec())
    }

    #[test]
    fn each_conversion_shows_its_form() {
        check("%d|%i", &[Value::Signed32(-5), Value::Signed64(6)], "-5|6");
        check("%u", &[Value::Unsigned32(7)], "7");
        check("%x %X %o", &[Value::Unsigned32(255), Value::Unsigned32(255), Value::Unsigned8(8)], "ff FF 10");
        check("%c%c", &[Value::Character(b'a'), Value::Unsigned32(98)], "ab");
        check("%s", &[text("word")], "word");
        check("%p", &[Value::Pointer(0xdead)], "0xdead");
        check("100%%", &[], "100%");
    }

    #[test]
    fn a_value_is_shown_in_its_own_width_whatever_the_length_says() {
        check("%u", &[Value::Unsigned64(u64::MAX)], "18446744073709551615");
        check("%hhu", &[Value::Unsigned64(u64::MAX)], "18446744073709551615");
        check("%lld", &[Value::Signed8(-1)], "-1");
        check("%zu %hx %lx", &[Value::Unsigned16(9), Value::Unsigned32(10), Value::Unsigned8(11)], "9 a b");
    }

    #[test]
    fn a_negative_value_under_an_unsigned_conversion_keeps_its_width() {
        check("%u", &[Value::Signed8(-1)], "255");
        check("%u", &[Value::Signed16(-1)], "65535");
        check("%u", &[Value::Signed32(-1)], "4294967295");
        check("%x", &[Value::Signed64(-1)], "ffffffffffffffff");
    }

    #[test]
    fn an_unsigned_value_under_a_signed_conversion_keeps_its_width() {
        check("%d", &[Value::Unsigned8(200)], "-56");
        check("%d", &[Value::Unsigned32(u32::MAX)], "-1");
        check("%d", &[Value::Unsigned64(1 << 63)], "-9223372036854775808");
    }

    #[test]
    fn a_boolean_is_a_word_or_a_number() {
        check("{} %s %d %u", &[true, false, true, false].map(Value::Boolean), "true false 1 0");
    }

    #[test]
    fn flags_width_and_precision() {
        check("[%5d]", &[Value::Signed32(42)], "[   42]");
        check("[%-5d]", &[Value::Signed32(42)], "[42   ]");
        check("[%05d]", &[Value::Signed32(-42)], "[-0042]");
        check("[%+d % d]", &[Value::Signed32(1), Value::Signed32(2)], "[+1  2]");
        check("[%#x %#o %#X]", &[10_u32, 8, 0].map(Value::Unsigned32), "[0xa 010 0]");
        check("[%8.3d]", &[Value::Signed32(-5)], "[    -005]");
        check("[%08.3d]", &[Value::Signed32(5)], "[     005]");
        check("[%.0d]", &[Value::Signed32(0)], "[]");
        check("[%-8s|%8s]", &[text("ab"), text("cd")], "[ab      |      cd]");
        check("[%.2s]", &[text("abcdef")], "[ab]");
        check("[%#010x]", &[Value::Unsigned32(0xff)], "[0x000000ff]");
        check("[%3c]", &[Value::Character(b'x')], "[  x]");
        check("[%-+5d]", &[Value::Signed32(3)], "[+3   ]");
    }

    #[test]
    fn braces_take_the_next_value_in_its_natural_form() {
        check("{} and {}", &[Value::Unsigned64(3), text("four")], "3 and four");
        check("{x} {", &[], "{x} {");
        check("{}", &[Value::Pointer(16)], "0x10");
        check("{}", &[Value::Character(b'c')], "c");
    }

    #[test]
    fn surplus_values_are_appended_before_the_line_end() {
        check("sum:", &[Value::Signed32(1), text("two"), Value::Boolean(true)], "sum: 1 two true");
        check("sum\n", &[Value::Signed32(1)], "sum 1");
        check("", &[Value::Signed32(1), Value::Signed32(2)], "1 2");
    }

    #[test]
    fn a_conversion_without_a_value_stands_as_it_is() {
        check("%d %5u {}", &[Value::Signed32(1)], "1 %5u {}");
        check("%-8.3lx", &[], "%-8.3lx");
        check("%", &[], "%");
        check("50%-", &[], "50%-");
    }

    #[test]
    fn an_unknown_letter_takes_no_value() {
        check("%f %y %d", &[Value::Signed32(1)], "%f %y 1");
        check("%5.1f", &[Value::Signed32(1)], "%5.1f 1");
        check("%*d", &[Value::Signed32(1)], "%*d 1");
        check("%l%d", &[Value::Signed32(1)], "%l1");
    }

    #[test]
    fn a_conversion_that_does_not_suit_the_value_shows_its_natural_form() {
        check("%d", &[text("word")], "word");
        check("%s", &[Value::Signed32(-3)], "-3");
        check("%5s|", &[Value::Boolean(true)], " true|");
        check("%p", &[Value::Unsigned32(16)], "0x10");
    }

    #[test]
    fn text_that_is_no_utf8_passes_byte_for_byte() {
        let line = line(b"\xff%s\xfe", &[Value::Text(vec![0x80, 0xc3])]);
        assert_eq!(line, b"\xff\x80\xc3\xfe\n");
    }

    #[test]
    fn a_line_end_is_added_once() {
        check("", &[], "");
        assert_eq!(line(b"done\n", &[]), b"done\n");
        assert_eq!(line(b"two\n\n", &[]), b"two\n\n");
        assert_eq!(line(b"%s", &[text("own\n")]), b"own\n");
    }

    #[test]
    fn neither_a_wide_field_nor_many_of_them_cost_much() {
        assert_eq!(line(b"%999999999999999999999d", &[Value::Signed32(1)]).len(), MAX_FIELD + 1);
        let format = b"%4096d".repeat(1000);
        let values = vec![Value::Signed32(1); 1000];
        assert!(line(&format, &values).len() <= MAX_LINE + 1);
    }
}
