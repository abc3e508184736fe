//! Assigns functions to the halves, and finds the data that both share.
//!
//! In: a checked program. Out: lists of ids for the two back ends. Code and layout are left to the back ends.

use std::collections::BTreeSet;

use crate::hir::visit::{self, Visitor};
use crate::hir::{
    ConfigId, CounterId, DoubleBuffer, FuncId, FunctionKind, GlobalId, Half, Hir, HirFunction, ImplId, MapId,
    ProgramKind, RingId, Target,
};

/// The items of the two halves of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    /// Kernel functions in source order: programs, and helpers that are called. Helpers without a caller are
    /// left out.
    pub kernel: Vec<FuncId>,
    /// Userspace functions in source order: those that `main` or a test reaches.
    pub user: Vec<FuncId>,
    /// Globals in the BPF object, because a kernel function uses them.
    pub kernel_globals: BTreeSet<GlobalId>,
    /// Globals of the userspace half alone: they are in the plugin's memory.
    pub plugin_globals: BTreeSet<GlobalId>,
    /// Maps that the BPF object defines: all that are used by either half.
    pub maps: BTreeSet<MapId>,
    /// Ring buffers that the BPF object defines: all that are used by either half.
    pub rings: BTreeSet<RingId>,
    /// Config blocks that the BPF object has a map for: all that are used by either half.
    pub configs: BTreeSet<ConfigId>,
    /// Counters that kernel functions read: the BPF object has an array of events for each.
    pub counters: BTreeSet<CounterId>,
    /// Impl blocks, all of which the BPF object defines.
    pub impls: Vec<ImplId>,
    /// Whether kernel code reads registers or other members whose offset depends on the architecture.
    pub arch_dependent: bool,
}

impl Split {
    /// Whether the program needs a BPF object.
    pub fn needs_object(&self) -> bool {
        !self.kernel.is_empty()
            || !self.impls.is_empty()
            || !self.maps.is_empty()
            || !self.rings.is_empty()
            || !self.configs.is_empty()
    }

    /// Returns the globals that both halves use.
    pub fn shared_globals(&self, hir: &Hir) -> BTreeSet<GlobalId> {
        let user = Uses::of(hir, &self.user).globals;
        self.kernel_globals.intersection(&user).copied().collect()
    }
}

/// Splits a checked program.
pub fn split(hir: &Hir) -> Split {
    let programs = hir.functions.ids().filter(|id| hir.is_entry(*id));
    let kernel = reachable(hir, programs.collect());
    let entries: Vec<FuncId> = hir.main.into_iter().chain(hir.tests.iter().copied()).collect();
    let opens = hir.open_counters.filter(|_| !entries.is_empty());
    let user = reachable(hir, entries.into_iter().chain(opens).collect());
    let kernel_uses = Uses::of(hir, &kernel);
    let user_uses = Uses::of(hir, &user);
    // Pinned variables are in the object even if only the userspace half uses them: all share one pinned map.
    let pinned = hir.globals.ids().filter(|id| hir.globals[*id].pinned);
    let zeros = hir.zeros.filter(|_| !kernel.is_empty());
    let kernel_globals: BTreeSet<GlobalId> =
        kernel_uses.globals.iter().copied().chain(pinned).chain(zeros).collect();
    Split {
        plugin_globals: user_uses.globals.difference(&kernel_globals).copied().collect(),
        kernel_globals,
        maps: kernel_uses.maps.union(&user_uses.maps).copied().collect(),
        rings: kernel_uses.rings.union(&user_uses.rings).copied().collect(),
        configs: kernel_uses.configs.union(&user_uses.configs).copied().collect(),
        counters: kernel_uses.counters,
        impls: hir.impls.ids().collect(),
        arch_dependent: kernel_uses.context || kernel.iter().any(|id| takes_registers(&hir.functions[*id])),
        kernel,
        user,
    }
}

/// Returns `roots` and all functions that they call, in source order.
fn reachable(hir: &Hir, roots: Vec<FuncId>) -> Vec<FuncId> {
    let mut found = BTreeSet::new();
    let mut open = roots;
    while let Some(id) = open.pop() {
        if found.insert(id) {
            open.extend(Uses::of(hir, &[id]).functions);
        }
    }
    found.into_iter().collect()
}

/// Whether a program's parameters, or its target, depend on the architecture's calling convention.
fn takes_registers(function: &HirFunction) -> bool {
    let FunctionKind::Program(kind) = function.kind else { return false };
    let wrapped = function.system_call.as_ref().is_some_and(|call| call.wrapped);
    let within = matches!(function.target, Target::Function { offset: Some(_), .. });
    wrapped || within || matches!(kind, ProgramKind::Uprobe | ProgramKind::Uretprobe)
}

/// The items that functions mention.
#[derive(Debug, Default)]
struct Uses {
    functions: BTreeSet<FuncId>,
    globals: BTreeSet<GlobalId>,
    maps: BTreeSet<MapId>,
    rings: BTreeSet<RingId>,
    configs: BTreeSet<ConfigId>,
    counters: BTreeSet<CounterId>,
    context: bool,
}

impl Uses {
    fn of(hir: &Hir, functions: &[FuncId]) -> Uses {
        let mut uses = Uses::default();
        for id in functions {
            visit::block(&mut uses, &hir.functions[*id].body);
            if hir.functions[*id].kind.half() == Half::User {
                let handlers = uses.rings.iter().filter_map(|ring| hir.rings[*ring].default_handler);
                uses.functions.extend(handlers);
            }
        }
        let buffers: Vec<DoubleBuffer> =
            uses.maps.iter().filter_map(|map| hir.maps[*map].double_buffer).collect();
        for DoubleBuffer { second, active } in buffers {
            uses.maps.insert(second);
            uses.globals.insert(active);
        }
        uses
    }
}

impl Visitor for Uses {
    fn function(&mut self, id: FuncId) {
        self.functions.insert(id);
    }
    fn global(&mut self, id: GlobalId) {
        self.globals.insert(id);
    }
    fn map(&mut self, id: MapId) {
        self.maps.insert(id);
    }
    fn ring(&mut self, id: RingId) {
        self.rings.insert(id);
    }
    fn config(&mut self, id: ConfigId) {
        self.configs.insert(id);
    }
    fn counter(&mut self, id: CounterId) {
        self.counters.insert(id);
    }
    fn context(&mut self) {
        self.context = true;
    }
}
