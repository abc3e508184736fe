//! Finds the files of a script: the modules it imports, the headers it includes.
//!
//! In: the main file's tree and a source of texts. Out: the trees of all files, with the declarations of
//! headers instead of the includes, and imports by number. Not here: the meaning of names.

mod header;
mod module;
mod path;

use std::collections::{HashMap, HashSet};

use crate::ast;
use crate::diag::Diagnostics;
use crate::lex;
use crate::parse;
use crate::source::{FileId, Files, SourceMap};

/// Maximum length of a chain of files that import or include each other.
const MAX_DEPTH: usize = 64;

/// The files of a script, parsed.
#[derive(Debug, Clone)]
pub struct Program {
    /// The units: modules before those that import them; the main file is the last.
    pub units: Vec<Unit>,
    /// Whether maps that the main file uses without a declaration are inferred: it has no `main`.
    pub infers_maps: bool,
    /// The bodies of programs that are left out because the kernel lacks their targets.
    pub left_out: Vec<ast::Block>,
}

/// The main file or a module, with the headers that it includes.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The name under which the first unit imports it; none for the main file.
    pub name: Option<String>,
    /// The unit's own file. An item whose span is in another file comes from a header.
    pub file: FileId,
    /// The tree, with the declarations of headers instead of the includes.
    pub ast: ast::File,
    /// The imports in source order.
    pub imports: Vec<Import>,
}

/// An import and its target.
#[derive(Debug, Clone)]
pub struct Import {
    /// The name of the module in this unit.
    pub name: ast::Ident,
    /// The imported unit or file.
    pub target: ImportTarget,
}

/// The kinds of import targets.
#[derive(Debug, Clone)]
pub enum ImportTarget {
    /// A unit, by its position in [`Program::units`].
    Unit(usize),
    /// A Python file, by the path as written.
    Python(String),
    /// A file that could not be read, which was reported.
    Missing,
}

/// Options of the search for files.
#[derive(Debug, Clone, Copy)]
pub struct Search<'a> {
    /// Reads the texts of files.
    pub files: &'a dyn Files,
    /// Folders that are searched for headers, after the folder of the including file.
    pub include: &'a [String],
    /// Accepts only the language of 0.1.1.
    pub strict_011: bool,
}

/// Reads all files that `main` names, directly or indirectly.
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
    Program { units: loader.units, infers_maps: false, left_out: Vec::new() }
}

/// A source file that was read.
struct Opened {
    name: Option<String>,
    path: String,
    file: FileId,
    ast: ast::File,
}

/// The state of one call of [`load`].
struct Loader<'a> {
    sources: &'a mut SourceMap,
    search: Search<'a>,
    diagnostics: &'a mut Diagnostics,
    /// The folder of the main file as on the command line, with a final `/`: a prefix of names in messages.
    folder: String,
    units: Vec<Unit>,
    /// Indices of finished modules by their path.
    modules: HashMap<String, usize>,
    /// Headers that were read, by their path; none if they cannot be read.
    headers: HashMap<String, Option<ast::File>>,
    /// Paths of the files that are being read, each named by the one before.
    open: Vec<String>,
}

impl Loader<'_> {
    /// Adds a unit and all units that it needs. Returns its index.
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

    /// Returns the name of a file in messages.
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

    /// Returns the chain of files from `path` back to itself, for messages; none if there is no cycle.
    fn cycle(&self, path: &str) -> Option<String> {
        let at = self.open.iter().position(|open| open == path)?;
        let chain = self.open[at..].iter().map(String::as_str).chain([path]);
        Some(chain.map(|path| self.display_path(path)).collect::<Vec<_>>().join(" -> "))
    }
}
