//! BPF objects that other compilers made, in the plugin file.

/// The bytes before an object in its section, without the name: two lengths of 4 bytes and the architecture.
const FIXED: usize = 9;

/// For which machine an object is made, in the numbers of the section `kernelscript:bpf`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    Any = 0,
    X86_64 = 1,
    Aarch64 = 2,
}

/// The length of [`record`].
#[doc(hidden)]
pub const fn record_len(name: &str, elf: &[u8]) -> usize {
    FIXED + name.len() + elf.len()
}

/// One object as its section holds it: the record's length, the architecture, the name with its length, the ELF file.
///
/// # Panics
/// When the plugin is compiled, if the file is no BPF object.
#[doc(hidden)]
pub const fn record<const N: usize>(arch: Arch, name: &str, elf: &[u8]) -> [u8; N] {
    assert!(N == record_len(name, elf), "the record has the length of its parts");
    assert!(
        is_bpf(elf),
        "the file is no BPF object: a 64-bit little-endian ELF file, as `clang --target=bpf` makes it"
    );
    let mut bytes = [0; N];
    // A file of 4 GiB is no BPF object.
    put(&mut bytes, 0, &((N - 4) as u32).to_le_bytes());
    bytes[4] = arch as u8;
    put(&mut bytes, 5, &(name.len() as u32).to_le_bytes());
    put(&mut bytes, FIXED, name.as_bytes());
    put(&mut bytes, FIXED + name.len(), elf);
    bytes
}

/// Source: elf(5); `EM_BPF` is 247.
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

const fn put(bytes: &mut [u8], at: usize, part: &[u8]) {
    let mut index = 0;
    while index < part.len() {
        bytes[at + index] = part[index];
        index += 1;
    }
}

/// Puts a BPF object that clang, Aya or another compiler made into the plugin file. Its programs, maps and variables are
/// what [`Program`](crate::Program), [`Map`](crate::Map), [`Ring`](crate::Ring) and [`Global`](crate::Global) find by name.
///
/// The path is found as `include_bytes!` finds it: relative to the file in which this stands, or whole, for example
/// `concat!(env!("OUT_DIR"), "/probe.bpf.o")`. A file that is no BPF object is an error when the plugin is compiled.
///
/// ```ignore
/// ks_guest::include_bpf_object!("probe.bpf.o");
/// ```
///
/// An object that holds for one kind of machine names it; a plugin may have one for each:
///
/// ```ignore
/// ks_guest::include_bpf_object!(x86_64: "probe.x86.bpf.o");
/// ks_guest::include_bpf_object!(aarch64: "probe.arm64.bpf.o");
/// ```
#[macro_export]
macro_rules! include_bpf_object {
    (x86_64: $path:expr) => {
        $crate::include_bpf_object!(@ X86_64, $path);
    };
    (aarch64: $path:expr) => {
        $crate::include_bpf_object!(@ Aarch64, $path);
    };
    (@ $arch:ident, $path:expr) => {
        const _: () = {
            const NAME: &str = ::core::env!("CARGO_PKG_NAME");
            const ELF: &[u8] = ::core::include_bytes!($path);
            const LEN: usize = $crate::object::record_len(NAME, ELF);

            // The section of a plugin file from which the host takes objects.
            #[used]
            #[cfg_attr(target_family = "wasm", unsafe(link_section = "kernelscript:bpf"))]
            static RECORD: [u8; LEN] = $crate::object::record(<$crate::object::Arch>::$arch, NAME, ELF);
        };
    };
    ($path:expr) => {
        $crate::include_bpf_object!(@ Any, $path);
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(machine: u8) -> [u8; 64] {
        let mut elf = [0; 64];
        elf[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
        elf[18] = machine;
        elf
    }

    #[test]
    fn a_record_is_what_the_section_holds() {
        let elf = object(247);
        let found: [u8; 76] = record(Arch::Aarch64, "abc", &elf);
        assert_eq!(found[..12], [72, 0, 0, 0, 2, 3, 0, 0, 0, b'a', b'b', b'c']);
        assert_eq!(found[12..], elf);
    }

    #[test]
    fn other_files_are_no_objects() {
        assert!(is_bpf(&object(247)));
        assert!(!is_bpf(&object(62)) && !is_bpf(b"\x7fELF\x02\x01") && !is_bpf(&[0; 64]));
    }
}
