//! Perf maps: one line for each function that a just-in-time compiler generated, `START SIZE NAME`, with
//! hexadecimal numbers.
//!
//! Source: tools/perf/Documentation/jit-interface.txt, v6.12. Discarded code keeps its line, so the last line
//! that covers an address counts. The file is read from its end, in pieces, until all addresses have names.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::super::protocol::{MAX_TEXT_BYTES, NamedFrame};

/// Size of one read, in bytes.
const PIECE: usize = 1 << 20;

/// Bytes of a line that are parsed: two numbers and a name.
const MAX_LINE_BYTES: usize = 64 + MAX_TEXT_BYTES;

/// Returns the function at each of the addresses, which ascend.
pub(super) fn functions(file: &File, addresses: &[u64]) -> Vec<Vec<NamedFrame>> {
    let mut found = FramesByAddress::new(addresses);
    let mut end = file.metadata().map_or(0, |facts| facts.len());
    // The start of the previous piece: the end of a line that begins in the next one.
    let mut rest: Vec<u8> = Vec::new();
    while end > 0 && !found.is_complete() {
        let length = PIECE.min(usize::try_from(end).unwrap_or(PIECE));
        let start = end - length as u64;
        let mut piece = vec![0; length];
        if file.read_exact_at(&mut piece, start).is_err() {
            // The file was truncated meanwhile.
            break;
        }
        let line_starts = match start {
            0 => Some(0),
            _ => piece.iter().position(|byte| *byte == b'\n').map(|newline| newline + 1),
        };
        piece.append(&mut rest);
        rest = match line_starts {
            Some(from) => {
                piece[from..].rsplit(|byte| *byte == b'\n').for_each(|line| found.add(line));
                piece[..from].to_vec()
            }
            None => piece,
        };
        rest.truncate(MAX_LINE_BYTES);
        end = start;
    }
    found.frames
}

/// The frames found so far.
struct FramesByAddress<'a> {
    addresses: &'a [u64],
    frames: Vec<Vec<NamedFrame>>,
    /// Union-find links to the next address without a frame; an address without a frame links to itself.
    next: Vec<usize>,
}

impl<'a> FramesByAddress<'a> {
    fn new(addresses: &'a [u64]) -> FramesByAddress<'a> {
        let next = (0..=addresses.len()).collect();
        FramesByAddress { addresses, frames: vec![Vec::new(); addresses.len()], next }
    }

    fn is_complete(&mut self) -> bool {
        self.without_frame(0) == self.addresses.len()
    }

    /// Returns the index of the first address at or after `from` that has no frame.
    fn without_frame(&mut self, from: usize) -> usize {
        let mut at = from;
        while self.next[at] != at {
            // Path halving.
            self.next[at] = self.next[self.next[at]];
            at = self.next[at];
        }
        at
    }

    fn add(&mut self, line: &[u8]) {
        let Some((start, size, name)) = parts(line) else { return };
        let from = self.addresses.partition_point(|address| *address < start);
        let mut at = self.without_frame(from);
        while self.addresses.get(at).is_some_and(|address| address - start < size) {
            let function = String::from_utf8_lossy(name).into_owned();
            let offset = Some(self.addresses[at] - start);
            self.frames[at].push(NamedFrame { function, offset, ..NamedFrame::default() });
            self.next[at] = at + 1;
            at = self.without_frame(at);
        }
    }
}

/// Splits a line into start, size and name.
fn parts(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let line = &line[..line.len().min(MAX_LINE_BYTES)];
    let (start, rest) = number(line)?;
    let (size, name) = number(rest)?;
    let name = &name[..name.len().min(MAX_TEXT_BYTES)];
    (!name.is_empty()).then_some((start, size, name))
}

/// Parses a hexadecimal number, with `0x` or without; returns it with the text after the space.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let space = text.iter().position(|byte| *byte == b' ')?;
    let digits = std::str::from_utf8(&text[..space]).ok()?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    Some((u64::from_str_radix(digits, 16).ok()?, &text[space + 1..]))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn names(text: &[u8], addresses: &[u64]) -> Vec<String> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ks-perf-map-{}-{count}", std::process::id()));
        File::create_new(&path).and_then(|mut file| file.write_all(text)).expect("it is ours");
        let file = File::open(&path).expect("it was just written");
        std::fs::remove_file(&path).expect("it is ours");
        let display = |frames: Vec<NamedFrame>| {
            frames.first().map_or("-".into(), |one| format!("{}+{:x}", one.function, one.offset.unwrap_or(0)))
        };
        functions(&file, addresses).into_iter().map(display).collect()
    }

    #[test]
    fn the_last_line_with_an_address_is_meant() {
        let text = b"1000 10 old one\n0x1008 4 new\n2000 0 empty\nno line\n\n3000 8 \n4000 5 end";
        let addresses = [0xfff, 0x1000, 0x1008, 0x100b, 0x100c, 0x1010, 0x2000, 0x3000, 0x4004];
        let expected = ["-", "old one+0", "new+0", "new+3", "old one+c", "-", "-", "-", "end+4"];
        assert_eq!(names(text, &addresses), expected);
    }

    #[test]
    fn lines_lie_anywhere_in_the_pieces() {
        let mut text = Vec::new();
        for number in 0..200_000_u64 {
            writeln!(text, "{:x} 10 f{number}", number * 16).expect("memory takes all");
        }
        assert!(text.len() > 3 * PIECE);
        let addresses: Vec<u64> = (0..200_000).step_by(199).map(|number| number * 16 + 5).collect();
        let expected: Vec<String> = (0..200_000).step_by(199).map(|number| format!("f{number}+5")).collect();
        assert_eq!(names(&text, &addresses), expected);
    }

    #[test]
    fn hostile_perf_maps_are_read_in_bounded_time() {
        let addresses: Vec<u64> = (0..1000).map(|number| number * 4096).collect();
        let all = b"0 ffffffffffffffff all\n".repeat(200_000);
        assert!(names(&all, &addresses).iter().all(|name| name.starts_with("all+")));
        assert_eq!(names(b"ffffffffffffffff ffffffffffffffff x\n", &[0, u64::MAX]), ["-", "x+0"]);
        let long = [b"10 1 ".as_slice(), &vec![b'J'; 3 * PIECE], b"\n20 1 after\n"].concat();
        let found = names(&long, &[0x10, 0x20]);
        assert_eq!((found[0].len(), found[1].as_str()), (MAX_TEXT_BYTES + 2, "after+0"));
    }
}
