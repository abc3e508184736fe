//! Latency of an answer after a keystroke in a long file. Times are printed, none is asserted.

use std::time::{Duration, Instant};

use ks_compiler::facts::syntactic::{Project, Unit, collect};
use ks_compiler::source::SourceMap;
use serde_json::json;

use crate::lsp::client::{Client, Spot};

/// Generates a typical script of about this many lines.
fn script(lines: usize) -> String {
    let mut text =
        "struct S { a: u32, b: u64, name: str(16) }\nvar m : hash<u32, S>(1024)\nvar total : u64 = 0\n"
            .to_owned();
    for at in 0..lines / 20 {
        text += &format!(
            "\n// Function {at} of many.\n@helper\nfn work_{at}(key: u32, limit: u64) -> u64 {{\n    \
             var sum: u64 = limit\n    \
             if (var found = m[key]) {{\n        sum += found.b\n        found.a = key + {at}\n    }} else \
             {{\n        \
             m[key] = S {{ a: key, b: 1, name: \"new\" }}\n    }}\n    for (i in 0..8) {{\n        if (i == \
             key) {{\n            \
             sum += 2\n        }}\n    }}\n    total += sum\n    return sum\n}}\n"
        );
    }
    text + "\nfn main() -> i32 {\n    \n    return 0\n}\n"
}

#[test]
fn answers_after_a_keystroke_in_5000_lines() {
    let text = script(5000);
    let lines = text.lines().count();
    let mut client = Client::new();
    let uri = client.open("long.ks", &text).uri;
    let version = client.version();
    client.diagnostics(&uri, version);
    let line = lines as u32 - 3;
    let mut slowest = [Duration::ZERO; 2];
    let mut sum = [Duration::ZERO; 2];
    let mut count = 0;
    for (character, letter) in "    var x = m[1].".chars().enumerate().skip(4) {
        let position = json!({ "line": line, "character": character });
        client.change(
            &uri,
            json!([{ "range": { "start": position, "end": position }, "text": letter.to_string() }]),
        );
        let spot = Spot { uri: uri.clone(), line, character: character as u32 + 1 };
        for (at, question) in ["textDocument/completion", "textDocument/hover"].iter().enumerate() {
            let start = Instant::now();
            client.at(question, &spot);
            slowest[at] = slowest[at].max(start.elapsed());
            sum[at] += start.elapsed();
        }
        count += 1;
    }
    let position = Spot { uri: uri.clone(), line, character: 17 };
    let found = client.at("textDocument/completion", &position);
    let labels: Vec<_> =
        found["items"].as_array().expect("a list").iter().map(|item| &item["label"]).collect();
    assert_eq!(labels, ["a", "b", "name"]);
    for (at, question) in ["completion", "hover"].iter().enumerate() {
        println!(
            "{lines} lines: {question} after a keystroke {:?}, at worst {:?}",
            sum[at] / count,
            slowest[at]
        );
    }
    parts(&text);
}

/// Prints the time of each part of an answer.
fn parts(text: &str) {
    let file = SourceMap::default().add("long.ks", text).expect("short");
    let start = Instant::now();
    let unit = Unit::parse(file, text.into());
    let parsed = start.elapsed();
    assert!(!unit.broken);
    let start = Instant::now();
    let facts = collect(&Project { main: &unit, headers: Vec::new(), modules: Vec::new() });
    let collected = start.elapsed();
    let start = Instant::now();
    assert!(facts.visible_at(file, 0).len() > 100);
    println!("parsing {parsed:?}, facts {collected:?}, first question {:?}", start.elapsed());
}
