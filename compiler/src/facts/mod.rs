//! Facts for an editor: where names are declared, what a name refers to, which names are visible at a byte,
//! and which type an expression has.
//!
//! In: the syntax tree ([`syntactic`]), also of a text with errors; the typed tree of a text without errors
//! adds the types that only the checker knows ([`typed`]). Out: answers by byte offset. Recording costs
//! nothing where it is switched off ([`Facts::off`]): a closure builds every text, and then never runs.

mod index;
mod lookup;
pub mod predeclared;
pub mod syntactic;
pub mod tables;
mod ty;
pub mod typed;

use std::sync::OnceLock;

pub use ty::Ty;

use crate::source::{FileId, Span};
use index::Index;

/// The id of a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefId(u32);

impl DefId {
    /// The id that [`Facts::define`] returns where nothing is recorded; no query returns it.
    const NOTHING: DefId = DefId(u32::MAX);
}

/// The kinds of definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DefKind {
    /// A plain function of the userspace half.
    Function,
    /// A function that the kernel calls.
    Program,
    /// A function of the kernel half that programs call.
    Helper,
    /// A method of an impl block, or of a ring buffer.
    Method,
    /// A type alias or a type that the language predeclares.
    Type,
    /// A struct, of the script or predeclared.
    Struct,
    /// An enum, of the script or predeclared.
    Enum,
    /// An enumerator of an enum.
    Enumerator,
    /// A field of a struct, config or impl block.
    Field,
    /// A global variable, shared or local.
    Global,
    /// A map at top level.
    Map,
    /// A ring buffer at top level.
    Ring,
    /// A config block at top level.
    Config,
    /// A counter that both halves read.
    Counter,
    /// An impl block at top level.
    Impl,
    /// A function that the kernel provides.
    Extern,
    /// A module that the file imports.
    Module,
    /// A parameter of a function.
    Param,
    /// A variable of a function.
    Variable,
    /// A constant, at top level or in a function.
    Constant,
    /// A function that the language provides.
    Builtin,
    /// An event that the language names.
    Event,
    /// An attribute or a map flag.
    Attribute,
    /// A kind of map: `hash`, `ringbuf`.
    MapKind,
}

/// A named item and its declaration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name as spelled in the source.
    pub name: String,
    /// The kind of item.
    pub kind: DefKind,
    /// The source range of its name; none if the language predeclares it.
    pub span: Option<Span>,
    /// The source range of the whole declaration, with attributes and body.
    pub extent: Option<Span>,
    /// The declaration on one line, as in the language: a signature, or `var x: u32`.
    pub detail: String,
    /// The documentation by its author or the language; lines of Markdown.
    pub docs: String,
    /// The source range in which it is visible; none for the whole file.
    pub scope: Option<Span>,
    /// The struct, enum, impl block or module that it is a part of.
    pub parent: Option<DefId>,
    /// Whether its type is not written: the checker may then know better ([`Facts::typed`]).
    pub inferred: bool,
    /// Its type; for a function the type of its result, for an alias the aliased type.
    pub ty: Ty,
}

impl Definition {
    /// Creates a definition that only has a name and a kind.
    pub fn new(name: impl Into<String>, kind: DefKind) -> Definition {
        Definition {
            name: name.into(),
            kind,
            span: None,
            extent: None,
            detail: String::new(),
            docs: String::new(),
            scope: None,
            parent: None,
            inferred: false,
            ty: Ty::Unknown,
        }
    }
}

/// A reference to a definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundSymbol {
    /// The source range of the name.
    pub span: Span,
    /// The definition that the name refers to.
    pub def: DefId,
}

/// Definitions, references and types of a script and of the files that it includes and imports.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    recording: bool,
    defs: Vec<Definition>,
    refs: Vec<FoundSymbol>,
    types: Vec<(Span, String)>,
    index: OnceLock<Index>,
}

impl Facts {
    /// Creates facts that record nothing.
    pub fn off() -> Facts {
        Facts::default()
    }

    /// Creates facts that record everything.
    pub fn on() -> Facts {
        Facts { recording: true, ..Facts::default() }
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.recording
    }

    /// Adds a definition. Its name counts as a reference to it.
    pub fn define(&mut self, make: impl FnOnce() -> Definition) -> DefId {
        if !self.recording {
            return DefId::NOTHING;
        }
        let (definition, id) = (make(), DefId(self.defs.len() as u32));
        if let Some(span) = definition.span {
            self.refs.push(FoundSymbol { span, def: id });
        }
        self.defs.push(definition);
        self.index.take();
        id
    }

    /// Records that the name at `span` refers to `def`.
    pub fn refer(&mut self, span: Span, def: DefId) {
        if self.recording && def != DefId::NOTHING {
            self.refs.push(FoundSymbol { span, def });
            self.index.take();
        }
    }

    /// Records the type of the expression, or the declared name, at `span`.
    pub fn typed(&mut self, span: Span, text: impl FnOnce() -> String) {
        if self.recording {
            self.types.push((span, text()));
            self.index.take();
        }
    }

    /// Changes a definition that was added before all of it was known.
    pub(crate) fn amend(&mut self, id: DefId, change: impl FnOnce(&mut Definition)) {
        if let Some(definition) = self.defs.get_mut(id.0 as usize) {
            change(definition);
            self.index.take();
        }
    }

    /// Returns all definitions with their ids, in the order in which they were added.
    pub fn definitions(&self) -> impl Iterator<Item = (DefId, &Definition)> {
        self.defs.iter().enumerate().map(|(at, definition)| (DefId(at as u32), definition))
    }

    /// Returns the definition of an id; none for an unknown id.
    pub fn definition(&self, id: DefId) -> Option<&Definition> {
        self.defs.get(id.0 as usize)
    }

    /// Returns the name that covers a byte or ends there, and its definition.
    pub fn at(&self, file: FileId, offset: u32) -> Option<FoundSymbol> {
        let refs = &self.index().refs;
        let after = refs.partition_point(|found| (found.span.file, found.span.start) <= (file, offset));
        // Names do not overlap: only the last one that starts here or before can cover the byte.
        let found = refs.get(after.checked_sub(1)?)?;
        (found.span.file == file && offset <= found.span.end).then_some(*found)
    }

    /// Returns the source ranges of all references to `def`, its own name included, in order.
    pub fn references(&self, def: DefId) -> Vec<Span> {
        let by_def = &self.index().by_def;
        let start = by_def.partition_point(|found| found.def < def);
        by_def[start..].iter().take_while(|found| found.def == def).map(|found| found.span).collect()
    }

    /// Returns the type of the smallest recorded expression, or declared name, that covers a byte.
    pub fn type_at(&self, file: FileId, offset: u32) -> Option<(Span, &str)> {
        let types = &self.index().types;
        let end = types.partition_point(|(span, _)| (span.file, span.start) <= (file, offset));
        let holding = types[..end].iter().rev().take_while(|(span, _)| span.file == file);
        // In nested expressions the inner one starts last; a small window covers all that start on one line.
        let nearest = holding.take(Index::NESTING).filter(|(span, _)| offset < span.end);
        nearest.min_by_key(|(span, _)| span.end - span.start).map(|(span, text)| (*span, text.as_str()))
    }

    /// Returns the type recorded for exactly this source range.
    pub fn type_of(&self, span: Span) -> Option<&str> {
        let types = &self.index().types;
        let at = types.binary_search_by_key(&span, |(span, _)| *span).ok()?;
        types.get(at).map(|(_, text)| text.as_str())
    }

    /// Returns the definitions that a name at a byte can refer to, each name once: the nearest declaration
    /// hides the others.
    pub fn visible_at(&self, file: FileId, offset: u32) -> Vec<DefId> {
        self.index().visible(&self.defs, file, offset)
    }

    /// Returns the definition that `name` refers to at a byte.
    pub fn resolve(&self, file: FileId, offset: u32, name: &str) -> Option<DefId> {
        self.index().resolve(&self.defs, file, offset, name)
    }

    /// Returns the fields, enumerators, methods or members of a definition.
    pub fn children(&self, id: DefId) -> &[DefId] {
        self.index().children.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns the definition of a type by its name, `module.name` for one of a module; aliases are followed.
    pub fn type_named(&self, name: &str) -> Option<DefId> {
        self.index().type_named(self, name)
    }

    /// Returns the fields or enumerators of a type.
    pub fn members_of(&self, name: &str) -> &[DefId] {
        self.type_named(name).map_or(&[], |id| self.children(id))
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(self))
    }
}
