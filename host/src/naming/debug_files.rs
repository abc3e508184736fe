//! Debug files of programs: only from directories of root, by build id or by a plain file name.
//!
//! A program names its debug file, and the program may belong to anybody. So the name never contains a
//! directory, the lookup stays below `/usr/lib/debug`, and the naming process compares the build id or
//! checksum before it uses the file.

use super::open::{MAX_PROGRAM_BYTES, OpenedFile, Root};
use super::protocol::DebugFile;

/// The directory where distributions install debug files.
const FOLDER: &std::ffi::CStr = c"/usr/lib/debug";

/// Opens the debug file if it belongs to root. `program` is the path of the program that it describes.
pub(super) fn find(wanted: &DebugFile, program: &[u8]) -> Option<OpenedFile> {
    let folder = Root::at(FOLDER).ok()?;
    let open = |path: &[u8]| folder.file(path, MAX_PROGRAM_BYTES).ok().filter(|file| file.owner == 0);
    if let Some(file) = by_build_id(&wanted.build_id).and_then(|path| open(path.as_bytes())) {
        return Some(file);
    }
    let name = wanted.name.as_bytes();
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return None;
    }
    if wanted.shared {
        open(&[b".dwz/", name].concat())
    } else {
        // `/usr/lib/debug/usr/bin/NAME` for a program in `/usr/bin`.
        {
            let end = program.iter().rposition(|byte| *byte == b'/')?;
            open(&[&program[..=end], name].concat())
        }
    }
}

/// Returns the path below the debug directory: `.build-id/ab/cdef.debug`.
fn by_build_id(build_id: &[u8]) -> Option<String> {
    let (first, rest) = build_id.split_first().filter(|(_, rest)| !rest.is_empty())?;
    let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!(".build-id/{first:02x}/{rest}.debug"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_a_path_of_digits() {
        assert_eq!(by_build_id(&[0xab, 0xcd, 0x0e]).as_deref(), Some(".build-id/ab/cd0e.debug"));
        assert_eq!((by_build_id(&[]), by_build_id(&[1])), (None, None));
    }

    #[test]
    fn names_are_not_paths() {
        for name in ["", ".", "..", "../x", "/dev/null", "a/b", "a\0b"] {
            let wanted = DebugFile { shared: false, build_id: Vec::new(), name: name.into() };
            assert!(find(&wanted, b"/usr/bin/program").is_none(), "{name}");
        }
    }
}
