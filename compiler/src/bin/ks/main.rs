//! `ks`, the KernelScript compiler.

mod build;
mod check;
mod explain;
mod files;
mod fmt;
mod init;
mod lsp;
mod report;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Compiles KernelScript: one script to one plugin that ks-host runs.
#[derive(Parser)]
#[command(version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ks build examples/perf/group.ks -o group.wasm
  ks check examples/perf/group.ks
  ks fmt --check examples/perf/group.ks
  ks explain KS0417
  ks init tracepoint/sched/sched_switch switches";

#[derive(Subcommand)]
enum Command {
    /// Compile a script to a plugin file
    #[command(alias = "compile")]
    Build(build::Args),
    /// Look for errors without writing anything
    Check(check::Args),
    /// Compile the `@test` functions of a script and run them with ks-host
    Test(test::Args),
    /// Start a script: a folder with a program of some kind that compiles as it is
    Init(init::Args),
    /// Bring scripts into the one style, in place
    Fmt(fmt::Args),
    /// Tell what an error or warning means, with a wrong and a right example
    Explain(explain::Args),
    /// Answer an editor over standard input and output
    Lsp(lsp::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Build(args) => build::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Test(args) => test::run(args),
        Command::Init(args) => init::run(&args),
        Command::Fmt(args) => fmt::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Lsp(args) => lsp::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("ks: {error:#}");
        ExitCode::FAILURE
    })
}
