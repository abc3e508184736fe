//! Final comparison of an object as prepared by libbpf with the one that the policy judged, before it is
//! loaded.

use std::collections::BTreeMap;

use ks_compiler::object::Object as Model;
use ks_compiler::object::btf::{Type, TypeId};
use ks_compiler::object::look::{Descriptors, ResolvedKsyms, SlotBytes, last_look};
use libbpf_rs::OpenObject;

use super::kernel_types;
use super::object::is_section_map;
use super::sys;

/// Checks that the instructions of a prepared object are those of the model, and that they refer to the
/// kernel symbols that the model names.
///
/// # Errors
/// The first difference, as text.
pub(super) fn look(open: &OpenObject, model: &Model) -> Result<(), String> {
    let descriptors = descriptors(open, model);
    let mut found = ResolvedKsyms::default();
    for program in open.progs().filter(|program| program.autoload()) {
        let name = program.name().to_string_lossy();
        let Some((id, _)) = model.program(&name) else {
            return Err(format!("the loader has a program `{name}`, and the object has none"));
        };
        let slots: Vec<SlotBytes> = program.insns().iter().map(slot).collect();
        last_look(model, id, &slots, &descriptors, &mut found).map_err(|error| error.to_string())?;
    }
    check_names(model, &found)
}

fn slot(insn: &libbpf_sys::bpf_insn) -> SlotBytes {
    let [o0, o1] = insn.off.to_le_bytes();
    let [c0, c1, c2, c3] = insn.imm.to_le_bytes();
    [insn.code, insn.src_reg() << 4 | insn.dst_reg(), o0, o1, c0, c1, c2, c3]
}

fn descriptors(open: &OpenObject, model: &Model) -> Descriptors {
    let created: BTreeMap<Vec<u8>, Option<i32>> =
        open.maps().map(|map| (map.name().as_encoded_bytes().to_vec(), sys::map_descriptor(&map))).collect();
    let of_section = |section: &str| {
        created.iter().find(|(name, _)| is_section_map(name, section)).and_then(|(_, descriptor)| *descriptor)
    };
    Descriptors {
        maps: model
            .maps
            .iter()
            .map(|map| created.get(map.name.as_str().as_bytes()).copied().flatten())
            .collect(),
        data: model.data.iter().map(|section| of_section(&section.name())).collect(),
        kconfig: of_section(".kconfig"),
    }
}

/// Checks that the kernel types found by the loader have the requested names. Types of modules have ids of
/// their own, which only the loader knows; each of these ids stands for one name of the object.
fn check_names(model: &Model, found: &ResolvedKsyms) -> Result<(), String> {
    let mut of_kernel = found.types.iter().filter(|(_, (_, module))| *module == 0).peekable();
    if of_kernel.peek().is_none() {
        return Ok(());
    }
    let types = kernel_types::running()?;
    for (ksym, (number, _)) in of_kernel {
        let Some(ksym) = model.ksyms.get(ksym.index()) else { continue };
        let name = match types.get(TypeId(*number)) {
            Ok(Type::Func { name, .. } | Type::Var { name, .. }) => name,
            _ => "",
        };
        if name != ksym.name.as_str() {
            return Err(format!("the loader took `{name}` of the kernel for `{}`", ksym.name.as_str()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ks_compiler::object::model::{Callee, Instruction, Wide};
    use ks_wit::section::{Arch, BpfRecord};
    use libbpf_rs::ObjectBuilder;

    use super::*;
    use crate::bpf::print;
    use crate::policy::{Admitted, ObjectSet, Policy, Request};

    /// An object with maps, variables, callbacks, kernel functions and variables, kconfig symbols and CO-RE
    /// relocations.
    const FEATURES: &[u8] = include_bytes!("../../../compiler/src/object/tests/objects/features.o");

    fn prepared() -> (OpenObject, Admitted) {
        let record = BpfRecord { name: "look".into(), arch: Arch::Any, elf: FEATURES.to_vec() };
        let objects = ObjectSet::read(&[record], Some(0)).expect("it is sound");
        let admitted = Policy::everything().admit(Request::new(objects, &[]), 1).expect("allowed");
        let admitted = admitted.expect("there is one");
        let elf = admitted.elf().expect("it can be written");
        let (open, said) = print::collect(|| {
            let mut open =
                ObjectBuilder::default().name("look").and_then(|one| one.open_memory(&elf)).ok()?;
            open.maps_mut().for_each(|mut map| sys::forget_pin_path(&mut map));
            sys::prepare(&mut open).ok().map(|()| open)
        });
        (open.unwrap_or_else(|| panic!("{said:#?}")), admitted)
    }

    #[test]
    fn root_loaded_instructions_are_those_of_the_object() {
        let (open, admitted) = prepared();
        look(&open, admitted.object().model()).expect("nothing differs");
    }

    /// Returns whether the loader replaces the instruction by values that only the kernel knows.
    fn is_of_kernel(instruction: &Instruction) -> bool {
        matches!(
            instruction,
            Instruction::Call(Callee::Kfunc(_))
                | Instruction::LoadWide { value: Wide::Ksym(_) | Wide::Kconfig(_), .. }
        )
    }

    #[test]
    fn root_a_changed_instruction_is_seen() {
        let (open, admitted) = prepared();
        let model = admitted.object().model();
        let descriptors = descriptors(&open, model);
        let (mut changed, mut programs) = (0, 0);
        for program in open.progs().filter(|program| program.autoload()) {
            let name = program.name().to_string_lossy();
            let (id, one) = model.program(&name).expect("the object has it");
            let slots: Vec<SlotBytes> = program.insns().iter().map(slot).collect();
            let same = |slots: &[SlotBytes]| {
                last_look(model, id, slots, &descriptors, &mut ResolvedKsyms::default()).is_ok()
            };
            assert!(same(&slots), "{name}");
            assert!(
                !same(&slots[1..]) && !same(&[&slots[..], &slots[..1]].concat()),
                "{name}: another length"
            );
            programs += 1;
            let mut at = 0;
            for (index, instruction) in (0..).zip(&one.body.code) {
                let adjusted = one.body.core.iter().any(|record| record.at.0 == index);
                let here = at..at + instruction.slots() as usize;
                at = here.end;
                if adjusted || is_of_kernel(instruction) {
                    continue;
                }
                for (slot_index, bit) in here.flat_map(|slot_index| (0..64).map(move |bit| (slot_index, bit)))
                {
                    let mut other = slots.clone();
                    other[slot_index][bit / 8] ^= 1 << (bit % 8);
                    assert!(!same(&other), "{name}: bit {bit} of slot {slot_index}: {instruction:?}");
                    changed += 1;
                }
            }
        }
        assert!(programs >= 5 && changed >= 10_000, "{programs} programs, {changed} changes");
    }
}
