//! The errors that the contract documents, from the doc comments of its functions.
//!
//! ```text
//! paragraph = "Errors: " list "." | "Errors of `FUNCTION`: " list "."
//! list      = item { (", " | "; ") item }
//! item      = "`KIND`" [ " (" reason { "; " reason } ")" ] | "as `FUNCTION`" [ " (when)" ]
//! ```
//!
//! A paragraph begins a line and ends before an empty line or a line that begins with `Source:`. Sentences
//! after its list are for readers. The second form is for options, whose errors another function returns: they
//! belong to the option. `FUNCTION` is a name of the same resource or interface, or begins with an interface.

use std::collections::{BTreeMap, BTreeSet};

use wit_parser::{Docs, Function, FunctionKind, Resolve, SourceMap, Type, TypeDefKind};

/// An error that the contract documents.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Documented {
    /// Interface, resource and function: `maps.bpf-map.lookup`; a constructor is `new`.
    pub function: String,
    /// A case of `types.error-kind`.
    pub kind: String,
    /// One of the reasons in parentheses; empty if the kind has none.
    pub reason: String,
}

/// What the contract documents.
#[derive(Debug, Default)]
pub struct Contract {
    /// All errors, with those of functions that a list refers to.
    pub errors: BTreeSet<Documented>,
    /// What is wrong with the documentation.
    pub faults: Vec<String>,
}

/// A list as it is written.
#[derive(Debug, PartialEq, Eq)]
enum Item {
    Error { kind: String, reasons: Vec<String> },
    As(String),
}

/// Reads the package in the folder `wit`.
pub fn read() -> Contract {
    let mut resolve = Resolve::default();
    let mut files = SourceMap::new();
    for (name, text) in ks_wit::WIT_FILES {
        files.push_str(name, *text);
    }
    let files = files.parse().map_err(|(_, error)| error).expect("the contract parses");
    resolve.push_group(files).expect("the contract resolves");
    let kinds = error_kinds(&resolve);
    let mut contract = Contract::default();
    let mut lists = BTreeMap::new();
    for (_, interface) in resolve.interfaces.iter() {
        let interface_name = interface.name.as_deref().unwrap_or_default();
        for function in interface.functions.values() {
            let name = format!("{interface_name}.{}", short(function));
            match lists_of(&function.docs, returns_error(&resolve, function)) {
                Ok(items) => drop(lists.insert(name, items)),
                Err(fault) => contract.faults.push(format!("{name}: {fault}")),
            }
        }
    }
    for name in lists.keys() {
        let mut reach = Vec::new();
        if let Err(fault) = expand(name, &lists, &mut reach, &mut |kind, reason| {
            let kind = kind.to_owned();
            contract.errors.insert(Documented { function: name.clone(), kind, reason: reason.to_owned() });
        }) {
            contract.faults.push(format!("{name}: {fault}"));
        }
    }
    for Documented { function, kind, .. } in &contract.errors {
        if !kinds.contains(kind) {
            contract.faults.push(format!("{function}: `{kind}` is no case of `error-kind`"));
        }
    }
    contract
}

fn error_kinds(resolve: &Resolve) -> BTreeSet<String> {
    let named = |(_, ty): (_, &wit_parser::TypeDef)| match &ty.kind {
        TypeDefKind::Variant(variant) if ty.name.as_deref() == Some("error-kind") => {
            Some(variant.cases.iter().map(|case| case.name.clone()).collect())
        }
        _ => None,
    };
    resolve.types.iter().find_map(named).expect("the contract has kinds of errors")
}

/// Returns the name of a function without its interface: `attachment.read`, `options.new`, `open`.
fn short(function: &Function) -> String {
    let name = function.name.split(']').next_back().unwrap_or_default();
    if let FunctionKind::Constructor(_) = function.kind { format!("{name}.new") } else { name.to_owned() }
}

fn returns_error(resolve: &Resolve, function: &Function) -> bool {
    let Some(Type::Id(id)) = function.result else { return false };
    matches!(&resolve.types[id].kind, TypeDefKind::Result(result) if result.err.is_some())
}

/// Parses all paragraphs of a doc comment.
fn lists_of(docs: &Docs, must_have: bool) -> Result<Vec<Item>, String> {
    let text = docs.contents.as_deref().unwrap_or_default();
    let mut items = Vec::new();
    let mut paragraphs = 0;
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if !line.starts_with("Errors") {
            continue;
        }
        paragraphs += 1;
        let mut paragraph = line.to_owned();
        while let Some(more) = lines.next_if(|line| !line.is_empty() && !line.starts_with("Source:")) {
            paragraph.push(' ');
            paragraph.push_str(more);
        }
        let (head, list) = paragraph.split_once(": ").ok_or("no list follows `Errors`")?;
        let of_other = head.strip_prefix("Errors of `").is_some_and(|name| name.ends_with('`'));
        if head != "Errors" && !of_other {
            return Err(format!("`{head}:` begins no list"));
        }
        items.extend(parse(list)?);
    }
    if text.matches("Errors").count() > paragraphs {
        return Err("`Errors` stands within a line, where no list is looked for".to_owned());
    }
    if must_have && paragraphs == 0 {
        return Err("it returns an error, and documents none".to_owned());
    }
    Ok(items)
}

/// Parses a list up to its full stop.
fn parse(list: &str) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    let mut rest = list;
    loop {
        let at = |rest: &str| format!("at `{}`", rest.get(..40).unwrap_or(rest));
        let is_reference = rest.starts_with("as ");
        let name = rest.strip_prefix("as ").unwrap_or(rest).strip_prefix('`');
        let (name, after) =
            name.and_then(|rest| rest.split_once('`')).ok_or_else(|| format!("no kind {}", at(rest)))?;
        let (reasons, after) = match after.strip_prefix(" (") {
            None => (vec![String::new()], after),
            Some(inside) => {
                let end = closing(inside).ok_or_else(|| format!("no `)` {}", at(after)))?;
                (inside[..end].split("; ").map(str::to_owned).collect(), &inside[end + 1..])
            }
        };
        items.push(match is_reference {
            true => Item::As(name.to_owned()),
            false => Item::Error { kind: name.to_owned(), reasons },
        });
        let separator = [", ", "; "].into_iter().find_map(|separator| after.strip_prefix(separator));
        match separator {
            Some(more) => rest = more,
            None if after == "." || after.starts_with(". ") => return Ok(items),
            None => return Err(format!("neither `,`, `;` nor `.` {}", at(after))),
        }
    }
}

/// Returns the position of the parenthesis that closes a text.
fn closing(text: &str) -> Option<usize> {
    let mut open = 0;
    text.char_indices().find_map(|(at, char)| {
        match char {
            '(' => open += 1,
            ')' if open == 0 => return Some(at),
            ')' => open -= 1,
            _ => {}
        }
        None
    })
}

/// Reports each error of a function's list, and those of the lists that it refers to.
fn expand(
    function: &str,
    lists: &BTreeMap<String, Vec<Item>>,
    reach: &mut Vec<String>,
    report: &mut impl FnMut(&str, &str),
) -> Result<(), String> {
    if reach.iter().any(|one| one == function) {
        return Err(format!("its list refers to itself: {}", reach.join(", ")));
    }
    reach.push(function.to_owned());
    for item in lists.get(function).into_iter().flatten() {
        match item {
            Item::Error { kind, reasons } => reasons.iter().for_each(|reason| report(kind, reason)),
            Item::As(name) => {
                let other = referred(function, name, lists).ok_or(format!("there is no `{name}`"))?;
                expand(&other, lists, reach, report)?;
            }
        }
    }
    reach.pop();
    Ok(())
}

/// Finds a function that a list of another refers to: of the same resource, of the same interface, or of any.
fn referred(from: &str, name: &str, lists: &BTreeMap<String, Vec<Item>>) -> Option<String> {
    let mut scopes = from.match_indices('.').map(|(at, _)| &from[..=at]).collect::<Vec<_>>();
    scopes.reverse();
    scopes.push("");
    let names = scopes.into_iter().map(|scope| format!("{scope}{name}"));
    names.into_iter().find(|name| lists.contains_key(name))
}

#[test]
fn a_list_of_errors_has_kinds_reasons_and_references() {
    let error = |kind: &str, reasons: &[&str]| Item::Error {
        kind: kind.to_owned(),
        reasons: reasons.iter().map(|&reason| reason.to_owned()).collect(),
    };
    let parsed = parse("`stale` (a (b); c), as `read` (if so); `kernel`. More (words) follow.");
    let expected = [error("stale", &["a (b)", "c"]), Item::As("read".to_owned()), error("kernel", &[""])];
    assert_eq!(parsed.as_deref(), Ok(&expected[..]));
    for wrong in ["`stale`", "stale.", "`stale` after detach.", "`stale` or `kernel`.", "`stale` (a."] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    let lists = |text: &str| lists_of(&Docs { contents: Some(text.to_owned()) }, true);
    assert_eq!(
        lists("It opens.\n\nErrors of `open`: `limit`\n(a; b).\nSource: x."),
        Ok(vec![error("limit", &["a", "b"])])
    );
    for wrong in ["It opens.", "It opens. Errors: `limit`.", "Errors, where it opens: `limit`."] {
        assert!(lists(wrong).is_err(), "{wrong}");
    }
}
