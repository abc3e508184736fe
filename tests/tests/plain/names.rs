//! The vocabulary of the code: identifiers and comments use the terms of the field, and none of
//! `retired_words.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use ks_tests::repository;
use proc_macro2::{Ident, TokenStream, TokenTree};

/// Returns the sections of `retired_words.txt`: each line is a word or phrase, followed by two blanks and its
/// replacement.
fn sections() -> BTreeMap<&'static str, BTreeMap<&'static str, &'static str>> {
    let mut sections = BTreeMap::<_, BTreeMap<_, _>>::new();
    let mut section = "";
    for line in include_str!("retired_words.txt").lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name;
        } else if !line.is_empty() && !line.starts_with('#') {
            let (word, instead) = line.split_once("  ").unwrap_or((line, ""));
            sections.entry(section).or_default().insert(word.trim(), instead.trim());
        }
    }
    sections
}

/// Returns the Rust files of the repository, relative to it.
fn sources() -> Vec<PathBuf> {
    let root = repository();
    let mut folders = vec![root.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("readable") {
            let path = entry.expect("readable").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.push(path.strip_prefix(root).expect("it lies below").to_owned());
            }
        }
    }
    files
}

/// Returns the parts of an identifier, in lower case: `NextTurn` and `NEXT_TURN` have `next` and `turn`.
fn parts(identifier: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for char in identifier.trim_start_matches("r#").chars() {
        if char == '_' || (char.is_uppercase() && before.is_lowercase()) {
            parts.push(String::new());
        }
        if char != '_' {
            parts.last_mut().expect("one part at least").extend(char.to_lowercase());
        }
        before = char;
    }
    parts
}

/// All identifiers of a file outside of comments and literals, and the names of the types that it declares.
#[derive(Default)]
struct Identifiers {
    all: BTreeSet<String>,
    types: BTreeSet<String>,
}

impl Identifiers {
    fn of(text: &str) -> Identifiers {
        let mut found = Identifiers::default();
        found.read(TokenStream::from_str(text).expect("the compiler read it, too"));
        found
    }

    fn read(&mut self, tokens: TokenStream) {
        let mut previous: Option<Ident> = None;
        for token in tokens {
            previous = match token {
                TokenTree::Group(group) => {
                    self.read(group.stream());
                    None
                }
                TokenTree::Ident(ident) => {
                    let declares = |word: &Ident| {
                        ["struct", "enum", "union", "type", "trait"].iter().any(|kind| word == kind)
                    };
                    if previous.as_ref().is_some_and(declares) {
                        self.types.insert(ident.to_string());
                    }
                    self.all.insert(ident.to_string());
                    Some(ident)
                }
                TokenTree::Punct(_) | TokenTree::Literal(_) => None,
            };
        }
    }
}

/// Returns the comments of a file: each run of comment lines as one line of lower-case text.
fn comments(text: &str) -> Vec<String> {
    let mut comments = vec![String::new()];
    for line in text.lines() {
        match line.trim_start().strip_prefix("//") {
            Some(comment) => {
                let last = comments.last_mut().expect("one at least");
                last.push_str(comment.trim_start_matches(['/', '!']));
                last.push(' ');
            }
            None => comments.push(String::new()),
        }
    }
    let words = |comment: &String| comment.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    comments.iter().map(words).filter(|comment| !comment.is_empty()).collect()
}

/// Returns whether a text contains a phrase at word boundaries.
fn has_phrase(text: &str, phrase: &str) -> bool {
    let is_part = |char: Option<char>| char.is_some_and(|char| char.is_alphanumeric() || char == '_');
    text.match_indices(phrase).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + phrase.len()..]);
        !is_part(before.chars().next_back()) && !is_part(after.chars().next())
    })
}

/// Reports each use of a retired word, type, module or phrase in a file.
fn retired(path: &Path, text: &str, sections: &BTreeMap<&str, BTreeMap<&str, &str>>) -> Vec<String> {
    let identifiers = Identifiers::of(text);
    let list = |section| sections.get(section).cloned().unwrap_or_default();
    let (words, types, modules, phrases, allowed) =
        (list("words"), list("types"), list("modules"), list("phrases"), list("allowed"));
    let mut found = Vec::new();
    let is_allowed = |name: &str| {
        let scopes = allowed.get(name).map(|scopes| scopes.split(' ').filter(|word| word.contains('/')));
        scopes.is_some_and(|mut scopes| scopes.any(|scope| path.starts_with(scope)))
    };
    for identifier in identifiers.all.iter().filter(|name| !is_allowed(name)) {
        let part = parts(identifier).into_iter().find(|part| words.contains_key(part.as_str()));
        found.extend(part.map(|part| format!("`{identifier}`: not {part}, but {}", words[part.as_str()])));
    }
    let declared = identifiers.types.iter().filter_map(|name| types.get_key_value(name.as_str()));
    found.extend(declared.map(|(name, instead)| format!("type `{name}`: {instead}")));
    let module = path.with_extension("");
    let module = modules.get_key_value(module.to_str().unwrap_or_default());
    found.extend(module.map(|(name, instead)| format!("module {name}: {instead}")));
    let comments = comments(text);
    for (phrase, instead) in &phrases {
        if comments.iter().any(|comment| has_phrase(comment, phrase)) {
            found.push(format!("a comment: not \"{phrase}\", but \"{instead}\""));
        }
    }
    found.into_iter().map(|what| format!("{}: {what}", path.display())).collect()
}

#[test]
fn identifiers_and_comments_use_the_terms_of_the_field() {
    let sections = sections();
    let files = sources();
    assert!(files.len() > 600, "{} files", files.len());
    let read = |file: &PathBuf| std::fs::read_to_string(repository().join(file)).expect("readable");
    let found: Vec<String> = files.iter().flat_map(|file| retired(file, &read(file), &sections)).collect();
    assert!(found.is_empty(), "see tests/tests/plain/retired_words.txt:\n{}", found.join("\n"));
}

#[test]
fn a_retired_word_is_seen_in_each_position() {
    let sections = BTreeMap::from([
        ("words", BTreeMap::from([("turn", "iteration")])),
        ("types", BTreeMap::from([("Place", "a specific name")])),
        ("modules", BTreeMap::from([("src/twins", "tail_merge")])),
        ("phrases", BTreeMap::from([("ways in", "predecessors")])),
        ("allowed", BTreeMap::from([("turn_up", "src/ tests/ a name"), ("turn_down", "tests/ a name")])),
    ]);
    let seen = |text: &str| retired(Path::new("src/loops.rs"), text, &sections).len();
    assert_eq!(seen("fn next_turn(turn: u8) {}"), 2);
    assert_eq!(seen("struct NextTurn { last_turn: u8 }"), 2);
    assert_eq!(seen("fn returns() -> &'static str { turn_up(\"turn\") } // a turn"), 0);
    assert_eq!(seen("fn f() { turn_down() }"), 1);
    assert_eq!(seen("macro! { let turn = 1; }"), 1);
    assert_eq!(seen("pub enum Place {}"), 1);
    assert_eq!(seen("fn f(of: Place) {}"), 0);
    assert_eq!(seen("/// All ways\n/// in are known.\nfn f() {}"), 1);
    assert_eq!(seen("// Always input.\nfn f() {}"), 0);
    assert_eq!(retired(Path::new("src/twins.rs"), "", &sections).len(), 1);
}
