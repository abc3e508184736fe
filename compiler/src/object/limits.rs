//! The largest object that the reader takes. Each limit guards the reader's time or memory against a file that is made
//! to be expensive; no object that a compiler makes for a kernel comes near one of them.

/// Bytes of a file: a record of a plugin file is no longer (`ks_wit::section::MAX_RECORD_BYTES`). All other counts are
/// bounded by it, too, since what is counted takes bytes.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// Sections of a file. Guards the comparison of each section with the others.
pub const MAX_SECTIONS: usize = 4096;

/// Symbols of a file. Guards the memory of their names, which may share bytes.
pub const MAX_SYMBOLS: usize = 1 << 17;

/// Relocations of a file. Guards their table.
pub const MAX_RELOCATIONS: usize = 1 << 20;

/// Bytes of a name. The kernel's longest symbol has 511 (include/linux/kallsyms.h, `KSYM_NAME_LEN`, v6.1).
pub const MAX_NAME_BYTES: usize = 511;

/// Bytes of the target in the name of a section, `PATH_MAX` of a path included. Guards messages and the audit.
pub const MAX_TARGET_BYTES: usize = 4096;

/// Bytes of a source line or of the name of a source file; the rest is cut off. Guards the listing of a program.
pub const MAX_LINE_BYTES: usize = 1024;

/// Bytes of the licence, with the final zero (include/linux/bpf.h, `bpf_prog_load`: 128; libbpf keeps 64).
pub const MAX_LICENSE_BYTES: usize = 64;

/// Bytes of the table of printed lines (`ks_wit::object::PRINTS_SECTION`). Guards the host that parses it.
pub const MAX_PRINT_TABLE_BYTES: usize = 4 << 20;

/// Bytes of `.BTF`: the kernel takes no more (include/linux/btf.h, `BTF_MAX_SIZE`, v6.18). Guards the members of structs, which
/// take more memory than in the file.
pub const MAX_TYPE_BYTES: usize = 16 << 20;

/// Types in `.BTF`. Guards the tables that have an element for each type.
pub const MAX_TYPES: usize = 1 << 17;

/// Types within types by value, and types behind chains of pointers and modifiers. Guards the stack of recursive code:
/// the kernel's limit is the same (kernel/bpf/btf.c, `MAX_RESOLVE_DEPTH`, v6.18).
pub const MAX_NESTING: u32 = 32;

/// Numbers in the access string of a CO-RE record (tools/lib/bpf/relo_core.h, `BPF_CORE_SPEC_MAX_LEN`, v1.7).
pub const MAX_CORE_PATH: usize = 64;

/// CO-RE records of a file. Guards the memory of their paths: records may share one access string.
pub const MAX_CORE_RECORDS: usize = 1 << 16;

/// Slots of all functions of a file (include/linux/bpf.h, `BPF_COMPLEXITY_LIMIT_INSNS`: a program has no more). Guards
/// the decoded instructions, which are three times as large as the slots.
pub const MAX_SLOTS: usize = 1 << 20;

/// Maps, sections of variables, structs of the kernel, programs and subprograms, each. Guards loops over pairs of them.
pub const MAX_ITEMS: usize = 1 << 14;

/// Bytes of a section of variables, of a value, and of a struct type. Sums of a few of them fit 32 bits.
pub const MAX_VALUE_BYTES: u32 = 1 << 30;
