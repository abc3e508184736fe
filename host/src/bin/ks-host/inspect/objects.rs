//! The BPF objects of a plugin as the strict reader understood them: the reader's model is also what the host
//! judges and loads.

use std::collections::BTreeSet;

use ks_compiler::object::model::{
    Body, Instruction, KconfigId, KsymId, KsymKind, Map, Object, Pinning, Presence, ProgramId, Uses,
};
use ks_compiler::object::table::Target;
use ks_host::bpf::{Needs, possible_cpus};
use ks_host::explain::check::{Oldest, oldest};
use ks_host::perf::{ProbeMoment, ProbePoint};
use ks_host::policy::PluginObject;
use ks_wit::object::MAX_ITERATIONS;
use ks_wit::section::BpfRecord;
use serde::Serialize;

/// One BPF object in the JSON form.
#[derive(Serialize)]
pub(super) struct Description<'a> {
    name: &'a str,
    arch: String,
    /// Kernel functions that the preceding objects for this architecture need and this one does not: it is
    /// for kernels without them.
    without: Vec<String>,
    /// The oldest kernel that can load it, as far as the tables say; none if the object is refused.
    oldest: Option<Oldest>,
    /// Size of its ELF file in bytes.
    bytes: usize,
    programs: Vec<Program>,
    maps: Vec<MapDescription>,
    /// Functions, variables and settings of the kernel that it names, whether a program uses them or not.
    names: Vec<KernelName>,
    /// Bytes that the kernel charges for all maps when they are full, including maps of variables, excluding
    /// ring buffers.
    map_bytes: u64,
    ring_bytes: u64,
    /// Why it is refused; null if it is not. The other members are empty then.
    refused: Option<String>,
}

#[derive(Serialize)]
struct Program {
    name: String,
    /// Section name: program type and target.
    section: String,
    /// More attach points.
    also: Vec<String>,
    /// Whether the program is left out where the kernel lacks one.
    optional: bool,
    /// Instruction slots of 8 bytes, without those of called functions.
    instructions: u64,
    /// Helpers that the program calls, directly or through its functions.
    helpers: Vec<&'static str>,
    /// Kernel functions that the program calls, directly or through its functions.
    kfuncs: Vec<String>,
    /// Offsets of its probes in the probed file, or why there are none; null if it is not a probe of a file.
    places: Option<String>,
    /// Whether it may hide hits of its tracepoint from other counters.
    filters_events: bool,
    /// Loops that the kernel cuts without reporting it; empty for programs of `ks`, which count and report
    /// it.
    loop_limits: Vec<String>,
}

#[derive(Serialize)]
struct MapDescription {
    name: String,
    /// The kernel's name of the map type without `BPF_MAP_TYPE_`.
    kind: &'static str,
    key_bytes: u32,
    value_bytes: u32,
    /// Number of entries; size in bytes for a ring buffer.
    entries: u32,
    pinned: bool,
    /// Bytes that the kernel charges for it when it is full.
    bytes: u64,
    /// The maps that it holds; null if it holds none.
    inner: Option<InnerMap>,
}

/// The shape of the maps in a map of maps. The loader makes one of them.
#[derive(Serialize)]
struct InnerMap {
    /// The kernel's name of the map type without `BPF_MAP_TYPE_`.
    kind: &'static str,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
}

#[derive(Serialize)]
struct KernelName {
    name: String,
    /// `function`, `variable`, `address` or `setting`.
    kind: &'static str,
    /// Whether the object loads on kernels without it.
    optional: bool,
    /// Whether an instruction uses it.
    used: bool,
}

/// Describes all objects in file order; `by_ks` says whether the file declares that `ks` built them.
pub(super) fn describe(records: &[BpfRecord], by_ks: bool) -> Vec<Description<'_>> {
    let mut described: Vec<Description<'_>> =
        records.iter().map(|record| description(record, by_ks)).collect();
    for index in 1..described.len() {
        let (before, after) = described.split_at_mut(index);
        let Some(one) = after.first_mut() else { continue };
        let own: BTreeSet<&String> = one.programs.iter().flat_map(|program| &program.kfuncs).collect();
        let same = before.iter().filter(|other| other.arch == one.arch);
        let others: BTreeSet<&String> =
            same.flat_map(|other| other.programs.iter().flat_map(|program| &program.kfuncs)).collect();
        one.without = others.difference(&own).map(|name| (*name).clone()).collect();
    }
    described
}

fn description(record: &BpfRecord, by_ks: bool) -> Description<'_> {
    let mut described = Description {
        name: &record.name,
        arch: record.arch.to_string(),
        without: Vec::new(),
        oldest: None,
        bytes: record.elf.len(),
        programs: Vec::new(),
        maps: Vec::new(),
        names: Vec::new(),
        map_bytes: 0,
        ring_bytes: 0,
        refused: None,
    };
    let object = match PluginObject::read(record) {
        Ok(object) => object,
        Err(error) => {
            described.refused = Some(error.to_string());
            return described;
        }
    };
    let cpus = possible_cpus().unwrap_or(1);
    let memory = object.memory(cpus);
    let model = object.model();
    described.oldest = Some(oldest(&Needs::of(&object)));
    let programs = (0..).map(ProgramId).zip(&model.programs);
    described.programs = programs.map(|one| program(model, one, by_ks)).collect();
    described.maps = model.maps.iter().map(|one| map(one, cpus)).collect();
    described.names = names(model);
    (described.map_bytes, described.ring_bytes) = (memory.map_bytes, memory.ring_bytes);
    described
}

fn program(
    model: &Object,
    (id, one): (ProgramId, &ks_compiler::object::model::Program),
    by_ks: bool,
) -> Program {
    let uses = model.uses(id);
    let kfuncs = uses.kfuncs.iter().filter_map(|id| model.ksyms.get(id.index()));
    Program {
        loop_limits: loop_limits(model, &uses, by_ks),
        name: one.name.as_str().to_owned(),
        section: one.section.to_string(),
        also: one.targets().skip(1).map(|target| target.to_string()).collect(),
        optional: one.is_optional(),
        instructions: slots(&one.body),
        helpers: uses.helpers.iter().map(|helper| helper.name()).collect(),
        kfuncs: kfuncs.map(|ksym| ksym.name.as_str().to_owned()).collect(),
        places: places(one),
        filters_events: model.may_filter_events(id),
    }
}

/// Describes where the kernel cuts loops of a program. `bpf_loop` and number iterators return -E2BIG, and a
/// program that ignores that continues as if the loop were complete.
///
/// Source: kernel/bpf/bpf_iter.c, `bpf_loop` and `bpf_iter_num_new`; include/linux/bpf.h, `BPF_MAX_LOOPS` and
/// `BPF_MAX_TIMED_LOOPS`; kernel/bpf/core.c, `bpf_check_timed_may_goto`, v6.18.
fn loop_limits(model: &Object, uses: &Uses, by_ks: bool) -> Vec<String> {
    const REFUSING: [&str; 2] = ["bpf_loop", "bpf_iter_num_new"];
    let helpers = uses.helpers.iter().map(|helper| helper.name());
    let kfuncs = uses.kfuncs.iter().filter_map(|id| model.ksyms.get(id.index())).map(|one| one.name.as_str());
    let refusing = helpers.chain(kfuncs).filter(|name| !by_ks && REFUSING.contains(name));
    let refusing =
        refusing.map(|name| format!("{name} refuses more than {MAX_ITERATIONS} iterations and runs none"));
    let leaving = uses.has_may_goto.then(|| {
        format!("may_goto leaves a loop after {MAX_ITERATIONS} iterations, on newer kernels after 250 ms")
    });
    refusing.chain(leaving).collect()
}

/// Locates the probes of a program in its file as it is now.
fn places(one: &ks_compiler::object::model::Program) -> Option<String> {
    let Target::Binary { symbol: Some(_), .. } = &one.section.target else { return None };
    let at_return = ["uretprobe", "session"].iter().any(|kind| one.section.kind.section.contains(kind));
    let moment = if at_return { ProbeMoment::Return } else { ProbeMoment::Instruction };
    Some(match ProbePoint::named(&one.section.target.to_string(), moment) {
        Ok(points) => {
            let copies = ProbePoint::copies(&points).map(|copies| format!(", not at its copies {copies}"));
            format!("at {}{}", ProbePoint::list(&points), copies.unwrap_or_default())
        }
        Err(reason) => format!("no probe: {reason}"),
    })
}

fn slots(body: &Body) -> u64 {
    body.code.iter().map(Instruction::slots).map(u64::from).sum()
}

fn names(model: &Object) -> Vec<KernelName> {
    let uses = model.all_uses();
    let symbols = (0..).map(KsymId).zip(&model.ksyms).map(|(id, one)| KernelName {
        name: one.name.as_str().to_owned(),
        kind: match one.kind {
            KsymKind::Function(_) => "function",
            KsymKind::Variable(_) => "variable",
            KsymKind::Address => "address",
        },
        optional: one.presence == Presence::Optional,
        used: uses.kfuncs.contains(&id) || uses.addresses.contains(&id),
    });
    let settings = (0..).map(KconfigId).zip(&model.kconfig).map(|(id, one)| KernelName {
        name: one.name.as_str().to_owned(),
        kind: "setting",
        optional: one.presence == Presence::Optional,
        used: uses.kconfig.contains(&id),
    });
    symbols.chain(settings).collect()
}

fn map(map: &Map, cpus: usize) -> MapDescription {
    let inner = map.inner.as_ref().map(|inner| InnerMap {
        kind: inner.kind.name(),
        key_bytes: inner.key.bytes(),
        value_bytes: inner.value.bytes(),
        entries: inner.entries,
    });
    MapDescription {
        inner,
        name: map.name.as_str().to_owned(),
        kind: map.shape.kind.name(),
        key_bytes: map.shape.key.bytes(),
        value_bytes: map.shape.value.bytes(),
        entries: map.shape.entries,
        pinned: map.pinning == Pinning::ByName,
        bytes: map.memory_bytes(u32::try_from(cpus).unwrap_or(u32::MAX)),
    }
}

impl Description<'_> {
    /// Names the architectures that it is for, and the kernels if other objects are for newer ones.
    pub(super) fn is_for(&self) -> String {
        match self.without.as_slice() {
            [] => self.arch.clone(),
            without => format!("{}, kernels without {}", self.arch, without.join(", ")),
        }
    }

    /// Formats name, architecture and size.
    pub(super) fn row(&self) -> Vec<String> {
        let refused = self.refused.as_deref().map(|reason| format!("refused: {reason}"));
        let mut row = vec![self.name.to_owned(), self.is_for(), format!("{} bytes", self.bytes)];
        row.extend(self.oldest.as_ref().map(|oldest| format!("from {oldest}")));
        row.extend(refused);
        row
    }

    /// Formats name, section, size and calls of each program, and whether it filters events.
    pub(super) fn program_rows(&self) -> Vec<Vec<String>> {
        let row = |program: &Program| {
            let helpers = program.helpers.iter().map(|name| (*name).to_owned());
            let calls: Vec<String> = helpers.chain(program.kfuncs.iter().cloned()).collect();
            let calls =
                if calls.is_empty() { "calls nothing".into() } else { format!("calls {}", calls.join(", ")) };
            let instructions = format!("{} instructions", program.instructions);
            let filters = program.filters_events.then(|| "may keep hits from all counters".to_owned());
            let row = [program.name.clone(), program.section.clone(), instructions, calls];
            let limits = program.loop_limits.iter().cloned();
            let also = program.also.iter().map(|target| format!("also {target}"));
            let optional = program.optional.then(|| "optional".to_owned());
            let row = row.into_iter().chain(also).chain(optional);
            row.chain(program.places.clone()).chain(filters).chain(limits).collect()
        };
        self.programs.iter().map(row).collect()
    }

    /// Formats name, kind and use of each name of the kernel.
    pub(super) fn name_rows(&self) -> Vec<Vec<String>> {
        let row = |name: &KernelName| {
            let notes = [(name.optional, "optional"), (!name.used, "not used by its programs")];
            let notes: Vec<&str> = notes.iter().filter(|(holds, _)| *holds).map(|(_, note)| *note).collect();
            vec![name.name.clone(), name.kind.to_owned(), notes.join(", ")]
        };
        self.names.iter().map(row).collect()
    }

    /// Formats name, kind, sizes and memory of each map.
    pub(super) fn map_rows(&self) -> Vec<Vec<String>> {
        let row = |map: &MapDescription| {
            let shape = shape(map.key_bytes, map.value_bytes, map.entries);
            let pinned = map.pinned.then(|| "pinned".to_owned());
            let inner = map.inner.as_ref().map(|inner| {
                let shape = self::shape(inner.key_bytes, inner.value_bytes, inner.entries);
                format!("of maps {} {shape}", inner.kind.to_lowercase())
            });
            let notes = [pinned, inner].into_iter().flatten().collect::<Vec<_>>().join(", ");
            vec![map.name.clone(), map.kind.to_lowercase(), shape, format!("{} bytes", map.bytes), notes]
        };
        self.maps.iter().map(row).collect()
    }
}

fn shape(key_bytes: u32, value_bytes: u32, entries: u32) -> String {
    format!("{key_bytes} -> {value_bytes} bytes, {entries} entries")
}

/// Returns the capabilities that objects may need, each with whether these do.
pub(super) fn capabilities(records: &[BpfRecord]) -> [(&'static str, bool); 3] {
    let objects: Vec<PluginObject> = records.iter().filter_map(|one| PluginObject::read(one).ok()).collect();
    let any = |needs: fn(&Object) -> bool| objects.iter().any(|one| needs(one.model()));
    [
        ("CAP_PERFMON", any(Object::needs_perfmon)),
        ("CAP_NET_ADMIN", any(Object::needs_net_admin)),
        ("CAP_SYSLOG", any(Object::needs_syslog)),
    ]
}
