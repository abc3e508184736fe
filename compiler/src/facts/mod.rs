//! What an editor asks about a text: what is declared where, what a name refers to, what is visible at a place, which
//! type an expression has.
//!
//! In: the syntax tree ([`syntactic`]), which works with errors in the text too; the typed tree of a text without errors
//! adds the types that only the checker knows ([`typed`]). Out: answers by place. Recording costs nothing where it is switched off
//! ([`Facts::off`]): every text is made by a closure that then never runs.

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

/// A definition, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DefId(u32);

impl DefId {
    /// What [`Facts::define`] gives where nothing is recorded; no query finds it.
    const NOTHING: DefId = DefId(u32::MAX);
}

/// What is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DefKind {
    /// A plain function: userspace.
    Function,
    /// A function that the kernel enters.
    Program,
    /// A function of the kernel half that programs call.
    Helper,
    /// A method of an impl block, or of a ring buffer.
    Method,
    /// A type alias or a type that the language predeclares.
    Type,
    /// A struct.
    Struct,
    /// An enum.
    Enum,
    /// A value of an enum.
    Enumerator,
    /// A field of a struct, config or impl block.
    Field,
    /// A variable at top level.
    Global,
    /// A map.
    Map,
    /// A ring buffer.
    Ring,
    /// A config block.
    Config,
    /// A counter that both halves read.
    Counter,
    /// An impl block.
    Impl,
    /// A function that the kernel provides.
    Extern,
    /// An imported module.
    Module,
    /// A parameter.
    Param,
    /// A variable of a function.
    Variable,
    /// A constant.
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

/// Something with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: DefKind,
    /// Where its name stands; none if the language predeclares it.
    pub span: Option<Span>,
    /// The whole declaration, with attributes and body.
    pub extent: Option<Span>,
    /// One line as it is written in the language: a signature, or `var x: u32`.
    pub detail: String,
    /// What its author or the language says about it; lines of Markdown.
    pub docs: String,
    /// Where it is visible; none for the whole file.
    pub scope: Option<Span>,
    /// What it is a field, enumerator, method or member of.
    pub parent: Option<DefId>,
    /// Its type is not written: the checker may know better ([`Facts::typed`]).
    pub inferred: bool,
    /// Its type; of a function the type of its result, of an alias what it stands for.
    pub ty: Ty,
}

impl Definition {
    /// A definition with a name and nothing else.
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

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundSymbol {
    /// The name's bytes.
    pub span: Span,
    /// What it means.
    pub def: DefId,
}

/// Definitions, references and types of a script and of what it includes and imports.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    recording: bool,
    defs: Vec<Definition>,
    refs: Vec<FoundSymbol>,
    types: Vec<(Span, String)>,
    index: OnceLock<Index>,
}

impl Facts {
    /// Records nothing.
    pub fn off() -> Facts {
        Facts::default()
    }

    /// Records.
    pub fn on() -> Facts {
        Facts { recording: true, ..Facts::default() }
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.recording
    }

    /// Adds a definition. The place of its name counts as a reference to it.
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

    /// Says that the name at `span` means `def`.
    pub fn refer(&mut self, span: Span, def: DefId) {
        if self.recording && def != DefId::NOTHING {
            self.refs.push(FoundSymbol { span, def });
            self.index.take();
        }
    }

    /// Says which type the expression, or the declared name, at `span` has.
    pub fn typed(&mut self, span: Span, text: impl FnOnce() -> String) {
        if self.recording {
            self.types.push((span, text()));
            self.index.take();
        }
    }

    /// Changes a definition that was made before all of it was known.
    pub(crate) fn amend(&mut self, id: DefId, change: impl FnOnce(&mut Definition)) {
        if let Some(definition) = self.defs.get_mut(id.0 as usize) {
            change(definition);
            self.index.take();
        }
    }

    /// All definitions with their numbers, as they were made.
    pub fn definitions(&self) -> impl Iterator<Item = (DefId, &Definition)> {
        self.defs.iter().enumerate().map(|(at, definition)| (DefId(at as u32), definition))
    }

    /// A definition.
    pub fn definition(&self, id: DefId) -> Option<&Definition> {
        self.defs.get(id.0 as usize)
    }

    /// The name at a byte, or that ends there, and what it means.
    pub fn at(&self, file: FileId, offset: u32) -> Option<FoundSymbol> {
        let refs = &self.index().refs;
        let after = refs.partition_point(|found| (found.span.file, found.span.start) <= (file, offset));
        // Names do not overlap: the last one that starts here or before is the only one that can reach.
        let found = refs.get(after.checked_sub(1)?)?;
        (found.span.file == file && offset <= found.span.end).then_some(*found)
    }

    /// The places that mean `def`, its own included, by place.
    pub fn references(&self, def: DefId) -> Vec<Span> {
        let by_def = &self.index().by_def;
        let start = by_def.partition_point(|found| found.def < def);
        by_def[start..].iter().take_while(|found| found.def == def).map(|found| found.span).collect()
    }

    /// The type of the smallest recorded expression, or declared name, that holds a byte.
    pub fn type_at(&self, file: FileId, offset: u32) -> Option<(Span, &str)> {
        let types = &self.index().types;
        let end = types.partition_point(|(span, _)| (span.file, span.start) <= (file, offset));
        let holding = types[..end].iter().rev().take_while(|(span, _)| span.file == file);
        // Of nested expressions the inner starts last; a small window holds all that start on one line.
        let nearest = holding.take(Index::NESTING).filter(|(span, _)| offset < span.end);
        nearest.min_by_key(|(span, _)| span.end - span.start).map(|(span, text)| (*span, text.as_str()))
    }

    /// The type recorded for exactly these bytes.
    pub fn type_of(&self, span: Span) -> Option<&str> {
        let types = &self.index().types;
        let at = types.binary_search_by_key(&span, |(span, _)| *span).ok()?;
        types.get(at).map(|(_, text)| text.as_str())
    }

    /// The definitions that a name at a byte can mean, each name once: what is declared nearest hides the rest.
    pub fn visible_at(&self, file: FileId, offset: u32) -> Vec<DefId> {
        self.index().visible(&self.defs, file, offset)
    }

    /// The definition that `name` means at a byte.
    pub fn resolve(&self, file: FileId, offset: u32, name: &str) -> Option<DefId> {
        self.index().resolve(&self.defs, file, offset, name)
    }

    /// Fields, enumerators, methods or members of a definition.
    pub fn children(&self, id: DefId) -> &[DefId] {
        self.index().children.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The definition of a type by its name, `module.name` for one of a module; aliases are followed.
    pub fn type_named(&self, name: &str) -> Option<DefId> {
        self.index().type_named(self, name)
    }

    /// Fields or enumerators of a type.
    pub fn members_of(&self, name: &str) -> &[DefId] {
        self.type_named(name).map_or(&[], |id| self.children(id))
    }

    fn index(&self) -> &Index {
        self.index.get_or_init(|| Index::of(self))
    }
}
