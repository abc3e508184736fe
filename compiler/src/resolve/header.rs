//! Includes: the declarations of a header replace the `include`.

use std::collections::HashSet;

use super::{Loader, MAX_DEPTH, module, path};
use crate::ast::{File, Item, ItemKind, StrLit};
use crate::diag::Diagnostic;
use crate::headers;
use crate::source::FileId;

/// A header file and its text.
struct FoundHeader {
    /// The path that identifies it, relative to the main file's folder.
    path: String,
    /// The path in messages.
    display_path: String,
    text: Vec<u8>,
}

impl Loader<'_> {
    /// Appends the items of a header to `out`, unless this unit already has them.
    pub(super) fn include(
        &mut self,
        literal: &StrLit,
        folder: &str,
        included: &mut HashSet<String>,
        out: &mut Vec<Item>,
    ) {
        let written = String::from_utf8_lossy(&literal.bytes).into_owned();
        let cannot = |why: String| {
            Diagnostic::error(804, literal.span, format!("cannot include `{written}`")).label(why)
        };
        if !written.ends_with(".kh") {
            let help = written.ends_with(".ks").then(|| "`import name from` brings in a module".to_owned());
            self.diagnostics.report(cannot("a header ends in `.kh`".into()).maybe_help(help));
            return;
        }
        let Some(found) = self.find_header(&written, folder) else {
            let near = crate::diag::near(&written, headers::BUNDLED.iter().map(|(name, _)| *name));
            self.diagnostics.report(
                cannot("there is no such file".into())
                    .note(
                        "looked for next to the including file, in the folders of -I, among the headers of \
                         ks",
                    )
                    .maybe_help(near.map(|near| format!("ks comes with `{near}`"))),
            );
            return;
        };
        if let Some(chain) = self.cycle(&found.path) {
            self.diagnostics.report(
                Diagnostic::error(803, literal.span, format!("`{written}` includes itself")).note(chain),
            );
            return;
        }
        if !included.insert(found.path.clone()) {
            return;
        }
        if self.open.len() >= MAX_DEPTH {
            self.diagnostics.report(cannot(format!("more than {MAX_DEPTH} files include each other")));
            return;
        }
        let path = found.path.clone();
        let Some(file) = self.header(found) else {
            self.diagnostics.report(cannot("the file is too long".into()));
            return;
        };
        self.open.push(path);
        self.splice(file, included, out);
        self.open.pop();
    }

    fn splice(&mut self, file: File, included: &mut HashSet<String>, out: &mut Vec<Item>) {
        let path = self.open.last().expect("the header is being read");
        let folder = path::folder(path).to_owned();
        for item in file.items {
            match &item.kind {
                ItemKind::Include(literal) => self.include(literal, &folder, included, out),
                _ => out.push(item),
            }
        }
    }

    fn find_header(&self, written: &str, folder: &str) -> Option<FoundHeader> {
        let folders = [folder].into_iter().chain(self.search.include.iter().map(String::as_str));
        let on_disk = folders.map(|folder| path::join(folder, written)).find_map(|path| {
            let text = self.search.files.read(&path)?;
            Some(FoundHeader { display_path: self.display_path(&path), path, text })
        });
        on_disk.or_else(|| {
            let text = headers::bundled(written)?.as_bytes().to_vec();
            Some(FoundHeader { path: format!("<{written}>"), display_path: format!("<{written}>"), text })
        })
    }

    /// Returns the tree of a header, parsed and checked once; `None` if it is too long.
    fn header(&mut self, found: FoundHeader) -> Option<File> {
        if let Some(known) = self.headers.get(&found.path) {
            return known.clone();
        }
        let ast = self.parse(found.display_path, &found.text).map(|(_, mut ast)| {
            ast.items.retain(|item| self.only_declares(item));
            ast
        });
        self.headers.insert(found.path, ast.clone());
        ast
    }

    fn only_declares(&mut self, item: &Item) -> bool {
        let (span, what) = match &item.kind {
            ItemKind::Function(function) if !function.body.stmts.is_empty() => {
                (function.name.span, "this function has a body")
            }
            ItemKind::Function(function) if module::is_program(function) => {
                (function.name.span, "this is a program")
            }
            ItemKind::Impl { name, .. } => (name.span, "this is an impl block"),
            ItemKind::Global(global) => (global.name.span, "this is a variable or map"),
            ItemKind::Counter { name, .. } => (name.span, "this is a counter"),
            ItemKind::Import { name, .. } => (name.span, "this is an import"),
            _ => return true,
        };
        self.diagnostics.report(
            Diagnostic::error(805, span, "a header only declares")
                .label(what)
                .help("move it to a `.ks` file"),
        );
        false
    }
}

/// Merges a function that a header of `file` declares with the one that the file defines; without one it is a
/// function of the kernel.
pub(super) fn declare_functions(items: &mut Vec<Item>, file: FileId) {
    let declared = |item: &Item| item.span.file != file && matches!(item.kind, ItemKind::Function(_));
    if !items.iter().any(declared) {
        return;
    }
    let defined: HashSet<String> = items
        .iter()
        .filter(|item| item.span.file == file)
        .filter_map(|item| match &item.kind {
            ItemKind::Function(function) => Some(function.name.name.clone()),
            _ => None,
        })
        .collect();
    items.retain(|item| match &item.kind {
        ItemKind::Function(function) => item.span.file == file || !defined.contains(&function.name.name),
        _ => true,
    });
    for item in items.iter_mut().filter(|item| declared(item)) {
        if let ItemKind::Function(function) = &item.kind {
            item.kind = ItemKind::Extern {
                name: function.name.clone(),
                params: function.params.clone(),
                ret: function.ret.as_ref().map(|returns| returns.ty.clone()),
            };
        }
    }
}
