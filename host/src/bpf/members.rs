//! Members of kernel structs that programs read by CO-RE.
//!
//! libbpf replaces an instruction whose member is missing by one that the verifier rejects. The log then
//! names the member but not the reason, so this module looks the member up in the kernel's types.

use std::collections::BTreeMap;
use std::fmt;

use ks_compiler::object::Object as Model;
use ks_compiler::object::btf::{Btf, BtfKind, CoreReloKind, Type, TypeId};
use ks_compiler::object::model::{Body, ProgramId, Type as ModelType};
use serde::{Deserialize, Serialize};

use super::feature::Answer;
use super::kernel_types;

/// Separator between a type's name and its flavor suffix in libbpf. Source: libbpf v1.7,
/// `bpf_core_essential_name_len`.
const FLAVOR: &str = "___";

/// Path to a member of a struct, possibly nested.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MemberPath {
    /// Name of the struct, union or typedef at the start.
    pub root: String,
    /// Steps from there to the member, at least one.
    pub steps: Vec<MemberStep>,
}

/// One step into a struct or an array.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MemberStep {
    /// The member of this name.
    Member(String),
    /// Any element of an array.
    Element,
}

/// Use of a member by a program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberUse {
    /// Source line of the first access, as `file:line`. None without line information.
    pub at: Option<String>,
    /// Whether the program tests that the member exists.
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

/// Returns the members that a program reads, in its own code or in functions that it calls.
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

/// Converts the member indices of a CO-RE relocation to names.
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

/// Returns whether the kernel's own types contain a function of this name. False if the kernel publishes no
/// types: programs then cannot call any.
pub fn has_function(name: &str) -> bool {
    kernel_types::running().is_ok_and(|btf| btf.contains(name, BtfKind::Func))
}

/// Returns whether the kernel has a member.
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
                return Answer::No(format!("in this kernel `{owner}` is not an array"));
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

/// Returns the first member that a program reads and the kernel lacks, as a sentence.
pub fn missing(model: &Model, program: &str) -> Option<String> {
    let (id, _) = model.program(program)?;
    of_program(model, id).keys().find_map(|path| match member(path) {
        Answer::No(reason) => Some(reason),
        Answer::Yes | Answer::Unknown(_) => None,
    })
}

/// Finds the struct, union or typedef of a name.
fn root(btf: &Btf, name: &str) -> Option<TypeId> {
    [BtfKind::Struct, BtfKind::Union, BtfKind::Typedef].into_iter().find_map(|kind| btf.find(name, kind))
}
