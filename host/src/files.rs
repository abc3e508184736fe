//! Reading files that a plugin names.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::libc;

/// Longest program or library that is read for its symbols. Guards the host's memory.
const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// The bytes of a program or library.
///
/// # Errors
/// Of open(2) and read(2); `InvalidInput` for what is no plain file (a device has no end, and a pipe may keep whoever opens
/// it waiting), or is longer than any program.
pub(crate) fn read_program(path: &Path) -> io::Result<Vec<u8>> {
    let refused = |reason: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let facts = file.metadata()?;
    if !facts.is_file() {
        return refused("it is not a plain file");
    }
    if facts.len() > MAX_PROGRAM_BYTES {
        return refused("it is longer than any program");
    }
    let mut bytes = Vec::new();
    file.take(MAX_PROGRAM_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_read_and_devices_are_not() {
        let own = std::env::current_exe().expect("a test knows its own path");
        assert!(read_program(&own).expect("readable").starts_with(b"\x7fELF"));
        for other in ["/dev/zero", "/dev/null", "/proc"] {
            let error = read_program(Path::new(other)).expect_err(other);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{other}");
        }
    }
}
