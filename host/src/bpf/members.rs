//! Members of the kernel's structs that programs read, which the loader finds in the kernel that runs.
//!
//! libbpf replaces an instruction whose member is not there by one that no verifier takes. What it says then names the
//! member and not that it is missing: the kernel's types are asked here.

use std::collections::BTreeMap;
use std::fmt;

use ks_compiler::btf::{Btf, BtfKind, CoreReloKind, Type, TypeId};
use ks_compiler::object::Object as Model;
use ks_compiler::object::model::{Body, ProgramId, Type as ModelType};
use serde::{Deserialize, Serialize};

use super::feature::Answer;
use super::kernel_types;

/// What libbpf's types of one name may end in, to tell their versions apart.
/// Source: libbpf v1.7, `bpf_core_essential_name_len`.
const FLAVOR: &str = "___";

/// A member of a struct, or of a struct within it, and so on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberPath {
    /// The struct, union or typedef.
    pub root: String,
    /// From there to the member.
    pub steps: Vec<MemberStep>,
}

/// A step into a struct or an array.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MemberStep {
    /// The member of this name.
    Member(String),
    /// An element.
    Element,
}

/// How a program needs a member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberUse {
    /// The first place in the source that reads it: `file:line`.
    pub at: Option<String>,
    /// The program asks whether it is there.
    pub is_asked_for: bool,
}

impl fmt::Display for MemberPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        self.steps.iter().try_for_each(|step| match step {
            MemberStep::Member(name) => write!(f, ".{name}"),
            MemberStep::Element => f.write_str("[]"),
        })
    }
}

/// The members that a program reads, itself or in functions that it calls.
pub fn of_program(model: &Model, program: ProgramId) -> BTreeMap<MemberPath, MemberUse> {
    let uses = model.uses(program);
    let own = model.programs.get(program.index()).map(|one| &one.body);
    let called = uses.subprograms.iter().filter_map(|id| Some(&model.subprograms.get(id.index())?.body));
    let mut found = BTreeMap::new();
    own.into_iter().chain(called).for_each(|body| add(model, body, &mut found));
    found
}

fn add(model: &Model, body: &Body, found: &mut BTreeMap<MemberPath, MemberUse>) {
    for relo in &body.core {
        let asks = match relo.kind {
            CoreReloKind::FieldExists => true,
            CoreReloKind::FieldByteOffset
            | CoreReloKind::FieldByteSize
            | CoreReloKind::FieldSigned
            | CoreReloKind::FieldLshift
            | CoreReloKind::FieldRshift => false,
            _ => continue,
        };
        let Some(path) = path(model, relo.root, &relo.path) else { continue };
        let line = body.lines.iter().take_while(|line| line.at <= relo.at).last();
        let one: &mut MemberUse = found.entry(path).or_default();
        one.is_asked_for |= asks;
        if one.at.is_none() {
            one.at = line.map(|line| format!("{}:{}", line.file, line.line));
        }
    }
}

/// The names on the way, of which a record has the positions.
fn path(model: &Model, root: TypeId, path: &[u32]) -> Option<MemberPath> {
    let types = &model.types;
    let name = match types.get(root)? {
        ModelType::Composite { name, .. } => name.as_ref()?.as_str(),
        ModelType::Typedef { name, .. } => name.as_str(),
        _ => return None,
    };
    let root_name = name.split(FLAVOR).next().unwrap_or(name).to_owned();
    let mut steps = Vec::new();
    let (_, mut current) = types.resolve(root)?;
    for index in path.get(1..)? {
        let inner = match current {
            ModelType::Composite { members, .. } => {
                let member = members.get(usize::try_from(*index).ok()?)?;
                steps.extend(member.name.as_ref().map(|name| MemberStep::Member(name.as_str().to_owned())));
                member.ty
            }
            ModelType::Array { element, .. } => {
                steps.push(MemberStep::Element);
                *element
            }
            _ => return None,
        };
        (_, current) = types.resolve(inner)?;
    }
    (!steps.is_empty()).then_some(MemberPath { root: root_name, steps })
}

/// Whether the kernel has a function, which programs may call if it is meant for them. If it does not publish its types,
/// none can be called.
pub fn has_function(name: &str) -> bool {
    let types = kernel_types::running();
    types.is_ok_and(|btf| btf.starting(BtfKind::Func, name).any(|(_, found)| found == name))
}

/// Whether the kernel has a member.
pub fn member(path: &MemberPath) -> Answer {
    let Ok(btf) = kernel_types::running() else {
        return Answer::Unknown("the kernel does not publish its types (CONFIG_DEBUG_INFO_BTF)".into());
    };
    let Some(mut current) = root(btf, &path.root) else {
        return Answer::Unknown(format!("the kernel's types have no `{}`; those of a module may", path.root));
    };
    let mut owner = path.root.as_str();
    for step in &path.steps {
        let resolved = btf.resolve(current).ok();
        let found = match (step, resolved.and_then(|id| btf.get(id).ok())) {
            (MemberStep::Member(name), Some(Type::Struct { .. } | Type::Union { .. })) => {
                btf.field(current, name).ok().flatten().map(|field| field.ty)
            }
            (MemberStep::Element, Some(Type::Array { element, .. })) => Some(element),
            _ => None,
        };
        match (found, step) {
            (Some(ty), _) => current = ty,
            (None, MemberStep::Member(name)) => {
                return Answer::No(format!("the kernel has no member `{name}` in `{owner}`"));
            }
            (None, MemberStep::Element) => {
                return Answer::No(format!("in this kernel `{owner}` is no array"));
            }
        }
        owner = match (btf.resolve(current).ok().and_then(|id| btf.get(id).ok()), step) {
            (Some(Type::Struct { name, .. } | Type::Union { name, .. }), _) if !name.is_empty() => name,
            (_, MemberStep::Member(name)) => name,
            (_, MemberStep::Element) => owner,
        };
    }
    Answer::Yes
}

/// The first member that a program reads and the kernel lacks, in words.
pub fn missing(model: &Model, program: &str) -> Option<String> {
    let (id, _) = model.program(program)?;
    of_program(model, id).keys().find_map(|path| match member(path) {
        Answer::No(reason) => Some(reason),
        Answer::Yes | Answer::Unknown(_) => None,
    })
}

/// The struct or union of a name, or behind a typedef.
fn root(btf: &Btf, name: &str) -> Option<TypeId> {
    [BtfKind::Struct, BtfKind::Union, BtfKind::Typedef].into_iter().find_map(|kind| btf.find(name, kind))
}
