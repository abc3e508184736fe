//! The strict reader.
//!
//! ```text
//! bytes -> elf (sections, symbols, relocations)
//!     |-> functions -> ext (lines, CO-RE) -\
//!     \-> btf (types) ----------------------> maps, data, struct_ops, externs -> code -> Object
//! ```
//!
//! Each step takes the checked output of the previous one. Content that a loader does not read is dropped:
//! debug information, labels, functions that nothing calls, types that nothing uses, the names of map
//! definitions.

mod btf;
mod bytes;
mod code;
mod core;
mod data;
mod elf;
mod ext;
mod externs;
mod functions;
mod maps;
mod struct_ops;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::error::{ReadError, Reason, at_most};
use super::limits::{MAX_LICENSE_BYTES, MAX_PRINT_TABLE_BYTES};
use super::model::{
    Body, DataSection, Linkage, Map, Object, Program, ProgramId, StructOps, Subprogram, SubprogramId,
};
use super::name::Name;
use super::table::ProgramType;
use btf::select::Selection;
use btf::{RawType, RawTypes};
use code::{ResolvedCode, SymbolResolver};
use elf::{Binding, Elf, Role};
use externs::Externs;
use functions::Functions;

use crate::object::btf::FuncLinkage;

/// Reads a BPF object.
///
/// Time and memory are linear in the file size. It never panics, and never allocates a size that the file
/// merely claims.
///
/// # Errors
/// [`ReadError`]: the section, the offset and the reason. The file is hostile or from an unknown tool.
pub fn read(file: &[u8]) -> Result<Object, ReadError> {
    let elf = Elf::parse(file)?;
    let mut types = elf.find(&Role::Types).map(RawTypes::read).transpose()?;
    let mut functions = Functions::find(&elf)?;
    if let Some(types) = &mut types {
        ext::read(&elf, types, &mut functions)?;
        data::check_sections(&elf, types)?;
        data::check_relocations(&elf, types)?;
    }
    Parts { elf: &elf, types: types.as_ref(), functions: &functions }.object()
}

/// Parsed parts of the file.
struct Parts<'p, 'a> {
    elf: &'p Elf<'a>,
    types: Option<&'p RawTypes<'a>>,
    functions: &'p Functions<'a>,
}

impl Parts<'_, '_> {
    /// Builds the object. Parts request types in the order of the model, see [`Selection`].
    fn object(&self) -> Result<Object, ReadError> {
        let programs = Programs::of(self.elf, self.functions);
        let mut selection = Selection::new(self.types);
        let program = |section, offset| programs.id(self.functions.starting_at(section, offset)?);
        let maps = maps::read(self.elf, self.types, &mut selection, &program)?;
        let data = data::read(self.elf, self.types, &mut selection)?;
        let method = |section, offset| programs.method(self.functions.starting_at(section, offset)?);
        let struct_ops = struct_ops::read(self.elf, self.types, &mut selection, &method)?;
        let externs = externs::read(self.elf, self.types)?;
        let ksyms = Externs::select(&externs.ksyms, &mut selection);

        let names = SymbolResolver {
            elf: self.elf,
            functions: self.functions,
            map: &|section, offset| maps.at(section, offset),
            data: &|section| data.by_section.get(&section).copied(),
            external: &|symbol| externs.by_symbol.get(&symbol).copied(),
        };
        let mut codes = Vec::with_capacity(self.functions.list.len());
        for function in &self.functions.list {
            codes.push(Some(names.resolve(function, self.types)?));
        }
        let called = called(&programs, &codes);
        let (programs, subprograms) = self.bodies(&programs, &called, codes, &mut selection);

        check_names(&maps.list, &data.list, &struct_ops)?;
        Ok(Object {
            license: self.license()?,
            maps: maps.list,
            data: data.list,
            struct_ops,
            kconfig: externs.kconfig,
            ksyms,
            programs,
            subprograms,
            types: selection.finish(),
            print_table: self.print_table()?,
        })
    }

    fn bodies(
        &self,
        programs: &Programs,
        called: &BTreeMap<usize, SubprogramId>,
        mut codes: Vec<Option<ResolvedCode>>,
        selection: &mut Selection<'_, '_>,
    ) -> (Vec<Program>, Vec<Subprogram>) {
        let number = |id: SubprogramId| called.get(&id.index()).copied().unwrap_or(SubprogramId(u32::MAX));
        let mut body = |at: usize| -> Option<(Name, Body)> {
            let function = self.functions.list.get(at)?;
            let code = codes.get_mut(at)?.take()?;
            Some((function.name.clone(), code.into_body(function.func, &number, self.types, selection)))
        };
        let program = |(at, section): &(usize, super::model::Section)| {
            let (name, body) = body(*at)?;
            Some(Program { name, section: section.clone(), body })
        };
        let found: Vec<_> = programs.list.iter().filter_map(program).collect();
        let subprogram = |at: &usize| {
            let (name, body) = body(*at)?;
            Some(Subprogram { name, linkage: self.linkage(*at), body })
        };
        let subprograms = called.keys().filter_map(subprogram).collect();
        (found, subprograms)
    }

    /// Returns the linkage of a function of `.text`: that of its type, but hidden functions are static
    /// (tools/lib/bpf/libbpf.c, `bpf_object__sanitize_and_load_btf`, v1.7), and so are those without a type.
    fn linkage(&self, at: usize) -> Linkage {
        let Some(function) = self.functions.list.get(at) else { return Linkage::Static };
        let declared = function.func.zip(self.types).and_then(|(func, types)| types.get(func));
        let is_global = matches!(declared, Some(RawType::Func { linkage: FuncLinkage::Global, .. }));
        let is_visible = function.binding != Binding::Local && !function.is_hidden;
        if is_global && is_visible { Linkage::Global } else { Linkage::Static }
    }

    fn license(&self) -> Result<Option<String>, ReadError> {
        let Some(section) = self.elf.find(&Role::License) else { return Ok(None) };
        let error = || ReadError::section(section.name, 0, Reason::License);
        let text = section.bytes.split(|&byte| byte == 0).next().unwrap_or_default();
        let rest = section.bytes.get(text.len()..).unwrap_or_default();
        let is_text = text.iter().all(|&byte| matches!(byte, b' '..=b'~'));
        let is_ended = !rest.is_empty() && rest.iter().all(|&byte| byte == 0);
        if !is_text || text.is_empty() || !is_ended || text.len() >= MAX_LICENSE_BYTES {
            return Err(error());
        }
        String::from_utf8(text.to_vec()).map(Some).map_err(|_| error())
    }

    fn print_table(&self) -> Result<Option<Vec<u8>>, ReadError> {
        let Some(section) = self.elf.find(&Role::PrintTable) else { return Ok(None) };
        let limit =
            at_most("bytes of the table of printed lines", section.bytes.len(), MAX_PRINT_TABLE_BYTES);
        limit.map_err(|reason| ReadError::section(section.name, 0, reason))?;
        Ok(Some(section.bytes.to_vec()))
    }
}

/// Programs: those of one section are adjacent, sections are in the order of their first programs.
struct Programs {
    /// Position in the file and section of each program.
    list: Vec<(usize, super::model::Section)>,
    /// Program ids, by position in the file.
    ids: BTreeMap<usize, ProgramId>,
}

impl Programs {
    fn of(elf: &Elf<'_>, functions: &Functions<'_>) -> Programs {
        let mut sections: BTreeMap<String, usize> = BTreeMap::new();
        let mut list = Vec::new();
        for (at, function) in functions.list.iter().enumerate() {
            let role = elf.section(function.section).map(|section| &section.role);
            let Some(section) = role.and_then(functions::program_section) else { continue };
            let known = sections.len();
            let order = *sections.entry(section.to_string()).or_insert(known);
            list.push((order, at, section));
        }
        list.sort_by_key(|(order, at, _)| (*order, *at));
        let list: Vec<_> = list.into_iter().map(|(_, at, section)| (at, section)).collect();
        let ids = (0u32..).map(ProgramId).zip(&list).map(|(id, (at, _))| (*at, id)).collect();
        Programs { list, ids }
    }

    fn id(&self, at: usize) -> Option<ProgramId> {
        self.ids.get(&at).copied()
    }

    /// Returns the program at a position, if its type is struct_ops.
    fn method(&self, at: usize) -> Option<ProgramId> {
        let id = self.id(at)?;
        let (_, section) = self.list.get(id.index())?;
        (section.kind.program == ProgramType::StructOps).then_some(id)
    }
}

/// Numbers the functions that programs call, by their positions in the file.
fn called(programs: &Programs, codes: &[Option<ResolvedCode>]) -> BTreeMap<usize, SubprogramId> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<usize> = programs.list.iter().map(|(at, _)| *at).collect();
    while let Some(at) = pending.pop() {
        let Some(Some(code)) = codes.get(at) else { continue };
        pending.extend(code.named_functions().filter(|&called| found.insert(called)));
    }
    found.into_iter().zip((0u32..).map(SubprogramId)).collect()
}

/// Checks that names are unique: libbpf looks up maps and variables by name, whatever section they are in.
fn check_names(maps: &[Map], data: &[DataSection], struct_ops: &[StructOps]) -> Result<(), ReadError> {
    let mut seen = HashSet::new();
    let maps = maps.iter().map(|map| (".maps", &map.name));
    let structs = struct_ops.iter().map(|one| (".struct_ops", &one.name));
    let variables = data.iter().flat_map(|section| &section.variables);
    let globals = variables.filter(|one| one.linkage == Linkage::Global).map(|one| (".symtab", &one.name));
    for (section, name) in maps.chain(structs).chain(globals) {
        if !seen.insert(name.as_str()) {
            return Err(ReadError::section(section, 0, Reason::NameTwice(name.to_string())));
        }
    }
    Ok(())
}
