//! Items that a script uses from the modules that it imports.

use super::Checker;
use super::names::Symbol;
use crate::ast;
use crate::diag::Diagnostic;
use crate::hir::FunctionKind;
use crate::types::TypeId;

impl Checker<'_> {
    /// Resolves the callee `module.name`, an exported function; `None` if an error was reported. `unit` is
    /// that of the module.
    pub(super) fn module_member(&mut self, unit: usize, module: &str, name: &ast::Ident) -> Option<Symbol> {
        let names = &self.modules[unit];
        let error = match names.own(&name.name) {
            Some(symbol @ Symbol::Function(id)) => match self.signatures[id].kind {
                Some(FunctionKind::Private) => {
                    let text = format!("`{}` is private to the module `{module}`", name.name);
                    Diagnostic::error(306, name.span, text)
                        .also(self.signatures[id].span, "marked `@private` here")
                }
                Some(FunctionKind::Test) => {
                    let text = format!("`{}` is a test of the module `{module}`", name.name);
                    Diagnostic::error(306, name.span, text)
                }
                _ => return Some(symbol),
            },
            Some(Symbol::Error) => return None,
            Some(symbol) => {
                let text =
                    format!("module `{module}` exports functions only; `{}` is {}", name.name, symbol.what());
                let error = Diagnostic::error(304, name.span, text)
                    .help("a function of the module can give its value");
                match names.declared_at(&name.name) {
                    Some(span) => error.also(span, "declared here"),
                    None => error,
                }
            }
            None => {
                let exported = names.all_own(|symbol| matches!(symbol, Symbol::Function(_)));
                Diagnostic::error(305, name.span, format!("no function `{}` in module `{module}`", name.name))
                    .suggest_near(name.span, "function", &name.name, exported)
            }
        };
        self.report(error);
        None
    }

    /// Resolves the type `module.Type`.
    pub(super) fn module_type(&mut self, module: &ast::Ident, name: &ast::Ident) -> TypeId {
        let error = self.types.common().error;
        self.used_imports.insert(module.name.clone());
        let diagnostic = match self.names.get(&module.name) {
            Some(Symbol::Error) => return error,
            Some(Symbol::Module(unit)) => match self.modules[unit].own(&name.name) {
                Some(Symbol::Type(ty)) => return ty,
                Some(Symbol::Error) => return error,
                found => {
                    let types = self.modules[unit].all_own(|symbol| matches!(symbol, Symbol::Type(_)));
                    let text = format!("no type `{}` in module `{}`", name.name, module.name);
                    let diagnostic = Diagnostic::error(303, name.span, text)
                        .suggest_near(name.span, "type", &name.name, types);
                    match found {
                        Some(symbol) => diagnostic.label(format!("this is {}", symbol.what())),
                        None => diagnostic,
                    }
                }
            },
            Some(symbol) => {
                Diagnostic::error(303, module.span, format!("no type `{}.{}`", module.name, name.name))
                    .label(format!("`{}` is {}", module.name, symbol.what()))
            }
            None => {
                let modules = self.names.all(|symbol| matches!(symbol, Symbol::Module(_)));
                Diagnostic::error(301, module.span, format!("no module `{}` here", module.name))
                    .suggest_near(module.span, "module", &module.name, modules)
                    .help(format!("import it: `import {} from \"{}.ks\"`", module.name, module.name))
            }
        };
        self.report(diagnostic);
        error
    }
}
