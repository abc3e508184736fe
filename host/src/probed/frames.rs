//! Function ranges from unwind information: entries (FDEs) of `.eh_frame`, which stripped files have too.
//!
//! The lookup is a binary search in the index of the segment PT_GNU_EH_FRAME. Without an index in the usual
//! form, the entries are read one after the other.
//!
//! Source: Linux Standard Base Core 5.0, "Exception Frames"; DWARF 5, 6.4 "Call Frame Information".

use super::code::Machine;
use super::elf::{Fields, Image, Range};
use super::error::ProbePointError;

/// Largest section that is read completely, in bytes. Bounds the time of a host call.
const MAX_SECTION_BYTES: u64 = 1 << 24;

/// Longest entry that is parsed, in bytes. Its instructions follow every push of a function.
const MAX_ENTRY_BYTES: u64 = 1 << 16;

/// The range of a function in unwind information.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnwindFunction {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Whether, at the first instruction, the return address is where a call puts it. This may be false for a
    /// part of a function that is reached by a jump.
    pub(super) is_called: bool,
}

/// Returns the function that contains an address; None if unwind information has none.
pub(super) fn frame_of(image: &Image<'_>, address: u64) -> Result<Option<UnwindFunction>, ProbePointError> {
    let covers =
        |frame: &UnwindFunction| address.checked_sub(frame.start).is_some_and(|inside| inside < frame.bytes);
    if let Some(index) = image.frame_index().and_then(|range| Index::read(image, range)) {
        let entry = index.entry_before(image, address)?;
        return Ok(entry.and_then(|entry| frame_at(image, entry)).filter(covers));
    }
    let section = image.section_named(|name| name == b".eh_frame").map(Range::from);
    let Some(section) = section else { return Ok(None) };
    if section.bytes > MAX_SECTION_BYTES {
        return Err(ProbePointError::TooLarge("section .eh_frame"));
    }
    let mut at = 0;
    while at < section.bytes {
        let position = section.offset.checked_add(at).zip(section.address.checked_add(at));
        let record = position.and_then(|(offset, address)| Record::read(image, offset, address));
        let Some(record) = record else { break };
        let found =
            record.cie.and_then(|cie| Cie::read(image, cie)).and_then(|cie| record.frame(image, &cie));
        if let Some(frame) = found.filter(covers) {
            return Ok(Some(frame));
        }
        at += record.whole_bytes;
    }
    Ok(None)
}

fn frame_at(image: &Image<'_>, entry: u64) -> Option<UnwindFunction> {
    let position = image.loaded_at(entry)?;
    let record = Record::read(image, position.offset, entry)?;
    let cie = Cie::read(image, record.cie?)?;
    record.frame(image, &cie)
}

/// The index: pairs of a function's start and its entry, in ascending order.
struct Index {
    range: Range,
    pairs: u64,
}

impl Index {
    const HEADER_BYTES: u64 = 12;
    const PAIR_BYTES: u64 = 8;

    /// Parses the index. None if it does not have the form that linkers emit: version 1, with 4-byte pairs
    /// relative to the index's own address.
    fn read(image: &Image<'_>, range: Range) -> Option<Index> {
        let header = image.bytes(range.offset, Index::HEADER_BYTES).ok()?;
        let is_usual = matches!(header[..4], [1, 0x1b, 0x03, 0x3b]);
        let pairs = u64::from(Fields { bytes: &header, wide: false }.u32(8));
        let fits = pairs <= range.bytes.saturating_sub(Index::HEADER_BYTES) / Index::PAIR_BYTES;
        (is_usual && fits).then_some(Index { range, pairs })
    }

    /// Returns the address of the entry of the last function that starts at or before an address.
    fn entry_before(&self, image: &Image<'_>, address: u64) -> Result<Option<u64>, ProbePointError> {
        let (mut from, mut to, mut found) = (0, self.pairs, None);
        while from < to {
            let middle = from + (to - from) / 2;
            let at = self.range.offset.saturating_add(Index::HEADER_BYTES + middle * Index::PAIR_BYTES);
            let pair = image.bytes(at, Index::PAIR_BYTES)?;
            let fields = Fields { bytes: &pair, wide: false };
            let absolute = |distance: u32| {
                image.narrow(self.range.address.wrapping_add_signed(i64::from(distance.cast_signed())))
            };
            if absolute(fields.u32(0)) <= address {
                found = Some(absolute(fields.u32(4)));
                from = middle + 1;
            } else {
                to = middle;
            }
        }
        Ok(found)
    }
}

/// An entry (FDE), or the common part of several entries (CIE).
struct Record {
    /// Size of the record including its length field, in bytes.
    whole_bytes: u64,
    /// For an FDE, the offset and the address of its CIE; None for a CIE.
    cie: Option<(u64, u64)>,
    body: Body,
}

/// The bytes of a record after its length and its CIE pointer.
struct Body {
    address: u64,
    bytes: Vec<u8>,
}

impl Record {
    /// Parses the record at a file offset and address. None at the end, or if it is malformed.
    fn read(image: &Image<'_>, offset: u64, address: u64) -> Option<Record> {
        let length = image.bytes(offset, 4).ok()?;
        let length = u64::from(Fields { bytes: &length, wide: false }.u32(0));
        // 0 ends the section; the 64-bit format is only needed for sections above 4 GiB.
        if !(4..=MAX_ENTRY_BYTES).contains(&length) {
            return None;
        }
        let (offset, address) = (offset.checked_add(4)?, address.checked_add(4)?);
        let rest = image.bytes(offset, length).ok()?;
        let back = u64::from(Fields { bytes: &rest, wide: false }.u32(0));
        // Relative to this field, in the file as in memory. 0 marks a CIE.
        let cie = offset.checked_sub(back).zip(address.checked_sub(back)).filter(|_| back != 0);
        if back != 0 && cie.is_none() {
            return None;
        }
        let body = Body { address: address.checked_add(4)?, bytes: rest.get(4..)?.to_owned() };
        Some(Record { whole_bytes: 4 + length, cie, body })
    }

    fn frame(&self, image: &Image<'_>, cie: &Cie) -> Option<UnwindFunction> {
        let mut reader = Reader { body: &self.body, at: 0, wide: image.wide };
        let start = image.narrow(reader.pointer(cie.pointers)?);
        // The length has the same size as a pointer, but is not relative.
        let bytes = image.narrow(reader.pointer(cie.pointers & FORMAT)?);
        if cie.is_augmented {
            let skipped = reader.uleb()?;
            reader.skip(skipped)?;
        }
        // Entries of signal handlers' frames begin a byte before the code, as unwinders step back by one
        // (`__restore_rt` in glibc's `sysdeps/unix/sysv/linux/x86_64/libc_sigaction.c`): no instruction needs
        // to be there.
        if cie.is_of_signals || bytes == 0 {
            return None;
        }
        let mut rules = cie.rules?;
        let is_called = reader.follow(&mut rules).is_some() && rules.is_after_call(image.machine);
        Some(UnwindFunction { start, bytes, is_called })
    }
}

/// The common part of several entries.
struct Cie {
    /// The encoding of pointers (DW_EH_PE_*).
    pointers: u8,
    is_augmented: bool,
    is_of_signals: bool,
    /// The rules at the start of a function; None if they cannot be evaluated.
    rules: Option<Rules>,
}

/// Mask of the number's format in a pointer encoding.
const FORMAT: u8 = 0x0f;

impl Cie {
    fn read(image: &Image<'_>, (offset, address): (u64, u64)) -> Option<Cie> {
        let record = Record::read(image, offset, address)?;
        let mut reader = Reader { body: &record.body, at: 0, wide: image.wide };
        let version = reader.byte()?;
        let letters = reader.text()?;
        if record.cie.is_some() || ![1, 3].contains(&version) {
            return None;
        }
        reader.uleb()?;
        reader.uleb()?;
        match version {
            1 => drop(reader.byte()?),
            _ => drop(reader.uleb()?),
        }
        let mut cie = Cie { pointers: 0, is_augmented: false, is_of_signals: false, rules: None };
        if let [b'z', letters @ ..] = letters {
            cie.is_augmented = true;
            let bytes = reader.uleb()?;
            let end = reader.at.checked_add(usize::try_from(bytes).ok()?)?;
            for letter in letters {
                match letter {
                    b'R' => cie.pointers = reader.byte()?,
                    b'L' => drop(reader.byte()?),
                    b'P' => {
                        let encoding = reader.byte()?;
                        reader.pointer(encoding & FORMAT)?;
                    }
                    b'S' => cie.is_of_signals = true,
                    // Signed return addresses and tagged stacks on arm64.
                    b'B' | b'G' => {}
                    _ => return None,
                }
            }
            reader.at = end;
        } else if !letters.is_empty() {
            return None;
        }
        let mut rules = Rules::default();
        cie.rules = reader.follow(&mut rules).map(|()| rules);
        Some(cie)
    }
}

/// The rules at the first instruction, before the first advance of the address.
#[derive(Debug, Clone, Copy, Default)]
struct Rules {
    /// The canonical frame address: a register and an offset in bytes. None for other forms.
    frame: Option<(u64, u64)>,
    /// Whether a rule saves a register, which only happens after the first instructions.
    has_saved: bool,
}

impl Rules {
    /// Whether the state is that directly after a call.
    fn is_after_call(self, machine: Machine) -> bool {
        match machine {
            // The stack pointer, and the return address on the stack.
            Machine::X86_64 => self.frame == Some((7, 8)),
            Machine::X86 => self.frame == Some((4, 4)),
            // The stack pointer; the return address is in a register.
            Machine::Aarch64 => self.frame == Some((31, 0)) && !self.has_saved,
        }
    }
}

/// Parses a record sequentially.
struct Reader<'a> {
    body: &'a Body,
    at: usize,
    wide: bool,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, bytes: u64) -> Option<&'a [u8]> {
        let end = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        let skipped = self.body.bytes.get(self.at..end)?;
        self.at = end;
        Some(skipped)
    }

    fn byte(&mut self) -> Option<u8> {
        self.skip(1)?.first().copied()
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let rest = self.body.bytes.get(self.at..)?;
        let end = rest.iter().position(|byte| *byte == 0)?;
        self.at += end + 1;
        rest.get(..end)
    }

    /// Reads a LEB128 number; for a signed one, only its length is meaningful.
    fn uleb(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    /// Reads a pointer in an encoding: absolute, or relative to its own address.
    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        let own = self.body.address.checked_add(self.at as u64)?;
        let bytes = match encoding & FORMAT {
            0x00 => 4 + 4 * u64::from(self.wide),
            0x02 | 0x0a => 2,
            0x03 | 0x0b => 4,
            0x04 | 0x0c => 8,
            _ => return None,
        };
        let raw = self.skip(bytes)?;
        let fields = Fields { bytes: raw, wide: bytes == 8 };
        let unsigned = if bytes == 2 { u64::from(fields.u16(0)) } else { fields.word(0) };
        let unused = u64::BITS - 8 * bytes as u32;
        let number = match encoding & FORMAT {
            0x0a..=0x0c => ((unsigned << unused).cast_signed() >> unused).cast_unsigned(),
            _ => unsigned,
        };
        match encoding & !FORMAT {
            0x00 => Some(number),
            0x10 => Some(own.wrapping_add(number)),
            _ => None,
        }
    }

    /// Executes call frame instructions up to the first that advances the address. None at an unsupported
    /// one.
    fn follow(&mut self, rules: &mut Rules) -> Option<()> {
        while let Some(instruction) = self.byte() {
            match (instruction & 0xc0, instruction) {
                // DW_CFA_advance_loc and its forms with 1, 2, 4 bytes.
                (0x40, _) | (_, 0x02..=0x04) => return Some(()),
                // DW_CFA_offset
                (0x80, _) => {
                    // For the return address on x86, it says where a call put it.
                    rules.has_saved = true;
                    self.uleb()?;
                }
                // DW_CFA_restore
                (0xc0, _) => {}
                // DW_CFA_nop, DW_CFA_remember_state, DW_CFA_restore_state, DW_CFA_AARCH64_negate_ra_state
                (_, 0x00 | 0x0a | 0x0b | 0x2d) => {}
                // DW_CFA_def_cfa
                (_, 0x0c) => rules.frame = Some((self.uleb()?, self.uleb()?)),
                // DW_CFA_def_cfa_register
                (_, 0x0d) => {
                    let register = self.uleb()?;
                    rules.frame = rules.frame.map(|(_, bytes)| (register, bytes));
                }
                // DW_CFA_def_cfa_offset
                (_, 0x0e) => {
                    let bytes = self.uleb()?;
                    rules.frame = rules.frame.map(|(register, _)| (register, bytes));
                }
                // DW_CFA_restore_extended, DW_CFA_undefined, DW_CFA_same_value, DW_CFA_GNU_args_size
                (_, 0x06..=0x08 | 0x2e) => drop(self.uleb()?),
                _ => return None,
            }
        }
        Some(())
    }
}
