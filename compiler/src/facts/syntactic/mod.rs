//! Facts from the syntax tree alone: they exist while the text has errors, and need no checker.
//!
//! Scopes and shadowing are those of the language (reference, 3.1); types follow from declarations, calls and
//! literals in the text. The checker adds the types that only it knows with [`Facts::typed`]. No errors are
//! reported here: an unknown name has no reference.

mod body;
mod declare;
mod docs;
mod expr;
#[cfg(test)]
mod tests;
mod types;

use std::collections::HashMap;

use super::{DefId, DefKind, Facts, predeclared};
use crate::ast;
use crate::diag::Diagnostics;
use crate::lex::{self, Token};
use crate::parse;
use crate::source::{FileId, SourceMap, Span};

/// A file as text, tokens and tree.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The id of the file.
    pub file: FileId,
    /// The bytes of the file.
    pub text: Vec<u8>,
    /// All tokens, blanks and comments included.
    pub tokens: Vec<Token>,
    /// The tree; declarations and statements with syntax errors are left out.
    pub ast: ast::File,
    /// Whether the text has a syntax error.
    pub broken: bool,
}

impl Unit {
    /// Scans and parses a text.
    pub fn parse(file: FileId, text: Vec<u8>) -> Unit {
        let mut diagnostics = Diagnostics::default();
        let tokens = lex::scan(file, &text);
        lex::report(&tokens, &text, &mut diagnostics);
        let ast = parse::parse(&tokens, &text, &mut diagnostics);
        Unit { file, text, tokens, ast, broken: diagnostics.has_errors() }
    }
}

/// A module that the main file imports.
#[derive(Debug, Clone)]
pub struct Module<'a> {
    /// The name under which it is imported.
    pub name: &'a str,
    /// The module itself, and the headers that it includes.
    pub units: Vec<&'a Unit>,
}

/// A file with its headers and modules.
#[derive(Debug, Clone)]
pub struct Project<'a> {
    /// The file that the queries are about.
    pub main: &'a Unit,
    /// The headers that it includes, directly or through headers.
    pub headers: Vec<&'a Unit>,
    /// The modules that it imports.
    pub modules: Vec<Module<'a>>,
}

/// Collects all facts about `project.main`, and the declarations of the other files.
pub fn collect(project: &Project<'_>) -> Facts {
    let mut facts = Facts::on();
    predeclared::define(&mut facts);
    let mut collector = Collector::new(facts, project.main);
    collector.in_header = true;
    for header in &project.headers {
        collector.unit = header;
        collector.declare_unit(None);
    }
    collector.in_header = false;
    collector.unit = project.main;
    let declared = collector.declare_unit(None);
    for module in &project.modules {
        collector.declare_module(module);
    }
    collector.unit = project.main;
    for (item, id) in project.main.ast.items.iter().zip(declared) {
        collector.item(item, id);
    }
    collector.facts
}

/// Collects the declarations of a text that belongs to no file.
pub(super) fn prelude(facts: &mut Facts, text: &str) {
    let Some(file) = SourceMap::default().add("prelude.kh", text) else { return };
    let unit = Unit::parse(file, text.into());
    debug_assert!(!unit.broken, "the prelude is KernelScript");
    let mut collector = Collector::new(std::mem::take(facts), &unit);
    collector.predeclaring = true;
    collector.declare_unit(None);
    *facts = collector.facts;
}

/// The state of one traversal of a project.
struct Collector<'a> {
    facts: Facts,
    /// The file that is being visited.
    unit: &'a Unit,
    /// Whether the declared names belong to the language, not to a file.
    predeclaring: bool,
    /// Whether the current file is a header.
    in_header: bool,
    /// Definitions at top level by name.
    globals: HashMap<String, DefId>,
    /// Definitions of the language by name.
    predeclared: HashMap<String, DefId>,
    attributes: HashMap<String, DefId>,
    kinds: HashMap<String, DefId>,
    /// Fields, enumerators, methods and members by their parent.
    members: HashMap<DefId, Vec<DefId>>,
    /// Methods of the current impl block.
    methods: HashMap<String, DefId>,
    /// Names of the current function; the last definition of a name is the one in effect.
    locals: HashMap<String, Vec<DefId>>,
    /// The names that go out of scope at the end of each block.
    open: Vec<String>,
    /// Byte offset of the end of the innermost block.
    block_end: u32,
}

impl<'a> Collector<'a> {
    fn new(facts: Facts, unit: &'a Unit) -> Collector<'a> {
        let mut collector = Collector {
            facts: Facts::off(),
            unit,
            predeclaring: false,
            in_header: false,
            globals: HashMap::new(),
            predeclared: HashMap::new(),
            attributes: HashMap::new(),
            kinds: HashMap::new(),
            members: HashMap::new(),
            methods: HashMap::new(),
            locals: HashMap::new(),
            open: Vec::new(),
            block_end: 0,
        };
        for (id, one) in facts.definitions() {
            let names = match one.kind {
                DefKind::Attribute => Some(&mut collector.attributes),
                DefKind::MapKind => Some(&mut collector.kinds),
                DefKind::Field | DefKind::Method => None,
                _ => Some(&mut collector.predeclared),
            };
            if let Some(names) = names {
                names.entry(one.name.clone()).or_insert(id);
            }
            if let Some(parent) = one.parent {
                collector.members.entry(parent).or_default().push(id);
            }
        }
        collector.facts = facts;
        collector
    }

    /// Returns the definition of a name in the current scope.
    fn lookup(&self, name: &str) -> Option<DefId> {
        let local = self.locals.get(name).and_then(|same| same.last());
        let layers = [&self.methods, &self.globals, &self.predeclared];
        local.or_else(|| layers.iter().find_map(|names| names.get(name))).copied()
    }

    /// Returns the definition of a name at top level.
    fn lookup_global(&self, name: &str) -> Option<DefId> {
        self.globals.get(name).or_else(|| self.predeclared.get(name)).copied()
    }

    /// Returns the member of this name.
    fn member(&self, of: DefId, name: &str) -> Option<DefId> {
        let members = self.members.get(&of)?;
        members.iter().copied().find(|id| self.facts.definition(*id).is_some_and(|one| one.name == name))
    }

    fn refer(&mut self, span: Span, def: Option<DefId>) {
        if let Some(def) = def {
            self.facts.refer(span, def);
        }
    }

    fn kind_of(&self, id: DefId) -> Option<DefKind> {
        self.facts.definition(id).map(|one| one.kind)
    }
}
