//! An object as a program of the BPF interpreter: its instructions as they are in the file, with relocations
//! applied. This is an implementation independent of the kernel's loader.

use std::collections::BTreeMap;

use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, elf};

use crate::oracles::stub;

/// An encoded instruction; a 64-bit constant takes two.
pub type InsnSlot = [u8; 8];

/// Number of instructions in the entry sequence before the object's code.
const ENTRY: usize = 6;
const PSEUDO_KFUNC_CALL: u8 = 2;
/// Kernel functions that objects call, mapped to helper numbers that no helper has.
pub const KFUNCS: [(&str, u32); 3] = [
    ("bpf_iter_num_new", 0x4000_0001),
    ("bpf_iter_num_next", 0x4000_0002),
    ("bpf_iter_num_destroy", 0x4000_0003),
];

/// The target of a relocation.
pub enum SymbolRef<'a> {
    /// A byte of a data section.
    Data {
        section: &'a str,
        offset: u64,
    },
    Map(&'a str),
}

/// The position of a variable in a data section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableLocation {
    pub section: String,
    pub offset: usize,
}

/// An object prepared for a run.
pub struct Image<'a> {
    file: object::File<'a>,
    program: String,
}

impl<'a> Image<'a> {
    /// Parses an object and finds its only program.
    pub fn new(elf: &'a [u8], program: &str) -> Image<'a> {
        let file = object::File::parse(elf).expect("an object is an ELF file");
        Image { file, program: program.into() }
    }

    /// Returns the data sections with their initial content.
    pub fn data(&self) -> BTreeMap<String, Vec<u8>> {
        let sections = self.file.sections().filter_map(|section| {
            let name = section.name().expect("sections have names");
            let is_data = [".data", ".bss", ".rodata"].iter().any(|kind| name.starts_with(kind));
            let mut content = section.data().expect("sections have content").to_vec();
            content.resize(section.size() as usize, 0);
            is_data.then(|| (name.to_owned(), content))
        });
        sections.collect()
    }

    /// Returns the position of a global variable, or none if the object has no such variable.
    pub fn location(&self, variable: &str) -> Option<VariableLocation> {
        let symbol = self.file.symbol_by_name(variable)?;
        let section =
            self.file.section_by_index(symbol.section_index()?).expect("a symbol's section is there");
        let section = section.name().expect("sections have names").to_owned();
        Some(VariableLocation { section, offset: symbol.address() as usize })
    }

    /// Returns all code, including an entry sequence that sets up this stack and this context for the
    /// program.
    pub fn code(&self, stack_end: u64, context: u64, address_of: &dyn Fn(SymbolRef<'_>) -> u64) -> Vec<u8> {
        let program = self.file.symbol_by_name(&self.program).expect("the program is a symbol");
        let section = self.file.section_by_index(program.section_index().expect("it has code"));
        let section = section.expect("a symbol's section is there");
        let mut code = vec![[0; 8]; ENTRY];
        let first = code.len();
        code.extend(slots(&section));
        let text = code.len();
        if let Some(section) = self.file.section_by_name(".text") {
            code.extend(slots(&section));
            self.relocate(&section, &mut code, text, text, address_of);
        }
        self.relocate(&section, &mut code, first, text, address_of);
        let start = first + (program.address() / 8) as usize;
        code[0..2].copy_from_slice(&stub::load_imm64(10, stack_end));
        code[2..4].copy_from_slice(&stub::load_imm64(1, context));
        code[4] = stub::insn(0x85, 0, 1, 0, (start - 5) as i32);
        code[5] = stub::insn(0x95, 0, 0, 0, 0);
        stub::replace_unknown(&mut code, ENTRY);
        code.concat()
    }

    /// Applies the relocations of a section; the section starts at `start`, functions at `text`.
    fn relocate(
        &self,
        section: &object::Section<'_, '_>,
        code: &mut [InsnSlot],
        start: usize,
        text: usize,
        address_of: &dyn Fn(SymbolRef<'_>) -> u64,
    ) {
        for (offset, relocation) in section.relocations() {
            let at = start + (offset / 8) as usize;
            let RelocationTarget::Symbol(symbol) = relocation.target() else { panic!("{relocation:?}") };
            let RelocationFlags::Elf { r_type } = relocation.flags() else { panic!("{relocation:?}") };
            let symbol = self.file.symbol_by_index(symbol).expect("the symbol exists");
            let name = symbol.name().expect("symbols have names");
            let addend = i64::from(stub::imm(&code[at]));
            let dst = code[at][1] & 15;
            let section = symbol.section_index().map(|index| {
                self.file.section_by_index(index).expect("sections exist").name().expect("they have names")
            });
            match (r_type, section) {
                (elf::R_BPF_64_32, None) => {
                    let (_, number) = KFUNCS.iter().find(|(kfunc, _)| *kfunc == name).expect(name);
                    code[at] = stub::insn(0x85, 0, 0, 0, *number as i32);
                }
                (elf::R_BPF_64_32, Some(".text")) => {
                    // Source: Documentation/bpf/llvm_reloc.rst: the symbol, the constant and one more.
                    let target = text as i64 + symbol.address() as i64 / 8 + addend + 1;
                    code[at] = stub::insn(0x85, 0, 1, 0, (target - at as i64 - 1) as i32);
                }
                (elf::R_BPF_64_64, Some(".maps")) => {
                    let address = address_of(SymbolRef::Map(name));
                    code[at..at + 2].copy_from_slice(&stub::load_imm64(dst, address));
                }
                (elf::R_BPF_64_64, Some(section)) if section.starts_with('.') && section != ".text" => {
                    let offset = symbol.address().wrapping_add(addend as u64);
                    let address = address_of(SymbolRef::Data { section, offset });
                    code[at..at + 2].copy_from_slice(&stub::load_imm64(dst, address));
                }
                other => panic!("{other:?} to {name}, which the test does not know"),
            }
        }
        let is_left = |slot: &InsnSlot| slot[0] == 0x85 && slot[1] >> 4 == PSEUDO_KFUNC_CALL;
        assert!(!code.iter().any(is_left), "a kernel function is called without its name");
    }
}

fn slots(section: &object::Section<'_, '_>) -> Vec<InsnSlot> {
    let (slots, rest) = section.data().expect("sections have content").as_chunks();
    assert!(rest.is_empty(), "code is made of instructions");
    slots.to_vec()
}
