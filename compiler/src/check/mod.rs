//! The checker: syntax tree to typed tree, one file per construct.
//!
//! Names are resolved, types checked and conversions written out in one walk per function, after all declarations are
//! known; so order at top level does not matter. One cause gives one diagnostic: what depends on a name or type that
//! was reported has the error type, which fits everywhere. What the language has and this version has not is reported
//! as such, never passed on.

mod builtin;
mod call;
mod condition;
mod constant;
mod convert;
mod expr;
mod flow;
mod format;
mod function;
mod items;
mod literal;
mod names;
mod operator;
mod perf;
mod place;
mod predeclared;
mod prescan;
mod read_form;
mod stmt;
mod types;

use crate::ast;
use crate::diag::{Diagnostic, Diagnostics};
use crate::hir::{FuncId, Function, Global, GlobalId, Hir, KnownTypes, Map, MapId};
use crate::index::IndexVec;
use crate::types::Types;
use names::Names;

/// What a function looks like from outside.
#[derive(Clone)]
struct Signature {
    params: Vec<crate::types::TypeId>,
    ret: crate::types::TypeId,
    /// None if its attributes cannot be used, which is reported.
    kind: Option<crate::hir::FunctionKind>,
    span: crate::source::Span,
}

/// The state of one check.
struct Checker<'a> {
    types: Types,
    known: KnownTypes,
    names: Names,
    signatures: IndexVec<FuncId, Signature>,
    globals: IndexVec<GlobalId, Global>,
    maps: IndexVec<MapId, Map>,
    diagnostics: &'a mut Diagnostics,
}

/// Checks a file. None if anything is wrong; the reasons are in `diagnostics`, which may hold warnings otherwise.
pub fn check(file: &ast::File, project: &str, diagnostics: &mut Diagnostics) -> Option<Hir> {
    let (types, known, names) = predeclared::declare();
    let mut checker = Checker {
        types,
        known,
        names,
        signatures: IndexVec::new(),
        globals: IndexVec::new(),
        maps: IndexVec::new(),
        diagnostics,
    };
    let declared = checker.declare(file);
    let functions: IndexVec<FuncId, Function> =
        declared.iter().map(|(id, function)| checker.function(*id, function)).collect();
    checker.check_recursion(&functions);
    let main = checker.check_entries(file, &declared);
    if checker.diagnostics.has_errors() {
        return None;
    }
    let Checker { types, known, globals, maps, .. } = checker;
    Some(Hir { project: project.into(), types, functions, globals, maps, main, known })
}

impl Checker<'_> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.report(diagnostic);
    }
}

/// `1 argument`, `2 arguments`.
fn count(arguments: usize) -> String {
    format!("{arguments} argument{}", if arguments == 1 { "" } else { "s" })
}
