//! Limits of the reader. Each bounds the reader's time or memory on a malicious file; no object that a
//! compiler makes for a kernel comes near one of them.

/// Maximum file size in bytes: the limit of a record of a plugin file (`ks_wit::section::MAX_RECORD_BYTES`).
/// It also bounds all other counts, because counted items take bytes.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// Maximum number of sections. Bounds the pairwise comparison of sections.
pub const MAX_SECTIONS: usize = 4096;

/// Maximum number of symbols. Bounds the memory of their names, which may share bytes.
pub const MAX_SYMBOLS: usize = 1 << 17;

/// Maximum number of relocations. Bounds their table.
pub const MAX_RELOCATIONS: usize = 1 << 20;

/// Maximum length of a name in bytes. The kernel's longest symbol has 511 (include/linux/kallsyms.h,
/// `KSYM_NAME_LEN`, v6.1).
pub const MAX_NAME_BYTES: usize = 511;

/// Maximum length in bytes of the target in a section name, `PATH_MAX` of a path included. Bounds messages
/// and the audit.
pub const MAX_TARGET_BYTES: usize = 4096;

/// Maximum length in bytes of a source line or a source file's name; longer ones are truncated. Bounds
/// program listings.
pub const MAX_LINE_BYTES: usize = 1024;

/// Maximum size of the licence in bytes, with the final zero (include/linux/bpf.h, `bpf_prog_load`: 128;
/// libbpf keeps 64).
pub const MAX_LICENSE_BYTES: usize = 64;

/// Maximum size in bytes of the table of printed lines (`ks_wit::object::PRINTS_SECTION`). Bounds the host's
/// parser.
pub const MAX_PRINT_TABLE_BYTES: usize = 4 << 20;

/// Maximum size of `.BTF` in bytes, the kernel's limit (include/linux/btf.h, `BTF_MAX_SIZE`, v6.18). Bounds
/// the members of structs, which take more memory than in the file.
pub const MAX_TYPE_BYTES: usize = 16 << 20;

/// Maximum number of types in `.BTF`. Bounds the tables with one element per type.
pub const MAX_TYPES: usize = 1 << 17;

/// Maximum nesting of types by value, and maximum length of chains of pointers and modifiers. Bounds
/// recursion; the kernel's limit is the same (kernel/bpf/btf.c, `MAX_RESOLVE_DEPTH`, v6.18).
pub const MAX_NESTING: u32 = 32;

/// Maximum numbers in the access string of a CO-RE record (tools/lib/bpf/relo_core.h,
/// `BPF_CORE_SPEC_MAX_LEN`, v1.7).
pub const MAX_CORE_PATH: usize = 64;

/// Maximum number of CO-RE records. Bounds the memory of their paths: records may share one access string.
pub const MAX_CORE_RECORDS: usize = 1 << 16;

/// Maximum number of instruction slots of all functions (include/linux/bpf.h, `BPF_COMPLEXITY_LIMIT_INSNS`: a
/// program has no more). Bounds the decoded instructions, which are three times as large as the slots.
pub const MAX_SLOTS: usize = 1 << 20;

/// Maximum number of maps, struct_ops, programs and subprograms, each. Bounds loops
/// over pairs.
pub const MAX_ITEMS: usize = 1 << 14;

/// Maximum size in bytes of a section of variables, of a value, and of a struct type. Sums of a few of them
/// fit 32 bits.
pub const MAX_VALUE_BYTES: u32 = 1 << 30;
