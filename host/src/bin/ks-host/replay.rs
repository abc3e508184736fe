//! `ks-host --record FILE` and `ks-host replay PLUGIN FILE`: records a run, and replays it without the
//! recorded machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ks_host::plugin::Outcome;
use ks_host::policy::{Limit, Policy};
use ks_host::record::{Order, Record, Recording, Replay};
use ks_host::world::Calls;
use ks_host::{RunOptions, Writer};
use ks_wit::command_output::shown;

use crate::{apart, cache, output, output_file, prepare, run};

/// Arguments of `ks-host replay`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A plugin file, or a script (`.ks`).
    plugin: PathBuf,
    /// The recording of `ks-host --record FILE`.
    record: PathBuf,
    /// Answers calls in any order: each is answered by the first unused recorded call with the same
    /// arguments. For the same plugin in another language.
    #[arg(long)]
    any_order: bool,
    /// Lets control characters of the plugin's output reach standard output unchanged; without this all but
    /// line feeds and tabs are made visible.
    #[arg(long)]
    raw: bool,
    /// Keeps compiled code in this folder instead of this user's.
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_cache")]
    cache: Option<PathBuf>,
    /// Compiles anew, and stores nothing in the cache.
    #[arg(long)]
    no_cache: bool,
}

/// Starts a recording in this file, which is replaced by one that is readable only for this user.
pub(crate) fn record_to(file: &Path, plugin: &str) -> anyhow::Result<Recording> {
    output_file::demand_file(file).context("--record")?;
    let opened = output_file::create(file);
    let recording = opened.and_then(|opened| Recording::start(Writer::new(opened), plugin));
    recording.with_context(|| format!("cannot write the record {}", shown(file)))
}

/// Replays a recording. The exit code is the plugin's, as recorded; 125 if the run differs.
pub(crate) fn replay(args: &Args) -> anyhow::Result<u8> {
    let display = shown(&args.record);
    let file = fs::File::open(&args.record).with_context(|| format!("cannot read {display}"))?;
    let record = Record::read(file).with_context(|| format!("cannot use {display}"))?;
    let order = if args.any_order { Order::Any } else { Order::Same };
    let replay = Replay::new(record, order);
    let policy = Policy::observing();
    let host = apart::host(None, policy.compile_time(), policy.limit(Limit::CompileBytes));
    let host = if args.no_cache { host } else { cache::use_in(host, args.cache.as_deref()) };
    let prepared = match prepare::one(&host, &args.plugin.clone().into()) {
        Ok(prepared) => prepared,
        Err(reported) => return Ok(reported.code),
    };
    let name = run::name_of(&args.plugin);
    let options =
        RunOptions { calls: Calls::Replayed(replay.clone()), raw: args.raw, ..RunOptions::new(&name) };
    let outcome = prepared.plugin.run(options);
    let code = match replay.finish(&outcome) {
        Ok(code) => code,
        Err(difference) => {
            output::report(&format!("ks-host: {name} on {display}"), &difference.to_string());
            return Ok(crate::HOST_FAILURE);
        }
    };
    if let Outcome::Trapped(reason) = outcome {
        output::report(&name, &reason);
    }
    Ok(code)
}
