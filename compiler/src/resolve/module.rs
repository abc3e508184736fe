//! Imports of modules and Python files.

use super::{Import, ImportTarget, Loader, MAX_DEPTH, Opened, path};
use crate::ast::{AstFunction, Ident, Item, ItemKind, StrLit};
use crate::diag::Diagnostic;
use crate::hir::ProgramKind;

impl Loader<'_> {
    pub(super) fn import(&mut self, name: &Ident, path: &StrLit, folder: &str) -> Import {
        let written = String::from_utf8_lossy(&path.bytes).into_owned();
        let target = if written.ends_with(".py") {
            self.python(path, written, folder)
        } else if written.ends_with(".ks") {
            self.module(name, path, &written, folder)
        } else {
            self.diagnostics.report(
                Diagnostic::error(801, path.span, format!("cannot import `{written}`"))
                    .label("a module ends in `.ks` or `.py`"),
            );
            None
        };
        Import { name: name.clone(), target: target.unwrap_or(ImportTarget::Missing) }
    }

    /// Checks that a Python file exists. Its functions are not examined, so it may be installed later.
    fn python(&mut self, literal: &StrLit, written: String, folder: &str) -> Option<ImportTarget> {
        if self.search.files.read(&path::join(folder, &written)).is_none() {
            self.diagnostics.report(
                Diagnostic::warning(428, literal.span, format!("there is no file `{written}` now"))
                    .note("Python is decided by the host: what is missing when the plugin runs gives 0"),
            );
        }
        Some(ImportTarget::Python(written))
    }

    fn module(
        &mut self,
        name: &Ident,
        literal: &StrLit,
        written: &str,
        folder: &str,
    ) -> Option<ImportTarget> {
        let path = path::join(folder, written);
        if let Some(chain) = self.cycle(&path) {
            self.diagnostics.report(
                Diagnostic::error(803, literal.span, format!("`{written}` imports itself")).note(chain),
            );
            return None;
        }
        if let Some(unit) = self.modules.get(&path) {
            return Some(ImportTarget::Unit(*unit));
        }
        let cannot = |why: String| {
            Diagnostic::error(801, literal.span, format!("cannot import `{written}`")).label(why)
        };
        if self.open.len() >= MAX_DEPTH {
            self.diagnostics.report(cannot(format!("more than {MAX_DEPTH} files import each other")));
            return None;
        }
        let Some(text) = self.search.files.read(&path) else {
            self.diagnostics.report(
                cannot("there is no such file".into())
                    .note("paths begin at the folder of the importing file"),
            );
            return None;
        };
        let Some((file, ast)) = self.parse(self.display_path(&path), &text) else {
            self.diagnostics.report(cannot("the file is too long".into()));
            return None;
        };
        let unit = self.unit(Opened { name: Some(name.name.clone()), path: path.clone(), file, ast });
        self.modules.insert(path, unit);
        Some(ImportTarget::Unit(unit))
    }

    /// Reports items that a module must not have: `main`, programs and impl blocks.
    pub(super) fn check_module(&mut self, items: &[Item]) {
        for item in items {
            let (span, what) = match &item.kind {
                ItemKind::Function(function) if is_program(function) => {
                    (function.name.span, format!("`{}` is a program", function.name.name))
                }
                ItemKind::Function(function) if function.name.name == "main" => {
                    (function.name.span, "this is one".to_owned())
                }
                ItemKind::Impl { name, .. } => {
                    (name.span, "an impl block belongs to the main file".to_owned())
                }
                _ => continue,
            };
            self.diagnostics.report(
                Diagnostic::error(802, span, "a module has no main and no programs")
                    .label(what)
                    .help("move it to the script that imports this module"),
            );
        }
    }
}

/// Whether an attribute declares a function that the kernel calls.
pub(super) fn is_program(function: &AstFunction) -> bool {
    let kinds = || ProgramKind::ALL.iter().map(|kind| kind.name());
    function.attributes.iter().any(|attribute| kinds().any(|kind| kind == attribute.name.name))
}
