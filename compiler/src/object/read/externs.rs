//! Parsing of the symbols and settings of the kernel that the object refers to.
//!
//! Source: tools/lib/bpf/libbpf.c, `bpf_object__collect_externs` and `find_kcfg_type`, v1.7.

use std::collections::HashMap;

use super::super::error::{ReadError, Reason, at_most};
use super::super::limits::MAX_ITEMS;
use super::super::model::{Kconfig, KconfigId, KconfigType, Ksym, KsymId, KsymKind, Presence, Type};
use super::super::name::{Name, visible};
use super::btf::select::Selection;
use super::btf::{RawEntry, RawType, RawTypes};
use super::code::External;
use super::data::type_error;
use super::elf::{Binding, Elf, SymbolKind, SymbolSection};
use crate::object::btf::{FuncLinkage, IntEncoding, TypeId, VarLinkage};

/// Externs sorted by name, and their ELF symbols.
#[derive(Default)]
pub(super) struct Externs {
    pub ksyms: Vec<Ksym>,
    pub kconfig: Vec<Kconfig>,
    pub by_symbol: HashMap<usize, External>,
}

/// Maximum size in bytes of a text of the kernel's configuration, with the final zero.
const MAX_TEXT_BYTES: u32 = 4096;

/// Parses the externs. Types keep the ids of the file until [`Externs::select`].
pub(super) fn read(elf: &Elf<'_>, types: Option<&RawTypes<'_>>) -> Result<Externs, ReadError> {
    let mut symbols = HashMap::new();
    for (index, symbol) in elf.symbols.iter().enumerate().skip(1) {
        if symbol.section != SymbolSection::Undefined {
            continue;
        }
        if symbol.kind != SymbolKind::None || symbol.binding == Binding::Local {
            return Err(elf.symbol_error(index, "is nowhere, and is nothing of the kernel"));
        }
        let presence = if symbol.binding == Binding::Weak { Presence::Optional } else { Presence::Required };
        let name = Name::from_bytes(symbol.name).map_err(|fault| {
            let error = elf.symbol_error(index, "");
            ReadError { reason: Reason::Name(fault), ..error }
        })?;
        if symbols.insert(name, (index, presence)).is_some() {
            return Err(elf.symbol_error(index, "has the name of another one of the kernel"));
        }
    }
    let limit = at_most("names of the kernel", symbols.len(), MAX_ITEMS);
    limit.map_err(|reason| ReadError::file(0, reason))?;
    let mut externs = Externs::default();
    let mut sources = Vec::new();
    for (section, is_ksym) in [(".ksyms", true), (".kconfig", false)] {
        for entry in types.iter().filter_map(|types| types.section(section)).flat_map(|one| &one.entries) {
            let Some(types) = types else { continue };
            let name = match types.get(entry.var) {
                Some(RawType::Var { name, .. } | RawType::Func { name, .. }) => name,
                _ => continue,
            };
            let found = symbols.remove(name);
            let (symbol, presence) =
                found.ok_or_else(|| error(entry, name, "no symbol stands for it, or two entries do"))?;
            check_offset(elf, entry, symbol, name)?;
            if is_ksym {
                externs.ksyms.push(Ksym { name: name.clone(), kind: ksym(types, entry, name)?, presence });
            } else {
                externs.kconfig.push(Kconfig {
                    name: name.clone(),
                    ty: kconfig(types, entry, name)?,
                    presence,
                });
            }
            sources.push((symbol, name.clone()));
        }
    }
    if let Some((name, (index, _))) = symbols.iter().min_by_key(|(_, (index, _))| *index) {
        let reason = "nothing in `.BTF` tells what of the kernel it is; if it is a function of the object, \
                      it has no body";
        let reason = Reason::Extern { name: visible(name.as_str()), reason };
        return Err(ReadError { reason, ..elf.symbol_error(*index, "") });
    }
    externs.ksyms.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    externs.kconfig.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    for (symbol, name) in sources {
        let found = externs.external(&name);
        externs.by_symbol.extend(found.map(|found| (symbol, found)));
    }
    Ok(externs)
}

impl Externs {
    fn external(&self, name: &Name) -> Option<External> {
        let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        if let Ok(at) = self.ksyms.binary_search_by(|one| one.name.cmp(name)) {
            return Some(External::Ksym(KsymId(number(at)), self.ksyms.get(at)?.kind));
        }
        let at = self.kconfig.binary_search_by(|one| one.name.cmp(name)).ok()?;
        Some(External::Kconfig(KconfigId(number(at))))
    }

    /// Returns the kernel functions and variables, with the object's type ids.
    pub(super) fn select(ksyms: &[Ksym], selection: &mut Selection<'_, '_>) -> Vec<Ksym> {
        let kind = |kind: KsymKind, selection: &mut Selection<'_, '_>| match kind {
            KsymKind::Function(ty) => KsymKind::Function(selection.keep(ty)),
            KsymKind::Variable(ty) => KsymKind::Variable(selection.keep(ty)),
            KsymKind::Address => KsymKind::Address,
        };
        ksyms.iter().map(|one| Ksym { kind: kind(one.kind, selection), ..one.clone() }).collect()
    }
}

fn error(entry: &RawEntry, name: &Name, reason: &'static str) -> ReadError {
    type_error(entry, Reason::Extern { name: name.to_string(), reason })
}

/// Checks the offset of an extern, which must be 0; clang emits a relocation against its symbol.
fn check_offset(elf: &Elf<'_>, entry: &RawEntry, symbol: usize, name: &Name) -> Result<(), ReadError> {
    let is_other =
        elf.type_relocation(entry.reloc_offset).is_some_and(|relocation| relocation.symbol != symbol);
    if is_other { Err(error(entry, name, "its relocation is against another symbol")) } else { Ok(()) }
}

fn ksym(types: &RawTypes<'_>, entry: &RawEntry, name: &Name) -> Result<KsymKind, ReadError> {
    match types.get(entry.var) {
        Some(RawType::Func { signature, linkage: FuncLinkage::Extern, .. }) => {
            Ok(KsymKind::Function(*signature))
        }
        Some(RawType::Var { ty, linkage: VarLinkage::Extern, .. }) => match types.resolve(*ty) {
            Some((_, Type::Signature { .. })) => Err(error(entry, name, "its type is a function")),
            Some((id, _)) => Ok(KsymKind::Variable(id)),
            None => Ok(KsymKind::Address),
        },
        _ => Err(error(entry, name, "it is declared as something of the object")),
    }
}

fn kconfig(types: &RawTypes<'_>, entry: &RawEntry, name: &Name) -> Result<KconfigType, ReadError> {
    if !is_fact(name.as_str()) {
        return Err(error(entry, name, "no fact about the kernel has this name"));
    }
    let Some(RawType::Var { ty, linkage: VarLinkage::Extern, .. }) = types.get(entry.var) else {
        return Err(error(entry, name, "it is declared as something of the object"));
    };
    kconfig_type(types, *ty).ok_or_else(|| error(entry, name, "no fact about the kernel has this type"))
}

/// Returns whether a name is `LINUX_KERNEL_VERSION`, `LINUX_HAS_..` or `CONFIG_..`.
fn is_fact(name: &str) -> bool {
    let is_upper = |rest: &str| {
        !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    };
    let prefixed = ["CONFIG_", "LINUX_HAS_"].iter().find_map(|prefix| name.strip_prefix(prefix));
    name == "LINUX_KERNEL_VERSION" || prefixed.is_some_and(is_upper)
}

fn kconfig_type(types: &RawTypes<'_>, ty: TypeId) -> Option<KconfigType> {
    match types.resolve(ty)?.1 {
        Type::Int { bytes: 1, encoding: IntEncoding::Bool, .. } => Some(KconfigType::Bool),
        Type::Int { encoding: IntEncoding::Bool, .. } => None,
        Type::Int { bytes: 1, encoding, .. } => {
            Some(KconfigType::Char { signed: *encoding == IntEncoding::Signed })
        }
        Type::Int { bytes: bytes @ (2 | 4 | 8), encoding, .. } => {
            Some(KconfigType::Int { bytes: *bytes, signed: *encoding == IntEncoding::Signed })
        }
        Type::Enum { name: Some(name), bytes: 4, .. } if name.as_str() == "libbpf_tristate" => {
            Some(KconfigType::Tristate)
        }
        Type::Array { element, len } if (1..=MAX_TEXT_BYTES).contains(len) => {
            match kconfig_type(types, *element)? {
                KconfigType::Char { .. } => Some(KconfigType::Text { bytes: *len }),
                _ => None,
            }
        }
        _ => None,
    }
}
