//! What libbpf needs of the kernel's types to load an object, so that it does not search all 5 MB of them: the types that
//! relocations ask for, and the ids of the tracepoints that programs attach to and of the functions that they call. It still
//! reads them for kernel structs, for functions of modules, and for those that a kernel may lack.

use std::collections::BTreeSet;

use ks_compiler::object::KernelFunctionIds;
use ks_compiler::object::btf::{Btf, BtfKind, CoreReloKind, FwdKind, TypeId};
use ks_compiler::object::model::{
    Body, Instruction, Ksym, KsymId, KsymKind, Object, Presence, Program, Type, Wide,
};
use ks_compiler::object::table::Target;
use ks_host_macros::Wire;
use ks_wit::kfunc;

/// A part of the kernel's types.
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub(crate) struct KernelPart {
    /// BTF of the types that relocations ask for; empty if none does.
    pub(in crate::bpf) types: Vec<u8>,
    pub(in crate::bpf) tracepoints: Vec<ProgramTracepoint>,
}

/// The tracepoint that a program attaches to.
#[derive(Debug, Clone, PartialEq, Eq, Wire)]
pub(crate) struct ProgramTracepoint {
    pub(super) program: String,
    /// Id of its typedef in the kernel's types.
    pub(super) id: u32,
}

/// The section of programs that get the tracepoint's arguments by their types.
pub(super) const TRACEPOINT_SECTION: &str = "tp_btf";
/// Prefix of the typedefs of tracepoints.
///
/// Source: include/trace/bpf_probe.h, `__DEFINE_EVENT`, v6.18.
const TRACEPOINT_PREFIX: &str = "btf_trace_";
/// What separates a name from the rest that libbpf ignores in it.
///
/// Source: tools/lib/bpf/libbpf.c, `bpf_core_essential_name_len`, v1.7.
const FLAVOR: &str = "___";

impl KernelPart {
    /// Whether libbpf would read the kernel's types for this object.
    pub(in crate::bpf) fn is_needed(object: &Object) -> bool {
        bodies(object).any(|body| !body.core.is_empty()) || object.programs.iter().any(is_at_tracepoint)
    }

    /// Returns the functions of the kernel that programs call, with their ids; none if libbpf has to look up any of them.
    /// It compares the prototype of a function that a script declares with the kernel's. The types are opened only for an
    /// object that calls any.
    pub(in crate::bpf) fn functions(
        object: &Object,
        open: impl FnOnce() -> Option<&'static Btf>,
    ) -> KernelFunctionIds {
        let is_function = |ksym: &Ksym| matches!(ksym.kind, KsymKind::Function(_));
        let kernel = if object.ksyms.iter().any(is_function) { open() } else { None };
        let Some(kernel) = kernel else { return KernelFunctionIds::new() };
        let wide = bodies(object).flat_map(|body| &body.code).filter_map(|one| match one {
            Instruction::LoadWide { value: Wide::Ksym(id), .. } => Some(*id),
            _ => None,
        });
        let addressed: BTreeSet<KsymId> = wide.collect();
        let functions = (0..).map(KsymId).zip(&object.ksyms);
        let functions = functions.filter(|(_, ksym)| is_function(ksym));
        let ids = functions.map(|(id, ksym)| {
            let is_known = kfunc::observing(ksym.name.as_str()).is_some();
            let is_called = is_known && ksym.presence == Presence::Required && !addressed.contains(&id);
            let found = is_called.then(|| kernel.find(ksym.name.as_str(), BtfKind::Func)).flatten()?;
            Some((id, i32::try_from(found.0).ok()?))
        });
        ids.collect::<Option<_>>().unwrap_or_default()
    }

    /// Returns what this object needs; none if a part does not do, as with types of modules, or if an answer depends on
    /// all types.
    pub(in crate::bpf) fn of(object: &Object, kernel: &Btf) -> Option<KernelPart> {
        let mut roots = Vec::new();
        for asked in bodies(object).flat_map(|body| &body.core) {
            roots.extend(candidates(object, kernel, asked.kind, asked.root)?);
        }
        let types = if roots.is_empty() { Vec::new() } else { kernel.part(&roots).ok()? };
        let attached = object.programs.iter().filter(|program| is_at_tracepoint(program));
        let tracepoints = attached.map(|program| {
            let Target::Name(name) = &program.section.target else { return None };
            let id = kernel.find(&format!("{TRACEPOINT_PREFIX}{name}"), BtfKind::Typedef)?;
            Some(ProgramTracepoint { program: program.name.to_string(), id: id.0 })
        });
        Some(KernelPart { types, tracepoints: tracepoints.collect::<Option<_>>()? })
    }
}

fn is_at_tracepoint(program: &Program) -> bool {
    program.section.kind.section == TRACEPOINT_SECTION
}

fn bodies(object: &Object) -> impl Iterator<Item = &Body> {
    let programs = object.programs.iter().map(|program| &program.body);
    programs.chain(object.subprograms.iter().map(|subprogram| &subprogram.body))
}

/// Returns the kernel's types that may be the one that a relocation asks for: all of its name and kind. None if they are
/// not among the kernel's own, or the answer depends on more than them.
fn candidates(object: &Object, kernel: &Btf, kind: CoreReloKind, root: TypeId) -> Option<Vec<TypeId>> {
    match kind {
        // Of the object's own types.
        CoreReloKind::TypeIdLocal => return Some(Vec::new()),
        CoreReloKind::TypeIdTarget | CoreReloKind::TypeMatches => return None,
        _ => {}
    }
    let (name, kinds): (_, &[BtfKind]) = match object.types.get(root)? {
        Type::Composite { kind: FwdKind::Struct, name, .. } => (name.as_ref()?, &[BtfKind::Struct]),
        Type::Composite { kind: FwdKind::Union, name, .. } => (name.as_ref()?, &[BtfKind::Union]),
        Type::Enum { name, .. } => (name.as_ref()?, &[BtfKind::Enum, BtfKind::Enum64]),
        Type::Typedef { name, .. } => (name, &[BtfKind::Typedef]),
        _ => return None,
    };
    let name = essential(name.as_str());
    let found: Vec<TypeId> = kinds.iter().flat_map(|kind| kernel.find_all(name, *kind)).collect();
    (!found.is_empty()).then_some(found)
}

/// Returns the name without its flavor.
fn essential(name: &str) -> &str {
    name.rsplit_once(FLAVOR).map_or(name, |(name, _)| name)
}
