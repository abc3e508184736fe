//! `ks-host events [GLOB]`: lists every event of this machine and whether it can be counted.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use ks_host::perf::{Catalog, Family, ListedEvent};
use ks_host::tracefs;
use ks_wit::command_output::{write_json, write_lines, write_stderr};
use serde::Serialize;

use crate::output::{self, printable};
use crate::run;

/// Arguments of `ks-host events`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ks-host events\n  ks-host events 'page*'\n  ks-host events --json \
                  'sched:sched_s*'")]
pub(crate) struct Args {
    /// A wildcard for names, in the language's spelling or in that of `perf list`: `*` is any text, `?` any
    /// character; case, `-` and `_` make no difference. Without it: all.
    #[arg(value_name = "GLOB", default_value = "", hide_default_value = true)]
    glob: String,
    /// Events of a vendor, in the JSON of perf's own tables; may be given several times.
    #[arg(long, value_name = "FILE")]
    event_table: Vec<PathBuf>,
    /// Writes JSON, for tools: a list of objects with `name` (as a script writes it), `perf` (as `perf list`
    /// writes it), `family`, `pmu`, `description`, `counted`, and where that is false `because`.
    #[arg(long)]
    json: bool,
}

/// An event and whether it can be counted here. Later versions add members and change none.
#[derive(Serialize)]
struct EventRow {
    name: String,
    perf: String,
    family: String,
    /// The PMU that counts it, if one is named.
    pmu: Option<String>,
    /// A description of what the event counts; empty if neither the kernel nor a table has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    counted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
}

/// Shows the events. The exit code is 0 if at least one is listed, whether it can be counted or not.
pub(crate) fn events(args: &Args) -> anyhow::Result<u8> {
    let catalog = run::catalog(&args.event_table)?;
    let listed = catalog.list(&args.glob);
    if let Err(error) = tracefs::tracepoints() {
        write_stderr(format_args!("ks-host: tracepoints are left out: {error}"));
    }
    if listed.is_empty() {
        bail!("no event matches `{}`{}", args.glob, suggestion(&catalog.near(&args.glob)));
    }
    let rows: Vec<EventRow> = listed.into_iter().map(|event| examined(&catalog, event)).collect();
    if args.json {
        write_json(&rows)?
    } else {
        write_lines(&text(&rows))?
    }
    Ok(0)
}

fn suggestion(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; near: {}", near.join(", ")),
    }
}

/// Opens a counter for the event and records whether that succeeded.
fn examined(catalog: &Catalog, event: ListedEvent) -> EventRow {
    let because = catalog.why_not(&event).map(|error| error.cause());
    let ListedEvent { name, perf, family, pmu, description } = event;
    EventRow { name, perf, family: family.to_string(), pmu, description, counted: because.is_none(), because }
}

/// Formats one table for each family.
fn text(events: &[EventRow]) -> String {
    let heading = |family: &str| match family {
        name if name == Family::Form.to_string() => "forms, with a place or a number in them".to_owned(),
        name => format!("{name} events"),
    };
    let tables = events.chunk_by(|one, next| one.family == next.family).map(|family| {
        let reasons = repeated(family);
        let rows: Vec<Vec<String>> = family.iter().map(|event| row(event, &reasons)).collect();
        let mut table = format!("{}\n{}", heading(&family[0].family), output::aligned(&rows));
        for (number, reason) in (1..).zip(&reasons) {
            // Writing to a string cannot fail.
            let _ = writeln!(table, "  [{number}] {}", printable(reason));
        }
        table
    });
    tables.collect::<Vec<_>>().join("\n")
}

/// Returns the reason why an event is not counted, without the event's name, so that equal reasons can be
/// merged.
fn reason(event: &EventRow) -> Option<String> {
    let because = event.because.as_deref()?;
    let names = [&event.perf, &event.name].map(|name| format!("`{name}`"));
    Some(names.iter().fold(because.to_owned(), |text, name| text.replace(name, "it")))
}

/// Returns the reasons that several events share: each stands below the table once.
fn repeated(events: &[EventRow]) -> Vec<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    for reason in events.iter().filter_map(reason) {
        *seen.entry(reason).or_default() += 1;
    }
    seen.into_iter().filter(|(_, times)| *times > 1).map(|(reason, _)| reason).collect()
}

fn row(event: &EventRow, reasons: &[String]) -> Vec<String> {
    let index = reason(event).and_then(|own| reasons.iter().position(|one| *one == own));
    let counted = match (&event.because, index) {
        (None, _) => "counted".to_owned(),
        (Some(_), Some(index)) => format!("not here [{}]", index + 1),
        (Some(because), None) => format!("not here: {because}"),
    };
    let counted =
        if event.description.is_empty() { counted } else { format!("{counted}  {}", event.description) };
    vec![event.name.clone(), event.perf.clone(), counted]
}
