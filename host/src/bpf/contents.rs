//! What an object contains, without loading it.

use ks_wit::section::BpfRecord;
use object::read::elf::ElfFile64;
use object::{LittleEndian, Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

/// A program of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramContents {
    /// Its symbol.
    pub name: String,
    /// Its section, which tells its type and often its target: `tracepoint/sched/sched_switch`.
    pub section: String,
    /// Its instructions, of 8 bytes each, without those of functions that it calls.
    pub instructions: u64,
}

/// The programs of an object, in the order of its symbols; none if it is no ELF object.
pub fn programs(record: &BpfRecord) -> Vec<ProgramContents> {
    let Ok(elf) = ElfFile64::<LittleEndian>::parse(&*record.elf) else { return Vec::new() };
    let program = |symbol: object::read::elf::ElfSymbol64<'_, '_, LittleEndian>| {
        let section = elf.section_by_index(symbol.section_index()?).ok()?.name().ok()?.to_owned();
        // Functions of `.text` are called by programs and are none.
        let is_program = symbol.kind() == SymbolKind::Text && symbol.is_global() && section != ".text";
        let name = symbol.name().ok()?.to_owned();
        is_program.then(|| ProgramContents { name, section, instructions: symbol.size() / 8 })
    };
    elf.symbols().filter_map(program).collect()
}
