//! The names of a file: one namespace for types, enumerators, functions, maps and everything else at top
//! level.

use crate::index::FastMap;
use std::rc::Rc;

use crate::hir::{ConfigId, CounterId, ExternId, FuncId, GlobalId, ImplId, KernelVariableId, MapId, RingId};
use crate::source::Span;
use crate::types::TypeId;

/// The meaning of a name at top level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Symbol {
    /// A type or alias.
    Type(TypeId),
    /// An enumerator: its enum and its bits.
    Enumerator(TypeId, u64),
    /// A constant: its value and type.
    Const(i128, TypeId),
    /// A function with its id.
    Function(FuncId),
    /// A variable at top level.
    Global(GlobalId),
    /// A map with its id.
    Map(MapId),
    /// A variable with a value for each CPU: the map that holds it.
    PerCpu(MapId),
    /// A ring buffer with its id.
    Ring(RingId),
    /// A config block with its id.
    Config(ConfigId),
    /// A counter with its id.
    Counter(CounterId),
    /// A helper or kfunc of an `extern`.
    Extern(ExternId),
    /// A variable of the kernel of an `extern`.
    KernelVariable(KernelVariableId),
    /// An impl block with its id.
    Impl(ImplId),
    /// An imported module: by its position in `Checker::modules`.
    Module(usize),
    /// An imported Python file: by its position in `Checker::python`.
    Python(usize),
    /// An item whose declaration was rejected: fits everywhere.
    Error,
}

impl Symbol {
    /// Returns the kind of the symbol as a word for messages.
    pub(super) fn what(self) -> &'static str {
        match self {
            Symbol::Type(_) => "a type",
            Symbol::Enumerator(..) => "an enumerator",
            Symbol::Const(..) => "a constant",
            Symbol::Function(_) => "a function",
            Symbol::Global(_) | Symbol::PerCpu(_) | Symbol::KernelVariable(_) => "a variable",
            Symbol::Map(_) => "a map",
            Symbol::Ring(_) => "a ring buffer",
            Symbol::Config(_) => "a config block",
            Symbol::Counter(_) => "a counter",
            Symbol::Extern(_) => "an extern",
            Symbol::Impl(_) => "an impl block",
            Symbol::Module(_) | Symbol::Python(_) => "a module",
            Symbol::Error => "unknown",
        }
    }
}

/// Whether a script may declare a name that the compiler declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Redeclaration {
    /// The name is reserved.
    Forbidden,
    /// The script's own name hides the compiler's.
    Allowed,
}

/// A name that the compiler declares.
#[derive(Debug, Clone, Copy)]
struct Predeclared {
    symbol: Symbol,
    redeclaration: Redeclaration,
}

/// All names at top level of one unit.
#[derive(Debug, Clone, Default)]
pub(super) struct SymbolTable {
    predeclared: Rc<FastMap<&'static str, Predeclared>>,
    own: FastMap<String, (Symbol, Span)>,
}

/// The reason why a name cannot be declared.
pub(super) enum Taken {
    /// The compiler declares it.
    Predeclared,
    /// The script declares it, at this source range.
    At(Span),
}

impl SymbolTable {
    pub(super) fn predeclare(&mut self, name: &'static str, symbol: Symbol, redeclaration: Redeclaration) {
        Rc::make_mut(&mut self.predeclared).insert(name, Predeclared { symbol, redeclaration });
    }

    /// Returns the names that another unit starts with: predeclared ones only.
    pub(super) fn fresh(&self) -> SymbolTable {
        SymbolTable { predeclared: Rc::clone(&self.predeclared), own: FastMap::default() }
    }

    pub(super) fn declare(&mut self, name: &str, symbol: Symbol, span: Span) -> Result<(), Taken> {
        if self.is_reserved(name) {
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

    /// Returns the symbol that the script itself declares under this name.
    pub(super) fn own(&self, name: &str) -> Option<Symbol> {
        self.own.get(name).map(|(symbol, _)| *symbol)
    }

    /// Returns the symbol that the compiler declares under this name.
    pub(super) fn predeclared(&self, name: &str) -> Option<Symbol> {
        self.predeclared.get(name).map(|one| one.symbol)
    }

    /// Whether no script may declare this name.
    pub(super) fn is_reserved(&self, name: &str) -> bool {
        self.predeclared.get(name).is_some_and(|one| one.redeclaration == Redeclaration::Forbidden)
    }

    /// Returns the source range of the script's declaration of a name.
    pub(super) fn declared_at(&self, name: &str) -> Option<Span> {
        self.own.get(name).map(|(_, span)| *span)
    }

    /// Returns the script's own names of symbols that `wanted` accepts, in a fixed order.
    pub(super) fn all_own(&self, wanted: impl Fn(Symbol) -> bool) -> Vec<&str> {
        let own = self.own.iter().filter(|(_, (symbol, _))| wanted(*symbol)).map(|(name, _)| name.as_str());
        let mut names: Vec<_> = own.collect();
        names.sort_unstable();
        names
    }

    /// Returns all names of symbols that `wanted` accepts, in a fixed order.
    pub(super) fn all(&self, wanted: impl Fn(Symbol) -> bool) -> Vec<&str> {
        let predeclared = self.predeclared.iter().map(|(name, one)| (*name, one.symbol));
        let own = self.own.iter().map(|(name, (symbol, _))| (name.as_str(), *symbol));
        let mut names: Vec<_> =
            predeclared.chain(own).filter(|(_, symbol)| wanted(*symbol)).map(|(name, _)| name).collect();
        names.sort_unstable();
        names
    }
}
