//! The memory that a policy computes for a map equals the kernel's charge, on the running kernel and on
//! emulated ones. These tests need root.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};

use ks_compiler::object::model::{DataContent, DataKind, DataSection, Linkage, MapShape, Side, Variable};
use ks_compiler::object::table::{EntriesRule, MapKind, MapUse, flag, map_row};
use ks_compiler::object::{Object, write};
use ks_host::bpf::possible_cpus;
use ks_tests::cgroup::Group;
use ks_tests::emulated::{Kernel, Machine, here_or_inside, inside};
use ks_tests::plugins::models::{map, name};
use libbpf_rs::MapCore;

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["accounted_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["accounted_", "root_"]);
}

/// Returns all kinds that a plugin may have, except those whose values the kernel charges with the sockets
/// and tasks that they belong to.
fn kinds() -> impl Iterator<Item = MapKind> {
    let rows = (0..64).filter_map(map_row).filter_map(|row| match row.usage {
        MapUse::Allowed(kind) | MapUse::NeedsClass(kind, _) => Some(kind),
        MapUse::Refused(_) => None,
    });
    rows.filter(|kind| kind.row().entries != EntriesRule::Zero)
}

/// Returns a shape of a kind with these entries and sizes, as far as the kind lets them vary.
fn shape(kind: MapKind, entries: u32, key: u32, value: u32) -> MapShape {
    let row = kind.row();
    let side = |rule: ks_compiler::object::table::SizeRule, wanted: u32| {
        let fits = (0..=8).map(|off| wanted + off).chain([4, 8]).find(|bytes| rule.allows(*bytes));
        match fits {
            Some(0) | None => Side::Nothing,
            Some(bytes) => Side::Bytes(bytes),
        }
    };
    let entries = match row.entries {
        EntriesRule::Zero => 0,
        EntriesRule::RingBytes => 4096 * entries.next_power_of_two(),
        // The kernel limits the entries to NR_CPUS.
        EntriesRule::AtLeastOne if kind == MapKind::CpuMap => entries.min(64),
        EntriesRule::AtLeastOne | EntriesRule::OrOnePerCpu => entries,
    };
    let grows = kind == MapKind::LpmTrie;
    let flags = if grows { flag::NO_PREALLOC } else { 0 };
    MapShape {
        flags,
        entries,
        key: side(row.key, key),
        value: side(row.value, value),
        ..map("m", kind, 0, 0).shape
    }
}

/// Returns whether a figure is within 5 % of the charge. The policy counts maps that grow as if they were full;
/// the kernel charges only existing entries.
fn fits(kind: MapKind, counted: u64, charged: u64) -> bool {
    let grows = matches!(kind, MapKind::LpmTrie | MapKind::SockHash | MapKind::DevMap | MapKind::DevMapHash);
    // The sizes of the kernel's own structs are those of the running kernel.
    let of_structs = if inside().is_some() { 256 } else { 0 };
    let off = counted.abs_diff(charged).saturating_sub(of_structs);
    if grows { counted + of_structs >= charged } else { off * 20 <= charged }
}

/// Loads an object and returns the kernel's charge for each of its maps, by name.
fn charged(model: &Object) -> Result<Vec<(String, u64)>, String> {
    let elf = write(model).map_err(|error| error.to_string())?;
    let open = libbpf_rs::ObjectBuilder::default().open_memory(&elf).map_err(|error| format!("{error:#}"))?;
    let loaded = open.load().map_err(|error| format!("{error:#}"))?;
    let of = |map: libbpf_rs::Map<'_>| {
        let facts = format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd());
        let facts = fs::read_to_string(facts).expect("the descriptor is open");
        let bytes = facts.lines().find_map(|line| line.strip_prefix("memlock:"));
        let bytes = bytes.expect("the kernel says it").trim().parse().expect("a number");
        (map.name().to_string_lossy().into_owned(), bytes)
    };
    Ok(loaded.maps().map(of).collect())
}

#[test]
fn root_the_memory_of_maps_is_what_the_kernel_charges() {
    let cpus = u32::try_from(possible_cpus().expect("known")).expect("few");
    let (mut looked, mut off) = (0, Vec::new());
    for kind in kinds() {
        for (entries, key, value) in [(1, 4, 4), (100, 20, 100), (1000, 8, 1016)] {
            let mut one = map("m", kind, 0, 0);
            one.shape = shape(kind, entries, key, value);
            if kind.holds_maps() {
                one.inner = Some(shape(MapKind::Array, 1, 4, 4));
            }
            let counted = one.shape.memory_bytes(cpus);
            let model = Object { maps: vec![one], ..Object::default() };
            let charged = charged(&model).unwrap_or_else(|error| panic!("{kind:?} {entries}: {error}"));
            let [(_, bytes)] = charged[..] else { panic!("{kind:?}: {charged:?}") };
            if !fits(kind, counted, bytes) {
                off.push(format!(
                    "{kind:?} of {entries} entries, {key} and {value} bytes: {counted}, charged {bytes}"
                ));
            }
            looked += 1;
        }
    }
    assert!(looked >= 69, "{looked}");
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// Bytes of a map whose charge is seen in a control group: the kernel charges in advance and in batches, and what
/// the loading itself takes is small beside it.
const SEEN: u64 = 32 << 20;

/// Linux says the charge of a map from 6.4 on; every kernel counts it in the control group of its creator.
#[test]
fn accounted_control_groups_are_charged_what_was_foreseen() {
    if !here_or_inside("process that nothing else is charged beside", inside().is_some()) {
        return;
    }
    fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory").expect("the kernel counts memory");
    let cpus = u32::try_from(possible_cpus().expect("known")).expect("few");
    let (mut looked, mut off) = (0, Vec::new());
    // The kernel limits the entries of a CPU map to NR_CPUS.
    for kind in kinds().filter(|kind| *kind != MapKind::CpuMap) {
        let large = |entries| shape(kind, entries, 20, 1016);
        let each = large(2000).memory_bytes(cpus).abs_diff(large(1000).memory_bytes(cpus)) / 1000;
        let mut one = map("m", kind, 0, 0);
        one.shape = large(u32::try_from(SEEN / each.max(1)).expect("few"));
        if kind.holds_maps() {
            one.inner = Some(shape(MapKind::Array, 1, 4, 4));
        }
        let counted = one.shape.memory_bytes(cpus);
        let charged = seen(&Object { maps: vec![one], ..Object::default() });
        let charged = charged.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        // The kernel takes the values of each CPU before it knows whom to charge for them.
        // Source: kernel/bpf/syscall.c, `map_create`, `bpf_map_save_memcg`, v6.1.
        let uncharged = kind.is_per_cpu() && counted >= charged;
        if !uncharged && !fits(kind, counted, charged) {
            off.push(format!("{kind:?}: {counted}, charged {charged}"));
        }
        looked += 1;
    }
    assert!(looked >= 20, "{looked}");
    assert!(off.is_empty(), "{}", off.join("\n"));
}

/// Loads an object and returns the bytes by which it raises the charge of a control group.
fn seen(model: &Object) -> Result<u64, String> {
    let elf = write(model).map_err(|error| error.to_string())?;
    let group = Group::new();
    let charge = || {
        let bytes = fs::read_to_string(group.path().join("memory.current")).expect("it counts memory");
        bytes.trim().parse::<u64>().expect("a number")
    };
    group.add(std::process::id());
    let before = charge();
    let open = libbpf_rs::ObjectBuilder::default().open_memory(&elf);
    let loaded = open.and_then(libbpf_rs::OpenObject::load).map_err(|error| format!("{error:#}"));
    let after = charge();
    fs::write("/sys/fs/cgroup/cgroup.procs", std::process::id().to_string())
        .expect("root may move processes");
    loaded.map(|_| after.saturating_sub(before))
}

/// Variables are in maps that the host allows to be mapped.
#[test]
fn root_the_memory_of_variables_is_counted() {
    let variable = Variable {
        name: name("counter"),
        offset: 0,
        bytes: 8,
        linkage: Linkage::Global,
        ty: None,
        attributes: Vec::new(),
    };
    let section = |bytes| DataSection {
        kind: DataKind::Bss,
        suffix: None,
        content: DataContent::Zeros(bytes),
        variables: vec![variable.clone()],
    };
    for bytes in [8, 4096, 100_000] {
        let model = Object { data: vec![section(bytes)], ..Object::default() };
        let [(_, charged)] = charged(&model).expect("it loads")[..] else { panic!("one map") };
        let counted = model.memory(1).map_bytes;
        assert!(counted >= charged, "{bytes}: {counted}, charged {charged}");
    }
}
