//! Parses the formats of `print`.

/// A part of a format.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece<'t> {
    /// Text that is printed unchanged.
    Text(&'t [u8]),
    /// `%%`, which prints `%`.
    Percent,
    /// `%5u` and the like: the whole text and its letter.
    Conversion(&'t [u8], u8),
    /// A `%` that begins no known conversion.
    Unknown(&'t [u8]),
    /// `{}`: printed in the form that fits the value's type.
    Natural,
}

/// Splits a format into its parts.
pub fn pieces(format: &[u8]) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let mut rest = format;
    while !rest.is_empty() {
        let (piece, len) = match rest {
            [b'%', b'%', ..] => (Piece::Percent, 2),
            [b'%', ..] => conversion(rest),
            [b'{', b'}', ..] => (Piece::Natural, 2),
            _ => {
                let next = rest[1..].iter().position(|byte| matches!(byte, b'%' | b'{'));
                let len = next.map_or(rest.len(), |at| at + 1);
                (Piece::Text(&rest[..len]), len)
            }
        };
        found.push(piece);
        rest = &rest[len..];
    }
    found
}

/// Parses the conversion at the start of `rest`, which begins with `%`, and returns its length in bytes.
fn conversion(rest: &[u8]) -> (Piece<'_>, usize) {
    let skip = |from: usize, belongs: fn(&u8) -> bool| {
        from + rest[from..].iter().take_while(|byte| belongs(byte)).count()
    };
    let mut at = skip(1, |byte| b"-+ 0#".contains(byte));
    at = skip(at, u8::is_ascii_digit);
    if rest.get(at) == Some(&b'.') {
        at = skip(at + 1, u8::is_ascii_digit);
    }
    at = skip(at, |byte| b"hlz".contains(byte));
    match rest.get(at) {
        Some(letter) if b"diuxXocspfegna*EGFA".contains(letter) => {
            (Piece::Conversion(&rest[..=at], *letter), at + 1)
        }
        _ => (Piece::Unknown(&rest[..at]), at),
    }
}

/// Returns the letter of each value's conversion; `{` for `{}`.
pub fn letters(format: &[u8]) -> Vec<u8> {
    let letter = |piece| match piece {
        Piece::Natural => Some(b'{'),
        Piece::Conversion(_, letter) => Some(letter),
        _ => None,
    };
    pieces(format).into_iter().filter_map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_its_letter() {
        assert_eq!(letters(b"%% %5.3lu {} { %s%-8p %%s"), b"u{sp");
        assert_eq!(letters(b"%"), b"");
    }

    #[test]
    fn formats_fall_into_pieces() {
        assert_eq!(
            pieces(b"a %-5.3lld|%%{}%q"),
            [
                Piece::Text(b"a "),
                Piece::Conversion(b"%-5.3lld", b'd'),
                Piece::Text(b"|"),
                Piece::Percent,
                Piece::Natural,
                Piece::Unknown(b"%"),
                Piece::Text(b"q"),
            ]
        );
        assert_eq!(pieces(b"{x} 5%"), [Piece::Text(b"{x} 5"), Piece::Unknown(b"%")]);
    }
}
