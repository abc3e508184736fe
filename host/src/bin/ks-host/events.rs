//! `ks-host events [GLOB]`: every event that this machine names, and which of them it can count.

use std::path::PathBuf;

use anyhow::bail;
use ks_host::perf::{Catalog, Family, Listed};
use ks_host::tracefs;
use serde::Serialize;

use crate::output::{self, say};
use crate::run;

/// Which events, and how to show them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  ks-host events\n  ks-host events 'page*'\n  ks-host events --json 'sched:sched_s*'"
)]
pub(crate) struct Args {
    /// A wildcard for names, in the language's spelling or in that of `perf list`: `*` is any text, `?` any character;
    /// case, `-` and `_` make no difference. Without it: all.
    #[arg(value_name = "GLOB", default_value = "", hide_default_value = true)]
    glob: String,
    /// Events of a vendor, in the JSON of perf's own tables; may be given several times.
    #[arg(long, value_name = "FILE")]
    event_table: Vec<PathBuf>,
    /// Writes JSON, for tools: a list of objects with `name` (as a script writes it), `perf` (as `perf list` writes it),
    /// `family`, `pmu`, `description`, `counted`, and where that is false `because`.
    #[arg(long)]
    json: bool,
}

/// An event and whether it can be counted here. Members are added, never changed.
#[derive(Serialize)]
struct Shown {
    name: String,
    perf: String,
    family: String,
    /// The PMU that counts it, if one is named.
    pmu: Option<String>,
    /// What it counts, if anything says so.
    #[serde(skip_serializing_if = "String::is_empty")]
    description: String,
    counted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    because: Option<String>,
}

/// Shows the events. The exit code is 0 if there are any, whether they can be counted or not.
pub(crate) fn events(args: &Args) -> anyhow::Result<u8> {
    let catalog = run::catalog(&args.event_table)?;
    let listed = catalog.list(&args.glob);
    if let Err(error) = tracefs::tracepoints() {
        say(format_args!("ks-host: tracepoints are left out: {error}"));
    }
    if listed.is_empty() {
        bail!("no event matches `{}`{}", args.glob, suggestion(&catalog.near(&args.glob)));
    }
    let shown: Vec<Shown> = listed.into_iter().map(|event| examined(&catalog, event)).collect();
    if args.json {
        output::show_json(&shown)?
    } else {
        output::show(&text(&shown))?
    }
    Ok(0)
}

fn suggestion(near: &[String]) -> String {
    match near {
        [] => String::new(),
        near => format!("; near: {}", near.join(", ")),
    }
}

/// Tries to count it.
fn examined(catalog: &Catalog, event: Listed) -> Shown {
    let because = catalog.why_not(&event).map(|error| error.cause());
    let Listed { name, perf, family, pmu, description } = event;
    Shown { name, perf, family: family.to_string(), pmu, description, counted: because.is_none(), because }
}

/// One table for each family.
fn text(events: &[Shown]) -> String {
    let heading = |family: &str| match family {
        name if name == Family::Form.to_string() => "forms, with a place or a number in them".to_owned(),
        name => format!("{name} events"),
    };
    let tables = events.chunk_by(|one, next| one.family == next.family).map(|family| {
        let rows: Vec<Vec<String>> = family.iter().map(row).collect();
        format!("{}\n{}", heading(&family[0].family), output::aligned(&rows))
    });
    tables.collect::<Vec<_>>().join("\n")
}

fn row(event: &Shown) -> Vec<String> {
    let counted = match &event.because {
        None => "counted".to_owned(),
        Some(because) => format!("not here: {because}"),
    };
    let counted =
        if event.description.is_empty() { counted } else { format!("{counted}  {}", event.description) };
    vec![event.name.clone(), event.perf.clone(), counted]
}
