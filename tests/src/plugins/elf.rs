//! Minimal BPF objects: one program and one variable, without BTF.

use object::write::{
    Object, Relocation, SectionId, StandardSection, StandardSegment, Symbol, SymbolId, SymbolSection,
};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope,
};

/// R_BPF_64_64 of `include/uapi/linux/elf.h`'s BPF supplement: an `ld_imm64` refers to a map value.
const R_BPF_64_64: u32 = 1;
/// R_BPF_64_32: a call refers to a function.
const R_BPF_64_32: u32 = 10;

/// Returns an object with a program `count` of this section that adds 1 to the 8-byte variable `counter` and
/// returns 0.
pub fn counting(section: &str) -> Vec<u8> {
    #[rustfmt::skip]
    let code = [
        insn(0x18, 0x01, 0, 0), // r1 = &counter
        insn(0x00, 0x00, 0, 0),
        insn(0xb7, 0x02, 0, 1), // r2 = 1
        insn(0xdb, 0x21, 0, 0), // lock *(u64 *)(r1 + 0) += r2
        insn(0xb7, 0x00, 0, 0), // r0 = 0
        insn(0x95, 0x00, 0, 0), // exit
    ];
    // The first instruction loads the address.
    object(section, &code.concat(), &[0])
}

/// Returns an object with a program `count` of this section that stores its cookie in the 8-byte variable
/// `counter` and returns 0.
pub fn cookie(section: &str) -> Vec<u8> {
    #[rustfmt::skip]
    let code = [
        insn(0x85, 0x00, 0, 174), // r0 = bpf_get_attach_cookie(ctx)
        insn(0x18, 0x01, 0, 0),   // r1 = &counter
        insn(0x00, 0x00, 0, 0),
        insn(0x7b, 0x01, 0, 0),   // *(u64 *)(r1 + 0) = r0
        insn(0xb7, 0x00, 0, 0),   // r0 = 0
        insn(0x95, 0x00, 0, 0),   // exit
    ];
    // The second instruction loads the address.
    object(section, &code.concat(), &[8])
}

/// Returns an object with a program `emit` for raw tracepoints that writes a record of 12 bytes, of the number 7,
/// into the array of perf events `m`, and returns 0.
pub fn emitting() -> Vec<u8> {
    #[rustfmt::skip]
    let code = [
        insn(0x7a, 0x0a, -16, 7),   // *(u64 *)(r10 - 16) = 7
        insn(0x62, 0x0a, -8, 0),    // *(u32 *)(r10 - 8) = 0
        insn(0x18, 0x02, 0, 0),     // r2 = &m
        insn(0x00, 0x00, 0, 0),
        insn(0xb4, 0x03, 0, -1),    // w3 = BPF_F_CURRENT_CPU
        insn(0xbf, 0xa4, 0, 0),     // r4 = r10
        insn(0x07, 0x04, 0, -16),   // r4 += -16
        insn(0xb7, 0x05, 0, 12),    // r5 = 12
        insn(0x85, 0x00, 0, 25),    // bpf_perf_event_output(ctx, &m, CPU, record, 12)
        insn(0xb7, 0x00, 0, 0),     // r0 = 0
        insn(0x95, 0x00, 0, 0),     // exit
    ]
    .concat();
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let map = add_map(&mut object, MapDef { ty: 4, entries: 64, value_words: 1, ..MapDef::SMALL });
    let text = object.add_section(Vec::new(), b"raw_tp".to_vec(), SectionKind::Text);
    object.append_section_data(text, &code, 8);
    object.add_symbol(symbol(b"emit", SymbolKind::Text, text, code.len() as u64));
    let flags = RelocationFlags::Elf { r_type: R_BPF_64_64 };
    let load = Relocation { offset: 16, symbol: map, addend: 0, flags };
    object.add_relocation(text, load).expect("a relocation of BPF");
    add_license(&mut object);
    object.write().expect("an object")
}

/// Returns an object with a program `count` that the verifier refuses: it returns a register that was never
/// written.
pub fn unverifiable() -> Vec<u8> {
    let code = [insn(0xbf, 0x60, 0, 0), insn(0x95, 0x00, 0, 0)]; // r0 = r6; exit
    object("perf_event", &code.concat(), &[])
}

/// Returns an object with a program `count` for perf events with one call: `src_reg` is the kind of callee,
/// the immediate its number.
pub fn calling(src_reg: u8, number: i32) -> Vec<u8> {
    let code = [insn(0x85, src_reg << 4, 0, number), insn(0xb7, 0x00, 0, 0), insn(0x95, 0x00, 0, 0)];
    object("perf_event", &code.concat(), &[])
}

/// Returns an object with a program `count` with a wide load: `src_reg` is the kind of its operand.
pub fn wide_load(src_reg: u8, number: i32) -> Vec<u8> {
    let load = [insn(0x18, src_reg << 4 | 1, 0, number), insn(0, 0, 0, 0)];
    let code = [load.concat(), insn(0xb7, 0x00, 0, 0).to_vec(), insn(0x95, 0x00, 0, 0).to_vec()].concat();
    object("perf_event", &code, &[])
}

/// Returns an object like [`calling`], whose call has a relocation to an undefined symbol.
pub fn calling_outside(src_reg: u8, name: &str) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let text = object.add_section(Vec::new(), b"perf_event".to_vec(), SectionKind::Text);
    let code = [insn(0x85, src_reg << 4, 0, -1), insn(0xb7, 0x00, 0, 0), insn(0x95, 0x00, 0, 0)].concat();
    object.append_section_data(text, &code, 8);
    object.add_symbol(symbol(b"count", SymbolKind::Text, text, code.len() as u64));
    let outside =
        Symbol { section: SymbolSection::Undefined, ..symbol(name.as_bytes(), SymbolKind::Unknown, text, 0) };
    let outside = object.add_symbol(outside);
    let flags = RelocationFlags::Elf { r_type: R_BPF_64_32 };
    let call = Relocation { offset: 0, symbol: outside, addend: 0, flags };
    object.add_relocation(text, call).expect("a relocation of BPF");
    object.write().expect("an object")
}

/// A BTF-defined map with a key of 4 bytes.
#[derive(Debug, Clone, Copy)]
pub struct MapDef<'a> {
    /// Name of the map variable in `.maps`.
    pub name: &'a str,
    /// A number of `enum bpf_map_type`.
    pub ty: u32,
    /// The map's capacity in entries (`max_entries`).
    pub entries: u32,
    /// Size of a value in words of 4 bytes. A key has one word.
    pub value_words: u32,
    /// Whether it asks libbpf to pin it by its name.
    pub pinned: bool,
    /// The member `map_extra`; 0 for none. For an arena, the address at which libbpf maps its pages.
    pub extra: u32,
}

impl MapDef<'_> {
    /// A map `m` with 2 entries, a key of 4 bytes, and a value of 12, which is not a multiple of any
    /// machine's word size.
    pub const SMALL: MapDef<'static> =
        MapDef { name: "m", ty: 2, entries: 2, value_words: 3, pinned: false, extra: 0 };

    /// Returns the further members of its definition, and their numbers. LIBBPF_PIN_BY_NAME is 1.
    fn members(&self) -> impl Iterator<Item = (&'static str, u32)> {
        [("pinning", u32::from(self.pinned)), ("map_extra", self.extra)]
            .into_iter()
            .filter(|(_, number)| *number != 0)
    }
}

/// Returns an object with a map `m` of type BPF_MAP_TYPE_ARENA that asks for this address, the first bytes of
/// its pages, and a program `count`. libbpf maps the arena there and copies the bytes into it.
pub fn arena(address: u32, pages: u32, content: &[u8]) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let text = object.add_section(Vec::new(), b"perf_event".to_vec(), SectionKind::Text);
    let code = [insn(0xb7, 0x00, 0, 0), insn(0x95, 0x00, 0, 0)].concat();
    object.append_section_data(text, &code, 8);
    object.add_symbol(symbol(b"count", SymbolKind::Text, text, code.len() as u64));
    add_map(&mut object, MapDef { ty: 33, entries: pages, extra: address, ..MapDef::SMALL });
    add_license(&mut object);
    if !content.is_empty() {
        let data = object.add_section(Vec::new(), b".addr_space.1".to_vec(), SectionKind::Data);
        object.append_section_data(data, content, 8);
        object.add_symbol(symbol(b"pages", SymbolKind::Data, data, content.len() as u64));
    }
    object.write().expect("an object")
}

/// Returns an object with a map that asks libbpf to pin it by its name.
pub fn pinned_map() -> Vec<u8> {
    with_map(MapDef { pinned: true, ..MapDef::SMALL })
}

/// Returns an object with one small map of this type.
pub fn map(ty: u32) -> Vec<u8> {
    with_map(MapDef { ty, ..MapDef::SMALL })
}

/// Returns an object with this map.
pub fn with_map(map: MapDef<'_>) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    add_map(&mut object, map);
    object.write().expect("an object")
}

/// Adds a map, with its BTF, and returns its symbol.
fn add_map(object: &mut Object<'_>, map: MapDef<'_>) -> SymbolId {
    let bytes = definition_bytes(&map);
    let maps = object.add_section(Vec::new(), b".maps".to_vec(), SectionKind::Data);
    object.append_section_data(maps, &vec![0; bytes as usize], 8);
    let of_map = object.add_symbol(symbol(map.name.as_bytes(), SymbolKind::Data, maps, u64::from(bytes)));
    let btf = object.add_section(Vec::new(), b".BTF".to_vec(), SectionKind::Other);
    object.append_section_data(btf, &map_btf(map), 4);
    of_map
}

/// Adds the licence that most helpers ask for.
fn add_license(object: &mut Object<'_>) {
    let segment = object.segment_name(StandardSegment::Data).to_vec();
    let license = object.add_section(segment, b"license".to_vec(), SectionKind::Data);
    object.append_section_data(license, b"GPL\0", 1);
    object.add_symbol(symbol(b"_license", SymbolKind::Data, license, 4));
}

/// Returns the size of the map definition: a pointer for each member, of which four are always there.
fn definition_bytes(map: &MapDef<'_>) -> u32 {
    32 + 8 * map.members().count() as u32
}

/// Returns the BTF of `struct { int (*type)[ty]; int (*max_entries)[entries]; u32 *key; u32 (*value)[words];
/// } name` in `.maps`, with `int (*pinning)[1]` and `int (*map_extra)[extra]` before the end where it has them.
///
/// Source: `Documentation/bpf/btf.rst`.
fn map_btf(map: MapDef<'_>) -> Vec<u8> {
    let MapDef { ty, entries, value_words, .. } = map;
    let bytes = definition_bytes(&map);
    let strings = format!("\0u32\0type\0max_entries\0key\0value\0{}\0.maps\0pinning\0map_extra\0", map.name);
    let strings = strings.into_bytes();
    let name = |text: &str| {
        let at = strings.windows(text.len() + 2).position(|window| {
            window[0] == 0 && &window[1..=text.len()] == text.as_bytes() && window[text.len() + 1] == 0
        });
        at.expect("one of the names above") as u32 + 1
    };
    let info = |kind: u32, members: u32| kind << 24 | members;
    let (int, pointer, array, structure, variable, section) = (1, 2, 3, 4, 14, 15);
    let bits_of = |pointers: u32| pointers * 64;
    #[rustfmt::skip]
    let types = [
        name("u32"), info(int, 0), 4, 32,           // 1: u32
        0, info(array, 0), 0, 1, 1, ty,             // 2: u32[ty]
        0, info(pointer, 0), 2,                     // 3
        0, info(array, 0), 0, 1, 1, entries,        // 4: u32[entries]
        0, info(pointer, 0), 4,                     // 5
        0, info(pointer, 0), 1,                     // 6
        0, info(array, 0), 0, 1, 1, value_words,    // 7: u32[words]
        0, info(pointer, 0), 7,                     // 8
        0, info(structure, bytes / 8), bytes,       // 9
        name("type"), 3, bits_of(0),
        name("max_entries"), 5, bits_of(1),
        name("key"), 6, bits_of(2),
        name("value"), 8, bits_of(3),
    ];
    let members: Vec<(&str, u32)> = map.members().collect();
    let member = |(at, (text, _)): (u32, &(&str, u32))| [name(text), 13 + 2 * at, bits_of(4 + at)];
    let more = (0..).zip(&members).flat_map(member).collect();
    #[rustfmt::skip]
    let rest = [
        name(map.name), info(variable, 0), 9, 1,    // 10: global
        name(".maps"), info(section, 1), bytes, 10, 0, bytes, // 11
    ];
    // 12: u32[number], 13: a pointer to it; 14 and 15 those of the second member.
    let number = |(at, (_, number)): (u32, &(&str, u32))| {
        [0, info(array, 0), 0, 1, 1, *number, 0, info(pointer, 0), 12 + 2 * at]
    };
    let numbers = (0..).zip(&members).flat_map(number).collect();
    let types = [types.to_vec(), more, rest.to_vec(), numbers].concat();
    let types: Vec<u8> = types.iter().flat_map(|word| word.to_le_bytes()).collect();
    let mut btf = vec![0x9f, 0xeb, 1, 0];
    for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
        btf.extend_from_slice(&word.to_le_bytes());
    }
    [btf, types, strings].concat()
}

/// Encodes one instruction: opcode, source and destination registers, offset, immediate.
fn insn(code: u8, registers: u8, offset: i16, immediate: i32) -> [u8; 8] {
    let [o0, o1] = offset.to_le_bytes();
    let [i0, i1, i2, i3] = immediate.to_le_bytes();
    [code, registers, o0, o1, i0, i1, i2, i3]
}

/// Returns an object with this program. `counter_loads` are the offsets of the instructions, in bytes, that
/// load the address of the variable `counter`.
fn object(section: &str, code: &[u8], counter_loads: &[u64]) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::Bpf, Endianness::Little);
    let text = object.add_section(Vec::new(), section.as_bytes().to_vec(), SectionKind::Text);
    object.append_section_data(text, code, 8);
    object.add_symbol(symbol(b"count", SymbolKind::Text, text, code.len() as u64));
    add_license(&mut object);
    let bss = object.section_id(StandardSection::UninitializedData);
    object.append_section_bss(bss, 8, 8);
    let counter = object.add_symbol(symbol(b"counter", SymbolKind::Data, bss, 8));
    for offset in counter_loads.iter().copied() {
        let flags = RelocationFlags::Elf { r_type: R_BPF_64_64 };
        object
            .add_relocation(text, Relocation { offset, symbol: counter, addend: 0, flags })
            .expect("a relocation of BPF");
    }
    object.write().expect("an object")
}

fn symbol(name: &[u8], kind: SymbolKind, section: SectionId, size: u64) -> Symbol {
    Symbol {
        name: name.to_vec(),
        value: 0,
        size,
        kind,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(section),
        flags: SymbolFlags::None,
    }
}
