//! `ks-host`: runs plugins, and shows before a run what they ask for.

// The print macros panic if the stream is full or closed, and a panic there ends the whole process.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod apart;
mod cache;
mod check;
mod config;
mod defect;
mod deferred;
mod doctor;
mod events;
mod fleet;
mod inspect;
mod output;
mod output_file;
mod policy;
mod prepare;
mod progress;
mod ps;
mod replay;
mod run;
#[cfg(feature = "script")]
mod script;
mod shell;
mod sign;
mod signals;
mod stacks;
#[cfg(own_start)]
mod sys;
mod test;
mod tools;
mod trace;
#[cfg(feature = "watch")]
mod watch;
#[cfg(not(feature = "watch"))]
#[path = "watch_absent.rs"]
mod watch;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, Subcommand};
use ks_host::plugin::{Plugin, PluginError};
use ks_wit::command_output::{shown, with_causes, written};

use crate::apart::Compiling;
use crate::deferred::Deferred;
use crate::prepare::Source;

/// Exit code of a host failure; also of a plugin that trapped.
const HOST_FAILURE: u8 = 125;
/// Exit code of a plugin that its policy does not let start.
const DENIED: u8 = 126;
/// Exit code of a plugin that had to be ended.
const ENDED: u8 = 130;
/// Exit code for a file that is neither a plugin nor a script that compiles to one.
const NOT_A_PLUGIN: u8 = 127;

/// Runs KernelScript plugins in a sandbox: `ks-host PLUGIN -- ARGUMENTS`.
///
/// A file with the ending `.ks` is a script, which is compiled first.
#[derive(Debug, Parser)]
#[command(
    name = "ks-host",
    version,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true,
    after_long_help = MORE_HELP
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Option<run::Args>,
    /// Shows on standard error what the host does; twice: also messages of libbpf.
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    verbose: u8,
}

const MORE_HELP: &str = "\
Signals: Ctrl-C or SIGTERM asks the plugins to stop, a second one ends them and the command. SIGHUP reads \
changed plugin files again; what they pinned stays.

Policy: by default plugins may only observe (events, tracepoints, probes that read). Anything that changes \
the system needs --allow or a --policy file: xdp, tc, cgroup, lsm, modify_return, struct_ops, helper, kfunc, \
pin, other. So does kernel_variable, which reads variables of the kernel by name. `ks-host inspect --policy` writes the policy that a plugin needs.

Exit codes: the plugin's own (low 8 bits); 124 after --timeout; 125 if it trapped or the host failed; 126 if \
the policy did not let it start; 127 if a file is not a plugin, or is a script with errors; 130 if it did \
not stop when asked and was ended. For several plugins, the first code that is not 0.

Examples:
  ks-host -e '@tracepoint(\"raw_syscalls/sys_enter\") { calls[comm()] += 1 }' --exec ls
  ks-host tool opensnoop --failed --exec ls
  ks-host examples/perf/group.ks
  ks-host --json --timeout 10 examples/perf/page_faults.ks examples/perf/group.ks
  ks-host examples/perf/stat.ks --exec sh -c 'ls | wc'
  ks-host --stacks flame=out.svg examples/perf/profile.ks --exec sha512sum target/release/ks-host
  ks-host inspect examples/perf/page_faults.ks
  ks-host check examples/perf/page_faults.ks
  ks-host --allow pin --limit maps=16 examples/state/kinds.ks
  ks-host precompile examples/perf/page_faults.ks
  ks-host --record run.jsonl examples/perf/group.ks
  ks-host replay examples/perf/group.ks run.jsonl
  ks-host doctor
  ks-host events 'cache*'
  ks-host completions bash > ks-host.bash
  ks-host man > ks-host.1";

#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
enum Command {
    /// Runs plugins; what `ks-host PLUGIN` does.
    #[command(after_help = "Examples:\n  ks-host run examples/perf/group.ks\n  ks-host run --no-cache \
                      examples/perf/stat.ks --exec ls")]
    Run(Deferred<run::Args>),
    /// Runs a tool that is part of ks-host: `ks-host tool opensnoop --pid 1`.
    #[command(
        override_usage = "ks-host tool <NAME> [OPTIONS]",
        after_help = "Examples:\n  ks-host tool opensnoop --failed --exec ls\n  ks-host tool syscount --exec \
                      ls\n  ks-host tool biolatency --exec sync"
    )]
    Tool(Deferred<tools::Args>),
    /// Lists the tools that are part of ks-host, with what they show and where they are attached.
    #[command(after_help = "Examples:\n  ks-host tools\n  ks-host tools opensnoop --policy")]
    Tools(Deferred<tools::ListArgs>),
    /// Shows what a plugin contains and asks for, without running it.
    Inspect(Deferred<inspect::Args>),
    /// Asks the kernel whether it has what a plugin needs: programs, attach points, helpers, kfuncs, maps.
    Check(Deferred<check::Args>),
    /// Compiles plugins ahead, so that their first run starts as fast as all others.
    #[command(
        after_help = "Examples:\n  ks-host precompile examples/perf/group.ks examples/perf/page_faults.ks"
    )]
    Precompile(Deferred<cache::PrecompileArgs>),
    /// Runs the tests of a plugin, each in an instance of its own.
    #[command(after_help = "Examples:\n  ks-host test examples/testing/filter.ks\n  ks-host test --json \
                      examples/testing/filter.ks")]
    Test(Deferred<test::Args>),
    /// Replays a recorded run of a plugin, without asking this machine anything, and reports the first
    /// difference.
    ///
    /// The plugin's output is printed, and not compared. The exit code is the plugin's if it made the
    /// recorded calls and ended as recorded, else 125.
    #[command(after_help = "Examples:\n  ks-host replay examples/perf/group.ks run.jsonl")]
    Replay(Deferred<replay::Args>),
    /// Signs a plugin file, to vouch for exactly these bytes.
    #[command(
        after_help = "Examples:\n  ks-host sign --new-key --key key.pem --as release@example.org group.wasm"
    )]
    Sign(Deferred<sign::SignArgs>),
    /// Checks who has signed a plugin file, and that it has not changed since.
    #[command(after_help = "Examples:\n  ks-host verify --signer release@example.org=key.pub group.wasm")]
    Verify(Deferred<sign::VerifyArgs>),
    /// Shows the plugins that run now, what they have attached, and how often their programs run.
    Ps(Deferred<ps::Args>),
    /// Shows the events of this machine, in both spellings, and which of them can be counted here.
    Events(Deferred<events::Args>),
    /// Shows which features of plugins work on this machine, and what to change where they do not.
    Doctor(Deferred<doctor::Args>),
    /// Writes the completions of a shell.
    #[command(after_help = "Examples:\n  ks-host completions bash > ks-host.bash")]
    Completions(Deferred<shell::CompletionsArgs>),
    /// Writes the manual page.
    #[command(after_help = "Examples:\n  ks-host man > ks-host.1")]
    Man,
}

fn main() -> ExitCode {
    ks_host::naming::serve_if_asked();
    ks_host::worker::serve_if_asked();
    // It only fails for signals that do not exist.
    let _ = ks_host::apart::expect_children();
    defect::report_panics();
    ExitCode::from(defect::contain(answer))
}

/// Runs the command line and returns the exit code.
fn answer() -> u8 {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = apart::serve(&arguments) {
        return code;
    }
    let arguments = tools::normal(arguments);
    apart::start_worker_early(&arguments);
    let (arguments, exec) = split_exec(arguments);
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli.observing(exec),
        Err(answer) => return show_answer(answer, &arguments),
    };
    trace::start(cli.verbose);
    raise_descriptor_limit();
    let code = match (cli.command, cli.run) {
        (Some(Command::Run(Deferred(args))), _) | (None, Some(args)) => run::run(args),
        (Some(Command::Tool(args)), _) => tools::run(args.0),
        (Some(Command::Tools(args)), _) => tools::list(&args),
        (Some(Command::Inspect(args)), _) => inspect::inspect(&args),
        (Some(Command::Check(args)), _) => check::run(&args),
        (Some(Command::Precompile(args)), _) => cache::precompile(args.0),
        (Some(Command::Test(args)), _) => test::test(&args),
        (Some(Command::Replay(args)), _) => replay::replay(&args),
        (Some(Command::Sign(args)), _) => sign::sign(&args),
        (Some(Command::Verify(args)), _) => sign::verify(&args),
        (Some(Command::Ps(args)), _) => ps::ps(&args),
        (Some(Command::Events(args)), _) => events::events(&args),
        (Some(Command::Doctor(args)), _) => doctor::doctor(&args),
        (Some(Command::Completions(args)), _) => shell::completions(&args, Cli::command()),
        (Some(Command::Man), _) => shell::man(Cli::command()),
        // Not reached: clap shows the help if there is neither.
        (None, None) => Ok(HOST_FAILURE),
    };
    code.unwrap_or_else(|error| {
        output::report("ks-host", &with_causes(&*error).to_string());
        HOST_FAILURE
    })
}

/// Shows the answer to a command line: help on standard output, or what is wrong with it on standard error.
fn show_answer(answer: clap::Error, arguments: &[OsString]) -> u8 {
    // A mistake quotes arguments, which may be file names that a shell has put there.
    let visible = arguments.iter().map(shown);
    let answer = Cli::try_parse_from(visible).err().unwrap_or(answer);
    let printed = answer.print();
    if answer.use_stderr() {
        return HOST_FAILURE;
    }
    written(printed).map_or_else(
        |error| {
            output::report("ks-host", &with_causes(&error));
            HOST_FAILURE
        },
        |()| 0,
    )
}

impl Cli {
    /// Adds the command to observe.
    fn observing(mut self, exec: Vec<OsString>) -> Cli {
        match (&mut self.command, &mut self.run) {
            (Some(Command::Tool(args)), _) => args.exec = exec,
            (Some(Command::Run(Deferred(args))), _) | (_, Some(args)) => args.exec = exec,
            _ => {}
        }
        self
    }
}

/// Splits the command after `--exec` off the command line: its arguments are its own, whatever they look
/// like.
fn split_exec(mut arguments: Vec<OsString>) -> (Vec<OsString>, Vec<OsString>) {
    match arguments.iter().position(|argument| argument == "--exec") {
        // Without a command the option stays, and clap reports what is missing.
        Some(index) if index + 1 < arguments.len() => {
            let exec = arguments.split_off(index + 1);
            arguments.pop();
            (arguments, exec)
        }
        _ => (arguments, Vec::new()),
    }
}

/// Descriptors that the host needs for itself: its streams, files, processes and libraries. At most half of
/// all that it may open.
const OWN_DESCRIPTORS: u64 = 64;

/// Returns the share of each of these plugins of the descriptors that this process may open.
fn descriptors_for_each(plugins: usize) -> u64 {
    use nix::sys::resource::{Resource, getrlimit};
    let all = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(now, _)| now);
    (all - OWN_DESCRIPTORS.min(all / 2)) / plugins.max(1) as u64
}

/// Raises the descriptor limit to its maximum: each event, program, map and link needs one. The lower default
/// is for processes that use select(2).
fn raise_descriptor_limit() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // A lower limit fails only when the descriptors are needed.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
    }
}

/// Reads a plugin, or compiles a script to one; reports on standard error why a file is neither.
fn read_plugin(source: &Source, compiling: Compiling<'_>) -> Result<Plugin, u8> {
    let entry = source.refresh.map_or(EntryPoint::Main, EntryPoint::Refreshed);
    match &source.script {
        Some(text) => {
            let bytes = compiled(&source.path, text, entry, compiling)?;
            Plugin::from_bytes(bytes).map_err(|error| not_a_plugin(&source.path, &error))
        }
        None => read(&source.path, entry, compiling),
    }
}

/// Selects the functions of a script to compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryPoint {
    /// `main` and the functions that it needs.
    Main,
    /// The same; a script without `main` prints what it keeps in each period of this length.
    Refreshed(Duration),
    /// The `@test` functions, as `ks build --test` does.
    Tests,
}

/// Like [`read_plugin`], with the functions to compile if the file is a script.
fn read(path: &Path, entry: EntryPoint, compiling: Compiling<'_>) -> Result<Plugin, u8> {
    Plugin::from_bytes(read_bytes(path, entry, compiling)?).map_err(|error| not_a_plugin(path, &error))
}

/// Returns the bytes of a plugin file, or of a compiled script, without parsing them.
fn read_bytes(path: &Path, entry: EntryPoint, compiling: Compiling<'_>) -> Result<Vec<u8>, u8> {
    if path.extension() == Some(OsStr::new("ks")) {
        return read_script(path, entry, compiling);
    }
    ks_host::plugin::read_file(path).map_err(|error| not_a_plugin(path, &error))
}

#[cfg(feature = "script")]
fn read_script(path: &Path, entry: EntryPoint, compiling: Compiling<'_>) -> Result<Vec<u8>, u8> {
    script::compile(path, entry, compiling).map_err(not_compiled)
}

/// Returns the bytes of the plugin that a script without a file is compiled to.
#[cfg(feature = "script")]
fn compiled(name: &Path, text: &[u8], entry: EntryPoint, compiling: Compiling<'_>) -> Result<Vec<u8>, u8> {
    script::compile_text(name, text, entry, compiling).map_err(not_compiled)
}

/// Reports why a script is not compiled, and returns the exit code.
#[cfg(feature = "script")]
#[expect(clippy::needless_pass_by_value, reason = "it ends here")]
fn not_compiled(error: anyhow::Error) -> u8 {
    output::report("ks-host", &with_causes(&*error).to_string());
    if error.is::<script::CompilerDefect>() { HOST_FAILURE } else { NOT_A_PLUGIN }
}

#[cfg(not(feature = "script"))]
fn compiled(name: &Path, _: &[u8], entry: EntryPoint, compiling: Compiling<'_>) -> Result<Vec<u8>, u8> {
    read_script(name, entry, compiling)
}

#[cfg(not(feature = "script"))]
fn read_script(path: &Path, _: EntryPoint, _: Compiling<'_>) -> Result<Vec<u8>, u8> {
    let script = shown(path);
    output::report(
        "ks-host",
        &format!("{script} is a script, and this ks-host was built without the compiler: ks build {script}"),
    );
    Err(NOT_A_PLUGIN)
}

/// Reports why a plugin is not started, and returns the exit code: 127 if the file is none.
fn not_a_plugin(path: &Path, error: &PluginError) -> u8 {
    let display = shown(path);
    // Path and reason may contain text that others chose.
    let message = match error {
        PluginError::Io(error) => format!("cannot read {display}: {error}{}", meant(path)),
        PluginError::CompileTime(_) | PluginError::NoProcess(_) => {
            format!("{display} is not started: {error}")
        }
        _ => format!("{display} is not a plugin: {error}"),
    };
    output::report("ks-host", &message);
    if let PluginError::NoProcess(_) = error { HOST_FAILURE } else { NOT_A_PLUGIN }
}

/// Suggests the subcommand that a path, which is not a file, may be a misspelling of.
fn meant(path: &Path) -> String {
    let commands = Cli::command();
    let names = commands.get_subcommands().map(|command| command.get_name().to_owned());
    let argument = path.to_str().unwrap_or_default();
    match ks_host::near::near(argument, names).first() {
        Some(name) => format!("\n  do: did you mean the command `ks-host {name}`?"),
        None => String::new(),
    }
}
