//! Analysis of map keys: which members are stacks, and which identify the task of a stack. A host needs this
//! to print stacks that programs counted, and so do tables of such maps. The analysis follows values from
//! `stack_id`, `pid` and similar builtins to map keys.

use std::collections::{BTreeMap, BTreeSet};

use ks_wit::manifest::{Holds, KeyPart};

use super::visit::{self, Visitor};
use super::{
    Expr, ExprKind, FuncId, Hir, KernelBuiltin, LocalId, Lvalue, LvalueKind, MapId, StackOwner, Stmt,
    StmtKind,
};
use crate::types::{StructId, TypeId, TypeKind};

/// Location of a value. Members are identified by their struct's type, not by the variable: a member that
/// holds a stack in one value of a struct holds one in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FlowNode {
    Local(FuncId, LocalId),
    Member(StructId, usize),
    /// Scalar keys of a map.
    Key(MapId),
    /// Scalar values of a map.
    Value(MapId),
    /// Return value of a function.
    Result(FuncId),
}

/// Source of a value that flows to a location.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Known(Holds),
    FlowNode(FlowNode),
    Unknown,
}

/// Values that programs store in the keys of maps.
pub struct Stacks<'a> {
    hir: &'a Hir,
    sources: BTreeMap<FlowNode, BTreeSet<Source>>,
}

impl Stacks<'_> {
    /// Analyses the values of these functions.
    pub fn of(hir: &Hir, kernel: impl IntoIterator<Item = FuncId>) -> Stacks<'_> {
        let mut stacks = Stacks { hir, sources: BTreeMap::new() };
        for id in kernel {
            visit::block(&mut Flow { function: id, stacks: &mut stacks }, &hir.functions[id].body);
        }
        stacks
    }

    /// Returns the known parts of a map's key by offset, if one of them is a stack.
    pub fn key_parts(&self, map: MapId) -> Vec<KeyPart> {
        let mut parts = Vec::new();
        let key = self.hir.maps[map].key;
        match self.hir.types.kind(key) {
            TypeKind::Struct(_) => self.members(key, "", 0, &mut parts),
            _ => parts.extend(self.part(FlowNode::Key(map), String::new(), 0, key)),
        }
        let is_stack = |part: &KeyPart| {
            matches!(
                part.holds,
                Holds::KernelStack { .. } | Holds::UserStack { .. } | Holds::ProcessStack { .. }
            )
        };
        if parts.iter().any(is_stack) { parts } else { Vec::new() }
    }

    fn members(&self, ty: TypeId, before: &str, start: u64, parts: &mut Vec<KeyPart>) {
        let types = &self.hir.types;
        let TypeKind::Struct(id) = *types.kind(ty) else { return };
        for (position, field) in types.struct_def(id).fields.iter().enumerate() {
            let offset = start + types.field_offset(id, position);
            let name = format!("{before}{}", field.name);
            match types.kind(field.ty) {
                TypeKind::Struct(_) => self.members(field.ty, &format!("{name}."), offset, parts),
                _ => parts.extend(self.part(FlowNode::Member(id, position), name, offset, field.ty)),
            }
        }
    }

    fn part(&self, node: FlowNode, name: String, offset: u64, ty: TypeId) -> Option<KeyPart> {
        let holds = self.holds(node)?;
        let bytes = u32::try_from(self.hir.types.size(ty)).ok()?;
        Some(KeyPart { name, offset: u32::try_from(offset).ok()?, bytes, holds })
    }

    /// Returns the only kind of value that flows to a location, on any path; none if there are several.
    fn holds(&self, node: FlowNode) -> Option<Holds> {
        let mut found = None;
        let (mut seen, mut open) = (BTreeSet::from([node]), vec![node]);
        while let Some(node) = open.pop() {
            for source in self.sources.get(&node).into_iter().flatten() {
                match source {
                    Source::Known(holds) if found.as_ref().is_none_or(|other| other == holds) => {
                        found = Some(holds.clone());
                    }
                    Source::FlowNode(from) if seen.insert(*from) => open.push(*from),
                    Source::FlowNode(_) => {}
                    Source::Known(_) | Source::Unknown => return None,
                }
            }
        }
        found
    }
}

/// Collects the value flow of one function.
struct Flow<'f, 'a> {
    function: FuncId,
    stacks: &'f mut Stacks<'a>,
}

impl Flow<'_, '_> {
    fn flows_to(&mut self, node: Option<FlowNode>, value: &Expr) {
        // Members are recorded where their struct is built; a copy of a whole struct adds nothing.
        let is_struct = matches!(self.stacks.hir.types.kind(value.ty), TypeKind::Struct(_));
        if let (Some(node), false) = (node, is_struct) {
            self.note(node, self.source(value));
        }
    }

    fn note(&mut self, node: FlowNode, source: Option<Source>) {
        self.stacks.sources.entry(node).or_default().extend(source);
    }

    /// Returns the source of a value. Constants have none: they mean "no stack" where another path stores an
    /// id.
    fn source(&self, value: &Expr) -> Option<Source> {
        let hir = self.stacks.hir;
        Some(match &value.kind {
            ExprKind::Const(_) | ExprKind::Bytes(_) => return None,
            ExprKind::Unary(_, of) if matches!(of.kind, ExprKind::Const(_)) => return None,
            // An id has 31 bits, a negative errno the sign bit, so a conversion to at least 4 bytes preserves
            // both.
            ExprKind::Convert(from) if hir.types.size(value.ty) >= 4 => {
                let source = self.source(from);
                let is_cut = matches!(source, Some(Source::Known(Holds::ProcessStack { .. })))
                    && hir.types.size(value.ty) < 8;
                return if is_cut { Some(Source::Unknown) } else { source };
            }
            ExprKind::Load(lvalue) => self.node(lvalue).map_or(Source::Unknown, Source::FlowNode),
            ExprKind::Call { func, .. } => Source::FlowNode(FlowNode::Result(*func)),
            ExprKind::Kernel(builtin) => match builtin {
                KernelBuiltin::StackId { map, of, .. } => {
                    let map = hir.maps[*map].name.clone();
                    Source::Known(match of {
                        StackOwner::Kernel => Holds::KernelStack { map },
                        StackOwner::User => Holds::UserStack { map },
                    })
                }
                KernelBuiltin::KernelStack(map) => {
                    Source::Known(Holds::KernelStack { map: hir.maps[*map].name.clone() })
                }
                KernelBuiltin::UserStack(map) => {
                    Source::Known(Holds::ProcessStack { map: hir.maps[*map].name.clone() })
                }
                KernelBuiltin::Pid => Source::Known(Holds::Process),
                KernelBuiltin::Tid => Source::Known(Holds::Thread),
                KernelBuiltin::TaskNumber { is_process: true, .. } => Source::Known(Holds::Process),
                KernelBuiltin::TaskNumber { is_process: false, .. } => Source::Known(Holds::Thread),
                KernelBuiltin::Comm => Source::Known(Holds::Command),
                KernelBuiltin::Cpu => Source::Known(Holds::Cpu),
                KernelBuiltin::CgroupId => Source::Known(Holds::Cgroup),
                _ => Source::Unknown,
            },
            _ => Source::Unknown,
        })
    }

    fn node(&self, lvalue: &Lvalue) -> Option<FlowNode> {
        match &lvalue.kind {
            LvalueKind::Local(local) => Some(FlowNode::Local(self.function, *local)),
            LvalueKind::Element { map, .. } => Some(FlowNode::Value(*map)),
            LvalueKind::Field { base, field } => match self.stacks.hir.types.kind(base.ty) {
                TypeKind::Struct(id) => Some(FlowNode::Member(*id, *field)),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Visitor for Flow<'_, '_> {
    fn lvalue(&mut self, lvalue: &Lvalue) {
        if let LvalueKind::Element { map, key } = &lvalue.kind {
            self.flows_to(Some(FlowNode::Key(*map)), key);
        }
    }

    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Struct(values) => {
                let TypeKind::Struct(id) = *self.stacks.hir.types.kind(expr.ty) else { return };
                for (position, value) in values.iter().enumerate() {
                    self.flows_to(Some(FlowNode::Member(id, position)), value);
                }
            }
            ExprKind::Call { func, args } => {
                let params = self.stacks.hir.functions[*func].params.clone();
                for (param, arg) in params.into_iter().zip(args) {
                    self.flows_to(Some(FlowNode::Local(*func, param)), arg);
                }
            }
            _ => {}
        }
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { local, init: Some(init) } => {
                self.flows_to(Some(FlowNode::Local(self.function, *local)), init);
            }
            StmtKind::Bind { local, map, key } => {
                self.flows_to(Some(FlowNode::Key(*map)), key);
                self.note(
                    FlowNode::Local(self.function, *local),
                    Some(Source::FlowNode(FlowNode::Value(*map))),
                );
            }
            StmtKind::Assign { lvalue, value } => self.flows_to(self.node(lvalue), value),
            StmtKind::Compound { lvalue, .. } => {
                if let Some(node) = self.node(lvalue) {
                    self.note(node, Some(Source::Unknown));
                }
            }
            StmtKind::Return(Some(value)) => self.flows_to(Some(FlowNode::Result(self.function)), value),
            StmtKind::For { local, .. } | StmtKind::Take { local, .. } => {
                self.note(FlowNode::Local(self.function, *local), Some(Source::Unknown));
            }
            _ => {}
        }
    }
}
