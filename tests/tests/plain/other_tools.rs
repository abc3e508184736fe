//! The pages for people who come from bpftrace and bcc: what stands in their tables works. The heading of the second column
//! says what its code is.

use std::collections::BTreeSet;

use ks_tests::{command, compile, finish, repository};

/// A cell of the second column of a table.
struct Cell {
    page: &'static str,
    /// What the code is: `a script`.
    is: String,
    code: Vec<String>,
}

/// Returns the cells of a row; `\|` is text.
fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|').replace("\\|", "\0");
    inner.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// Returns the code in a text.
fn code(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn text(page: &str) -> String {
    std::fs::read_to_string(repository().join(page)).expect("readable")
}

/// Returns the second column of all tables of both pages.
fn second_columns() -> Vec<Cell> {
    let mut found = Vec::new();
    for page in ["docs/from-bpftrace.md", "docs/from-bcc.md"] {
        let text = text(page);
        let mut is = String::new();
        for line in text.lines() {
            if !line.starts_with('|') {
                is.clear();
                continue;
            }
            let cells = cells(line);
            assert_eq!(cells.len(), 3, "{page}: {line}");
            if is.is_empty() {
                let (_, heading) = cells[1].split_once("here: ").unwrap_or_else(|| panic!("{page}: {line}"));
                is = heading.to_owned();
            } else if !cells[1].starts_with('-') {
                found.push(Cell { page, is: is.clone(), code: code(&cells[1]) });
            }
        }
    }
    found
}

/// The names of the tools.
fn tools() -> BTreeSet<String> {
    let listed = finish(command("ks-host").args(["tools", "--json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    let names = listed.as_array().expect("a list").iter().map(|tool| tool["name"].as_str().expect("text"));
    names.map(str::to_owned).collect()
}

#[test]
fn code_of_the_tables_works() {
    const PROGRAM: &str = "@tracepoint(\"raw_syscalls/sys_enter\")";
    let help = finish(command("ks-host").arg("--help")).stdout;
    let options: BTreeSet<&str> = help.split([' ', ',', '\n']).collect();
    let tools = tools();
    let mut scripts = 0;
    for Cell { page, is, code } in second_columns() {
        for code in code {
            let script = match is.as_str() {
                "a script" => code,
                "statements of a program" => format!("{PROGRAM} {{ {code} }}"),
                "a value in a program" => format!("{PROGRAM} {{ print({code}) }}"),
                "statements of userspace" => format!("{PROGRAM} {{ n[comm()] += 1 }} @end {{ {code} }}"),
                "an option" => {
                    assert!(options.contains(code.as_str()), "{page}: {code}");
                    continue;
                }
                "a tool" => {
                    assert!(tools.contains(&code), "{page}: {code}");
                    continue;
                }
                _ => panic!("{page}: nobody knows what `here: {is}` is"),
            };
            compile("row", &script);
            scripts += 1;
        }
    }
    assert!(scripts > 100, "{scripts} scripts");
}

/// A tool that is added gets a row; one that is named as missing is missing.
#[test]
fn each_tool_is_on_the_page_of_bcc() {
    let page = text("docs/from-bcc.md");
    let named: BTreeSet<String> = code(&page).into_iter().collect();
    let tools = tools();
    let without_row: Vec<&String> = tools.difference(&named).collect();
    assert!(without_row.is_empty(), "no row: {without_row:?}");
    let (_, missing) = page.split_once("None of these is there: ").expect("the page says what is missing");
    let (missing, _) = missing.split_once("\n\n").expect("the page goes on");
    let missing = code(missing);
    assert!(missing.len() > 10, "{missing:?}");
    let there: Vec<&String> = missing.iter().filter(|name| tools.contains(*name)).collect();
    assert!(there.is_empty(), "not missing: {there:?}");
}
