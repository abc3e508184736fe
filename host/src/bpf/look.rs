//! Final comparison of an object as prepared by libbpf with the one that the policy judged, before it is
//! loaded.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufRead as _, BufReader};

use ks_compiler::object::Object as Model;
use ks_compiler::object::btf::{BtfKind, SplitBtf, Type, TypeId};
use ks_compiler::object::look::{Descriptors, KsymUse, ResolvedKsyms, SlotBytes, last_look};
use ks_compiler::object::model::{Ksym, KsymKind, Presence, ProgramId};

use super::kernel_functions::SYMBOLS;
use super::kernel_types;
use super::loader::{Prepared, PreparedModule};
use super::object::is_section_map;

/// Checks that the instructions of a prepared object are those of the model, and that they refer to the
/// kernel symbols that the model names.
///
/// # Errors
/// The first difference, as text.
pub(super) fn look(prepared: &Prepared, model: &Model) -> Result<(), String> {
    let names = KernelNames::default();
    look_at(&programs(prepared, model)?, model, &descriptors(prepared, model), (&prepared.modules, &names))
}

fn programs(prepared: &Prepared, model: &Model) -> Result<Vec<(ProgramId, Vec<SlotBytes>)>, String> {
    let known = prepared.programs.iter().map(|program| {
        let name = &program.name;
        let Some((id, _)) = model.program(name) else {
            return Err(format!("the loader has a program `{name}`, and the object has none"));
        };
        let (slots, rest) = program.code.as_chunks();
        match rest {
            [] => Ok((id, slots.to_vec())),
            _ => Err(format!("the loader has half an instruction in program `{name}`")),
        }
    });
    known.collect()
}

fn look_at(
    programs: &[(ProgramId, Vec<SlotBytes>)],
    model: &Model,
    descriptors: &Descriptors,
    (modules, names): (&[PreparedModule], &KernelNames),
) -> Result<(), String> {
    let mut found = ResolvedKsyms::default();
    for (id, slots) in programs {
        last_look(model, *id, slots, descriptors, &mut found).map_err(|error| error.to_string())?;
    }
    names.check_types(model, modules, &found)?;
    names.check_addresses(model, &found)?;
    check_visible(model, &found)
}

/// Checks that the kernel shows the addresses of the requested symbols: a program would read nothing at 0.
fn check_visible(model: &Model, found: &ResolvedKsyms) -> Result<(), String> {
    let hidden = found.addresses.iter().filter(|(_, address)| **address == 0);
    let mut hidden = hidden.filter_map(|(ksym, _)| model.ksyms.get(ksym.index()));
    match hidden.find(|ksym| ksym.presence == Presence::Required) {
        Some(ksym) => Err(format!(
            "the kernel hides the address of `{}`: ks-host needs CAP_SYSLOG, and sysctl kernel.kptr_restrict must \
             not be 2",
            ksym.name.as_str()
        )),
        None => Ok(()),
    }
}

fn descriptors(prepared: &Prepared, model: &Model) -> Descriptors {
    let found = |is_wanted: &dyn Fn(&[u8]) -> bool| {
        let map = prepared.maps.iter().find(|map| is_wanted(map.name.as_bytes()));
        map.and_then(|map| map.descriptor)
    };
    let of_section = |section: &str| found(&|name| is_section_map(name, section));
    let of_map = |wanted: &str| found(&|name| name == wanted.as_bytes());
    Descriptors {
        maps: model.maps.iter().map(|map| of_map(map.name.as_str())).collect(),
        data: model.data.iter().map(|section| of_section(&section.name())).collect(),
        kconfig: of_section(".kconfig"),
    }
}

/// Names of the running kernel, read when they are needed.
#[derive(Default)]
struct KernelNames {
    modules: OnceCell<Vec<(String, SplitBtf<'static>)>>,
    symbols: OnceCell<Symbols>,
}

/// Addresses by symbol; two symbols may have one name.
type Symbols = BTreeMap<String, BTreeSet<u64>>;

impl KernelNames {
    /// Checks that the types found by the loader have the requested names, in the kernel or in the module that
    /// the loader found them in.
    fn check_types(
        &self,
        model: &Model,
        modules: &[PreparedModule],
        found: &ResolvedKsyms,
    ) -> Result<(), String> {
        // Modules that may be at each position of the loader's list, which only the loader knows.
        let mut listed: BTreeMap<i32, BTreeSet<&str>> = BTreeMap::new();
        for ((ksym, used), ty) in &found.types {
            let Some(ksym) = model.ksyms.get(ksym.index()) else { continue };
            match (used, ty.module) {
                (_, 0) => check_kernel_type(ksym, TypeId(ty.id))?,
                (KsymUse::Load, descriptor) => {
                    let module = modules.iter().find(|module| module.descriptor == descriptor);
                    let name = module.map_or("", |module| module.name.as_str());
                    if !self.modules_with(ksym, TypeId(ty.id))?.contains(name) {
                        return Err(other(ksym, &format!("type {} of the module `{name}`", ty.id)));
                    }
                }
                (KsymUse::Call, position) => {
                    let having = self.modules_with(ksym, TypeId(ty.id))?;
                    let known = listed.entry(position).or_insert_with(|| having.clone());
                    known.retain(|module| having.contains(module));
                    if known.is_empty() {
                        return Err(other(ksym, &format!("type {} of module {position}", ty.id)));
                    }
                }
            }
        }
        let certain: Vec<_> = listed.values().filter(|modules| modules.len() == 1).collect();
        if certain.iter().collect::<BTreeSet<_>>().len() < certain.len() {
            return Err("the loader has one module of the kernel under two numbers".into());
        }
        Ok(())
    }

    /// Checks that the addresses found by the loader are those of the requested symbols.
    fn check_addresses(&self, model: &Model, found: &ResolvedKsyms) -> Result<(), String> {
        for (ksym, address) in found.addresses.iter().filter(|(_, address)| **address != 0) {
            let Some(ksym) = model.ksyms.get(ksym.index()) else { continue };
            let known = self.symbols(model)?.get(ksym.name.as_str());
            if !known.is_some_and(|addresses| addresses.contains(address)) {
                return Err(other(ksym, &format!("the address {address:#x}")));
            }
        }
        Ok(())
    }

    /// Returns the modules that have this function or variable as this type.
    fn modules_with(&self, ksym: &Ksym, id: TypeId) -> Result<BTreeSet<&str>, String> {
        let kind = kind_of(ksym);
        let having = self.modules()?.iter().filter(|(_, types)| {
            types.name_and_kind(id).is_some_and(|found| found == (ksym.name.as_str(), kind))
        });
        Ok(having.map(|(name, _)| name.as_str()).collect())
    }

    fn modules(&self) -> Result<&[(String, SplitBtf<'static>)], String> {
        if let Some(modules) = self.modules.get() {
            return Ok(modules);
        }
        let modules = kernel_types::modules()?;
        Ok(self.modules.get_or_init(|| modules))
    }

    /// Returns the addresses of the object's symbols.
    fn symbols(&self, model: &Model) -> Result<&Symbols, String> {
        if let Some(symbols) = self.symbols.get() {
            return Ok(symbols);
        }
        let wanted: BTreeSet<&str> = model.ksyms.iter().map(|ksym| ksym.name.as_str()).collect();
        let unreadable = |error: std::io::Error| format!("cannot read {SYMBOLS}: {error}");
        let list = BufReader::new(File::open(SYMBOLS).map_err(unreadable)?);
        let mut symbols = Symbols::new();
        for line in list.lines() {
            let line = line.map_err(unreadable)?;
            let mut fields = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            // Clang adds a suffix to static variables that it makes visible to other files.
            let name = if kind == "d" { name.split(".llvm.").next().unwrap_or(name) } else { name };
            if let (true, Ok(address)) = (wanted.contains(name), u64::from_str_radix(address, 16)) {
                symbols.entry(name.to_owned()).or_default().insert(address);
            }
        }
        Ok(self.symbols.get_or_init(|| symbols))
    }
}

fn check_kernel_type(ksym: &Ksym, id: TypeId) -> Result<(), String> {
    let found = match kernel_types::running()?.get(id) {
        Ok(Type::Func { name, .. }) => (name, BtfKind::Func),
        Ok(Type::Var { name, .. }) => (name, BtfKind::Var),
        _ => return Err(other(ksym, &format!("type {}", id.0))),
    };
    if found == (ksym.name.as_str(), kind_of(ksym)) { Ok(()) } else { Err(other(ksym, found.0)) }
}

fn kind_of(ksym: &Ksym) -> BtfKind {
    if matches!(ksym.kind, KsymKind::Function(_)) { BtfKind::Func } else { BtfKind::Var }
}

fn other(ksym: &Ksym, found: &str) -> String {
    format!("the loader took `{found}` of the kernel for `{}`", ksym.name.as_str())
}

#[cfg(test)]
mod tests {
    use ks_compiler::object::KernelFunctionIds;
    use ks_compiler::object::look::KernelType;
    use ks_compiler::object::model::{Callee, Instruction, KsymId, Wide};
    use ks_wit::section::{Arch, BpfRecord};
    use libbpf_rs::ObjectBuilder;

    use super::*;
    use crate::bpf::{print, sys};
    use crate::policy::{Admitted, ObjectSet, Policy, Request};

    /// An object with maps, variables, callbacks, kernel functions and variables, kconfig symbols and CO-RE
    /// relocations.
    const FEATURES: &[u8] = include_bytes!("../../../compiler/src/object/tests/objects/features.o");

    fn prepared() -> (Prepared, Admitted) {
        let record = BpfRecord { name: "look".into(), arch: Arch::Any, elf: FEATURES.to_vec() };
        let objects = ObjectSet::read(&[record], Some(0)).expect("it is sound");
        let admitted = Policy::everything().admit(Request::new(objects, &[]), 1).expect("allowed");
        let admitted = admitted.expect("there is one");
        let elf = admitted.elf(&KernelFunctionIds::new()).expect("it can be written");
        let (open, said) = print::collect(|| {
            let mut open =
                ObjectBuilder::default().name("look").and_then(|one| one.open_memory(&elf)).ok()?;
            open.maps_mut().for_each(|mut map| sys::forget_pin_path(&mut map));
            sys::prepare(&mut open).ok().map(|()| open)
        });
        let open = open.unwrap_or_else(|| panic!("{said:#?}"));
        (Prepared::of(&open).expect("it says of which modules types are"), admitted)
    }

    #[test]
    fn root_loaded_instructions_are_those_of_the_object() {
        let (prepared, admitted) = prepared();
        let model = admitted.object().model();
        look(&prepared, model).expect("nothing differs");
        let mut other = model.clone();
        let body =
            other.programs.iter_mut().map(|program| &mut program.body).find(|body| body.code.len() > 1);
        body.expect("one has several instructions").code.pop();
        look(&prepared, &other).expect_err("an instruction less");
        let mut unknown = model.clone();
        unknown.programs.pop();
        look(&prepared, &unknown).expect_err("a program less");
    }

    /// Addresses are those of the kernel's own list.
    #[test]
    fn root_addresses_are_found_by_name() {
        let (_, admitted) = prepared();
        let model = admitted.object().model();
        let names = KernelNames::default();
        let symbols = names.symbols(model).expect("it is root's");
        let (name, known) = symbols.first_key_value().expect("the kernel has some of them");
        let (known, at) = (*known.first().expect("an address"), 1 << 40);
        let ksym = model.ksyms.iter().position(|ksym| ksym.name.as_str() == name).expect("it is asked for");
        let looked = |address| {
            let addresses = BTreeMap::from([(KsymId(ksym as u32), address)]);
            names.check_addresses(model, &ResolvedKsyms { addresses, ..ResolvedKsyms::default() })
        };
        assert!(known != 0 && looked(known).is_ok() && looked(0).is_ok(), "{known:#x}");
        let refused = looked(known ^ at).expect_err("nothing is there");
        assert!(refused.contains(name.as_str()) && refused.contains("the loader took"), "{refused}");
    }

    /// Returns the bits of a slot that a CO-RE record may set: the loader computes them from the types of the
    /// kernel, and nothing else knows them.
    fn adjusted_bits(instruction: &Instruction, slot: &SlotBytes) -> u64 {
        const CONSTANT: u64 = 0xffff_ffff << 32;
        const OFFSET_AND_SIZE: u64 = 0xffff << 16 | 0x18;
        match instruction {
            Instruction::Plain(_) if (1..=3).contains(&(slot[0] & 7)) => OFFSET_AND_SIZE,
            _ => CONSTANT,
        }
    }

    #[test]
    fn root_a_changed_instruction_is_seen() {
        let (prepared, admitted) = prepared();
        let model = admitted.object().model();
        let descriptors = descriptors(&prepared, model);
        let names = KernelNames::default();
        let programs = programs(&prepared, model).expect("the object's own");
        let same = |programs: &[(ProgramId, Vec<SlotBytes>)]| {
            look_at(programs, model, &descriptors, (&prepared.modules, &names)).is_ok()
        };
        assert!(same(&programs));
        let (mut changed, mut of_kernel, mut adjusted_slots) = (0, [0; 3], 0);
        for (program, (id, slots)) in programs.iter().enumerate() {
            let with = |slots: Vec<SlotBytes>| {
                let mut programs = programs.clone();
                programs[program].1 = slots;
                same(&programs)
            };
            let one = &model.programs[id.index()];
            let name = one.name.as_str();
            assert!(
                !with(slots[1..].to_vec()) && !with([&slots[..], &slots[..1]].concat()),
                "{name}: another length"
            );
            let mut at = 0;
            for (index, instruction) in (0..).zip(&one.body.code) {
                let adjusted = one.body.core.iter().any(|record| record.at.0 == index);
                let here = at..at + instruction.slots() as usize;
                at = here.end;
                adjusted_slots += usize::from(adjusted);
                match instruction {
                    Instruction::Call(Callee::Kfunc(_)) => of_kernel[0] += 1,
                    Instruction::LoadWide { value: Wide::Ksym(_), .. } => of_kernel[1] += 1,
                    Instruction::LoadWide { value: Wide::Kconfig(_), .. } => of_kernel[2] += 1,
                    _ => {}
                }
                for slot_index in here {
                    let free = if adjusted { adjusted_bits(instruction, &slots[slot_index]) } else { 0 };
                    for bit in (0..64).filter(|bit| free >> bit & 1 == 0) {
                        let mut other = slots.clone();
                        other[slot_index][bit / 8] ^= 1 << (bit % 8);
                        assert!(!with(other), "{name}: bit {bit} of slot {slot_index}: {instruction:?}");
                        changed += 1;
                    }
                }
            }
        }
        assert!(programs.len() >= 5 && changed >= 10_000, "{} programs, {changed} changes", programs.len());
        assert!(of_kernel.iter().all(|count| *count > 0), "{of_kernel:?}");
        assert!(adjusted_slots > 0);
    }

    /// A module's function is the one of its name; which module is at a position, only the loader knows.
    #[test]
    fn root_types_of_modules_are_found_by_name() {
        let (_, admitted) = prepared();
        let model = admitted.object().model();
        let functions = |ksym: &&Ksym| matches!(ksym.kind, KsymKind::Function(_));
        let name = model.ksyms.iter().find(functions).expect("it calls one").name.as_str();
        let called = model.ksyms.iter().position(|ksym| ksym.name.as_str() == name).expect("it has it");
        let base = kernel_types::running().expect("it has types");
        let module_of = |functions: &[&str]| {
            let strings: Vec<u8> = functions.iter().flat_map(|name| name.bytes().chain([0])).collect();
            let mut at = base.string_len();
            let mut types = Vec::new();
            for function in functions {
                types.extend([at, 12 << 24, 1]);
                at += function.len() as u32 + 1;
            }
            let bytes = types.len() as u32 * 4;
            let head = [0x0001_eb9f, 24, 0, bytes, bytes, strings.len() as u32];
            let words = head.into_iter().chain(types).flat_map(u32::to_le_bytes);
            SplitBtf::parse(words.chain(strings).collect::<Vec<_>>(), base).expect("functions")
        };
        let module = |function: &str| module_of(&[function]);
        let names = |modules: &[(&str, &str)]| {
            let modules = modules.iter().map(|(name, function)| ((*name).to_owned(), module(function)));
            KernelNames { modules: OnceCell::from(modules.collect::<Vec<_>>()), ..KernelNames::default() }
        };
        let looked = |names: &KernelNames, id: u32, module: i32| {
            let ty = KernelType { id, module };
            let types = BTreeMap::from([((KsymId(called as u32), KsymUse::Call), ty)]);
            names.check_types(model, &[], &ResolvedKsyms { types, ..ResolvedKsyms::default() }).is_ok()
        };
        let own = base.len() + 1;
        assert!(looked(&names(&[("other", "another"), ("right", name)]), own, 1));
        assert!(!looked(&names(&[("other", "another")]), own, 1));
        assert!(!looked(&names(&[("right", name)]), own + 1, 1));
        assert!(!looked(&names(&[]), own, 1));
        assert!(!looked(&names(&[("right", name)]), own, 0), "no type of the kernel itself");
        // One module has one number.
        let second = model.ksyms.iter().filter(functions).nth(1).expect("it calls two").name.as_str();
        let at = model.ksyms.iter().position(|ksym| ksym.name.as_str() == second).expect("it has it");
        let both = |module: i32| {
            let ty = |id, module| KernelType { id, module };
            let types = BTreeMap::from([
                ((KsymId(called as u32), KsymUse::Call), ty(own, 1)),
                ((KsymId(at as u32), KsymUse::Call), ty(own + 1, module)),
            ]);
            let names = KernelNames {
                modules: OnceCell::from(vec![("right".to_owned(), module_of(&[name, second]))]),
                ..KernelNames::default()
            };
            names.check_types(model, &[], &ResolvedKsyms { types, ..ResolvedKsyms::default() }).is_ok()
        };
        assert!(both(1) && !both(2));
    }
}
