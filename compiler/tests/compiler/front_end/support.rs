//! Helpers that parse texts into trees and codes.

use ks_compiler::ast;
use ks_compiler::diag::{Diagnostics, Severity};
use ks_compiler::lex;
use ks_compiler::parse::{self, Options};
use ks_compiler::source::SourceMap;

/// A text as the parser reads it.
pub struct Read {
    pub sources: SourceMap,
    pub diagnostics: Diagnostics,
    pub ast: ast::File,
}

fn read_with(text: &[u8], options: Options) -> Read {
    let mut sources = SourceMap::default();
    let file = sources.add("t.ks", text).expect("tests are short");
    let mut diagnostics = Diagnostics::default();
    let tokens = lex::scan(file, text);
    lex::report(&tokens, text, &mut diagnostics);
    let ast = parse::parse_with(&tokens, text, options, &mut diagnostics);
    Read { sources, diagnostics, ast }
}

pub fn read(text: &str) -> Read {
    read_with(text.as_bytes(), Options::default())
}

impl Read {
    /// Returns `LINE:COLUMN CODE` of every diagnostic of this severity, sorted by position.
    fn positions(&self, severity: Severity) -> Vec<String> {
        let one = |diagnostic: &&ks_compiler::diag::Diagnostic| diagnostic.severity == severity;
        self.diagnostics
            .sorted()
            .into_iter()
            .filter(one)
            .map(|diagnostic| {
                let (_, line, column) = self.sources.position(diagnostic.primary.span);
                format!("{line}:{column} {}", diagnostic.code)
            })
            .collect()
    }

    pub fn errors(&self) -> Vec<String> {
        self.positions(Severity::Error)
    }

    pub fn warnings(&self) -> Vec<String> {
        self.positions(Severity::Warning)
    }

    /// Returns the codes of the errors.
    fn codes(&self) -> Vec<String> {
        self.errors().iter().filter_map(|position| Some(position.split_once(' ')?.1.to_owned())).collect()
    }
}

/// Puts statements into a function.
pub fn body(statements: &str) -> String {
    format!("fn f() {{\n{statements}\n}}\n")
}

#[track_caller]
pub fn accepts(text: &str) {
    let found = read(text).errors();
    assert!(found.is_empty(), "{text}\n{found:?}");
}

/// Asserts that the text has exactly this one error.
#[track_caller]
pub fn refuses(text: &str, code: &str) {
    assert_eq!(read(text).codes(), [code], "{text}");
}

#[track_caller]
pub fn strict_accepts(text: &str) {
    let found = read_with(text.as_bytes(), Options { strict_011: true }).errors();
    assert!(found.is_empty(), "{text}\n{found:?}");
}

/// Asserts that the text is accepted, and has an error of this code in strict mode.
#[track_caller]
pub fn only_ours(text: &str, code: &str) {
    accepts(text);
    let found = read_with(text.as_bytes(), Options { strict_011: true }).codes();
    assert_eq!(found, [code], "{text}");
}
