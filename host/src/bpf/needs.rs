//! What an object asks the kernel for: program types, helpers and kernel functions by program, kinds of maps. Nothing is
//! loaded.

use std::collections::{BTreeMap, BTreeSet};

use ks_wit::section::BpfRecord;
use libbpf_rs::{MapType, ObjectBuilder};
use object::read::elf::ElfFile64;
use object::{
    LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, RelocationTarget, SymbolIndex,
    SymbolKind,
};

use super::contents::programs;
use super::{print, sys};

/// Bytes of an instruction. Source: Documentation/bpf/standardization/instruction-set.rst, v6.12.
const INSN_BYTES: usize = 8;
/// The operation code of a call.
const CALL: u8 = 0x85;
/// The operation code of a load of 64 bits, of which the second half is an instruction of its own.
const LOAD_64: u8 = 0x18;
/// In the place of a source register: the call is of a function of the object.
const PSEUDO_CALL: u8 = 1;

/// What an object asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Its programs, in the order of its symbols.
    pub programs: Vec<ProgramNeeds>,
    /// Its maps but those of its variables and of the structs that it registers.
    pub maps: Vec<MapNeeds>,
}

/// What a program and the functions that it calls ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramNeeds {
    /// Its symbol.
    pub name: String,
    /// Its section, which tells its type and often its target.
    pub section: String,
    /// The helpers by number (`enum bpf_func_id`).
    pub helpers: BTreeSet<u32>,
    /// The functions of the kernel by name, and whether the object can do without (it refers to them weakly).
    pub kfuncs: BTreeMap<String, bool>,
}

/// A map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapNeeds {
    /// Its name.
    pub name: String,
    /// Its kind, a number of `enum bpf_map_type`.
    pub kind: u32,
}

impl Needs {
    /// Of an object; what cannot be read of it is left out, and its load will say why.
    pub fn of(record: &BpfRecord) -> Needs {
        let Ok(elf) = ElfFile64::<LittleEndian>::parse(&*record.elf) else { return Needs::default() };
        let code = Code::of(&elf);
        let needs = |contents: super::ProgramContents| {
            let start = code.functions.iter().find(|one| one.name == contents.name && one.is_global);
            let (helpers, kfuncs) = start.map(|start| code.calls(start)).unwrap_or_default();
            ProgramNeeds { name: contents.name, section: contents.section, helpers, kfuncs }
        };
        Needs { programs: programs(record).into_iter().map(needs).collect(), maps: maps(record) }
    }
}

fn maps(record: &BpfRecord) -> Vec<MapNeeds> {
    let (open, _) = print::collect(|| {
        ObjectBuilder::default().name(&record.name).and_then(|builder| builder.open_memory(&record.elf)).ok()
    });
    let Some(open) = open else { return Vec::new() };
    let maps = open.maps().map(|map| (map.name().to_string_lossy().into_owned(), sys::map_type(&map)));
    // libbpf makes maps of sections; a map of a script has no dot in its name. Structs of the kernel are what their
    // methods are attached to.
    let maps = maps.filter(|(name, kind)| !name.contains('.') && *kind != u32::from(MapType::StructOps));
    maps.map(|(name, kind)| MapNeeds { name, kind }).collect()
}

/// A function of the object: so many bytes of a section.
struct Function {
    name: String,
    is_global: bool,
    /// By its number in the file.
    section: usize,
    start: u64,
    end: u64,
}

/// The instructions of an object, and what they refer to.
struct Code<'a> {
    functions: Vec<Function>,
    sections: BTreeMap<usize, &'a [u8]>,
    /// By section and offset there.
    references: BTreeMap<(usize, u64), SymbolIndex>,
    elf: &'a ElfFile64<'a, LittleEndian>,
}

impl<'a> Code<'a> {
    fn of(elf: &'a ElfFile64<'a, LittleEndian>) -> Code<'a> {
        let functions =
            elf.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text).filter_map(|symbol| {
                let (start, bytes) = (symbol.address(), symbol.size());
                Some(Function {
                    name: symbol.name().ok()?.to_owned(),
                    is_global: symbol.is_global(),
                    section: symbol.section_index()?.0,
                    start,
                    end: start.checked_add(bytes)?,
                })
            });
        let mut references = BTreeMap::new();
        for section in elf.sections() {
            for (offset, relocation) in section.relocations() {
                if let RelocationTarget::Symbol(symbol) = relocation.target() {
                    references.insert((section.index().0, offset), symbol);
                }
            }
        }
        let sections = elf.sections().filter_map(|section| Some((section.index().0, section.data().ok()?)));
        Code { functions: functions.collect(), sections: sections.collect(), references, elf }
    }

    /// The helpers and kernel functions that a function calls, itself or through others of the object.
    fn calls(&self, start: &Function) -> (BTreeSet<u32>, BTreeMap<String, bool>) {
        let (mut helpers, mut kfuncs) = (BTreeSet::new(), BTreeMap::new());
        let mut seen = BTreeSet::new();
        let mut open = vec![start];
        while let Some(function) = open.pop() {
            if !seen.insert((function.section, function.start)) {
                continue;
            }
            for (offset, insn) in self.instructions(function) {
                match self.call(function.section, offset, insn) {
                    Some(Call::Helper(number)) => drop(helpers.insert(number)),
                    Some(Call::Kernel(name, is_weak)) => drop(kfuncs.insert(name, is_weak)),
                    Some(Call::At(section, place)) => {
                        let here = |one: &&Function| one.section == section && one.start == place;
                        open.extend(self.functions.iter().find(here));
                    }
                    None => {}
                }
            }
        }
        (helpers, kfuncs)
    }

    fn instructions(&self, function: &Function) -> impl Iterator<Item = (u64, &'a [u8])> + use<'a> {
        let bytes = self.sections.get(&function.section).copied().unwrap_or_default();
        let end = usize::try_from(function.end).unwrap_or(usize::MAX).min(bytes.len());
        let start = usize::try_from(function.start).unwrap_or(usize::MAX).min(end);
        let base = start as u64;
        let insns = bytes[start..end].chunks_exact(INSN_BYTES).enumerate();
        insns.map(move |(index, insn)| (base + (index * INSN_BYTES) as u64, insn))
    }

    /// What an instruction calls, or takes the address of.
    fn call(&self, section: usize, offset: u64, insn: &[u8]) -> Option<Call> {
        let (code, source) = (insn[0], insn[1] >> 4);
        let immediate = i32::from_le_bytes(insn[4..8].try_into().ok()?);
        if code != CALL && code != LOAD_64 {
            return None;
        }
        if let Some(symbol) = self.references.get(&(section, offset)) {
            let symbol = self.elf.symbol_by_index(*symbol).ok()?;
            let Some(target) = symbol.section_index() else {
                let is_call = code == CALL;
                return is_call
                    .then(|| Some(Call::Kernel(symbol.name().ok()?.to_owned(), symbol.is_weak())))?;
            };
            let within = match (symbol.kind(), code) {
                (SymbolKind::Text, _) => 0,
                // Of a section: instructions behind the one after a call, bytes elsewhere.
                (SymbolKind::Section, CALL) => i64::from(immediate).checked_add(1)?.checked_mul(8)?,
                (SymbolKind::Section, _) => i64::from(immediate),
                _ => return None,
            };
            return Some(Call::At(target.0, symbol.address().checked_add_signed(within)?));
        }
        match (code, source) {
            (CALL, 0) => u32::try_from(immediate).ok().map(Call::Helper),
            (CALL, PSEUDO_CALL) => {
                let behind = i64::from(immediate).checked_add(1)?.checked_mul(INSN_BYTES as i64)?;
                Some(Call::At(section, offset.checked_add_signed(behind)?))
            }
            _ => None,
        }
    }
}

/// What is called.
enum Call {
    Helper(u32),
    /// A function of the kernel, and whether the reference is weak.
    Kernel(String, bool),
    /// A function of the object, by its section and its place there.
    At(usize, u64),
}
