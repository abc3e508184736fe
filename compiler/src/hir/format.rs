//! Formats of `print`, as the front end leaves them.

/// The letter of the conversion of each value; `{` for `{}`. The front end has checked the format.
pub fn letters(format: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    let mut rest = format;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'{' if behind.first() == Some(&b'}') => found.push(b'{'),
            b'%' => {
                let end = behind.iter().position(|byte| !b"-+ 0#123456789.hlz".contains(byte));
                let Some(end) = end else { break };
                if behind[end] != b'%' {
                    found.push(behind[end]);
                }
                rest = &behind[end + 1..];
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::letters;

    #[test]
    fn every_value_has_its_letter() {
        assert_eq!(letters(b"%% %5.3lu {} { %s%-8p %%s"), b"u{sp");
        assert_eq!(letters(b"%"), b"");
    }
}
