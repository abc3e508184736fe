//! The command starts without a dynamic linker, as `build/link.rs` links it.

use object::Endianness;
use object::elf::{ET_EXEC, FileHeader64, PT_DYNAMIC, PT_INTERP, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _};

#[test]
#[cfg_attr(not(static_command), ignore = "the C compiler has no static C library")]
fn nothing_is_left_for_a_dynamic_linker() {
    let bytes = std::fs::read(env!("CARGO_BIN_EXE_ks")).expect("the command is built");
    let header = FileHeader64::<Endianness>::parse(&*bytes).expect("a program is ELF");
    let endian = header.endian().expect("its byte order is known");
    assert_eq!(header.e_type(endian), ET_EXEC, "its address is fixed");
    let segments = header.program_headers(endian, &*bytes).expect("a program has segments");
    let kinds: Vec<u32> = segments.iter().map(|segment| segment.p_type(endian)).collect();
    assert!(kinds.contains(&PT_LOAD), "segments are read: {kinds:?}");
    assert!(!kinds.contains(&PT_INTERP) && !kinds.contains(&PT_DYNAMIC), "{kinds:?}");
}
