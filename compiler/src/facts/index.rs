//! Sorted copies of the recorded facts, built at the first query.

use std::collections::HashMap;

use super::{DefId, DefKind, Definition, Facts, FoundSymbol, Ty};
use crate::source::{FileId, Span};

#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// References, sorted by source range.
    pub(super) refs: Vec<FoundSymbol>,
    /// References, sorted by definition, then by source range.
    pub(super) by_def: Vec<FoundSymbol>,
    /// Types, sorted by source range.
    pub(super) types: Vec<(Span, String)>,
    pub(super) children: HashMap<DefId, Vec<DefId>>,
    by_name: HashMap<String, Vec<DefId>>,
}

/// Maximum length of a chain of aliases; longer ones are cycles.
const MAX_ALIASES: u32 = 32;

impl Index {
    /// Number of recorded expressions that are searched for the smallest one around a byte.
    pub(super) const NESTING: usize = 256;

    pub(super) fn of(facts: &Facts) -> Index {
        let mut index = Index { refs: facts.refs.clone(), types: facts.types.clone(), ..Index::default() };
        index.refs.sort_unstable_by_key(|found| (found.span, found.def));
        index.by_def = index.refs.clone();
        index.by_def.sort_unstable_by_key(|found| (found.def, found.span));
        index.by_def.dedup();
        index.types.sort();
        for (id, definition) in facts.definitions() {
            if let Some(parent) = definition.parent {
                index.children.entry(parent).or_default().push(id);
            }
            if named_alone(&facts.defs, definition) {
                index.by_name.entry(definition.name.clone()).or_default().push(id);
            }
        }
        index
    }

    pub(super) fn visible(&self, defs: &[Definition], file: FileId, offset: u32) -> Vec<DefId> {
        let mut ids: Vec<DefId> =
            self.by_name.values().filter_map(|same| nearest(defs, same, file, offset)).collect();
        ids.sort_unstable();
        ids
    }

    pub(super) fn resolve(
        &self,
        defs: &[Definition],
        file: FileId,
        offset: u32,
        name: &str,
    ) -> Option<DefId> {
        nearest(defs, self.by_name.get(name)?, file, offset)
    }

    pub(super) fn type_named(&self, facts: &Facts, name: &str) -> Option<DefId> {
        let mut name = name;
        for _ in 0..MAX_ALIASES {
            let id = match name.split_once('.') {
                Some((module, member)) => self.member_type(facts, module, member)?,
                None => self.plain_type(facts, name)?,
            };
            match &facts.definition(id)?.ty {
                Ty::Named(next) if facts.definition(id)?.kind == DefKind::Type => name = next,
                _ => return Some(id),
            }
        }
        None
    }

    fn plain_type(&self, facts: &Facts, name: &str) -> Option<DefId> {
        let same = self.by_name.get(name)?;
        let is_type = |id: &&DefId| facts.definition(**id).is_some_and(|one| one.kind.is_type());
        // The script's own declaration takes precedence over a predeclared one of the same name.
        let own = |id: &&DefId| facts.definition(**id).is_some_and(|one| one.span.is_some());
        same.iter().filter(is_type).find(own).or_else(|| same.iter().find(is_type)).copied()
    }

    fn member_type(&self, facts: &Facts, module: &str, member: &str) -> Option<DefId> {
        let is_module = |id: &&DefId| facts.definition(**id).is_some_and(|one| one.kind == DefKind::Module);
        let module = self.by_name.get(module)?.iter().find(is_module)?;
        let named =
            |id: &&DefId| facts.definition(**id).is_some_and(|one| one.name == member && one.kind.is_type());
        self.children.get(module)?.iter().find(named).copied()
    }
}

impl DefKind {
    /// Whether the name denotes a type.
    pub fn is_type(self) -> bool {
        matches!(self, DefKind::Type | DefKind::Struct | DefKind::Enum)
    }

    /// Whether it is callable: its type is then that of its result.
    pub fn is_function(self) -> bool {
        matches!(
            self,
            DefKind::Function
                | DefKind::Program
                | DefKind::Helper
                | DefKind::Method
                | DefKind::Extern
                | DefKind::Builtin
        )
    }
}

/// Whether the name can stand alone: not after `.`, `@` or a module's name.
fn named_alone(defs: &[Definition], definition: &Definition) -> bool {
    let parent = definition.parent.and_then(|parent| defs.get(parent.0 as usize));
    match definition.kind {
        DefKind::Field | DefKind::Attribute | DefKind::MapKind => false,
        DefKind::Method => definition.span.is_some(),
        _ => parent.is_none_or(|parent| parent.kind != DefKind::Module),
    }
}

/// Returns the definition that a name means at a byte, among those of that name: the innermost, then the
/// latest, then the script's own before a predeclared one.
fn nearest(defs: &[Definition], same: &[DefId], file: FileId, offset: u32) -> Option<DefId> {
    let visible = |id: &&DefId| match defs.get(id.0 as usize).map(|one| one.scope) {
        Some(Some(scope)) => scope.file == file && scope.start <= offset && offset <= scope.end,
        Some(None) => true,
        None => false,
    };
    let rank = |id: &&DefId| {
        let one = &defs[id.0 as usize];
        let own_name = one.span.is_some();
        (one.scope.map(|scope| scope.start), own_name, std::cmp::Reverse(**id))
    };
    same.iter().filter(visible).max_by_key(rank).copied()
}
