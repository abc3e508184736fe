//! Go to definition, references and renaming.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use lsp_types::{
    DocumentHighlight, GotoDefinitionResponse, Location, PrepareRenameResponse, Range, TextEdit, Uri,
    WorkspaceEdit,
};

use super::Server;
use super::answer::TextPosition;
use super::hover::{found, noun};
use super::protocol::{INVALID_REQUEST, Refusal};
use super::uri;
use super::workspace::{Analysis, sibling_path};
use crate::ast::ItemKind;
use crate::facts::Facts;
use crate::lex::{self, TokenKind};
use crate::source::Span;

/// Returns the declaration of the name at a position; for the path of a module or header, the file.
pub(super) fn definition(server: &mut Server, position: &TextPosition) -> Option<GotoDefinitionResponse> {
    let analysis = server.workspace.analysis(&position.path)?;
    if let Some(path) = named_file(&analysis, position.offset) {
        server.workspace.read(&path)?;
        let location = Location::new(uri::of_path(&path)?, Range::default());
        return Some(GotoDefinitionResponse::Scalar(location));
    }
    let (analysis, found) = found(server, &analysis, position)?;
    let span = analysis.facts.definition(found.def)?.span?;
    Some(GotoDefinitionResponse::Scalar(location(&analysis, span)?))
}

/// Returns the file that an `include` or `import` names, if the offset lies in it.
fn named_file(analysis: &Analysis, offset: u32) -> Option<String> {
    analysis.main.unit.ast.items.iter().find_map(|item| {
        let (path, from) = match &item.kind {
            ItemKind::Include(path) => (path, path.span.start),
            ItemKind::Import { name, path } => (path, name.span.start),
            _ => return None,
        };
        (from <= offset && offset <= path.span.end).then(|| sibling_path(&analysis.main, &path.bytes))
    })
}

/// Returns the uses of the name at a position in its own file.
pub(super) fn highlight(server: &mut Server, position: &TextPosition) -> Option<Vec<DocumentHighlight>> {
    let analysis = server.workspace.analysis(&position.path)?;
    let main = &analysis.main;
    let found = analysis.facts.at(main.unit.file, position.offset)?;
    let here = analysis.facts.references(found.def).into_iter().filter(|span| span.file == main.unit.file);
    Some(here.map(|span| DocumentHighlight { range: main.range(span), kind: None }).collect())
}

/// Returns every use of the name at a position, in the open texts and in the files that they include and
/// import. The declaration is one of them if the client wants it.
pub(super) fn references(
    server: &mut Server,
    position: &TextPosition,
    include_declaration: bool,
) -> Option<Vec<Location>> {
    let uses = uses(server, position)?;
    let declared = uses.declared;
    let wanted = uses.found.into_iter().filter(|(span, _)| include_declaration || Some(*span) != declared);
    Some(wanted.map(|(_, location)| location).collect())
}

/// Returns the source range and the name that would be renamed.
pub(super) fn prepare_rename(server: &mut Server, position: &TextPosition) -> Option<PrepareRenameResponse> {
    let analysis = server.workspace.analysis(&position.path)?;
    let found = analysis.facts.at(analysis.main.unit.file, position.offset)?;
    let one = analysis.facts.definition(found.def).filter(|one| one.span.is_some())?;
    let range = analysis.main.range(found.span);
    Some(PrepareRenameResponse::RangeWithPlaceholder { range, placeholder: one.name.clone() })
}

/// Renames the name at a position everywhere.
pub(super) fn rename(
    server: &mut Server,
    position: &TextPosition,
    name: &str,
) -> Result<WorkspaceEdit, Refusal> {
    let refuse = |text: String| Err(Refusal::new(INVALID_REQUEST, text));
    if !is_name(name) {
        return refuse(format!("`{name}` cannot be a name"));
    }
    let Some(uses) = uses(server, position) else { return refuse("there is no name here".into()) };
    let Some(declared) = uses.declared else { return refuse("the language declares this name".into()) };
    if let Some(other) = uses.taken(name) {
        return refuse(format!("`{name}` is a {other} there"));
    }
    debug_assert!(uses.found.contains_key(&declared), "a declaration is a use");
    #[expect(clippy::mutable_key_type, reason = "the protocol's own type; its key does not change")]
    let mut changes: HashMap<Uri, Vec<TextEdit>> = HashMap::new();
    for location in uses.found.into_values() {
        changes.entry(location.uri).or_default().push(TextEdit::new(location.range, name.to_owned()));
    }
    Ok(WorkspaceEdit::new(changes))
}

/// All uses of one name.
struct Uses {
    /// The source range of the declaration; none if the language declares it.
    declared: Option<Span>,
    found: BTreeMap<Span, Location>,
    analyses: Vec<Rc<Analysis>>,
}

impl Uses {
    /// Returns the kind of definition that the new name already refers to where this one is used.
    fn taken(&self, name: &str) -> Option<&'static str> {
        let means = |facts: &Facts, span: &Span| {
            let id = facts.resolve(span.file, span.start, name)?;
            facts.definition(id).filter(|one| one.span.is_some()).map(|one| noun(one.kind))
        };
        self.analyses.iter().find_map(|analysis| {
            let here = self.found.keys().filter(|span| span.file == analysis.main.unit.file);
            here.into_iter().find_map(|span| means(&analysis.facts, span))
        })
    }
}

fn uses(server: &mut Server, position: &TextPosition) -> Option<Uses> {
    let analysis = server.workspace.analysis(&position.path)?;
    let at = analysis.facts.at(analysis.main.unit.file, position.offset)?;
    let one = analysis.facts.definition(at.def)?;
    let (declared, scope, name) = (one.span, one.scope, one.name.clone());
    let mut analyses = vec![Rc::clone(&analysis)];
    // A name of one function is not used in other files.
    if scope.is_none() && declared.is_some() {
        let paths: BTreeSet<String> = server.workspace.open_paths().into_iter().collect();
        let others = analysis.others.iter().map(|source| source.path.clone());
        let paths: BTreeSet<String> =
            paths.into_iter().chain(others).filter(|path| *path != position.path).collect();
        analyses.extend(paths.iter().filter_map(|path| server.workspace.analysis(path)));
    }
    let mut found = BTreeMap::new();
    for analysis in &analyses {
        let same = analysis.facts.definitions().find(|(id, one)| match declared {
            Some(span) => one.span == Some(span),
            None => *id == at.def && one.name == name,
        });
        let Some((id, _)) = same else { continue };
        for span in analysis.facts.references(id) {
            if let Some(location) = location(analysis, span) {
                found.insert(span, location);
            }
        }
    }
    Some(Uses { declared, found, analyses })
}

fn location(analysis: &Analysis, span: Span) -> Option<Location> {
    let source = analysis.source(span)?;
    Some(Location::new(source.uri()?, source.range(span)))
}

fn is_name(text: &str) -> bool {
    let file = crate::source::SourceMap::default().add("", "");
    let tokens = file.map(|file| lex::scan(file, text.as_bytes())).unwrap_or_default();
    matches!(tokens.as_slice(), [name, _] if name.kind == TokenKind::Ident)
}
