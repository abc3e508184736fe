//! Formats and lines as the contract describes them.

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
fn a_value_is_displayed_in_its_own_width_whatever_the_length() {
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
fn an_unsigned_value_under_a_signed_conversion_is_promoted_as_in_c() {
    check("%d", &[Value::Unsigned8(200)], "200");
    check("%hd", &[Value::Unsigned16(40_000)], "40000");
    check("%d", &[Value::Unsigned32(u32::MAX)], "-1");
    check("%d", &[Value::Unsigned64(1 << 63)], "-9223372036854775808");
}

#[test]
fn a_boolean_is_a_keyword_or_a_number() {
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
fn invalid_utf_8_passes_byte_for_byte() {
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
