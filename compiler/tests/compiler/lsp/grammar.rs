//! The grammar for syntax highlighting in editors contains the compiler's keywords.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ks_compiler::facts::Facts;
use ks_compiler::facts::predeclared;
use ks_compiler::facts::tables::{attributes, builtins, keywords, maps};
use ks_compiler::lex::Keyword;
use ks_wit::event::EVENTS;
use regex::Regex;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../editors")
}

fn json(name: &str) -> Value {
    let text = std::fs::read_to_string(folder().join(name)).expect("readable");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn grammar() -> Value {
    json("kernelscript.tmLanguage.json")
}

/// Collects every value of a field at any depth.
fn all<'a>(value: &'a Value, fields: &[&str], found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (name, inner) in map {
                match inner.as_str() {
                    Some(text) if fields.contains(&name.as_str()) => found.push(text),
                    _ => all(inner, fields, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|inner| all(inner, fields, found)),
        _ => {}
    }
}

/// Returns the largest group of alternatives in a regex: those of a table.
fn largest_group(regex: &str) -> &str {
    let groups = regex.split(['(', ')']);
    let longest = groups.max_by_key(|group| group.matches('|').count()).unwrap_or_default();
    longest.trim_start_matches("?:")
}

/// Returns the alternatives of the largest group in a rule's regex.
fn alternatives(grammar: &Value, rule: &str) -> BTreeSet<String> {
    let mut texts = Vec::new();
    all(&grammar["repository"][rule], &["match"], &mut texts);
    let groups = texts.iter().map(|text| largest_group(text));
    let longest = groups.max_by_key(|group| group.matches('|').count()).unwrap_or_default();
    longest.split('|').map(str::to_owned).collect()
}

fn set<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}

fn regex(grammar: &Value, rule: &str) -> Regex {
    let mut texts = Vec::new();
    all(&grammar["repository"][rule], &["match"], &mut texts);
    Regex::new(texts.first().expect("the rule has a regex")).expect("it compiles")
}

#[test]
fn every_regex_compiles_and_every_rule_exists() {
    let grammar = grammar();
    let mut texts = Vec::new();
    all(&grammar, &["match", "begin", "end"], &mut texts);
    assert!(texts.len() > 25, "{}", texts.len());
    for text in texts {
        Regex::new(text).unwrap_or_else(|error| panic!("{error}"));
    }
    let mut included = Vec::new();
    all(&grammar, &["include"], &mut included);
    for rule in &included {
        assert!(grammar["repository"].get(&rule[1..]).is_some(), "{rule}");
    }
    let rules = grammar["repository"].as_object().expect("rules");
    for rule in rules.keys() {
        assert!(included.iter().any(|included| included[1..] == *rule), "nothing includes {rule}");
    }
}

#[test]
fn keywords_are_those_of_the_scanner() {
    let grammar = grammar();
    let groups = ["scalars", "constants", "control", "words"].map(|rule| alternatives(&grammar, rule));
    let all: BTreeSet<String> = groups.iter().flatten().cloned().collect();
    assert_eq!(all, set(Keyword::ALL.iter().map(|keyword| keyword.text())));
    assert_eq!(groups.iter().map(BTreeSet::len).sum::<usize>(), all.len(), "each word has one colour");
    assert_eq!(groups[0], set(keywords::type_keywords().map(|keyword| keyword.text())));
}

/// Returns the rules whose names are those of a table, with the names in its order.
fn tables() -> [(&'static str, Vec<String>); 6] {
    let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<Vec<_>>();
    let keyed = maps::KINDS.iter().map(|one| one.name).filter(|name| *name != "stack_trace");
    let mut facts = Facts::on();
    predeclared::define(&mut facts);
    let types = facts.definitions().map(|(_, one)| one).filter(|one| one.kind.is_type());
    [
        ("attributes", owned(attributes::attributes().map(|one| one.name).collect())),
        ("perf_options", owned(EVENTS.iter().map(|one| one.name).collect())),
        ("builtins", owned(builtins::BUILTINS.iter().map(|one| one.name).collect())),
        ("flags", owned(maps::FLAGS.iter().map(|(name, _)| *name).collect())),
        ("map_types", owned(keyed.collect())),
        ("predeclared_types", types.map(|one| one.name.clone()).collect()),
    ]
}

/// Returns the grammar with the names of the tables in the rules that they belong to.
fn made_from_the_tables(text: &str) -> String {
    let mut text = text.to_owned();
    for (rule, names) in tables() {
        let start = text.find(&format!("\"{rule}\": {{")).unwrap_or_else(|| panic!("no rule {rule}"));
        let group = largest_group(text[start..].split("\n    }").next().unwrap_or_default());
        let at = start + text[start..].find(group).expect("a part of the text");
        text.replace_range(at..at + group.len(), &names.join("|"));
    }
    text
}

#[test]
fn names_of_the_language_are_those_of_the_tables() {
    let path = folder().join("kernelscript.tmLanguage.json");
    let text = std::fs::read_to_string(&path).expect("readable");
    let made = made_from_the_tables(&text);
    if std::env::var_os("INSTA_UPDATE").is_some_and(|value| value == "always") {
        std::fs::write(&path, &made).expect("writable");
    } else {
        assert_eq!(text, made, "INSTA_UPDATE=always writes it");
    }
}

#[test]
fn keywords_are_matched_whole_and_numbers_as_the_scanner_does() {
    let grammar = grammar();
    let control = regex(&grammar, "control");
    assert!(control.is_match("x in y") && !control.is_match("into"));
    let numbers = regex(&grammar, "numbers");
    for text in ["0x1F", "0b101", "007", "12"] {
        assert_eq!(numbers.find(text).map(|found| found.as_str()), Some(text));
    }
    assert!(!numbers.is_match("a1"));
    let characters = regex(&grammar, "characters");
    assert!(characters.is_match(r"'\x41'") && characters.is_match("'a'") && !characters.is_match("''"));
}

#[test]
fn the_manifest_names_what_is_there() {
    let manifest = json("vscode/package.json");
    let contributes = &manifest["contributes"];
    let language = &contributes["languages"][0];
    assert_eq!(language["extensions"], serde_json::json!([".ks", ".kh"]));
    assert_eq!(contributes["grammars"][0]["scopeName"], grammar()["scopeName"]);
    assert_eq!(contributes["grammars"][0]["language"], language["id"]);
    let configuration = language["configuration"].as_str().expect("a path");
    json(&format!("vscode/{configuration}"));
    let main =
        std::fs::read_to_string(folder().join("vscode").join(manifest["main"].as_str().expect("a path")));
    let main = main.expect("readable");
    let command = contributes["commands"][0]["command"].as_str().expect("a name");
    assert!(main.contains(command) && main.contains("args: ['lsp']"), "the extension does what it says");
}
