//! Which files belong to a script: modules it imports, headers it includes.
//!
//! In: the main file's tree and a source of texts. Out: the trees of all files, the declarations of headers in their place,
//! imports by number. Not here: what any name means.

mod header;
mod module;
mod path;

use std::collections::{HashMap, HashSet};

use crate::ast;
use crate::diag::Diagnostics;
use crate::lex;
use crate::parse;
use crate::source::{FileId, Files, SourceMap};

/// Most files of which each is named by the one before.
const MAX_DEPTH: usize = 64;

/// The files of a script.
#[derive(Debug, Clone)]
pub struct Program {
    /// Modules before those that import them; the main file is the last.
    pub units: Vec<Unit>,
}

/// The main file or a module, with the headers that it includes.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The name under which another unit imports it first; none for the main file.
    pub name: Option<String>,
    /// Its file. An item whose span lies in another one comes from a header.
    pub file: FileId,
    /// Its tree: declarations of headers stand where they are included.
    pub ast: ast::File,
    /// Its imports.
    pub imports: Vec<Import>,
}

/// An import that was found.
#[derive(Debug, Clone)]
pub struct Import {
    /// The name it has in this unit.
    pub name: ast::Ident,
    /// What it is.
    pub target: ImportTarget,
}

/// What is imported.
#[derive(Debug, Clone)]
pub enum ImportTarget {
    /// A unit, by its position in [`Program::units`].
    Unit(usize),
    /// A Python file, as written.
    Python(String),
    /// It could not be read, which is reported.
    Missing,
}

/// How files are found.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    /// Where texts come from.
    pub files: &'a dyn Files,
    /// Folders to look for headers in, after that of the including file.
    pub include: &'a [String],
    /// The language of 0.1.1 only.
    pub strict_011: bool,
}

/// Reads all files that `main` names.
pub fn load(
    main: ast::File,
    file: FileId,
    sources: &mut SourceMap,
    search: Search<'_>,
    diagnostics: &mut Diagnostics,
) -> Program {
    let name = sources.file(file).name().to_owned();
    let (folder, base) = match name.rsplit_once('/') {
        Some((folder, base)) => (format!("{folder}/"), base.to_owned()),
        None => (String::new(), name),
    };
    let mut loader = Loader {
        sources,
        search,
        diagnostics,
        folder,
        units: Vec::new(),
        modules: HashMap::new(),
        headers: HashMap::new(),
        open: Vec::new(),
    };
    let main = Opened { name: None, path: base, file, ast: main };
    loader.unit(main);
    Program { units: loader.units }
}

/// A file of the language that was read.
struct Opened {
    name: Option<String>,
    path: String,
    file: FileId,
    ast: ast::File,
}

/// The state of one [`load`].
struct Loader<'a> {
    sources: &'a mut SourceMap,
    search: Search<'a>,
    diagnostics: &'a mut Diagnostics,
    /// The folder of the main file as the user gave it, with `/`: for names in messages.
    folder: String,
    units: Vec<Unit>,
    /// Modules that are done, by their path.
    modules: HashMap<String, usize>,
    /// Headers that were read, by their path; none if they cannot be read.
    headers: HashMap<String, Option<ast::File>>,
    /// Paths of the files that are being read, each named by the one before.
    open: Vec<String>,
}

impl Loader<'_> {
    /// Adds a unit and all it needs. Gives its position.
    fn unit(&mut self, opened: Opened) -> usize {
        let Opened { name, path, file, ast: ast::File { items, end } } = opened;
        self.open.push(path.clone());
        if name.is_some() {
            self.check_module(&items);
        }
        let folder = path::folder(&path).to_owned();
        let (mut kept, mut imports, mut included) = (Vec::new(), Vec::new(), HashSet::new());
        for item in items {
            match &item.kind {
                ast::ItemKind::Include(header) => self.include(header, &folder, &mut included, &mut kept),
                ast::ItemKind::Import { name, path } => imports.push(self.import(name, path, &folder)),
                _ => kept.push(item),
            }
        }
        header::declare_functions(&mut kept, file);
        self.open.pop();
        self.units.push(Unit { name, file, ast: ast::File { items: kept, end }, imports });
        self.units.len() - 1
    }

    /// The name of a file in messages.
    fn display_path(&self, path: &str) -> String {
        if path.starts_with('/') { path.to_owned() } else { format!("{}{path}", self.folder) }
    }

    /// Adds a file and parses it; `None` if it is too long.
    fn parse(&mut self, display_path: String, text: &[u8]) -> Option<(FileId, ast::File)> {
        let file = self.sources.add(display_path, text)?;
        let tokens = lex::scan(file, text);
        lex::report(&tokens, text, self.diagnostics);
        let grammar = parse::Options { strict_011: self.search.strict_011 };
        let ast = parse::parse_with(&tokens, text, grammar, self.diagnostics);
        Some((file, ast))
    }

    /// The chain of files that leads from `path` to itself, for messages.
    fn cycle(&self, path: &str) -> Option<String> {
        let at = self.open.iter().position(|open| open == path)?;
        let chain = self.open[at..].iter().map(String::as_str).chain([path]);
        Some(chain.map(|path| self.display_path(path)).collect::<Vec<_>>().join(" -> "))
    }
}
