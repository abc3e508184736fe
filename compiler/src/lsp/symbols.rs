//! The declarations of a file as a tree.

use lsp_types::{DocumentSymbol, SymbolKind};

use super::hover::noun;
use super::workspace::Analysis;
use crate::facts::{DefId, DefKind, Definition};

/// Returns the declarations of the main file, with their fields, enumerators and methods.
pub(super) fn of(analysis: &Analysis) -> Vec<DocumentSymbol> {
    let here = |one: &Definition| one.span.is_some_and(|span| span.file == analysis.main.unit.file);
    let top = analysis.facts.definitions().filter(|(_, one)| here(one) && one.parent.is_none());
    top.filter_map(|(id, one)| symbol(analysis, id, one)).collect()
}

/// Converts a definition. Names of functions have no extent of their own, and are left out.
fn symbol(analysis: &Analysis, id: DefId, one: &Definition) -> Option<DocumentSymbol> {
    let (span, extent) = (one.span?, one.extent?);
    let children: Vec<_> = analysis
        .facts
        .children(id)
        .iter()
        .filter_map(|id| symbol(analysis, *id, analysis.facts.definition(*id)?))
        .collect();
    #[expect(deprecated, reason = "the protocol's type has the field")]
    Some(DocumentSymbol {
        name: one.name.clone(),
        detail: Some(detail(one)),
        kind: kind(one.kind),
        tags: None,
        deprecated: None,
        range: analysis.main.range(extent),
        selection_range: analysis.main.range(span),
        children: Some(children).filter(|children| !children.is_empty()),
    })
}

fn detail(one: &Definition) -> String {
    match one.kind {
        DefKind::Function | DefKind::Program | DefKind::Helper | DefKind::Method => one.detail.clone(),
        _ if one.ty.is_known() => one.ty.to_string(),
        kind => noun(kind).to_owned(),
    }
}

fn kind(kind: DefKind) -> SymbolKind {
    match kind {
        DefKind::Function | DefKind::Program | DefKind::Helper | DefKind::Extern | DefKind::Builtin => {
            SymbolKind::FUNCTION
        }
        DefKind::Method => SymbolKind::METHOD,
        DefKind::Type | DefKind::MapKind => SymbolKind::TYPE_PARAMETER,
        DefKind::Struct => SymbolKind::STRUCT,
        DefKind::Enum => SymbolKind::ENUM,
        DefKind::Enumerator | DefKind::Event => SymbolKind::ENUM_MEMBER,
        DefKind::Field => SymbolKind::FIELD,
        DefKind::Global | DefKind::Param | DefKind::Variable => SymbolKind::VARIABLE,
        DefKind::Map | DefKind::Ring => SymbolKind::ARRAY,
        DefKind::Config => SymbolKind::OBJECT,
        DefKind::Counter => SymbolKind::EVENT,
        DefKind::Impl => SymbolKind::CLASS,
        DefKind::Module => SymbolKind::MODULE,
        DefKind::Constant => SymbolKind::CONSTANT,
        DefKind::Attribute => SymbolKind::PROPERTY,
    }
}
