//! The last look at instructions that were relocated as libbpf does it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::super::look::{Descriptors, KernelType, KsymUse, ResolvedKsyms, SlotBytes, last_look};
use super::super::model::{
    Body, Callee, Helper, Instruction, KconfigType, KsymId, KsymKind, Object, ProgramId, SubprogramId, Wide,
};
use super::foreign::OBJECTS;
use super::read;
use crate::bpf::{self, Imm64, Insn, helper_number};

/// Instruction classes of `include/uapi/linux/bpf_common.h`, and the bits of an access's size.
const LDX: u8 = 1;
const STX: u8 = 3;
const SIZE: u8 = 0x18;

/// The instruction that libbpf writes for one without meaning on this kernel: a call of helper 0xbad2310.
const IMPOSSIBLE: SlotBytes = [0x85, 0, 0, 0, 0x10, 0x23, 0xad, 0x0b];

fn objects() -> impl Iterator<Item = (&'static str, Object)> {
    OBJECTS.iter().map(|(name, bytes)| (*name, read(bytes).expect("the reader accepts it")))
}

fn descriptors(object: &Object) -> Descriptors {
    let numbered = |first: i32, len: usize| (first..).take(len).map(Some).collect();
    Descriptors {
        maps: numbered(100, object.maps.len()),
        data: numbered(200, object.data.len()),
        kconfig: Some(300),
    }
}

/// The kernel's number of a typed symbol, and the address of another.
fn type_number(id: KsymId) -> u32 {
    1000 + id.0
}

/// Uses of a symbol: the first is the one that this instruction makes.
fn used(instruction: &Instruction) -> KsymUse {
    if matches!(instruction, Instruction::Call(_)) { KsymUse::Call } else { KsymUse::Load }
}

fn of_kernel_type(id: KsymId, module: i32) -> KernelType {
    KernelType { id: type_number(id), module }
}

/// The offset of a setting in the map of settings: libbpf sorts by alignment, then size, then name.
fn setting_offset(object: &Object, wanted: usize) -> u32 {
    let layout = |ty: KconfigType| match ty {
        KconfigType::Bool | KconfigType::Char { .. } => (1, 1),
        KconfigType::Tristate => (4, 4),
        KconfigType::Int { bytes, .. } => (bytes, bytes),
        KconfigType::Text { bytes } => (bytes, 1),
    };
    let mut sorted: Vec<_> = object.kconfig.iter().enumerate().collect();
    sorted.sort_by(|(_, one), (_, other)| {
        let ((size, align), (other_size, other_align)) = (layout(one.ty), layout(other.ty));
        let by_shape = other_align.cmp(&align).then(size.cmp(&other_size));
        by_shape.then_with(|| one.name.as_str().cmp(other.name.as_str()))
    });
    let mut at = 0_u32;
    for (position, one) in sorted {
        let (size, align) = layout(one.ty);
        at = at.div_ceil(align) * align;
        if position == wanted {
            return at;
        }
        at += size;
    }
    panic!("there is no setting {wanted}");
}

fn address(id: KsymId) -> u64 {
    0xffff_ffff_8100_0000 + u64::from(id.0) * 16
}

/// A slot of a program: the instruction, the function's metadata, and which half it is of a wide load.
struct Origin<'a> {
    instruction: &'a Instruction,
    adjusted: bool,
    half: usize,
}

/// A program as libbpf passes it to the kernel.
struct Linked<'a> {
    slots: Vec<SlotBytes>,
    origins: Vec<Origin<'a>>,
}

fn callee(instruction: &Instruction) -> Option<SubprogramId> {
    match *instruction {
        Instruction::Call(Callee::Subprogram(id))
        | Instruction::LoadWide { value: Wide::Subprogram(id), .. } => Some(id),
        _ => None,
    }
}

fn len(body: &Body) -> usize {
    body.code.iter().map(|one| one.slots() as usize).sum()
}

/// Appends the functions that a body refers to, each before those that it refers to itself.
fn append<'a>(
    object: &'a Object,
    body: &'a Body,
    starts: &mut BTreeMap<SubprogramId, usize>,
    bodies: &mut Vec<&'a Body>,
) {
    for id in body.code.iter().filter_map(callee) {
        if let Entry::Vacant(start) = starts.entry(id) {
            let function = &object.subprograms[id.index()].body;
            start.insert(bodies.iter().map(|body| len(body)).sum());
            bodies.push(function);
            append(object, function, starts, bodies);
        }
    }
}

fn link(object: &Object, id: ProgramId) -> Linked<'_> {
    let body = &object.programs[id.index()].body;
    let (mut starts, mut bodies) = (BTreeMap::new(), vec![body]);
    append(object, body, &mut starts, &mut bodies);
    let mut linked = Linked { slots: Vec::new(), origins: Vec::new() };
    for body in bodies {
        let plain = |instruction: &Instruction| match *instruction {
            Instruction::Plain(plain) => plain.insn(),
            Instruction::Call(_) => Insn::call_helper(0),
            Instruction::LoadWide { dst, .. } => Insn::load_imm64(dst, Imm64::Value(0)),
        };
        let insns: Vec<Insn> = body.code.iter().map(plain).collect();
        let bytes = bpf::encode(&insns).expect("an object has encodable instructions");
        let mut encoded = bytes.as_chunks().0.iter().copied();
        for (index, instruction) in (0..).zip(&body.code) {
            let at = linked.slots.len();
            let count = instruction.slots() as usize;
            let mut slots: Vec<SlotBytes> = encoded.by_ref().take(count).collect();
            relocate(object, instruction, &mut slots, at, &starts);
            linked.slots.extend(slots);
            let adjusted = body.core.iter().any(|record| record.at.0 == index);
            linked.origins.extend((0..count).map(|half| Origin { instruction, adjusted, half }));
        }
    }
    linked
}

fn relocate(
    object: &Object,
    instruction: &Instruction,
    slots: &mut [SlotBytes],
    at: usize,
    starts: &BTreeMap<SubprogramId, usize>,
) {
    let set = |slot: &mut SlotBytes, source: u8, constant: u32| {
        slot[1] |= source << 4;
        slot[4..].copy_from_slice(&constant.to_le_bytes());
    };
    let distance = |id: SubprogramId| (starts[&id] as u32).wrapping_sub(at as u32 + 1);
    let is_typed = |id: KsymId| object.ksyms[id.index()].kind != KsymKind::Address;
    match *instruction {
        Instruction::Plain(_) => {}
        Instruction::Call(Callee::Helper(helper)) => set(&mut slots[0], 0, helper.number()),
        Instruction::Call(Callee::Subprogram(id)) => set(&mut slots[0], 1, distance(id)),
        Instruction::Call(Callee::Kfunc(id)) => set(&mut slots[0], 2, type_number(id)),
        Instruction::LoadWide { value, .. } => {
            let [first, second] = slots else { panic!("a wide load has two slots") };
            let (source, low, high) = match value {
                Wide::Constant(number) => (0, number as u32, (number >> 32) as u32),
                Wide::Map(id) => (1, 100 + id.0, 0),
                Wide::Data { section, offset } => (2, 200 + section.0, offset),
                Wide::Kconfig(id) => (2, 300, setting_offset(object, id.index())),
                Wide::Subprogram(id) => (4, distance(id), 0),
                Wide::Ksym(id) if is_typed(id) => (3, type_number(id), 0),
                Wide::Ksym(id) => (0, address(id) as u32, (address(id) >> 32) as u32),
            };
            set(first, source, low);
            set(second, 0, high);
        }
    }
}

fn accepts(object: &Object, id: ProgramId, slots: &[SlotBytes]) -> bool {
    last_look(object, id, slots, &descriptors(object), &mut ResolvedKsyms::default()).is_ok()
}

fn programs(object: &Object) -> impl Iterator<Item = ProgramId> {
    (0..object.programs.len() as u32).map(ProgramId)
}

/// Calls a function with every slot of every program.
fn each_slot(mut see: impl FnMut(&Object, ProgramId, &Linked<'_>, usize)) {
    for (_, object) in objects() {
        for id in programs(&object) {
            let linked = link(&object, id);
            (0..linked.slots.len()).for_each(|at| see(&object, id, &linked, at));
        }
    }
}

/// Returns the bits of a slot that the loader chooses: what it found in the running kernel.
fn of_kernel(origin: &Origin<'_>, slot: &SlotBytes) -> u64 {
    const CONSTANT: u64 = 0xffff_ffff << 32;
    const OFFSET: u64 = 0xffff << 16;
    match *origin.instruction {
        Instruction::Plain(_) if origin.adjusted && (LDX..=STX).contains(&(slot[0] & 7)) => {
            OFFSET | u64::from(SIZE)
        }
        Instruction::Plain(_) if origin.adjusted => CONSTANT,
        Instruction::Call(Callee::Kfunc(_)) => CONSTANT | OFFSET,
        Instruction::LoadWide { value: Wide::Constant(_), .. } if origin.adjusted => CONSTANT,
        Instruction::LoadWide { value: Wide::Ksym(_), .. } => CONSTANT,
        _ => 0,
    }
}

#[test]
fn relocated_instructions_are_the_objects_own() {
    let (mut adjusted, mut kfuncs, mut functions) = (0, 0, 0);
    for (name, object) in objects() {
        for id in programs(&object) {
            let linked = link(&object, id);
            let own = object.programs[id.index()].name.as_str();
            let mut found = ResolvedKsyms::default();
            let looked = last_look(&object, id, &linked.slots, &descriptors(&object), &mut found);
            assert_eq!(looked, Ok(()), "{name}: {own}");
            assert!(found.types.iter().all(|((id, _), ty)| *ty == of_kernel_type(*id, 0)), "{found:?}");
            assert!(found.addresses.iter().all(|(id, at)| *at == address(*id)), "{found:?}");
            for origin in &linked.origins {
                adjusted += usize::from(origin.adjusted);
                kfuncs += usize::from(matches!(origin.instruction, Instruction::Call(Callee::Kfunc(_))));
                functions += usize::from(callee(origin.instruction).is_some());
            }
        }
    }
    assert!(adjusted > 8 && kfuncs > 1 && functions > 8, "{adjusted} {kfuncs} {functions}");
}

#[test]
fn every_changed_bit_is_seen() {
    let mut changes = 0;
    each_slot(|object, id, linked, at| {
        let free = of_kernel(&linked.origins[at], &linked.slots[at]);
        for bit in (0..64).filter(|bit| free >> bit & 1 == 0) {
            let mut slots = linked.slots.clone();
            slots[at][bit / 8] ^= 1 << (bit % 8);
            let instruction = linked.origins[at].instruction;
            assert!(!accepts(object, id, &slots), "bit {bit} of slot {at}: {instruction:?}");
            changes += 1;
        }
    });
    assert!(changes > 10_000, "{changes}");
}

#[test]
fn only_adjusted_instructions_take_what_the_kernel_has() {
    let (mut sizes, mut constants) = (0, 0);
    each_slot(|object, id, linked, at| {
        let origin = &linked.origins[at];
        let Instruction::Plain(_) = origin.instruction else { return };
        let slot = linked.slots[at];
        let other = |change: &dyn Fn(&mut SlotBytes)| {
            let mut slots = linked.slots.clone();
            change(&mut slots[at]);
            slots[at] != slot && accepts(object, id, &slots)
        };
        let access = (LDX..=STX).contains(&(slot[0] & 7));
        assert_eq!(other(&|slot| *slot = IMPOSSIBLE), origin.adjusted);
        assert_eq!(other(&|slot| slot[2..4].copy_from_slice(&[0x7f, 0x11])), origin.adjusted && access);
        assert_eq!(other(&|slot| slot[0] ^= 8), origin.adjusted && access);
        assert_eq!(other(&|slot| slot[4..].copy_from_slice(&[7, 8, 9, 10])), origin.adjusted && !access);
        sizes += usize::from(origin.adjusted && access);
        constants += usize::from(origin.adjusted && !access);
    });
    assert!(sizes + constants > 8, "{sizes} {constants}");
}

#[test]
fn an_impossible_wide_load_is_adjusted_in_both_halves() {
    let mut seen = 0;
    each_slot(|object, id, linked, at| {
        let origin = &linked.origins[at];
        if !matches!(origin.instruction, Instruction::LoadWide { .. }) || origin.half == 1 {
            return;
        }
        let with = |halves: &[usize]| {
            let mut slots = linked.slots.clone();
            halves.iter().for_each(|half| slots[at + half] = IMPOSSIBLE);
            accepts(object, id, &slots)
        };
        assert_eq!(with(&[0, 1]), origin.adjusted);
        assert!(!with(&[0]) && !with(&[1]));
        seen += 1;
    });
    assert!(seen > 8, "{seen}");
}

#[test]
fn another_length_is_seen() {
    for (_, object) in objects() {
        for id in programs(&object) {
            let slots = link(&object, id).slots;
            assert!(!accepts(&object, id, &slots[1..]) && !accepts(&object, id, &[]));
            assert!(!accepts(&object, id, &[&slots[..], &slots[..1]].concat()));
        }
        let none = ProgramId(object.programs.len() as u32);
        assert!(!accepts(&object, none, &[]));
    }
}

#[test]
fn maps_that_the_loader_did_not_create_are_seen() {
    let mut seen = 0;
    for (_, object) in objects() {
        for id in programs(&object) {
            let linked = link(&object, id);
            let refers = |wanted: fn(&Wide) -> bool| {
                linked.origins.iter().any(|origin| match origin.instruction {
                    Instruction::LoadWide { value, .. } => wanted(value),
                    _ => false,
                })
            };
            let looks = |descriptors: &Descriptors| {
                last_look(&object, id, &linked.slots, descriptors, &mut ResolvedKsyms::default()).is_ok()
            };
            let all = descriptors(&object);
            for (missing, is_used) in [
                (Descriptors { maps: Vec::new(), ..all.clone() }, refers(|one| matches!(one, Wide::Map(_)))),
                (
                    Descriptors { data: vec![None; object.data.len()], ..all.clone() },
                    refers(|one| matches!(one, Wide::Data { .. })),
                ),
                (Descriptors { kconfig: None, ..all.clone() }, refers(|one| matches!(one, Wide::Kconfig(_)))),
            ] {
                assert_eq!(looks(&missing), !is_used);
                seen += usize::from(is_used);
            }
        }
    }
    assert!(seen > 4, "{seen}");
}

/// Returns the slots that name a symbol of the kernel, of all programs.
fn kernel_names(object: &Object, typed: bool) -> Vec<(ProgramId, usize, KsymId)> {
    let mut names = Vec::new();
    for id in programs(object) {
        for (at, origin) in link(object, id).origins.iter().enumerate() {
            let ksym = match *origin.instruction {
                Instruction::Call(Callee::Kfunc(ksym))
                | Instruction::LoadWide { value: Wide::Ksym(ksym), .. } => ksym,
                _ => continue,
            };
            if origin.half == 0 && (object.ksyms[ksym.index()].kind != KsymKind::Address) == typed {
                names.push((id, at, ksym));
            }
        }
    }
    names
}

#[test]
fn a_name_of_the_kernel_is_one_thing_everywhere() {
    for (_, object) in objects() {
        for typed in [true, false] {
            for (id, at, ksym) in kernel_names(&object, typed) {
                let linked = link(&object, id);
                let mut slots = linked.slots.clone();
                slots[at][4] ^= 0x80;
                // Accepted where nothing else is known of the name.
                let used = used(linked.origins[at].instruction);
                let mut known = ResolvedKsyms::default();
                known.types.insert((ksym, used), of_kernel_type(ksym, 0));
                known.addresses.insert(ksym, address(ksym));
                let looked = last_look(&object, id, &slots, &descriptors(&object), &mut known);
                assert!(looked.is_err(), "{at}");
                known.types.insert((ksym, used), of_kernel_type(ksym, 0));
                known.addresses.insert(ksym, address(ksym));
                let looked = last_look(&object, id, &linked.slots, &descriptors(&object), &mut known);
                assert_eq!(looked, Ok(()), "{at}");
                // Another module's type of the same number is another type.
                if typed {
                    let mut known = ResolvedKsyms::default();
                    known.types.insert((ksym, used), of_kernel_type(ksym, 1));
                    let looked = last_look(&object, id, &linked.slots, &descriptors(&object), &mut known);
                    assert!(looked.is_err(), "{at}");
                }
            }
        }
    }
}

#[test]
fn two_names_of_the_kernel_are_two_things() {
    let mut seen = 0;
    for (_, object) in objects() {
        for (id, _, ksym) in kernel_names(&object, true) {
            let linked = link(&object, id);
            let other = KsymId(object.ksyms.len() as u32);
            for used in [KsymUse::Call, KsymUse::Load] {
                let mut known = ResolvedKsyms::default();
                known.types.insert((other, used), of_kernel_type(ksym, 0));
                assert!(last_look(&object, id, &linked.slots, &descriptors(&object), &mut known).is_err());
                known.types.insert((other, used), of_kernel_type(other, 0));
                assert!(last_look(&object, id, &linked.slots, &descriptors(&object), &mut known).is_ok());
            }
            seen += 1;
        }
    }
    assert!(seen > 2, "{seen}");
}

#[test]
fn a_kernel_function_that_is_missing_becomes_an_impossible_helper() {
    let mut seen = 0;
    for (_, object) in objects() {
        for (id, at, _) in kernel_names(&object, true) {
            let linked = link(&object, id);
            if !matches!(linked.origins[at].instruction, Instruction::Call(_)) {
                continue;
            }
            let with = |head: [u8; 4], number: u32| {
                let mut slots = linked.slots.clone();
                slots[at] = [&head[..], &number.to_le_bytes()].concat().try_into().expect("eight bytes");
                accepts(&object, id, &slots)
            };
            let call = [0x85, 0, 0, 0];
            assert!(with(call, 2_002_000_000) && with(call, 2_002_999_999));
            for number in [0, 1, 109, 2_001_999_999, 2_003_000_000] {
                assert!(!with(call, number), "{number}");
            }
            assert!(!with([0x85, 0, 1, 0], 2_002_000_000), "a module");
            assert!(!with([0x85, 0x10, 0, 0], 2_002_000_000), "a function of the program");
            assert!(!with([0x8d, 0x20, 0, 0], 1), "a call by register");
            seen += 1;
        }
    }
    assert!(seen > 1, "{seen}");
}

/// The helpers that libbpf writes for others before Linux 5.5.
#[test]
fn only_the_helpers_of_old_kernels_are_taken_for_others() {
    let number = |name: &str| helper_number(name).expect("a helper");
    let reads = ["kernel", "user"].into_iter().flat_map(|memory| {
        ["", "_str"]
            .map(|end| (format!("bpf_probe_read_{memory}{end}"), Some(format!("bpf_probe_read{end}"))))
    });
    for (called, old) in reads.chain([("bpf_get_prandom_u32".to_owned(), None)]) {
        let (_, mut object) = objects().next().expect("there is one");
        let helper = Helper::new(number(&called)).expect("a helper");
        object.programs.truncate(1);
        let exit = object.programs[0].body.code.last().copied().expect("a program ends");
        object.programs[0].body =
            Body { code: vec![Instruction::Call(Callee::Helper(helper)), exit], ..Body::default() };
        let linked = link(&object, ProgramId(0));
        let accepted = |number: u32| {
            let mut slots = linked.slots.clone();
            slots[0][4..].copy_from_slice(&number.to_le_bytes());
            accepts(&object, ProgramId(0), &slots)
        };
        let expected = [Some(called.clone()), old].into_iter().flatten();
        let expected: Vec<u32> = expected.map(|name| number(&name)).collect();
        let taken: Vec<u32> = (0..=220).filter(|number| accepted(*number)).collect();
        let mut sorted = expected;
        sorted.sort_unstable();
        assert_eq!(taken, sorted, "{called}");
    }
}

/// A name with a type is never an address, and one without is never a type.
#[test]
fn a_name_of_the_kernel_is_of_the_kind_that_the_object_has() {
    let mut seen = [0, 0];
    for (_, object) in objects() {
        for typed in [true, false] {
            for (id, at, ksym) in kernel_names(&object, typed) {
                let linked = link(&object, id);
                if matches!(linked.origins[at].instruction, Instruction::Call(_)) {
                    continue;
                }
                let with = |source: u8, low: u32, high: u32| {
                    let mut slots = linked.slots.clone();
                    slots[at][1] = slots[at][1] & 0x0f | source << 4;
                    slots[at][4..].copy_from_slice(&low.to_le_bytes());
                    slots[at + 1][4..].copy_from_slice(&high.to_le_bytes());
                    accepts(&object, id, &slots)
                };
                // One that the kernel does not have is 0.
                assert!(with(0, 0, 0));
                assert_eq!((with(0, 1 << 20, 0), with(0, 0, 1)), (!typed, !typed));
                assert_eq!(with(3, type_number(ksym), 0), typed);
                seen[usize::from(typed)] += 1;
            }
        }
    }
    assert!(seen.iter().all(|seen| *seen > 0), "{seen:?}");
}

/// Settings of one type differ by their offsets.
#[test]
fn each_setting_has_its_own_offset() {
    let mut settings = 0;
    each_slot(|object, id, linked, at| {
        let origin = &linked.origins[at];
        let Instruction::LoadWide { value: Wide::Kconfig(setting), .. } = origin.instruction else { return };
        for other in (0..object.kconfig.len()).filter(|_| origin.half == 1) {
            let mut slots = linked.slots.clone();
            slots[at][4..].copy_from_slice(&setting_offset(object, other).to_le_bytes());
            assert_eq!(accepts(object, id, &slots), other == setting.index());
            settings += 1;
        }
    });
    assert!(settings > 1, "{settings}");
}
