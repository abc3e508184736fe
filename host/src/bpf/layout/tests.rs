//! Layouts of types that clang compiled from C, and of malformed BTF.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

const SOURCE: &str = r#"
    #define __type(name, type) typeof(type) *name
    #define __uint(name, value) int (*name)[value]
    #define __array(name, type) typeof(type) *name[]
    typedef unsigned char u8;
    typedef unsigned short u16;
    typedef unsigned int u32;
    typedef unsigned long long u64;
    enum way { IN, OUT };
    struct point { u16 x; short y; };
    struct flow {
        enum way way;
        _Bool open;
        char name[16];
        struct point ends[2][3];
        union { u32 v4; u8 v6[16]; };
        struct { u8 low; u8 high; };
        u32 first : 3, second : 7, third : 1;
        u32 whole;
        const volatile u64 bytes;
        void *owner;
        __int128 wide;
        u8 rest[];
    };
    typedef struct { u64 at; } event_t;
    struct { __uint(type, 1); __uint(max_entries, 8); __type(key, u32); __type(value, struct flow); }
        flows __attribute__((section(".maps"), used));
    struct { __uint(type, 1); __uint(max_entries, 8); __uint(key_size, 4); __uint(value_size, 8); }
        sizes __attribute__((section(".maps"), used));
    struct inner { __uint(type, 1); __uint(max_entries, 8); __type(key, struct point); __type(value, u64); };
    struct { __uint(type, 13); __uint(max_entries, 8); __type(key, u32); __array(values, struct inner); }
        nested __attribute__((section(".maps"), used));
    u64 counts[4];
    event_t *unused __attribute__((unused));
"#;

/// Compiles the C source with clang. None where clang is missing, which CI does not accept.
fn object() -> Option<Vec<u8>> {
    let started = Command::new("clang")
        .args(["--target=bpf", "-g", "-O2", "-x", "c", "-c", "-", "-o", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut clang) = started else {
        assert!(std::env::var_os("CI").is_none(), "clang is missing: `scripts/packages clang` installs it");
        eprintln!("NOT TESTED: layouts in clang's objects: `scripts/packages clang` installs it");
        return None;
    };
    clang.stdin.take()?.write_all(SOURCE.as_bytes()).expect("clang reads it");
    let output = clang.wait_with_output().expect("it ends");
    assert!(output.status.success());
    Some(output.stdout)
}

/// Formats a layout, one line per scalar.
fn display(layout: &Layout) -> Vec<String> {
    let line = |member: &Member| {
        let Member { path, offset, size, kind, arrays } = member;
        format!("{path} {offset} {size} {kind:?} {arrays:?}")
    };
    layout.members.iter().map(line).collect()
}

#[test]
fn members_of_a_c_struct_are_reported_in_order() {
    let Some(elf) = object() else { return };
    let flow = of(&elf, Subject::Value("flows")).expect("BTF has it");
    assert_eq!((flow.name.as_str(), flow.size), ("struct flow", 112));
    let expected = [
        "way 0 4 Enumeration []",
        "open 4 1 Boolean []",
        "name 5 1 Character [(16, 1)]",
        "ends.x 22 2 Unsigned [(2, 12), (3, 4)]",
        "ends.y 24 2 Signed [(2, 12), (3, 4)]",
        " 48 16 Opaque []",
        "low 64 1 Unsigned []",
        "high 65 1 Unsigned []",
        "first 66 2 Opaque []",
        "whole 68 4 Unsigned []",
        "bytes 72 8 Unsigned []",
        "owner 80 8 Pointer []",
        "wide 96 16 Opaque []",
    ];
    assert_eq!(display(&flow), expected);
}

#[test]
fn keys_variables_and_types_are_found_by_name() {
    let Some(elf) = object() else { return };
    let layout_of =
        |subject| of(&elf, subject).map(|layout| (layout.name.clone(), layout.size, display(&layout)));
    let one = |line: &str| vec![line.to_owned()];
    assert_eq!(layout_of(Subject::Key("flows")), Some(("u32".into(), 4, one(" 0 4 Unsigned []"))));
    assert_eq!(
        layout_of(Subject::Variable("counts")),
        Some((String::new(), 32, one(" 0 8 Unsigned [(4, 8)]")))
    );
    assert_eq!(layout_of(Subject::Type("event_t")), Some(("event_t".into(), 8, one("at 0 8 Unsigned []"))));
    let both = ["outer 0 4 Unsigned []", "inner.x 8 2 Unsigned []", "inner.y 10 2 Signed []"];
    let both = both.map(str::to_owned).to_vec();
    assert_eq!(layout_of(Subject::Key("nested")), Some((String::new(), 16, both)));
    assert_eq!(layout_of(Subject::Value("nested")), Some(("u64".into(), 8, one(" 0 8 Unsigned []"))));
    for absent in [
        Subject::Key("sizes"),
        Subject::Value("sizes"),
        Subject::Value("absent"),
        Subject::Variable("flows"),
        Subject::Type("absent"),
    ] {
        assert_eq!(layout_of(absent), None, "{absent:?}");
    }
}

/// Builds BTF with these types. The string at offset 1 is `a`.
fn btf(types: &[u32]) -> Vec<u8> {
    let len = types.len() as u32 * 4;
    let header = [u32::from(MAGIC) | 1 << 16, 24, 0, len, len, 3];
    let words = header.iter().chain(types).flat_map(|word| word.to_le_bytes());
    words.chain(*b"\0a\0").collect()
}

const MAGIC: u16 = 0xeb9f;

fn members(types: &[u32]) -> Option<usize> {
    let bytes = btf(types);
    let btf = Btf::parse(&bytes)?;
    let mut builder = LayoutBuilder { btf: &btf, members: Vec::new(), steps: 0 };
    builder.add(1, &mut MemberPosition::default())?;
    Some(builder.members.len())
}

#[test]
fn types_that_have_themselves_within_them_are_none() {
    let (of_struct, typedef, array) = (4 << 24, 8 << 24, 3 << 24);
    // struct a { struct a a; };
    assert_eq!(members(&[1, of_struct | 1, 8, 1, 1, 0]), None);
    // typedef a a;
    assert_eq!(members(&[1, typedef, 1]), None);
    // An array whose elements are the array itself.
    assert_eq!(members(&[0, array, 0, 1, 1, 1]), None);
    // struct a { struct { .. } a[..], nested repeatedly, without a scalar.
    let mut types = Vec::new();
    for inner in 2..20 {
        types.extend([1, of_struct | 8, 8]);
        types.extend([1, inner, 0].repeat(8));
    }
    types.extend([1, of_struct, 0]);
    assert_eq!(members(&types), None);
    // struct a { u64 a; };
    assert_eq!(members(&[1, of_struct | 1, 8, 1, 2, 0, 0, 1 << 24, 8, 64]), Some(1));
}

#[test]
fn arbitrary_bytes_neither_parse_nor_panic() {
    let whole = btf(&[1, 4 << 24 | 1, 8, 1, 2, 0, 0, 1 << 24, 8, 64]);
    for end in 0..whole.len() {
        assert!(Btf::parse(&whole[..end]).is_none(), "{end}");
    }
    for at in 0..whole.len() {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            let Some(btf) = Btf::parse(&bytes) else { continue };
            let mut builder = LayoutBuilder { btf: &btf, members: Vec::new(), steps: 0 };
            builder.add(1, &mut MemberPosition::default());
            assert!(builder.members.len() <= MAX_MEMBERS + 1);
        }
    }
    assert_eq!(of(b"no object", Subject::Key("m")), None);
}
