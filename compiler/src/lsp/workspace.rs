//! The texts of the editor and of the disk, their trees and facts.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use super::document::Document;
use super::position::{Encoding, Lines};
use super::uri;
use crate::ast::ItemKind;
use crate::facts::Facts;
use crate::facts::syntactic::{self, Module, Project, Unit};
use crate::headers;
use crate::options::Options;
use crate::source::{FileId, Files, SourceMap, Span};

/// Files as the editor sees them: the open texts, then the disk.
#[derive(Debug)]
struct Overlay {
    disk: Arc<dyn Files>,
    open: HashMap<String, Arc<[u8]>>,
    /// The path of the main file; the compiler's paths are relative to its folder.
    main: String,
}

impl Files for Overlay {
    fn read(&self, path: &str) -> Option<Vec<u8>> {
        let path = uri::sibling_path(&self.main, path);
        self.open.get(&path).map(|text| text.to_vec()).or_else(|| self.disk.read(&path))
    }
}

/// Prefix of the paths of the compiler's own headers, which are not files.
const BUNDLED: &str = "bundled:";

/// A file with its tree and lines.
#[derive(Debug)]
pub struct Source {
    /// The absolute path of the file.
    pub path: String,
    /// The tree and the text.
    pub unit: Unit,
    /// The line starts of the text.
    pub lines: Lines,
}

impl Source {
    /// Returns the URI; none if it is not a file.
    pub fn uri(&self) -> Option<lsp_types::Uri> {
        if self.path.starts_with(BUNDLED) { None } else { uri::of_path(&self.path) }
    }

    /// Returns the positions of a span of this file.
    pub fn range(&self, span: Span) -> lsp_types::Range {
        self.lines.range(&self.unit.text, span)
    }
}

/// A file with its headers and modules, and the facts about them.
#[derive(Debug)]
pub struct Analysis {
    /// The file that was analysed.
    pub main: Rc<Source>,
    /// The files that it includes and imports, directly or indirectly.
    pub others: Vec<Rc<Source>>,
    /// All facts about the file.
    pub facts: Facts,
}

impl Analysis {
    /// Returns the source that contains a span.
    pub fn source(&self, span: Span) -> Option<&Rc<Source>> {
        std::iter::once(&self.main).chain(&self.others).find(|source| source.unit.file == span.file)
    }
}

/// All open texts, and caches of analysed files.
pub struct Workspace {
    options: Options,
    documents: HashMap<String, Document>,
    /// File ids: a path keeps its id as long as the server runs.
    numbers: SourceMap,
    ids: HashMap<String, FileId>,
    sources: HashMap<String, Rc<Source>>,
    analyses: HashMap<String, Rc<Analysis>>,
    /// The unit of a column, as agreed with the client.
    pub encoding: Encoding,
}

impl Workspace {
    /// Creates a workspace with no text open.
    pub fn new(options: Options) -> Workspace {
        Workspace {
            options,
            documents: HashMap::new(),
            numbers: SourceMap::default(),
            ids: HashMap::new(),
            sources: HashMap::new(),
            analyses: HashMap::new(),
            encoding: Encoding::default(),
        }
    }

    /// Adds a text that the editor opened.
    pub fn open(&mut self, path: String, document: Document) {
        self.documents.insert(path, document);
        self.forget_analyses();
    }

    /// Removes a text that the editor closed: the file on disk is used again.
    pub fn close(&mut self, path: &str) {
        self.documents.remove(path);
        self.forget_analyses();
    }

    /// Returns an open text for changes.
    pub fn document_mut(&mut self, path: &str) -> Option<&mut Document> {
        self.forget_analyses();
        self.documents.get_mut(path)
    }

    /// Returns an open text; none if the path is not open.
    pub fn document(&self, path: &str) -> Option<&Document> {
        self.documents.get(path)
    }

    /// The paths of the open texts, in order.
    pub fn open_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = self.documents.keys().cloned().collect();
        paths.sort_unstable();
        paths
    }

    /// Drops all analyses, after a change on disk or in a text that others may use.
    pub fn forget_analyses(&mut self) {
        self.analyses.clear();
    }

    /// Returns the bytes of a file: those of the editor, else those on disk.
    pub fn read(&self, path: &str) -> Option<Arc<[u8]>> {
        match self.documents.get(path) {
            Some(document) => Some(Arc::clone(&document.text)),
            None => self.options.files.read(path).map(Arc::from),
        }
    }

    /// Returns the options for checking the file at `path`: all files are read as the editor has them.
    pub fn options(&self, path: &str) -> Options {
        let open = self.documents.iter().map(|(path, document)| (path.clone(), Arc::clone(&document.text)));
        let disk = Arc::clone(&self.options.files);
        let files: Box<dyn Files> = Box::new(Overlay { disk, open: open.collect(), main: path.to_owned() });
        let name = path.rsplit('/').next().unwrap_or(path);
        let project = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        Options { files: Arc::from(files), project: project.to_owned(), ..self.options.clone() }
    }

    /// Returns a file's tree; parsed again only if its text has changed.
    pub fn source(&mut self, path: &str) -> Option<Rc<Source>> {
        let text = self.read(path)?;
        if let Some(known) = self.sources.get(path).filter(|known| *known.unit.text == *text) {
            return Some(Rc::clone(known));
        }
        let unit = Unit::parse(self.id(path)?, text.to_vec());
        let lines = Lines::of(&text, self.encoding);
        let source = Rc::new(Source { path: path.to_owned(), unit, lines });
        self.sources.insert(path.to_owned(), Rc::clone(&source));
        Some(source)
    }

    /// Returns the analysis of a file.
    pub fn analysis(&mut self, path: &str) -> Option<Rc<Analysis>> {
        if let Some(known) = self.analyses.get(path) {
            return Some(Rc::clone(known));
        }
        let main = self.source(path)?;
        let analysis = Rc::new(self.analyse(main));
        self.analyses.insert(path.to_owned(), Rc::clone(&analysis));
        Some(analysis)
    }

    /// Returns the analysis of a text in place of the file at `path`.
    pub fn analysis_of(&mut self, path: &str, text: Vec<u8>) -> Option<Analysis> {
        let lines = Lines::of(&text, self.encoding);
        let unit = Unit::parse(self.id(path)?, text);
        Some(self.analyse(Rc::new(Source { path: path.to_owned(), unit, lines })))
    }

    fn analyse(&mut self, main: Rc<Source>) -> Analysis {
        let headers = self.headers(&main);
        let modules: Vec<(String, Vec<Rc<Source>>)> = imports(&main)
            .into_iter()
            .filter_map(|(name, path)| {
                let module = self.source(&path)?;
                let headers = self.headers(&module);
                Some((name, std::iter::once(module).chain(headers).collect()))
            })
            .collect();
        let project = Project {
            main: &main.unit,
            headers: headers.iter().map(|source| &source.unit).collect(),
            modules: modules
                .iter()
                .map(|(name, sources)| Module {
                    name,
                    units: sources.iter().map(|source| &source.unit).collect(),
                })
                .collect(),
        };
        let facts = syntactic::collect(&project);
        let others =
            headers.into_iter().chain(modules.into_iter().flat_map(|(_, sources)| sources)).collect();
        Analysis { main, others, facts }
    }

    /// Returns the headers that a file includes, directly or through headers, each once.
    fn headers(&mut self, of: &Rc<Source>) -> Vec<Rc<Source>> {
        let mut found: Vec<Rc<Source>> = Vec::new();
        let mut wanted = includes(of);
        while let Some(include) = wanted.pop() {
            let Some(source) = self.header(&include) else { continue };
            if source.path != of.path && !found.iter().any(|known| known.path == source.path) {
                wanted.extend(includes(&source));
                found.push(source);
            }
        }
        found
    }

    /// Returns a header: from the folder of the file that names it, from an include folder, or from the
    /// compiler.
    fn header(&mut self, include: &Include) -> Option<Rc<Source>> {
        let Include { sibling_path, written } = include;
        let elsewhere: Vec<_> = self
            .options
            .include
            .iter()
            .map(|folder| uri::sibling_path(&format!("{folder}/"), written))
            .collect();
        let found = std::iter::once(sibling_path).chain(&elsewhere).find_map(|path| self.source(path));
        found.or_else(|| self.bundled(written))
    }

    /// Returns the compiler's own header of that name.
    fn bundled(&mut self, name: &str) -> Option<Rc<Source>> {
        let (path, text) = (format!("{BUNDLED}{name}"), headers::bundled(name)?);
        if let Some(known) = self.sources.get(&path) {
            return Some(Rc::clone(known));
        }
        let unit = Unit::parse(self.id(&path)?, text.into());
        let lines = Lines::of(text.as_bytes(), self.encoding);
        let source = Rc::new(Source { path: path.clone(), unit, lines });
        self.sources.insert(path, Rc::clone(&source));
        Some(source)
    }

    fn id(&mut self, path: &str) -> Option<FileId> {
        if let Some(id) = self.ids.get(path) {
            return Some(*id);
        }
        let id = self.numbers.add(path, "")?;
        self.ids.insert(path.to_owned(), id);
        Some(id)
    }
}

/// An `include` in a file.
struct Include {
    /// The path that is tried first: relative to the including file.
    sibling_path: String,
    written: String,
}

/// Returns the headers that a file includes.
fn includes(source: &Source) -> Vec<Include> {
    let headers = source.unit.ast.items.iter().filter_map(|item| match &item.kind {
        ItemKind::Include(path) => Some(Include {
            sibling_path: sibling_path(source, &path.bytes),
            written: String::from_utf8_lossy(&path.bytes).into_owned(),
        }),
        _ => None,
    });
    headers.collect()
}

/// Returns the names and paths of the modules that a file imports.
fn imports(source: &Source) -> Vec<(String, String)> {
    let modules = source.unit.ast.items.iter().filter_map(|item| match &item.kind {
        // The declarations of a Python module are unknown.
        ItemKind::Import { name, path } if path.bytes.ends_with(b".ks") => {
            Some((name.name.clone(), sibling_path(source, &path.bytes)))
        }
        _ => None,
    });
    modules.collect()
}

/// Returns the path of a file that is named in a source.
pub fn sibling_path(source: &Source, written: &[u8]) -> String {
    uri::sibling_path(&source.path, &String::from_utf8_lossy(written))
}
