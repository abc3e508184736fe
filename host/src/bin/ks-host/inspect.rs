//! `ks-host inspect PLUGIN`: shows the contents and needs of a plugin without running it.

mod needed;
mod objects;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ks_host::plugin::{Plugin, hex};
use ks_wit::command_output::{json_text, shown, with_causes, write_lines};
use ks_wit::manifest::{Event, Manifest};
use needed::needed;
use serde::Serialize;

use crate::apart::{Compiling, Isolation};
use crate::output::{self, printable};
use crate::{EntryPoint, NOT_A_PLUGIN, apart, read_bytes, sign};

/// Arguments of `ks-host inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  ks-host inspect examples/perf/group.ks\n  ks-host inspect --json \
                  examples/perf/group.ks\n  ks-host inspect --policy examples/net/packets.ks")]
pub(crate) struct Args {
    /// The plugin file, or a script (`.ks`).
    plugin: PathBuf,
    /// Writes JSON, for tools.
    #[arg(long)]
    json: bool,
    /// Writes only a policy for `--policy` that allows what the plugin asks for, to be reviewed and narrowed.
    #[arg(long, conflicts_with = "json")]
    policy: bool,
}

/// Shows the plugin and returns the exit code.
pub(crate) fn inspect(args: &Args) -> anyhow::Result<u8> {
    let input = match read_bytes(&args.plugin, EntryPoint::Main, Compiling::uncached(Isolation::Process)) {
        Ok(bytes) => bytes,
        Err(code) => return Ok(code),
    };
    let form = match args {
        Args { policy: true, .. } => POLICY,
        Args { json: true, .. } => JSON,
        Args { .. } => TEXT,
    };
    write_shown(&args.plugin, input, form)
}

/// Writes a policy that allows what the plugin in these bytes asks for, and returns the exit code.
pub(crate) fn write_policy(name: &Path, plugin: Vec<u8>) -> anyhow::Result<u8> {
    write_shown(name, plugin, POLICY)
}

fn write_shown(name: &Path, mut input: Vec<u8>, form: u8) -> anyhow::Result<u8> {
    input.push(form);
    let answer = match apart::inspected(name, input) {
        Ok(answer) => answer,
        Err(error) => {
            output::report("ks-host", &with_causes(&*error).to_string());
            return Ok(NOT_A_PLUGIN);
        }
    };
    match answer.split_first() {
        // What the process answers may be the plugin's words.
        Some((&SHOWN, answer)) => write_lines(&String::from_utf8_lossy(answer))?,
        _ => {
            let reason = String::from_utf8_lossy(answer.get(1..).unwrap_or_default());
            anyhow::bail!("{}: {reason}", shown(name));
        }
    }
    Ok(0)
}

// The first byte of an answer of `show`.
const SHOWN: u8 = 0;
const NOT_SHOWN: u8 = 1;

// Forms of the answer: the last byte of the input of `show`.
const TEXT: u8 = 0;
const JSON: u8 = 1;
const POLICY: u8 = 2;

/// Shows a plugin: the input is the plugin's file, and the form of the answer. The answer is the text, or why
/// there is none.
///
/// # Errors
/// Why the file is not a plugin.
pub(crate) fn show(mut input: Vec<u8>) -> Result<Vec<u8>, String> {
    let form = input.pop().unwrap_or(TEXT);
    let plugin = Plugin::from_bytes(input).map_err(|error| error.to_string())?;
    let answer = match form {
        POLICY => needed(&plugin).map_err(|error| error.to_string()),
        JSON => json_text(&described(&plugin)).map_err(|error| error.to_string()),
        _ => Ok(text(&plugin)),
    };
    let (kind, text) = answer.map_or_else(|error| (NOT_SHOWN, error), |text| (SHOWN, text));
    Ok([&[kind], text.as_bytes()].concat())
}

/// The JSON form. Later versions add members and change none.
#[derive(Serialize)]
struct Description<'a> {
    bytes: usize,
    /// The capabilities that the plugin's programs and events need.
    capabilities: Vec<&'static str>,
    imports: &'a [String],
    objects: Vec<objects::Description<'a>>,
    manifests: &'a [Manifest],
    /// SHA-256 of the file without its signatures, in hexadecimal digits.
    digest: String,
    /// Signers of exactly these bytes: identities, and keys in hexadecimal digits.
    signers: Vec<SignerDescription>,
    /// A policy that allows what the plugin asks for, as TOML; null if its object is refused.
    policy: Option<String>,
}

#[derive(Serialize)]
struct SignerDescription {
    identity: String,
    key: String,
}

fn described(plugin: &Plugin) -> Description<'_> {
    let objects = objects::describe(plugin.objects(), is_by_ks(plugin));
    Description {
        bytes: plugin.bytes().len(),
        capabilities: capabilities(plugin),
        imports: plugin.imports(),
        objects,
        manifests: plugin.manifests(),
        digest: hex(&plugin.digest()),
        signers: plugin
            .signers()
            .into_iter()
            .map(|signer| SignerDescription { identity: signer.identity, key: signer.key.to_string() })
            .collect(),
        policy: needed(plugin).ok(),
    }
}

fn text(plugin: &Plugin) -> String {
    let mut out = String::new();
    for manifest in plugin.manifests() {
        describe_manifest(&mut out, manifest);
    }
    if plugin.manifests().is_empty() {
        out.push_str("no manifest: this plugin was not made by the KernelScript compiler\n");
    }
    let objects = objects::describe(plugin.objects(), is_by_ks(plugin));
    table(&mut out, "BPF objects", objects.iter().map(objects::Description::row).collect());
    for object in &objects {
        let of =
            if objects.len() > 1 { format!(" of the object for {}", object.is_for()) } else { String::new() };
        table(&mut out, &format!("kernel programs{of}"), object.program_rows());
        table(&mut out, &format!("kernel maps{of}"), object.map_rows());
        table(&mut out, &format!("names of the kernel{of}"), object.name_rows());
    }
    let needs = capabilities(plugin).into_iter().map(|name| vec![name.to_owned()]);
    table(&mut out, "capabilities that it needs", needs.collect());
    table(&mut out, "imports", plugin.imports().iter().map(|import| vec![import.clone()]).collect());
    out.push_str(&sign::signatures(plugin));
    match needed(plugin) {
        Ok(policy) => {
            out.push_str("\npolicy that allows what it asks for\n");
            policy.lines().for_each(|line| {
                let _ = writeln!(out, "{}", format!("  {line}").trim_end());
            });
        }
        Err(error) => {
            let _ = writeln!(out, "\nits object is refused: {}", printable(&error.to_string()));
        }
    }
    let _ = writeln!(out, "\n{} bytes in all", plugin.bytes().len());
    out
}

/// Whether the file declares that `ks` built it.
fn is_by_ks(plugin: &Plugin) -> bool {
    plugin.manifests().iter().any(|manifest| manifest.compiler.starts_with("ks "))
}

/// Returns the capabilities that the programs' types and the events need, as the kernel checks them. Source
/// for events: perf_event_open(2).
fn capabilities(plugin: &Plugin) -> Vec<&'static str> {
    // Counting the calling thread's user code needs no capability.
    let mut events = plugin.manifests().iter().flat_map(|manifest| &manifest.events);
    let foreign = events.any(|event| event.pid != Some(0));
    let of_objects = objects::capabilities(plugin.objects());
    let of_events = [("CAP_BPF", !plugin.objects().is_empty()), ("CAP_PERFMON", foreign)];
    let mut names = Vec::new();
    for (name, _) in of_events.into_iter().chain(of_objects).filter(|(_, needed)| *needed) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn describe_manifest(out: &mut String, manifest: &Manifest) {
    let source = format!("{} (sha256 {})", manifest.source.file, manifest.source.sha256);
    for (label, value) in
        [("project", &manifest.project), ("source", &source), ("compiler", &manifest.compiler)]
    {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{label:<9} {}", printable(value));
    }
    // No object says which events a plugin opens: the policy is asked when it opens them.
    table(out, "events that it opens, by its manifest", manifest.events.iter().map(event_row).collect());
    let programs = manifest.programs.iter().map(|program| vec![program.name.clone(), program.kind.clone()]);
    table(out, "programs", programs.collect());
    let structs = manifest.struct_ops.iter();
    let structs = structs.map(|one| vec![one.name.clone(), one.ops.clone(), one.methods.join(", ")]);
    table(out, "structs of the kernel that it may register", structs.collect());
    let maps = manifest.maps.iter().map(|map| {
        let types = format!("{} -> {}", map.key, map.value);
        vec![map.name.clone(), map.kind.clone(), types, format!("at most {}", map.max_entries)]
    });
    table(out, "maps", maps.collect());
    let globals = manifest.globals.iter().map(|global| vec![global.name.clone(), global.ty.clone()]);
    table(out, "globals", globals.collect());
    let configs = manifest.configs.iter().flat_map(|config| {
        config.fields.iter().map(|field| {
            let docs = field.docs.split_whitespace().collect::<Vec<_>>().join(" ");
            vec![format!("{}.{}", config.name, field.name), field.ty.clone(), docs]
        })
    });
    table(out, "config", configs.collect());
}

/// Formats one event: its name, task, CPU, program, and its line in the script.
fn event_row(event: &Event) -> Vec<String> {
    let name = event.event.clone().unwrap_or_else(|| "(chosen at run time)".into());
    let task = match event.pid {
        None => "a task chosen at run time".into(),
        Some(-1) => "every task".into(),
        Some(0) => "its own thread".into(),
        Some(pid) => format!("task {pid}"),
    };
    let cpu = match event.cpu {
        None if event.every_cpu => "every CPU".into(),
        None => "a CPU chosen at run time".into(),
        Some(-1) => "any CPU".into(),
        Some(cpu) => format!("CPU {cpu}"),
    };
    let program = match &event.program {
        None => "counted only".into(),
        Some(program) => format!("runs `{program}`"),
    };
    vec![name, task, cpu, program, format!("line {}", event.line)]
}

/// Writes a heading and aligned rows; writes nothing if there are no rows.
fn table(out: &mut String, heading: &str, rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{heading}");
    out.push_str(&output::aligned(&rows));
}
