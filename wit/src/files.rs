//! Reading files that somebody else names, which may have no end (`/dev/zero`).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads a file of at most this many bytes.
///
/// # Errors
/// Of open(2) and read(2); `FileTooLarge`.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_all(File::open(path)?, most)
}

/// Reads a file of at most this many bytes of text.
///
/// # Errors
/// As [`read`]; `InvalidData` for bytes that are not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Reads all of an input, at most this many bytes.
///
/// # Errors
/// As [`read`].
pub fn read_all(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte above the limit distinguishes an input that is too long from one that just fits.
    input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 <= most {
        return Ok(bytes);
    }
    Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {most} bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_without_an_end_are_refused() {
        assert_eq!(read_all(&b"1234"[..], 4).expect("it fits"), b"1234");
        let error = read_all(io::repeat(0), 4).expect_err("it has no end");
        assert_eq!(
            (error.kind(), error.to_string().as_str()),
            (io::ErrorKind::FileTooLarge, "it has more than 4 bytes")
        );
        assert_eq!(
            read(Path::new("/dev/zero"), 1 << 20).expect_err("it has no end").kind(),
            io::ErrorKind::FileTooLarge
        );
        assert_eq!(read_text(Path::new("/dev/null"), 0).expect("it is empty"), "");
    }
}
