//! `ks`, the KernelScript compiler.

// The print macros panic where a stream is full or closed, and a panic there ends the whole process.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod build;
mod check;
mod explain;
mod files;
mod fmt;
mod init;
mod lsp;
mod report;
mod share;
mod target;
mod test;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use ks_wit::command_output::{shown, with_causes, write_stderr, written};

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

const BUILD_EXAMPLES: &str = "\
Examples:
  ks build examples/perf/group.ks -o group.wasm
  ks build examples/perf/page_faults.ks --emit bpf -o page_faults.wasm
  ks build examples/perf/group.ks --target-kernel 6.1 -o group.wasm";

#[derive(Subcommand)]
enum Command {
    /// Compile a script to a plugin file
    #[command(after_help = BUILD_EXAMPLES)]
    Build(build::Args),
    /// KernelScript 0.1.1's name for `build`
    #[command(hide = true)]
    Compile(build::OldArgs),
    /// Report errors and warnings without writing files
    #[command(after_help = "Examples:\n  ks check examples/perf/group.ks\n  ks check --format json \
                      examples/perf/group.ks")]
    Check(check::Args),
    /// Compile the `@test` functions of a script and run them with ks-host
    #[command(after_help = "Examples:\n  ks test examples/testing/filter.ks")]
    Test(test::Args),
    /// Create a folder with a new script for a kind of program, which compiles unchanged
    Init(init::Args),
    /// Format scripts in place
    #[command(
        after_help = "Examples:\n  ks fmt --check examples/perf/group.ks\n  ks fmt - < examples/perf/group.ks"
    )]
    Fmt(fmt::Args),
    /// Let a plugin of another compiler read and write the kernel half's variables and arrays without calls
    #[command(after_help = "Examples:\n  ks share hello.wasm\n  ks share --mib 64 hello.wasm -o shared.wasm")]
    Share(share::Args),
    /// Explain an error or warning, with a wrong and a right example
    #[command(after_help = "Examples:\n  ks explain KS0417")]
    Explain(explain::Args),
    /// Run the language server on standard input and output, for editors
    Lsp(lsp::Args),
}

/// Shows the answer to a command line: help on standard output, or what is wrong with it on standard error.
fn show_answer(answer: clap::Error, arguments: &[OsString]) -> ExitCode {
    // A mistake quotes arguments, which may be file names that a shell has put there.
    let visible = arguments.iter().map(shown);
    let answer = Cli::try_parse_from(visible).err().unwrap_or(answer);
    let printed = answer.print();
    if !answer.use_stderr()
        && let Err(error) = written(printed)
    {
        write_stderr(format_args!("ks: {}", with_causes(&error)));
        return ExitCode::FAILURE;
    }
    u8::try_from(answer.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn main() -> ExitCode {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !ks_compiler::defect::is_contained(panic) {
            print(panic);
        }
    }));
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(answer) => return show_answer(answer, &arguments),
    };
    let result = match cli.command {
        Command::Build(args) => build::run(&args),
        Command::Compile(args) => build::run_old(args),
        Command::Check(args) => check::run(&args),
        Command::Test(args) => test::run(args),
        Command::Init(args) => init::run(&args),
        Command::Fmt(args) => fmt::run(&args),
        Command::Share(args) => share::run(&args),
        Command::Explain(args) => explain::run(&args),
        Command::Lsp(args) => lsp::run(&args),
    };
    result.unwrap_or_else(|error| {
        write_stderr(format_args!("ks: {}", with_causes(&*error)));
        ExitCode::FAILURE
    })
}
