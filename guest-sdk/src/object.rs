//! BPF objects in the plugin file.

/// Fixed bytes of a record that precede the object, without the name: two lengths of 4 bytes and the
/// architecture.
const FIXED: usize = 9;

/// The architecture of an object, numbered as in the section `kernelscript:bpf`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    Any = 0,
    X86_64 = 1,
    Aarch64 = 2,
}

/// Length in bytes of the result of [`record`].
#[doc(hidden)]
pub const fn record_len(name: &str, elf: &[u8]) -> usize {
    FIXED + name.len() + elf.len()
}

/// Encodes an object as a record of its section: the record's length, the architecture, the name with its
/// length, the ELF file.
///
/// # Panics
/// At compile time, if the file is not a BPF object.
#[doc(hidden)]
pub const fn record<const N: usize>(arch: Arch, name: &str, elf: &[u8]) -> [u8; N] {
    assert!(N == record_len(name, elf), "the record has the length of its parts");
    assert!(
        is_bpf(elf),
        "the file is not a BPF object: a 64-bit little-endian ELF file, as `clang --target=bpf` makes it"
    );
    match has_section(elf, b".BTF\0") {
        None => panic!("the BPF object is cut off: its section headers lie beyond its end"),
        Some(false) => panic!("the BPF object has no BTF, by which maps are found: build it with `clang -g`"),
        Some(true) => {}
    }
    let mut bytes = [0; N];
    // A file of 4 GiB is not a BPF object.
    put(&mut bytes, 0, &((N - 4) as u32).to_le_bytes());
    bytes[4] = arch as u8;
    put(&mut bytes, 5, &(name.len() as u32).to_le_bytes());
    put(&mut bytes, FIXED, name.as_bytes());
    put(&mut bytes, FIXED + name.len(), elf);
    bytes
}

/// Whether the file is an ELF file for BPF. Source: elf(5); `EM_BPF` is 247.
const fn is_bpf(elf: &[u8]) -> bool {
    let start = [0x7f, b'E', b'L', b'F', 2, 1];
    let mut at = 0;
    while at < start.len() {
        if elf.len() < 64 || elf[at] != start[at] {
            return false;
        }
        at += 1;
    }
    elf[18] == 247 && elf[19] == 0
}

/// Whether the file has a section of this name, given with its NUL byte. None if a header or a name lies
/// beyond its end.
///
/// Source: elf(5), `Elf64_Ehdr` and `Elf64_Shdr`.
const fn has_section(elf: &[u8], name: &[u8]) -> Option<bool> {
    let (headers, count, names) = (number(elf, 40, 8), number(elf, 60, 2), number(elf, 62, 2));
    if number(elf, 58, 2) != HEADER
        || headers > elf.len()
        || elf.len() - headers < count * HEADER
        || names >= count
    {
        return None;
    }
    let strings = number(elf, headers + names * HEADER + 24, 8);
    let mut section = 0;
    while section < count {
        let start = strings.saturating_add(number(elf, headers + section * HEADER, 4));
        if start > elf.len() {
            return None;
        }
        if begins(elf, start, name) {
            return Some(true);
        }
        section += 1;
    }
    Some(false)
}

/// Size of a section header in bytes.
const HEADER: usize = 64;

/// Reads a little-endian number of `len` bytes within the file; saturates if it is too large for an address.
const fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    let mut found = 0_u64;
    let mut index = len;
    while index > 0 {
        index -= 1;
        found = found << 8 | bytes[at + index] as u64;
    }
    if found > usize::MAX as u64 { usize::MAX } else { found as usize }
}

const fn begins(bytes: &[u8], at: usize, with: &[u8]) -> bool {
    let mut index = 0;
    while index < with.len() {
        if at + index >= bytes.len() || bytes[at + index] != with[index] {
            return false;
        }
        index += 1;
    }
    true
}

const fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    let mut index = 0;
    while index < part.len() {
        bytes[at + index] = part[index];
        index += 1;
    }
}

/// Puts an object into the section of a plugin file that the host reads.
#[doc(hidden)]
#[macro_export]
macro_rules! object_record {
    ($arch:ident, $name:expr, $elf:expr) => {
        const _: () = {
            const ELF: &[u8] = $elf;
            const LEN: usize = $crate::object::record_len($name, ELF);

            #[used]
            #[cfg_attr(target_family = "wasm", unsafe(link_section = "kernelscript:bpf"))]
            static RECORD: [u8; LEN] = $crate::object::record(<$crate::object::Arch>::$arch, $name, ELF);
        };
    };
}

/// Puts the manifest into its section of the plugin file.
#[doc(hidden)]
#[macro_export]
macro_rules! manifest_section {
    ($bytes:expr) => {
        const _: () = {
            const BYTES: &[u8] = $bytes;

            #[used]
            #[cfg_attr(target_family = "wasm", unsafe(link_section = "kernelscript:manifest"))]
            static MANIFEST: [u8; BYTES.len()] = *$bytes;
        };
    };
}

/// Embeds a BPF object of clang, Aya or another compiler in the plugin file. [`Program`](crate::Program),
/// [`Map`](crate::Map), [`Ring`](crate::Ring) and [`Global`](crate::Global) find its programs, maps and
/// variables by name, and compare them with the object's BTF when they are opened. For a kernel half in
/// KernelScript there is [`kernel!`](crate::kernel!), which knows the types.
///
/// The path is resolved as `include_bytes!` does it: relative to the source file of the call, or absolute,
/// for example `concat!(env!("OUT_DIR"), "/probe.bpf.o")`. A file that is not a BPF object, or has no BTF, is
/// an error when the plugin is compiled; the host reports other defects when it loads the object.
///
/// ```ignore
/// ks_guest::include_bpf_object!("probe.bpf.o");
/// ```
///
/// An object for one architecture names it; a plugin may have one for each:
///
/// ```ignore
/// ks_guest::include_bpf_object!(x86_64: "probe.x86.bpf.o");
/// ks_guest::include_bpf_object!(aarch64: "probe.arm64.bpf.o");
/// ```
#[macro_export]
macro_rules! include_bpf_object {
    (x86_64: $path:expr) => {
        $crate::object_record!(X86_64, ::core::env!("CARGO_PKG_NAME"), ::core::include_bytes!($path));
    };
    (aarch64: $path:expr) => {
        $crate::object_record!(Aarch64, ::core::env!("CARGO_PKG_NAME"), ::core::include_bytes!($path));
    };
    ($path:expr) => {
        $crate::object_record!(Any, ::core::env!("CARGO_PKG_NAME"), ::core::include_bytes!($path));
    };
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::*;

    /// Builds an object with two sections: the section names, and one that is called `name`.
    fn object(machine: u8, name: &[u8]) -> Vec<u8> {
        let mut elf = vec![0; 64];
        elf[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        elf[18] = machine;
        (elf[40], elf[58], elf[60], elf[62]) = (64, 64, 2, 0);
        let mut headers = [0; 128];
        headers[24] = 192;
        headers[64] = 1;
        elf.extend(headers);
        elf.push(0);
        elf.extend(name);
        elf.push(0);
        elf
    }

    #[test]
    fn a_record_is_what_the_section_holds() {
        let elf = object(247, b".BTF");
        let found: [u8; 198 + 12] = record(Arch::Aarch64, "abc", &elf);
        assert_eq!(found[..12], [206, 0, 0, 0, 2, 3, 0, 0, 0, b'a', b'b', b'c']);
        assert_eq!(found[12..], elf);
    }

    #[test]
    fn other_files_are_not_objects() {
        assert!(is_bpf(&object(247, b"")));
        assert!(!is_bpf(&object(62, b"")) && !is_bpf(b"\x7fELF\x02\x01") && !is_bpf(&[0; 64]));
    }

    #[test]
    fn an_object_without_types_differs_from_a_truncated_one() {
        assert_eq!(has_section(&object(247, b".BTF"), b".BTF\0"), Some(true));
        assert_eq!(has_section(&object(247, b".BTF.ext"), b".BTF\0"), Some(false));
        assert_eq!(has_section(&object(247, b".BTF")[..150], b".BTF\0"), None);
        let mut wild = object(247, b".BTF");
        wild[40..48].fill(0xff);
        assert_eq!(has_section(&wild, b".BTF\0"), None);
    }
}
