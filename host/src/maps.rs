//! `/proc/PID/maps`: the mappings of a process, as lines whose number and length the process controls.
//!
//! Source: fs/proc/task_mmu.c, `show_map_vma`, v6.12.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};

/// Limit on the bytes of a line: a path has 4096 bytes, each of which may be escaped as four.
const MAX_LINE_BYTES: u64 = 32 << 10;

/// A mapping of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapsEntry {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) inode: u64,
    pub(crate) is_code: bool,
    /// A path, a name in brackets, or empty.
    pub(crate) name: Vec<u8>,
}

/// Calls `take` for each line of `/proc/PID/maps` until it returns false. Lines above the limit are skipped.
pub(crate) fn each_line(file: File, mut take: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut file = BufReader::with_capacity(64 << 10, file);
    let mut line = Vec::new();
    let mut is_rest = false;
    loop {
        line.clear();
        if file.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        if !is_rest && is_whole && !take(&line) {
            return Ok(());
        }
        is_rest = !is_whole;
    }
}

/// Parses a line of `/proc/PID/maps`: `start-end r-xp offset major:minor inode name`.
pub(crate) fn entry(line: &[u8]) -> Option<MapsEntry> {
    let mut rest = line;
    let mut field = || {
        let start = rest.iter().position(|byte| *byte != b' ')?;
        let end =
            rest[start..].iter().position(|byte| *byte == b' ').map_or(rest.len(), |length| start + length);
        let field = std::str::from_utf8(&rest[start..end]).ok();
        rest = &rest[end..];
        field
    };
    let hex = |field: &str| u64::from_str_radix(field, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let is_code = field()?.as_bytes().get(2) == Some(&b'x');
    let offset = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let device = |field| u32::try_from(hex(field)?).ok();
    let (major, minor) = (device(major)?, device(minor)?);
    let inode = field()?.parse().ok()?;
    let name = rest.iter().position(|byte| *byte != b' ').map_or(&[][..], |start| &rest[start..]);
    Some(MapsEntry {
        start: hex(start)?,
        end: hex(end)?,
        offset,
        major,
        minor,
        inode,
        is_code,
        name: unescaped(name),
    })
}

/// Decodes `\012`, by which the kernel escapes a newline in a path, and nothing else (fs/proc/task_mmu.c,
/// `get_vma_name`, v6.12).
fn unescaped(name: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, after)) = rest.split_first() {
        rest = match after.strip_prefix(b"012") {
            Some(tail) if *first == b'\\' => {
                plain.push(b'\n');
                tail
            }
            _ => {
                plain.push(*first);
                after
            }
        };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_numbers_and_a_name_with_spaces() {
        let line = b"55d0c8a00000-55d0c8a05000 r-xp 00002000 fe:01 1835042    /usr/bin/two words";
        let found = entry(line).expect("it is a mapping");
        assert_eq!((found.start, found.end, found.offset), (0x55d0_c8a0_0000, 0x55d0_c8a0_5000, 0x2000));
        assert_eq!((found.major, found.minor, found.inode, found.is_code), (0xfe, 1, 1_835_042, true));
        assert_eq!(found.name, b"/usr/bin/two words");
        let line = b"7f00-7f01 rw-p 00000000 00:00 0 ";
        assert_eq!(entry(line).map(|one| (one.is_code, one.name)), Some((false, Vec::new())));
        let line = b"7f00-7f01 r-xp 0 00:2a 7    /tmp/a\\012b c";
        assert_eq!(entry(line).map(|one| one.name), Some(b"/tmp/a\nb c".to_vec()));
        for line in ["", "7f00", "7f00-7f01 r-xp", "x-y r-xp 0 0:0 0", "1-2 r-xp 0 0:0"] {
            assert_eq!(entry(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn lines_without_end_are_left_out() {
        let path = std::env::temp_dir().join(format!("ks-maps-{}", std::process::id()));
        let long = "x".repeat(3 * MAX_LINE_BYTES as usize);
        std::fs::write(&path, format!("one\n{long}\ntwo\n\nthree\nfour")).expect("it is ours");
        let file = File::open(&path).expect("it was just written");
        std::fs::remove_file(&path).expect("it is ours");
        let mut lines = Vec::new();
        each_line(file, |line| {
            lines.push(String::from_utf8_lossy(line).into_owned());
            lines.len() < 4
        })
        .expect("it can be read");
        assert_eq!(lines, ["one", "two", "", "three"]);
    }
}
