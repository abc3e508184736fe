//! `ks explain`: prints the page of a code, or the list of all.

use std::process::ExitCode;

use anyhow::{Result, bail};
use ks_compiler::diag::codes::{self, Example, Page};
use ks_compiler::diag::nears;
use ks_wit::command_output::write_stdout;

#[derive(clap::Args)]
pub struct Args {
    /// The code of an error or warning, such as KS0301 or 301; without it all codes are listed
    code: Option<String>,
    /// Write JSON: one object for a code, one per line for the list
    #[arg(long)]
    json: bool,
}

/// Prints a page, or the list. An unknown code is an error that suggests similar ones.
pub fn run(args: &Args) -> Result<ExitCode> {
    let text = match &args.code {
        None if args.json => json_list(),
        None => list(),
        Some(code) => {
            let page = find(code)?;
            if args.json { format!("{}\n", json(page)) } else { page_text(page) }
        }
    };
    write_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn find(text: &str) -> Result<&'static Page> {
    let Some(code) = codes::parse(text) else {
        bail!("`{text}` is not a code: write KS and four digits, such as KS0301; `ks explain` lists all")
    };
    if let Some(page) = codes::page(code) {
        return Ok(page);
    }
    let known: Vec<String> = codes::pages().iter().map(|page| page.code.to_string()).collect();
    match nears(&code.to_string(), known.iter().map(String::as_str)).as_slice() {
        [] => bail!("there is no code {code}; `ks explain` lists all"),
        near => bail!("there is no code {code}; near: {}", near.join(", ")),
    }
}

fn list() -> String {
    let line = |page: &Page| {
        let severity = if page.is_warning() { "warning" } else { "error" };
        format!("{}  {severity:7}  {}\n", page.code, page.title())
    };
    codes::pages().iter().map(line).collect()
}

fn json_list() -> String {
    codes::pages().iter().map(|page| format!("{}\n", summary(page))).collect()
}

fn summary(page: &Page) -> serde_json::Value {
    let severity = if page.is_warning() { "warning" } else { "error" };
    serde_json::json!({ "code": page.code.to_string(), "severity": severity, "title": page.title() })
}

fn json(page: &Page) -> serde_json::Value {
    let mut object = summary(page);
    object["text"] = page.prose().into();
    let example = |example: &Example| {
        let files = example.files.iter();
        serde_json::json!({
            "wrong": example.wrong,
            "flags": example.flags,
            "files": files
                .map(|file| serde_json::json!({ "name": file.name, "text": file.text }))
                .collect::<Vec<_>>(),
        })
    };
    object["examples"] = page.examples().iter().map(example).collect();
    object
}

/// Returns the page for a terminal: examples are indented instead of fenced.
fn page_text(page: &Page) -> String {
    let mut text = format!("{}: {}\n\n{}\n", page.code, page.title(), page.prose());
    for example in page.examples() {
        text.push_str(&format!("\n{}\n", heading(&example)));
        for (index, file) in example.files.iter().enumerate() {
            if example.files.len() > 1 {
                let gap = if index == 0 { "" } else { "\n" };
                text.push_str(&format!("{gap}    // {}\n", file.name));
            }
            for line in file.text.lines() {
                let line = format!("    {line}");
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
    }
    text
}

fn heading(example: &Example) -> String {
    let label = if example.wrong { "Wrong" } else { "Right" };
    let flag = |flag: &str| example.flags.iter().any(|one| one == flag);
    match (flag("strict"), flag("test")) {
        (true, _) => format!("{label} with --strict-011:"),
        (_, true) => format!("{label} for `ks test`:"),
        _ => format!("{label}:"),
    }
}
