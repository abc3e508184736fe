//! Hand-made ELF files in which each field can be made invalid.

/// A file that is serialised without checks.
#[derive(Clone)]
pub struct File {
    pub machine: u16,
    pub sections: Vec<Section>,
    pub symbols: Vec<Symbol>,
    pub types: Types,
    pub ext: Ext,
    /// Offsets and values that overwrite the finished bytes.
    pub patches: Vec<(usize, Vec<u8>)>,
    /// Overwrites of section headers: the section, the offset of a field of eight bytes, and its value.
    pub headers: Vec<(String, usize, u64)>,
}

#[derive(Clone)]
pub struct Section {
    pub name: String,
    pub ty: u32,
    pub flags: u64,
    pub bytes: Vec<u8>,
    /// Size of a section that has no bytes in the file.
    pub size: Option<u64>,
    pub align: u64,
    /// Offset, kind and symbol of each relocation.
    pub relocations: Vec<(u64, u32, u32)>,
}

#[derive(Clone)]
pub struct Symbol {
    pub name: &'static str,
    /// `st_info`: binding times 16, and kind.
    pub info: u8,
    pub other: u8,
    /// Name of its section; empty for none.
    pub section: &'static str,
    pub value: u64,
    pub size: u64,
}

/// Builder of `.BTF`.
#[derive(Clone, Default)]
pub struct Types {
    pub records: Vec<u8>,
    pub count: u32,
    pub strings: Vec<u8>,
    /// Start offset of each record.
    pub starts: Vec<u32>,
}

/// `.BTF.ext`: records of functions, lines and CO-RE for each section name.
#[derive(Clone, Default)]
pub struct Ext {
    pub functions: Vec<(u32, Vec<[u32; 2]>)>,
    pub lines: Vec<(u32, Vec<[u32; 4]>)>,
    pub core: Vec<(u32, Vec<[u32; 4]>)>,
}

/// Sections of symbols that no file has: SHN_ABS and SHN_COMMON.
pub const ABSOLUTE: &str = "absolute";
pub const COMMON: &str = "common";

pub const FUNCTION: u8 = 0x12;
pub const LOCAL_FUNCTION: u8 = 0x02;
pub const VARIABLE: u8 = 0x11;
pub const EXTERN: u8 = 0x10;
pub const WEAK_EXTERN: u8 = 0x20;
pub const SECTION: u8 = 0x03;

/// `R_BPF_64_64`, `R_BPF_64_ABS64`, `R_BPF_64_32`
pub const WIDE: u32 = 1;
pub const DATA64: u32 = 2;
pub const CALL: u32 = 10;

pub mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const FWD: u32 = 7;
    pub const TYPEDEF: u32 = 8;
    pub const CONST: u32 = 10;
    pub const FUNC: u32 = 12;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

impl Types {
    pub fn new() -> Types {
        let mut types = Types { strings: vec![0], ..Types::default() };
        types.int("int", 4);
        types
    }

    pub fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let offset = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        offset
    }

    /// Adds a record; bit 31 of the number of elements becomes its flag.
    pub fn add(&mut self, name: &str, kind: u32, len: u32, size_or_type: u32, tail: &[u32]) -> u32 {
        let name = self.string(name);
        self.starts.push(24 + self.records.len() as u32);
        for word in [name, kind << 24 | len, size_or_type].iter().chain(tail) {
            self.records.extend_from_slice(&word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    pub fn int(&mut self, name: &str, bytes: u32) -> u32 {
        self.add(name, kind::INT, 0, bytes, &[bytes * 8])
    }

    pub fn pointer(&mut self, to: u32) -> u32 {
        self.add("", kind::PTR, 0, to, &[])
    }

    pub fn array(&mut self, element: u32, len: u32) -> u32 {
        self.add("", kind::ARRAY, 0, 0, &[element, 1, len])
    }

    /// Adds a struct; members are name, type, offset in bits.
    pub fn structure(&mut self, name: &str, bytes: u32, members: &[(&str, u32, u32)]) -> u32 {
        let tail: Vec<u32> =
            members.iter().flat_map(|(name, ty, at)| [self.string(name), *ty, *at]).collect();
        self.add(name, kind::STRUCT, members.len() as u32, bytes, &tail)
    }

    /// Adds a number of a map definition, `int (*)[NUMBER]`.
    pub fn number(&mut self, number: u32) -> u32 {
        let array = self.array(1, number);
        self.pointer(array)
    }

    /// Adds a variable: linkage 0 is static, 1 global, 2 extern.
    pub fn var(&mut self, name: &str, ty: u32, linkage: u32) -> u32 {
        self.add(name, kind::VAR, 0, ty, &[linkage])
    }

    pub fn section(&mut self, name: &str, entries: &[[u32; 3]]) -> u32 {
        self.add(name, kind::DATASEC, entries.len() as u32, 0, entries.as_flattened())
    }

    /// Adds a map of numbers and types to `.maps`.
    pub fn map(&mut self, name: &str, numbers: &[(&str, u32)], types: &[(&str, u32)]) -> u32 {
        let numbers: Vec<_> = numbers.iter().map(|(name, number)| (*name, self.number(*number))).collect();
        let types: Vec<_> = types.iter().map(|(name, ty)| (*name, self.pointer(*ty))).collect();
        let members: Vec<_> =
            (0..).zip(numbers.into_iter().chain(types)).map(|(at, (name, ty))| (name, ty, at * 64)).collect();
        let ty = self.structure("", members.len() as u32 * 8, &members);
        self.var(name, ty, 1)
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut out = vec![0x9f, 0xeb, 1, 0];
        let types = self.records.len() as u32;
        for word in [24, 0, types, types, self.strings.len() as u32] {
            out.extend_from_slice(&u32::to_le_bytes(word));
        }
        [out, self.records.clone(), self.strings.clone()].concat()
    }
}

impl Ext {
    pub fn bytes(&self) -> Vec<u8> {
        fn table<const N: usize>(list: &[(u32, Vec<[u32; N]>)]) -> Vec<u32> {
            let records = list.iter().flat_map(|(name, records)| {
                let head = [*name, records.len() as u32];
                head.into_iter().chain(records.iter().flatten().copied()).collect::<Vec<_>>()
            });
            if list.is_empty() { Vec::new() } else { std::iter::once(N as u32 * 4).chain(records).collect() }
        }
        let tables = [table(&self.functions), table(&self.lines), table(&self.core)];
        let mut words = vec![0x0001_eb9f, 32];
        let mut offset = 0;
        for table in &tables {
            words.extend([offset, table.len() as u32 * 4]);
            offset += table.len() as u32 * 4;
        }
        words.extend(tables.concat());
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// `OPCODE dst, src, offset, immediate`
pub fn slot(opcode: u8, dst: u8, src: u8, offset: i16, immediate: i32) -> [u8; 8] {
    let [a, b] = offset.to_le_bytes();
    let [c, d, e, f] = immediate.to_le_bytes();
    [opcode, src << 4 | dst, a, b, c, d, e, f]
}

/// `r0 = NUMBER; exit`
pub fn returns(number: i32) -> Vec<[u8; 8]> {
    vec![slot(0xb7, 0, 0, 0, number), slot(0x95, 0, 0, 0, 0)]
}

/// Returns an unrelocated wide load.
pub fn wide(dst: u8, immediate: i32) -> Vec<[u8; 8]> {
    vec![slot(0x18, dst, 0, 0, immediate), slot(0, 0, 0, 0, 0)]
}

/// Returns a call of a function or of a kernel symbol.
pub fn call(immediate: i32) -> Vec<[u8; 8]> {
    vec![slot(0x85, 0, 1, 0, immediate)]
}

/// Returns a call of a helper.
pub fn helper(number: i32) -> Vec<[u8; 8]> {
    vec![slot(0x85, 0, 0, 0, number)]
}

impl File {
    /// Creates a file with a program `watch` in `xdp` that returns 2, with the licence GPL.
    pub fn new() -> File {
        let mut file = File {
            machine: 247,
            sections: Vec::new(),
            symbols: Vec::new(),
            types: Types::new(),
            ext: Ext::default(),
            patches: Vec::new(),
            headers: Vec::new(),
        };
        file.code("xdp", "watch", &[returns(2)]);
        file.section("license", 1, 3, b"GPL\0");
        file
    }

    /// Creates a file whose program starts with this code.
    pub fn with_code(code: &[Vec<[u8; 8]>]) -> File {
        let mut file = File::new();
        file.find("xdp").bytes = [code.concat(), returns(2)].concat().as_flattened().to_vec();
        file.symbols[0].size = file.find("xdp").bytes.len() as u64;
        file
    }

    pub fn section(&mut self, name: &str, ty: u32, flags: u64, bytes: &[u8]) -> &mut Section {
        let (bytes, relocations) = (bytes.to_vec(), Vec::new());
        self.sections.push(Section {
            name: name.into(),
            ty,
            flags,
            bytes,
            size: None,
            align: 8,
            relocations,
        });
        self.sections.last_mut().expect("just added")
    }

    /// Appends a global function to a code section.
    pub fn code(&mut self, section: &'static str, name: &'static str, code: &[Vec<[u8; 8]>]) {
        let code = code.concat();
        if !self.sections.iter().any(|one| one.name == section) {
            self.section(section, 1, 6, &[]);
        }
        let found = self.find(section);
        let value = found.bytes.len() as u64;
        found.bytes.extend_from_slice(code.as_flattened());
        let size = code.as_flattened().len() as u64;
        self.symbols.push(Symbol { name, info: FUNCTION, other: 0, section, value, size });
    }

    pub fn symbol(
        &mut self,
        name: &'static str,
        info: u8,
        section: &'static str,
        value: u64,
        size: u64,
    ) -> u32 {
        self.symbols.push(Symbol { name, info, other: 0, section, value, size });
        self.symbols.len() as u32
    }

    /// Returns the number of an existing symbol.
    pub fn symbol_of(&self, name: &str) -> u32 {
        1 + self.symbols.iter().position(|one| one.name == name).expect("the symbol is there") as u32
    }

    pub fn find(&mut self, name: &str) -> &mut Section {
        self.sections.iter_mut().find(|one| one.name == name).expect("the section is there")
    }

    pub fn relocate(&mut self, section: &str, offset: u64, kind: u32, symbol: u32) {
        self.find(section).relocations.push((offset, kind, symbol));
    }

    /// Adds a hash `counts` with keys and values of four bytes; returns its symbol.
    pub fn add_map(&mut self) -> u32 {
        let numbers = [("type", 1), ("max_entries", 16)];
        let var = self.types.map("counts", &numbers, &[("key", 1), ("value", 1)]);
        self.types.section(".maps", &[[var, 0, 32]]);
        self.section(".maps", 1, 3, &[0; 32]);
        self.symbol("counts", VARIABLE, ".maps", 0, 32)
    }

    /// Adds an extern to `.kconfig` or `.ksyms`; returns its symbol.
    pub fn add_extern(&mut self, section: &str, name: &'static str, ty: u32, info: u8) -> u32 {
        let var = self.types.var(name, ty, 2);
        self.types.section(section, &[[var, 0, 0]]);
        self.symbol(name, info, "", 0, 0)
    }

    /// Serialises the file: header, sections, `.symtab`, `.strtab`, then the section header table.
    pub fn bytes(&self) -> Vec<u8> {
        let mut sections = self.sections.clone();
        let plain = |name: &str, ty, bytes: Vec<u8>| Section {
            name: name.into(),
            ty,
            flags: 0,
            bytes,
            size: None,
            align: 1,
            relocations: Vec::new(),
        };
        let has_ext =
            !(self.ext.functions.is_empty() && self.ext.lines.is_empty() && self.ext.core.is_empty());
        if self.types.count > 1 || has_ext {
            sections.push(plain(".BTF", 1, self.types.bytes()));
        }
        if has_ext {
            sections.push(plain(".BTF.ext", 1, self.ext.bytes()));
        }
        let number =
            |name: &str| 1 + sections.iter().position(|one| one.name == name).expect("a section") as u16;
        let mut strings = vec![0];
        let mut symbols = vec![0; 24];
        for one in &self.symbols {
            symbols.extend_from_slice(&(strings.len() as u32).to_le_bytes());
            strings.extend_from_slice(one.name.as_bytes());
            strings.push(0);
            let section = match one.section {
                "" => 0,
                ABSOLUTE => 0xfff1,
                COMMON => 0xfff2,
                name => number(name),
            };
            symbols.extend_from_slice(&[one.info, one.other]);
            symbols.extend_from_slice(&section.to_le_bytes());
            symbols.extend_from_slice(&one.value.to_le_bytes());
            symbols.extend_from_slice(&one.size.to_le_bytes());
        }
        let relocated: Vec<_> = (1..).zip(&sections).filter(|(_, one)| !one.relocations.is_empty()).collect();
        let tables: Vec<_> = relocated
            .iter()
            .map(|(at, one)| {
                let entry = |(offset, kind, symbol): &(u64, u32, u32)| {
                    [offset.to_le_bytes(), (u64::from(*symbol) << 32 | u64::from(*kind)).to_le_bytes()]
                        .concat()
                };
                let bytes = one.relocations.iter().flat_map(entry).collect();
                (plain(&format!(".rel{}", one.name), 9, bytes), *at as u32)
            })
            .collect();
        let symbol_table = (sections.len() + tables.len() + 1) as u32;
        let mut all: Vec<(Section, u32, u32)> = sections.into_iter().map(|one| (one, 0, 0)).collect();
        all.extend(tables.into_iter().map(|(one, of)| (one, symbol_table, of)));
        all.push((plain(".symtab", 2, symbols), symbol_table + 1, 1));
        all.push((plain(".strtab", 3, strings), 0, 0));
        self.lay_out(&all)
    }

    fn lay_out(&self, sections: &[(Section, u32, u32)]) -> Vec<u8> {
        let mut names = vec![0];
        let mut offsets = Vec::new();
        let mut out = vec![0; 64];
        let mut headers: Vec<u8> = vec![0; 64];
        for (section, _, _) in sections {
            offsets.push(names.len() as u32);
            names.extend_from_slice(section.name.as_bytes());
            names.push(0);
        }
        let name_offset = names.len() as u32;
        names.extend_from_slice(b".shstrtab\0");
        let name_section = Section {
            name: ".shstrtab".into(),
            ty: 3,
            flags: 0,
            bytes: names,
            size: None,
            align: 1,
            relocations: Vec::new(),
        };
        let all = sections.iter().map(|(section, link, info)| (section, *link, *info));
        let all: Vec<_> = all.chain([(&name_section, 0, 0)]).collect();
        for ((section, link, info), name) in all.iter().zip(offsets.iter().copied().chain([name_offset])) {
            out.resize(out.len().next_multiple_of(section.align.max(1) as usize), 0);
            let entry: u64 = match section.ty {
                2 => 24,
                9 => 16,
                _ => 0,
            };
            let mut header = Vec::new();
            header.extend_from_slice(&name.to_le_bytes());
            header.extend_from_slice(&section.ty.to_le_bytes());
            let size = section.size.unwrap_or(section.bytes.len() as u64);
            for field in [section.flags, 0, out.len() as u64, size, u64::from(*info) << 32 | u64::from(*link)]
            {
                header.extend_from_slice(&field.to_le_bytes());
            }
            header.extend_from_slice(&section.align.to_le_bytes());
            header.extend_from_slice(&entry.to_le_bytes());
            for (_, at, value) in self.headers.iter().filter(|(name, _, _)| *name == section.name) {
                header[*at..*at + 8].copy_from_slice(&value.to_le_bytes());
            }
            headers.extend_from_slice(&header);
            out.extend_from_slice(&section.bytes);
        }
        out.resize(out.len().next_multiple_of(8), 0);
        let table = out.len() as u64;
        out.extend_from_slice(&headers);
        let count = all.len() as u16 + 1;
        out[..16].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        out[16..20].copy_from_slice(&[1, 0, self.machine as u8, (self.machine >> 8) as u8]);
        out[20] = 1;
        out[40..48].copy_from_slice(&table.to_le_bytes());
        out[52] = 64;
        out[58] = 64;
        out[60..62].copy_from_slice(&count.to_le_bytes());
        out[62..64].copy_from_slice(&(count - 1).to_le_bytes());
        for (at, bytes) in &self.patches {
            out[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        out
    }
}
