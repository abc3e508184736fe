//! Values of literals: escapes and integers.

/// Text with its escapes resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unescaped {
    /// The resolved bytes. An unknown escape is kept as it is.
    pub bytes: Vec<u8>,
    /// Byte offset of the first unknown escape; none if all are known. An error in a character literal, not
    /// in a string.
    pub unknown: Option<usize>,
}

/// Resolves the escapes in the body of a string or character literal. A raw line end, of any kind, is a LF.
pub fn unescape(body: &[u8]) -> Unescaped {
    let mut bytes = Vec::with_capacity(body.len());
    let mut unknown = None;
    let mut at = 0;
    while at < body.len() {
        let (byte, len) = match &body[at..] {
            [b'\\', b'\r', ..] => (Some(b'\\'), 1),
            [b'\\', rest @ ..] => escape(rest),
            [b'\r', b'\n', ..] => (Some(b'\n'), 2),
            [b'\r', ..] => (Some(b'\n'), 1),
            rest => (rest.first().copied(), 1),
        };
        match byte {
            Some(byte) => bytes.push(byte),
            None => {
                unknown.get_or_insert(at);
                bytes.extend_from_slice(&body[at..(at + 2).min(body.len())]);
            }
        }
        at += len;
    }
    Unescaped { bytes, unknown }
}

/// Returns the byte of an escape sequence and its length, including the backslash.
fn escape(rest: &[u8]) -> (Option<u8>, usize) {
    let simple = |byte| (Some(byte), 2);
    match rest {
        [b'n', ..] => simple(b'\n'),
        [b't', ..] => simple(b'\t'),
        [b'r', ..] => simple(b'\r'),
        [b'0', ..] => simple(0),
        [b'\\' | b'\'' | b'"', ..] => simple(rest[0]),
        [b'x', high, low, ..] => match (hex(*high), hex(*low)) {
            (Some(high), Some(low)) => (Some(high << 4 | low), 4),
            _ => (None, 2),
        },
        _ => (None, 2),
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// Returns the value of an integer literal; `None` if it does not fit 64 bits.
pub fn integer(text: &[u8]) -> Option<u64> {
    let (digits, radix) = match text {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        [b'0', b'b' | b'B', digits @ ..] => (digits, 2),
        digits => (digits, 10),
    };
    digits.iter().try_fold(0u64, |value, digit| {
        let digit = char::from(*digit).to_digit(radix)?;
        value.checked_mul(u64::from(radix))?.checked_add(u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        assert_eq!(unescape(br#"a\\\"\n\t\r\0\x41"#).bytes, b"a\\\"\n\t\r\0A");
        let kept = unescape(br"x\q\xZ1");
        assert_eq!((kept.bytes.as_slice(), kept.unknown), (&br"x\q\xZ1"[..], Some(1)));
        assert_eq!(unescape(br"\").bytes, br"\");
    }

    #[test]
    fn raw_line_ends_are_one_byte() {
        assert_eq!(unescape(b"a\nb\r\nc\rd").bytes, b"a\nb\nc\nd");
        assert_eq!(unescape(b"a\\\r\nb").bytes, b"a\\\nb");
    }

    #[test]
    fn integers_up_to_64_bits() {
        assert_eq!(integer(b"007"), Some(7));
        assert_eq!(integer(b"0X1f"), Some(31));
        assert_eq!(integer(b"0b101"), Some(5));
        assert_eq!(integer(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(integer(b"18446744073709551616"), None);
    }
}
