//! `ks`, the KernelScript compiler.

mod build;
mod check;
mod report;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Compiles KernelScript: one script to one plugin that ks-host runs.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compile a script to a plugin file
    Build(build::Args),
    /// Look for errors without writing anything
    Check(check::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Build(args) => build::run(&args),
        Command::Check(args) => check::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("ks: {error:#}");
        ExitCode::FAILURE
    })
}
