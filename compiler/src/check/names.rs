//! The names of a file: one space for types, enumerators, functions, maps and globals.

use std::collections::HashMap;

use crate::hir::{FuncId, GlobalId, MapId};
use crate::source::Span;
use crate::types::TypeId;

/// What a name at top level means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    /// A type or alias.
    Type(TypeId),
    /// An enumerator: its enum and its bits.
    Enumerator(TypeId, u64),
    /// A function.
    Function(FuncId),
    /// A global variable.
    Global(GlobalId),
    /// A map.
    Map(MapId),
}

/// A name the compiler declares.
#[derive(Debug, Clone, Copy)]
struct Predeclared {
    symbol: Symbol,
    /// A script's own name hides it.
    weak: bool,
}

/// All names at top level.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    predeclared: HashMap<&'static str, Predeclared>,
    own: HashMap<String, (Symbol, Span)>,
}

/// Why a name cannot be declared.
pub(super) enum Taken {
    /// The compiler declares it.
    Predeclared,
    /// The script does, there.
    At(Span),
}

impl Names {
    pub(super) fn predeclare(&mut self, name: &'static str, symbol: Symbol, weak: bool) {
        self.predeclared.insert(name, Predeclared { symbol, weak });
    }

    pub(super) fn declare(&mut self, name: &str, symbol: Symbol, span: Span) -> Result<(), Taken> {
        if self.predeclared.get(name).is_some_and(|one| !one.weak) {
            return Err(Taken::Predeclared);
        }
        if let Some((_, first)) = self.own.get(name) {
            return Err(Taken::At(*first));
        }
        self.own.insert(name.into(), (symbol, span));
        Ok(())
    }

    pub(super) fn get(&self, name: &str) -> Option<Symbol> {
        let own = self.own.get(name).map(|(symbol, _)| *symbol);
        own.or_else(|| self.predeclared.get(name).map(|one| one.symbol))
    }

    /// The symbol that the script itself declares under this name.
    pub(super) fn own(&self, name: &str) -> Option<Symbol> {
        self.own.get(name).map(|(symbol, _)| *symbol)
    }

    /// All names of symbols that `wanted` accepts, in a fixed order.
    pub(super) fn all(&self, wanted: impl Fn(Symbol) -> bool) -> Vec<&str> {
        let predeclared = self.predeclared.iter().map(|(name, one)| (*name, one.symbol));
        let own = self.own.iter().map(|(name, (symbol, _))| (name.as_str(), *symbol));
        let mut names: Vec<_> =
            predeclared.chain(own).filter(|(_, symbol)| wanted(*symbol)).map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    }
}
