//! Which functions of the kernel the instructions of an object call, and that they name nothing of it by a number: a
//! strict reader of its code.
//!
//! In: the ELF object. Out: every helper by number, and every symbol that the object wants from the kernel. All code is
//! read, also that which no program seems to reach. What is read here is what libbpf will hand to the kernel, so every
//! form in which a call could be written that this reader does not know is refused.

use std::collections::{BTreeMap, BTreeSet};

use ks_wit::section::BpfRecord;
use object::elf;
use object::read::elf::{ElfFile64, SectionHeader as _};
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SectionFlags,
    SectionIndex,
};

use super::error::BpfError;

/// What the code of an object calls in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    /// Helpers by their numbers in `enum bpf_func_id`, each with a function or section that calls it.
    pub helpers: BTreeMap<u32, String>,
    /// Functions and variables of the kernel, by name.
    pub kernel_symbols: BTreeSet<String>,
}

/// Types of sections that objects have. Relocations with addends are none: libbpf passes over them.
const SECTION_TYPES: [u32; 7] = [
    elf::SHT_NULL,
    elf::SHT_PROGBITS,
    elf::SHT_SYMTAB,
    elf::SHT_STRTAB,
    elf::SHT_NOBITS,
    elf::SHT_REL,
    SHT_LLVM_ADDRSIG,
];

/// What clang leaves for linkers. Source: llvm/BinaryFormat/ELF.h, LLVM 19.
const SHT_LLVM_ADDRSIG: u32 = 0x6fff_4c03;

/// Bytes of an instruction.
const INSN: usize = 8;

/// `BPF_LD | BPF_IMM | BPF_DW`: takes two slots.
const LOAD_WIDE: u8 = 0x18;
/// `BPF_JMP | BPF_CALL`.
const CALL: u8 = 0x85;
/// Calls in the other class of jumps, and those of an address in a register: no kernel takes them from a program.
const NO_CALLS: [u8; 3] = [0x86, 0x8d, 0x8e];
/// `src_reg` of a call of a function of the object.
const PSEUDO_CALL: u8 = 1;
/// `src_reg` of a wide load of the address of a function of the object.
const PSEUDO_FUNC: u8 = 4;

/// Reads all code of an object. Source: bpf(2); Documentation/bpf/standardization/instruction-set.rst, v6.12; libbpf
/// 1.7, `bpf_object__elf_collect`.
///
/// # Errors
/// [`BpfError::Unsound`].
pub fn calls(record: &BpfRecord) -> Result<Calls, BpfError> {
    let file = super::object::parse(&record.elf)?;
    let mut found = Calls::default();
    check_sections(&file)?;
    // Whatever the object wants from the kernel by name: functions it calls and variables it takes the address of.
    for symbol in file.symbols().filter(|symbol| symbol.is_undefined()) {
        let name = symbol.name().map_err(|_| unsound("a symbol has a name that is no text"))?;
        if !name.is_empty() && !is_configuration(name) {
            found.kernel_symbols.insert(name.to_owned());
        }
    }
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
        if sh_flags & u64::from(elf::SHF_EXECINSTR) != 0 {
            read_code(&file, &section, &mut found)?;
        }
    }
    Ok(found)
}

fn check_sections(file: &ElfFile64<'_, LittleEndian>) -> Result<(), BpfError> {
    let headers = || file.elf_section_table().iter();
    let symbols: Vec<usize> = headers()
        .enumerate()
        .filter(|(_, header)| header.sh_type(LittleEndian) == elf::SHT_SYMTAB)
        .map(|(index, _)| index)
        .collect();
    if symbols.len() > 1 {
        return Err(unsound("it has several tables of symbols"));
    }
    for header in headers() {
        let ty = header.sh_type(LittleEndian);
        if !SECTION_TYPES.contains(&ty) {
            return Err(unsound(&format!("it has a section of type {ty:#x}, which no BPF object has")));
        }
        // libbpf does not look which table they name; this reader does.
        if ty == elf::SHT_REL && symbols != [header.sh_link(LittleEndian) as usize] {
            return Err(unsound("it has relocations by another table of symbols"));
        }
    }
    Ok(())
}

/// What libbpf answers itself: the kernel's version and configuration.
fn is_configuration(name: &str) -> bool {
    name.starts_with("CONFIG_") || name.starts_with("LINUX_")
}

type Section<'data, 'file> = object::read::elf::ElfSection64<'data, 'file, LittleEndian>;

fn read_code(
    file: &ElfFile64<'_, LittleEndian>,
    section: &Section<'_, '_>,
    found: &mut Calls,
) -> Result<(), BpfError> {
    let name = section.name().map_err(|_| unsound("a section has a name that is no text"))?;
    let code = section.data().map_err(|_| unsound("a section of code lies outside the file"))?;
    let (instructions, rest) = code.as_chunks::<INSN>();
    if !rest.is_empty() {
        return Err(unsound(&format!("`{name}` is not made of whole instructions")));
    }
    let relocated: BTreeMap<u64, RelocationTarget> =
        section.relocations().map(|(offset, relocation)| (offset, relocation.target())).collect();
    let mut at = instructions.iter().enumerate();
    while let Some((index, instruction)) = at.next() {
        let [opcode, registers, _, _, immediate @ ..] = *instruction;
        let place = (index * INSN) as u64;
        match (opcode, registers >> 4) {
            (LOAD_WIDE, _) if at.next().is_none_or(|(_, second)| second[0] != 0) => {
                return Err(unsound(&format!("a wide load of `{name}` has no second half")));
            }
            // libbpf leaves numbers of descriptors alone, and those of this process may be another plugin's maps.
            (LOAD_WIDE, source) if source != 0 && source != PSEUDO_FUNC => {
                return Err(unsound(&format!(
                    "`{name}` names a map or a variable of the kernel by a number"
                )));
            }
            // Of the object, or of the kernel by a name that was collected above.
            (CALL, PSEUDO_CALL) => check_callee(file, relocated.get(&place), name)?,
            (CALL, 0) if relocated.contains_key(&place) => {
                return Err(unsound(&format!("`{name}` calls a helper that has a relocation")));
            }
            (CALL, 0) => {
                let function = || function_at(file, section.index(), place, name);
                found.helpers.entry(u32::from_le_bytes(immediate)).or_insert_with(function);
            }
            (CALL, _) => {
                return Err(unsound(&format!("`{name}` calls a function of the kernel by a number")));
            }
            (opcode, _) if NO_CALLS.contains(&opcode) => {
                return Err(unsound(&format!("`{name}` has a call of a form that no kernel takes")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// What libbpf answers itself is no function: it would take the answer for the number of one.
fn check_callee(
    file: &ElfFile64<'_, LittleEndian>,
    target: Option<&RelocationTarget>,
    name: &str,
) -> Result<(), BpfError> {
    let Some(RelocationTarget::Symbol(index)) = target else { return Ok(()) };
    let symbol = file.symbol_by_index(*index).map_err(|_| unsound("a relocation names no symbol"))?;
    if symbol.is_undefined() && symbol.name().is_ok_and(is_configuration) {
        return Err(unsound(&format!("`{name}` calls what is no function")));
    }
    Ok(())
}

/// The function around an instruction, or its section.
fn function_at(file: &ElfFile64<'_, LittleEndian>, section: SectionIndex, place: u64, name: &str) -> String {
    let within = |symbol: &object::read::elf::ElfSymbol64<'_, '_, LittleEndian>| {
        let end = symbol.address().saturating_add(symbol.size());
        symbol.section_index() == Some(section) && (symbol.address()..end).contains(&place)
    };
    let symbol = file.symbols().find(within);
    symbol.and_then(|symbol| symbol.name().ok()).filter(|name| !name.is_empty()).unwrap_or(name).to_owned()
}

fn unsound(reason: &str) -> BpfError {
    BpfError::Unsound(reason.into())
}
