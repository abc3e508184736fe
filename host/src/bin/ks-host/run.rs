//! `ks-host [run] PLUGIN..`: runs plugins in the foreground, each on a thread of its own.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use ks_host::Writer;
use ks_host::bpf::statistics::Statistics;
use ks_host::perf::{Catalog, EventTable, Sysfs};
use ks_host::policy::{Limit, Policy};
use ks_host::quantity;
use ks_host::text::{MOST_BYTES, visible};
use ks_host::world::{Audit, Form, Share};
use ks_wit::command_output::shown;

use crate::apart::Isolation;
use crate::fleet::{Fleet, Member, Restart};
use crate::prepare::Source;
use crate::stacks::{Output, Stacks};
use crate::watch::WatchRequest;
use crate::{apart, cache, config, output, output_file, policy, prepare, sign, signals};

/// Arguments of `ks-host run`. No other argument struct is flattened into it: clap could then no longer tell
/// whether it is present next to the subcommands.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Plugin files, or scripts (`.ks`); several run side by side, and one that ends does not end the others. `-` is
    /// a script from standard input.
    #[arg(required_unless_present = "script", value_name = "PLUGIN")]
    plugins: Vec<PathBuf>,
    /// Runs this text, a script. Without `main` it attaches its programs, runs until it is stopped, and prints what
    /// it kept.
    #[arg(short = 'e', long = "script", value_name = "SCRIPT", conflicts_with = "plugins")]
    script: Option<String>,
    /// Asks the plugins to stop after this time, seconds or `300ms`, `2m`; the exit code is then 124.
    #[arg(long, value_name = "TIME", value_parser = time)]
    timeout: Option<Duration>,
    /// Prints as JSON, one object a line: `time`, `plugin` and `line`.
    #[arg(long)]
    json: bool,
    /// Shows the tables and histograms that the plugin prints in a view on the terminal, which sorts, filters and pauses
    /// them. A script without `main` is asked for what it keeps as often as this says, else it shows what it prints
    /// itself. What is shown last is written when the view ends.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = time,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        conflicts_with_all = ["json", "output", "raw", "record", "restart"]
    )]
    pub(crate) watch: Option<Duration>,
    /// Writes the plugins' output to this file instead of standard output, which a command of `--exec` writes
    /// to as well.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Lets control characters of the plugins' output reach standard output unchanged: for output that is
    /// meant for a terminal. Without this all but line feeds and tabs are made visible.
    #[arg(long)]
    raw: bool,
    /// When a plugin that ended is started again.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "never")]
    restart: Restart,
    /// Keeps compiled code in this folder, by default /var/cache/ks-host for root, else ~/.cache/ks-host. It
    /// must belong to this user alone (mode 0700).
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// Compiles anew, and stores nothing in the cache.
    #[arg(long)]
    no_cache: bool,
    /// Sets a field of a config block of the plugin before it starts: `limits.burst=7`, `limits.ports=22,80`,
    /// `limits.ports[1]=80`. May be given several times. With several plugins it applies to all that have the
    /// field; `a.wasm:limits.burst=7` to one.
    #[arg(long, value_name = "BLOCK.FIELD=VALUE")]
    config: Vec<String>,
    /// Allows the plugins what this file permits (TOML; `ks-host inspect` writes one), and nothing else.
    /// Without it they may only observe.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Also allows this: `xdp=eth0`, `pin=counters/*`, `helper=send_signal`, `struct_ops`; `all` is
    /// everything. May be given several times.
    #[arg(long, value_name = "CLASS[=TARGET]")]
    allow: Vec<String>,
    /// Demands that each plugin is signed by this identity, with this public key (64 hexadecimal digits, or a
    /// PEM file), as `[signers]` of a policy does. May be given several times; one of them is enough.
    #[arg(long, value_name = "IDENTITY=KEY")]
    signer: Vec<String>,
    #[arg(long, value_name = "NAME=NUMBER", help = policy::limit_help("plugin"))]
    limit: Vec<String>,
    /// Events of a vendor, in the JSON of perf's own tables; may be given several times.
    #[arg(long, value_name = "FILE")]
    event_table: Vec<PathBuf>,
    /// Shows, when the plugin has ended, what its programs counted by stacks: `tree` as text, `folded` for
    /// flame graph tools, `flame` as a picture (SVG), `pprof` for the tool of that name, `json` as an object for each
    /// stack. Without a file it is written where the plugin prints. May be given several times, for several forms.
    #[arg(long, value_name = "FORM[=FILE]")]
    stacks: Vec<Output>,
    /// The map that `--stacks` shows, if the plugin counts by stacks in several.
    #[arg(long, value_name = "MAP", requires = "stacks")]
    stacks_of: Option<String>,
    /// A command to observe, with its arguments; last on the line. It starts when the plugin waits for the
    /// first time, and its end asks the plugin to stop.
    #[arg(long, value_name = "COMMAND", num_args = 1..)]
    pub(crate) exec: Vec<OsString>,
    /// Ends with the exit code of the command of `--exec`, if the plugin's own is 0; 128 plus the signal's
    /// number if a signal ended it.
    #[arg(long)]
    exec_code: bool,
    /// Lets a plugin end that is done but has registered something with the kernel. Without this it stays,
    /// with its registrations, until it is asked to stop.
    #[arg(long)]
    no_wait: bool,
    /// Does not map the BPF object into the plugin's memory: host calls read and write variables and maps,
    /// with the same results.
    #[arg(long)]
    no_shared_memory: bool,
    /// Appends a line of JSON to this file for every kernel operation of the plugins: `plugin`, `act`,
    /// `target`, whether the policy allowed it, and the kernel's answer. A plugin is ended if its operation
    /// cannot be logged.
    #[arg(long, value_name = "FILE")]
    audit: Option<PathBuf>,
    /// Records every call of the plugin and its answer in this file, one JSON object a line, for `ks-host
    /// replay`. Shared memory is not mapped then, since accesses to it are not calls. If the plugin is
    /// restarted, the last run is kept.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Detaches a program that takes a larger share of the time of all CPUs than this in a second. It needs
    /// CAP_SYS_ADMIN, and adds some 20 ns to each run of every BPF program of the machine.
    #[arg(long, value_name = "PERCENT%")]
    max_bpf_share: Option<Share>,
    /// Where the plugins run.
    #[arg(long, value_name = "WHERE", value_enum, default_value = "process", env = apart::ISOLATION)]
    isolation: Isolation,
    /// Leaves all capabilities and system calls of ks-host to plugins' threads. Without this each thread
    /// drops, before its plugin starts, everything that the plugin does not need.
    #[arg(long)]
    unconfined: bool,
    /// The plugin's arguments; for a single plugin only.
    #[arg(last = true, value_name = "ARGUMENTS")]
    arguments: Vec<String>,
}

/// Runs the plugins and returns the first exit code, in the given order, that is not 0.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    run_sources(args, sources)
}

/// As [`run`], of plugins that something else than the command line names.
pub(crate) fn run_sources(
    args: Args,
    sources: impl FnOnce(&Args) -> anyhow::Result<Vec<Source>>,
) -> anyhow::Result<u8> {
    if args.json {
        output::say_as_json();
    }
    let mut sources = sources(&args)?;
    sources.iter_mut().for_each(|source| source.refresh = args.watch);
    let several = sources.len() > 1;
    for (given, what) in [
        (!args.arguments.is_empty(), "arguments after `--` are"),
        (!args.exec.is_empty(), "`--exec` is"),
        (args.exec_code, "`--exec-code` is"),
        (!args.stacks.is_empty(), "`--stacks` is"),
        (args.watch.is_some(), "`--watch` is"),
        (args.record.is_some(), "`--record` is"),
    ] {
        ensure!(
            !(several && given),
            "{what} for one plugin, and there are several: start each with a ks-host of its own, or set \
             fields of config blocks (`--config a.wasm:limits.burst=7`)"
        );
    }
    // Its process starts while everything else is read.
    let workers = args.isolation.workers();
    let catalog = catalog(&args.event_table)?;
    let policy = policy::of(args.policy.as_deref(), Policy::observing(), &args.allow, &args.limit)?;
    let mut policy = sign::demanding(policy, &args.signer)?;
    policy.lower_limit(Limit::Descriptors, crate::descriptors_for_each(sources.len()));
    let audit = args.audit.as_deref().map(audit_to).transpose()?;
    let output = args.output.as_deref().map(output_to).transpose()?;
    // Run-time statistics stay enabled while this value lives.
    let _statistics = match args.max_bpf_share {
        Some(_) => Some(Statistics::enable().context(
            "--max-bpf-share: the kernel does not count the time of programs (it takes CAP_SYS_ADMIN and \
             Linux 5.8)",
        )?),
        None => None,
    };
    let fleet = Arc::new(Fleet::new());
    let watch = match args.watch {
        Some(_) => Some(WatchRequest::new(signals::request(&fleet))?),
        None => None,
    };
    // Before any other thread starts: all threads inherit the blocked signals.
    signals::handle(Arc::clone(&fleet)).context("cannot handle signals")?;
    let host = apart::host(workers, policy.compile_time(), policy.limit(Limit::CompileBytes));
    let host = if args.no_cache { host } else { cache::use_in(host, args.cache.as_deref()) };
    let prepared = match prepare::all(&host, &sources) {
        Ok(prepared) => prepared,
        Err(reported) => return Ok(reported.code),
    };
    let form = match (args.json, several) {
        (true, _) => Form::Json,
        (false, true) => Form::Named,
        (false, false) => Form::Plain,
    };
    let names = names_of(&sources);
    let plugins: Vec<_> =
        names.iter().map(String::as_str).zip(prepared.iter().map(|one| &one.plugin)).collect();
    let configs = config::of_each(&args.config, &plugins)?;
    let printed = args.stacks.iter().any(Output::is_printed_text);
    ensure!(
        !args.json || !printed,
        "--stacks with --json is JSON, or needs a file: --stacks json, --stacks tree=FILE"
    );
    let is_tool = sources.first().is_some_and(|source| source.is_tool);
    let stacks = prepared.first().and_then(|prepared| {
        let mut outputs = args.stacks.clone();
        if outputs.is_empty() && is_tool && !prepared.plugin.stack_maps().is_empty() {
            outputs.push(Output::of_tool(args.json));
        }
        let chosen = args.stacks_of.as_deref();
        (!outputs.is_empty()).then(|| Stacks::of(outputs, chosen, &prepared.plugin, output.clone()))
    });
    let stacks = stacks.transpose()?;
    let given = sources.into_iter().zip(names).zip(prepared).zip(configs);
    let members = given.map(|(((source, name), prepared), config)| Member {
        source,
        name,
        prepared,
        arguments: args.arguments.clone(),
        config,
        exec: args.exec.clone(),
        exec_code: args.exec_code,
        linger: !args.no_wait,
        share_memory: !args.no_shared_memory,
        confine: !args.unconfined,
        audit: audit.clone(),
        bpf_share: args.max_bpf_share,
        record: args.record.clone(),
        catalog: catalog.clone(),
        policy: policy.clone(),
        timeout: args.timeout,
        restart: args.restart,
        stacks: stacks.clone(),
        watch: watch.clone(),
        form,
        redraws: form == Form::Plain && output.is_none() && io::stdout().is_terminal(),
        output: output.clone(),
        raw: args.raw,
    });
    let cache = host.cache().map(|cache| cache.path().to_owned());
    let codes = fleet.run(host, members.collect());
    if let Some(folder) = cache {
        cache::keep_types_that_were_read(&folder);
    }
    Ok(codes.into_iter().find(|code| *code != 0).unwrap_or(0))
}

/// The name of the script of `-e` in messages.
const ARGUMENT: &str = "-e";
/// The plugin that is a script from standard input.
const STANDARD_INPUT: &str = "-";
/// Bytes of a script from standard input: as many as a file has.
const MOST_SCRIPT_BYTES: u64 = 16 << 20;

/// Returns the plugins of the command line.
fn sources(args: &Args) -> anyhow::Result<Vec<Source>> {
    if let Some(text) = &args.script {
        return Ok(vec![Source::script(ARGUMENT, text.clone().into_bytes())]);
    }
    let source = |path: &PathBuf| {
        if path.as_os_str() != STANDARD_INPUT {
            return Ok(Source::from(path.clone()));
        }
        let mut text = Vec::new();
        let read = io::stdin().lock().take(MOST_SCRIPT_BYTES + 1).read_to_end(&mut text);
        read.context("cannot read the script from standard input")?;
        Ok(Source::script("stdin", text))
    };
    args.plugins.iter().map(source).collect()
}

/// Opens the audit log in this file, and makes it readable only for this user.
fn audit_to(file: &Path) -> anyhow::Result<Audit> {
    output_file::demand_file(file).context("--audit")?;
    let opened = output_file::append(file);
    opened
        .map(|file| Audit::new(Writer::new(file)))
        .with_context(|| format!("cannot write the audit {}", shown(file)))
}

/// Replaces the file for plugins' prints by one that is readable only for this user.
fn output_to(file: &Path) -> anyhow::Result<Writer> {
    if output_file::is_standard_output(file) {
        return Ok(Writer::stdout());
    }
    let opened = output_file::create(file);
    opened.map(Writer::new).with_context(|| format!("--output: cannot write {}", shown(file)))
}

/// Bytes of a table of events: those of the kernel's tree have hundreds of kilobytes.
const MOST_TABLE_BYTES: u64 = 64 << 20;

/// Returns the catalog of this machine's events and those of the tables.
pub(crate) fn catalog(tables: &[PathBuf]) -> anyhow::Result<Catalog> {
    let mut table = EventTable::default();
    for file in tables {
        let json = ks_wit::files::read_text(file, MOST_TABLE_BYTES)
            .with_context(|| format!("cannot read {}", shown(file)))?;
        table.add(&json).with_context(|| format!("cannot use {}", shown(file)))?;
    }
    Ok(Catalog::new(Sysfs::default(), table))
}

/// Returns a plugin's name in messages: its file name.
pub(crate) fn name_of(path: &Path) -> String {
    display(&path.file_name().unwrap_or(path.as_os_str()).to_string_lossy())
}

/// Formats a plugin's name as the prefix of its lines.
fn display(name: &str) -> String {
    visible(name, MOST_BYTES).into_owned()
}

/// Returns the plugins' names in messages: their file names, or their paths where two have the same file
/// name.
fn names_of(sources: &[Source]) -> Vec<String> {
    let mut sorted: Vec<String> = sources.iter().map(|source| name_of(&source.path)).collect();
    sorted.sort();
    let twice = |name: &String| {
        let first = sorted.partition_point(|other| other < name);
        sorted.get(first + 1) == Some(name)
    };
    let name = |Source { path, .. }: &Source| {
        let name = name_of(path);
        if twice(&name) { display(&path.to_string_lossy()) } else { name }
    };
    sources.iter().map(name).collect()
}

/// Parses a duration that is more than 0.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    let duration = quantity::duration(text)?;
    if duration.is_zero() { Err("must be more than 0".into()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_of_one_file_name_are_called_by_their_paths() {
        let paths =
            ["a/count.wasm", "b/count.wasm", "b/rest.wasm"].map(|path| Source::from(PathBuf::from(path)));
        assert_eq!(names_of(&paths), ["a/count.wasm", "b/count.wasm", "rest.wasm"]);
    }
}
