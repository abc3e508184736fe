//! The objects of a plugin file, as policies see them: timers, pins, functions of the kernel, and several
//! objects that are judged together.

use ks_compiler::object::btf::TypeId;
use ks_compiler::object::model::{
    DataContent, DataKind, DataSection, Ksym, KsymKind, Pinning, Presence, Type, Types,
};
use ks_compiler::object::table::MapKind;
use ks_compiler::object::{KernelFunctionIds, Object, read, write};
use ks_host::policy::{Class, ObjectSet, PluginObject, Policy, Readmission, Request};
use ks_tests::plugins::models::{map, name, program};
use ks_wit::object::timer_map;
use ks_wit::section::{Arch, BpfRecord};

fn object(arch: Arch, model: Object) -> PluginObject {
    PluginObject::new("test", arch, model).expect("a sound object")
}

/// Returns the class and target of each need of an object.
fn needs(model: Object) -> Vec<(Class, Option<String>)> {
    let objects = ObjectSet::new(vec![object(Arch::Any, model)], Some(0)).expect("one object");
    let request = Request::new(objects, &[]);
    request.needs().iter().map(|need| (need.class, need.target.clone())).collect()
}

/// Returns an object with a program of this section that needs these functions of the kernel.
fn with_functions(section: &str, functions: &[(&str, Presence)]) -> Object {
    let ksym = |(text, presence): &(&str, Presence)| Ksym {
        name: name(text),
        kind: KsymKind::Function(TypeId(1)),
        presence: *presence,
    };
    let signature = Type::Signature { result: TypeId::VOID, params: Vec::new() };
    Object {
        ksyms: functions.iter().map(ksym).collect(),
        types: Types { list: vec![signature], notes: Vec::new() },
        ..program(section, &[])
    }
}

#[test]
fn a_program_with_a_timer_runs_by_itself() {
    let timed = |section: &str, name: &str| Object {
        maps: vec![map(&timer_map(name), MapKind::Array, 16, 1)],
        ..program(section, &[])
    };
    let classes = |model| needs(model).into_iter().map(|need| need.0).collect::<Vec<_>>();
    assert_eq!(classes(timed("socket", "one")), [Class::Timer]);
    assert_eq!(classes(timed("socket", "two")), [Class::SocketFilter]);
    assert_eq!(classes(timed("xdp", "one")), [Class::Xdp]);
    assert_eq!(classes(program("socket", &[])), [Class::SocketFilter]);
}

#[test]
fn pins_are_maps_and_the_section_of_pinned_variables() {
    let section = |suffix| DataSection {
        kind: DataKind::Data,
        suffix,
        content: DataContent::Bytes(vec![0; 8]),
        variables: Vec::new(),
    };
    let mut pinned = map("kept", MapKind::Array, 8, 1);
    pinned.pinning = Pinning::ByName;
    let model = Object {
        maps: vec![map("other", MapKind::Array, 8, 1), pinned],
        data: vec![section(None), section(Some(name("pinned")))],
        ..Object::default()
    };
    let one = object(Arch::Any, model.clone());
    assert_eq!((one.name(), one.arch()), ("test", Arch::Any));
    let pins: Vec<_> = one.pins().map(|pin| (pin.map, pin.path)).collect();
    let expected = [("kept", "test/maps/kept"), (".data.pinned", "test/globals/pinned_globals")];
    assert_eq!(pins, expected.map(|(map, path)| (map.to_owned(), path.to_owned())));
    let target = |path: &str| (Class::Pin, Some(path.to_owned()));
    assert_eq!(needs(model), expected.map(|(_, path)| target(path)));
}

#[test]
fn only_functions_that_must_be_there_choose_the_object() {
    use Presence::{Optional, Required};
    let mut model = with_functions("perf_event", &[("needed", Required), ("optional", Optional)]);
    model.ksyms.push(Ksym { name: name("variable"), kind: KsymKind::Address, presence: Required });
    assert_eq!(object(Arch::Any, model).functions().collect::<Vec<_>>(), ["needed"]);

    let forms = ["newest", "newer", "old"];
    let objects =
        forms.map(|function| object(Arch::Any, with_functions("perf_event", &[(function, Required)])));
    let chosen = |own: &[usize], kernel: &[&str]| {
        let mut set = ObjectSet::new(objects.to_vec(), own.iter().copied()).expect("needs of one class");
        set.choose(|function| kernel.contains(&function));
        set.own().map(|one| one.functions().next().expect("it has one").to_owned())
    };
    for (own, kernel, expected) in [
        (&[0, 1, 2][..], &["newest", "newer", "old"][..], Some("newest")),
        (&[0, 1, 2], &["newer", "old"], Some("newer")),
        (&[0, 1, 2], &["old"], Some("old")),
        // None fits: the first says what is missing.
        (&[0, 1, 2], &[], Some("newest")),
        (&[1, 2], &["newest", "old"], Some("old")),
        (&[2], &["newest"], Some("old")),
        (&[], &["newest"], None),
        (&[7], &["newest"], None),
    ] {
        assert_eq!(chosen(own, kernel).as_deref(), expected, "{own:?} {kernel:?}");
    }
}

#[test]
fn the_chosen_object_is_the_one_that_is_loaded() {
    let of = |entries| Object { maps: vec![map("m", MapKind::Array, 8, entries)], ..Object::default() };
    let objects = vec![object(Arch::X86_64, of(1)), object(Arch::Aarch64, of(2))];
    for (own, entries) in [(Some(0), Some(1)), (Some(1), Some(2)), (None, None)] {
        let set = ObjectSet::new(objects.clone(), own).expect("needs of one class");
        let admitted = Policy::everything().admit(Request::new(set, &[]), 1).expect("allowed");
        assert_eq!(admitted.map(|one| one.object().model().maps[0].shape.entries), entries);
    }
}

#[test]
fn limits_hold_for_the_union_of_the_objects() {
    let of = |value: u32, ring: u32, pinned: usize| {
        let mut maps = vec![map("a", MapKind::Array, value, 1), map("r", MapKind::RingBuf, 0, ring)];
        maps.extend((0..pinned).map(|at| map(&format!("p{at}"), MapKind::Array, 4, 1)));
        maps.iter_mut().skip(2).for_each(|map| map.pinning = Pinning::ByName);
        Object { maps, ..Object::default() }
    };
    let set = ObjectSet::new(
        vec![object(Arch::X86_64, of(8000, 4096, 2)), object(Arch::Aarch64, of(8, 65536, 2))],
        [0],
    );
    let set = set.expect("needs of one class");
    let alone = |model: Object| object(Arch::Any, model).memory(1);
    let (first, second) = (alone(of(8000, 4096, 2)), alone(of(8, 65536, 2)));
    let both = set.memory(1);
    assert_eq!((both.maps, both.map_bytes, both.ring_bytes), (4, first.map_bytes, second.ring_bytes));
    assert!(first.map_bytes > second.map_bytes && first.ring_bytes < second.ring_bytes);
    assert_eq!(set.pins(), 2);
    // Maps of different names are different maps, whichever object is loaded.
    let named = |text: &str, arch| {
        let mut one = map(text, MapKind::Array, 4096, 1);
        one.pinning = Pinning::ByName;
        object(arch, Object { maps: vec![one], ..Object::default() })
    };
    let (one, other) = (named("one", Arch::X86_64), named("other", Arch::Aarch64));
    let expected = (2, one.memory(1).map_bytes + other.memory(1).map_bytes);
    let apart = ObjectSet::new(vec![one.clone(), other], [0]);
    assert!(apart.is_err(), "the second pins what the first does not");
    let unpinned = |text: &str, arch| {
        object(arch, Object { maps: vec![map(text, MapKind::Array, 4096, 1)], ..Object::default() })
    };
    let apart = ObjectSet::new(vec![unpinned("one", Arch::X86_64), unpinned("other", Arch::Aarch64)], [0]);
    let both = apart.expect("needs of one class").memory(1);
    assert_eq!((both.maps, both.map_bytes), expected);
    let policy = |rule: &str| {
        let mut policy = Policy::everything();
        policy.limit_rule(rule).expect("a limit");
        policy.admit(Request::new(set.clone(), &[]), 1)
    };
    assert!(policy("pins=2").is_ok());
    let refused = policy("pins=1").expect_err("two are pinned");
    assert_eq!(refused, "its maps: pins is 2, and the limit is 1: --limit pins=2 would allow it");
}

#[test]
fn an_object_with_another_size_of_a_map_is_judged_again() {
    let mut policy = Policy::everything();
    policy.limit_rule("map_bytes=64k").expect("a limit");
    let model = Object { maps: vec![map("a", MapKind::Array, 8, 16)], ..Object::default() };
    let objects = ObjectSet::new(vec![object(Arch::Any, model.clone())], [0]).expect("one object");
    let admitted = policy.admit(Request::new(objects, &[]), 1).expect("it is small").expect("there is one");
    let again = |entries| {
        let mut model = model.clone();
        model.maps[0].shape.entries = entries;
        policy.admit_again(&admitted, model, 1)
    };
    let larger = again(32).expect("it is small");
    assert_eq!(larger.object().model().maps[0].shape.entries, 32);
    assert_eq!((larger.object().name(), larger.object().arch()), ("test", Arch::Any));
    let refused = again(1 << 20).expect_err("8 MiB");
    assert!(matches!(&refused, Readmission::Denied(reasons) if reasons.contains("map_bytes")), "{refused}");
}

/// A kernel may charge more for a map than we foresee, for example with larger pages.
#[test]
fn the_larger_of_our_figure_and_of_the_kernels_charge_counts() {
    let mut policy = Policy::everything();
    policy.limit_rule("map_bytes=64k").expect("a limit");
    policy.limit_rule("ring_bytes=64k").expect("a limit");
    let maps = vec![map("a", MapKind::Array, 8, 16), map("ring", MapKind::RingBuf, 0, 0)];
    let objects = ObjectSet::new(vec![object(Arch::Any, Object { maps, ..Object::default() })], [0]);
    let request = Request::new(objects.expect("one object"), &[]);
    let admitted = policy.admit(request, 1).expect("it is small").expect("there is one");
    let check = |charged: fn(&str) -> Option<u64>| admitted.check_charges(1, charged);
    assert_eq!(check(|_| None), Ok(()));
    assert_eq!(check(|_| Some(8)), Ok(()), "fewer bytes than it has when it is full");
    assert_eq!(check(|_| Some(64 << 10)), Ok(()));
    let expected = |name: &str| {
        format!("its maps: {name} is 65537, and the limit is 65536: --limit {name}=65537 would allow it")
    };
    assert_eq!(check(|name| (name == "a").then_some(65537)), Err(expected("map_bytes")));
    assert_eq!(check(|name| (name == "ring").then_some(65537)), Err(expected("ring_bytes")));
}

#[test]
fn objects_for_other_machines_need_nothing_that_the_first_does_not() {
    let set = |first: Object, second: Object| {
        ObjectSet::new(vec![object(Arch::X86_64, first), object(Arch::Aarch64, second)], [0])
    };
    let refused = |first, second| set(first, second).expect_err("it needs more").to_string();
    // Functions of system calls are named after the machine; helpers and functions are of one class.
    assert!(set(program("kprobe/__x64_sys_read", &[]), program("kprobe/__arm64_sys_read", &[])).is_ok());
    assert!(set(program("xdp", &[109]), program("xdp", &[117])).is_ok());
    let reason = refused(program("kprobe/__x64_sys_read", &[]), program("kprobe/__arm64_sys_write", &[]));
    assert!(reason.contains("needs kprobe=sys_write, which the first object"), "{reason}");
    let reason = refused(program("xdp", &[]), program("xdp", &[109]));
    assert!(reason.contains("for aarch64 needs helper, which"), "{reason}");
    let reason = refused(program("xdp", &[]), program("tc", &[]));
    assert!(reason.contains("needs tc, which"), "{reason}");
    // Fewer needs are no danger, and one object is judged alone.
    assert!(set(program("xdp", &[109]), program("xdp", &[])).is_ok());
    assert!(ObjectSet::new(vec![object(Arch::Any, program("tc", &[]))], [0]).is_ok());
    assert!(ObjectSet::new(Vec::new(), [0]).is_ok());
}

#[test]
fn every_record_of_a_file_is_read() {
    let record = |name: &str, elf: Vec<u8>| BpfRecord { name: name.into(), arch: Arch::Any, elf };
    let sound = write(&program("perf_event", &[])).expect("a sound object");
    let set = ObjectSet::read(&[record("a", sound.clone()), record("b", sound.clone())], [1]).expect("sound");
    assert_eq!(set.objects().len(), 2);
    assert_eq!(set.own().map(PluginObject::name), Some("b"));
    assert!(ObjectSet::read(&[record("a", sound), record("b", b"\x7fELF".to_vec())], [0]).is_err());
}

#[test]
fn libbpf_gets_a_short_plain_name() {
    let loaded = |name: &str| {
        let one = PluginObject::new(name, Arch::Any, Object::default()).expect("a name of a file");
        let set = ObjectSet::new(vec![one], [0]).expect("one object");
        let admitted = Policy::nothing().admit(Request::new(set, &[]), 1).expect("it needs nothing");
        admitted.expect("there is one").loaded_name()
    };
    assert_eq!(loaded("my.script-1"), "my_script_1");
    assert_eq!(loaded("fifteen_letters_and_more"), "fifteen_letters");
    assert_eq!(loaded("\u{e9}\u{df}a"), "__a");
}

#[test]
fn libbpf_gets_what_was_judged() {
    let model = program("xdp", &[109]);
    let set = ObjectSet::new(vec![object(Arch::Any, model.clone())], [0]).expect("one object");
    let admitted = Policy::everything().admit(Request::new(set, &[]), 1).expect("allowed");
    let elf = admitted.expect("there is one").elf(&KernelFunctionIds::new()).expect("a sound object");
    assert_eq!(read(&elf).expect("a sound object"), model);
}
