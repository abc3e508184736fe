//! Custom sections of a plugin file.
//!
//! Every section is a sequence of records; a record is a length (u32, little-endian) and that many bytes.
//! Linkers may therefore concatenate sections of one name. A section is on the component or in one of its
//! core modules.

use std::fmt;

use crate::text::{MOST_BYTES, visible};

/// The section of [`BpfRecord`]s.
pub const BPF: &str = "kernelscript:bpf";
/// The section of [`crate::manifest::Manifest`]s, one JSON text per record.
pub const MANIFEST: &str = "kernelscript:manifest";

/// The name prefix of fault counters in an object of `ks`: the program's name follows. The 8-byte global
/// variable counts the runs of the program that a fault ended (the language reference, 8.7).
pub const FAULT_COUNT_PREFIX: &str = "__faults_";
/// The section of [`crate::lines::Lines`], one per record.
pub const LINES: &str = "kernelscript:lines";
/// The section of signatures, on the component; one JSON text per record: `identity`, and in hexadecimal
/// digits `key` (ed25519, public), `digest` (SHA-256 of the file without these sections) and `signature`. The
/// signed bytes are "kernelscript plugin signature 1", a zero byte, the digest and the identity.
pub const SIGNATURE: &str = "kernelscript:signature";

/// The section, in a core module, with the index of the memory (u32, little-endian) into which a host maps
/// the pages that `variable.share` and `map.share` ask for.
///
/// The module defines that memory at its final size (its maximum is its minimum). It neither exports nor
/// initialises the memory, and only loads and stores name it. A plugin has one such module, and no other
/// memory with the same limits.
pub const SHARED_MEMORY: &str = "kernelscript:shared-memory";

/// Limit of a record, in bytes. No sensible BPF object or manifest comes near it.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// The reason why a section cannot be read. Offsets are bytes from the section's start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SectionError {
    /// The section ends inside a record.
    #[error("record at offset {offset} says {needed} bytes, the section has {left} left")]
    Truncated {
        /// Offset of the record's start.
        offset: usize,
        /// Bytes that the rest of the record needs.
        needed: usize,
        /// Bytes that the section has from there.
        left: usize,
    },
    /// A record is longer than [`MAX_RECORD_BYTES`].
    #[error("record at offset {offset} has {len} bytes; the limit is {MAX_RECORD_BYTES}")]
    TooLong {
        /// Offset of the record's start.
        offset: usize,
        /// Length of the record in bytes.
        len: usize,
    },
    /// The name of a BPF record is not UTF-8, or is empty.
    #[error("a BPF record has a name that is not text")]
    BadName,
    /// The functions or offsets of a line record do not ascend, or bytes follow it.
    #[error("a record of lines is out of order at offset {offset}")]
    BadLines {
        /// Offset in the record, in bytes.
        offset: usize,
    },
    /// The architecture byte of a BPF record is not one of [`Arch`].
    #[error(
        "BPF record `{}` is for architecture number {arch}, which this version does not know",
        visible(.name, MOST_BYTES)
    )]
    UnknownArch {
        /// Name of the BPF record.
        name: String,
        /// Value of the architecture byte.
        arch: u8,
    },
}

/// The architecture that a BPF object is compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Arch {
    /// Any architecture: the object uses no layout that differs between them.
    Any = 0,
    /// 64-bit x86, little-endian (x86-64).
    X86_64 = 1,
    /// 64-bit ARM, little-endian (AArch64).
    Aarch64 = 2,
}

impl Arch {
    /// The architecture of this process; `None` on an unsupported one.
    pub const HOST: Option<Arch> = if cfg!(target_arch = "x86_64") {
        Some(Arch::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Arch::Aarch64)
    } else {
        None
    };

    fn from_byte(byte: u8) -> Option<Arch> {
        [Arch::Any, Arch::X86_64, Arch::Aarch64].into_iter().find(|arch| *arch as u8 == byte)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Arch::Any => "any",
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        })
    }
}

/// One BPF object of a plugin: `arch` (1 byte), length of `name` (u32, little-endian), `name`, then the ELF
/// object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpfRecord {
    /// The object's name; in plugins compiled from scripts, the name of the project.
    pub name: String,
    /// The architecture that the object is compiled for.
    pub arch: Arch,
    /// A little-endian ELF object that libbpf loads unchanged.
    pub elf: Vec<u8>,
}

impl BpfRecord {
    /// Encodes this record without its length.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![self.arch as u8];
        push_record(&mut out, self.name.as_bytes());
        out.extend_from_slice(&self.elf);
        out
    }

    /// Decodes one record.
    ///
    /// # Errors
    /// If the record is cut short, or this version does not know its architecture, or its name is empty or
    /// not UTF-8.
    pub fn from_bytes(bytes: &[u8]) -> Result<BpfRecord, SectionError> {
        let (&arch, rest) =
            bytes.split_first().ok_or(SectionError::Truncated { offset: 0, needed: 1, left: 0 })?;
        let (name, elf) = split_record(rest, 1)?;
        let name = std::str::from_utf8(name).map_err(|_| SectionError::BadName)?.to_owned();
        if name.is_empty() {
            return Err(SectionError::BadName);
        }
        let arch =
            Arch::from_byte(arch).ok_or_else(|| SectionError::UnknownArch { name: name.clone(), arch })?;
        Ok(BpfRecord { name, arch, elf: elf.to_vec() })
    }
}

/// Appends one record to a section.
///
/// # Panics
/// If the record is longer than [`MAX_RECORD_BYTES`].
pub fn push_record(section: &mut Vec<u8>, record: &[u8]) {
    assert!(record.len() <= MAX_RECORD_BYTES, "a record has at most {MAX_RECORD_BYTES} bytes");
    section.extend_from_slice(&(record.len() as u32).to_le_bytes());
    section.extend_from_slice(record);
}

/// Splits a section into its records.
///
/// # Errors
/// If the section does not end where a record ends, or a record is too long.
pub fn records(section: &[u8]) -> Result<Vec<&[u8]>, SectionError> {
    let mut found = Vec::new();
    let mut rest = section;
    while !rest.is_empty() {
        let (record, after) = split_record(rest, section.len() - rest.len())?;
        found.push(record);
        rest = after;
    }
    Ok(found)
}

/// Splits one length-prefixed record off the front. `offset` is where `bytes` starts, for the error.
pub(crate) fn split_record(bytes: &[u8], offset: usize) -> Result<(&[u8], &[u8]), SectionError> {
    let Some((prefix, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(SectionError::Truncated { offset, needed: 4, left: bytes.len() });
    };
    let len = u32::from_le_bytes(*prefix) as usize;
    if len > MAX_RECORD_BYTES {
        return Err(SectionError::TooLong { offset, len });
    }
    rest.split_at_checked(len).ok_or(SectionError::Truncated { offset, needed: len, left: rest.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_two_linkers_join() {
        let mut section = Vec::new();
        push_record(&mut section, b"one");
        let mut second = Vec::new();
        push_record(&mut second, b"");
        push_record(&mut second, b"three");
        section.extend_from_slice(&second);
        assert_eq!(records(&section), Ok(vec![&b"one"[..], &b""[..], &b"three"[..]]));
    }

    #[test]
    fn a_record_that_is_cut_short_is_refused() {
        let mut section = Vec::new();
        push_record(&mut section, b"whole");
        section.extend_from_slice(&[9, 0, 0, 0, 1]);
        assert_eq!(records(&section), Err(SectionError::Truncated { offset: 9, needed: 9, left: 1 }));
        assert_eq!(records(&[1, 0]), Err(SectionError::Truncated { offset: 0, needed: 4, left: 2 }));
        assert_eq!(records(&[255; 4]), Err(SectionError::TooLong { offset: 0, len: u32::MAX as usize }));
    }

    #[test]
    fn a_bpf_record_survives_the_round_trip() {
        let record = BpfRecord { name: "counters".into(), arch: Arch::Aarch64, elf: vec![0x7f, b'E'] };
        assert_eq!(BpfRecord::from_bytes(&record.to_bytes()), Ok(record));
        assert_eq!(
            BpfRecord::from_bytes(&[7, 1, 0, 0, 0, b'x']),
            Err(SectionError::UnknownArch { name: "x".into(), arch: 7 })
        );
        assert_eq!(BpfRecord::from_bytes(&[0, 1, 0, 0, 0, 0xff]), Err(SectionError::BadName));
    }
}
