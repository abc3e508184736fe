//! `ks-host tools` and `ks-host tool NAME`: the scripts of the folder `tools/`, which are part of this program.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::{Args as _, FromArgMatches as _};
use ks_host::near::near;
use ks_wit::command_output::{json_text, shown, write_lines};
#[cfg(feature = "script")]
use ks_wit::program_kind::PROGRAM_KINDS;
use serde::Serialize;

use crate::apart::{Compiling, Isolation};
use crate::output;
use crate::prepare::Source;
use crate::{EntryPoint, HOST_FAILURE, compiled, inspect, run};

/// The names and texts of the scripts, sorted by name.
static TOOLS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/tools.rs"));

/// The subcommand that runs a tool.
pub(crate) const TOOL: &str = "tool";

/// Arguments of `ks-host tools`.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only this tool.
    name: Option<String>,
    /// Writes JSON, for tools.
    #[arg(long)]
    json: bool,
    /// Writes a policy for `--policy` that allows what the tool asks for, and nothing else.
    #[arg(long, requires = "name", conflicts_with = "json")]
    policy: bool,
    /// Writes the tool's script.
    #[arg(long, requires = "name", conflicts_with_all = ["json", "policy"])]
    source: bool,
}

/// Arguments of `ks-host tool`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The tool; `ks-host tools` lists them.
    name: String,
    /// The tool's own options (`--help` shows them), and options of `ks-host run`. Words after `--` are the
    /// tool's, whatever they look like.
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
    #[arg(skip)]
    pub(crate) exec: Vec<OsString>,
}

/// A tool of this command.
#[derive(Debug, Clone, Copy)]
struct Tool {
    name: &'static str,
    text: &'static str,
}

/// A tool as it is listed. Later versions add members and change none.
#[derive(Debug, Serialize)]
struct ListedTool {
    name: &'static str,
    shows: &'static str,
    /// The attributes of its programs: where they are attached.
    attached: Vec<String>,
}

impl ListedTool {
    fn of(Tool { name, text }: Tool) -> ListedTool {
        let shows = text.lines().next().unwrap_or_default().trim_start_matches('/').trim();
        ListedTool { name, shows, attached: facts(text).attached }
    }

    fn row(&self) -> Vec<String> {
        let kinds = self.attached.iter().filter_map(|attribute| attribute.split('(').next());
        let kinds: Vec<&str> = kinds.collect::<BTreeSet<_>>().into_iter().collect();
        vec![self.name.to_owned(), self.shows.to_owned(), kinds.join(", ")]
    }
}

/// What a script says of itself.
#[derive(Default)]
struct Facts {
    attached: Vec<String>,
    /// Whether it draws pictures one after the other, by `redraw()`: on a terminal it is a view.
    draws: bool,
}

/// Returns the facts that the parser knows of a script. Parsing takes time, which a start of a tool has not.
#[cfg(feature = "script")]
fn facts(text: &'static str) -> Facts {
    use ks_compiler::ast::ItemKind;
    use ks_compiler::implicit_main::PROFILE;
    use ks_compiler::lex::TokenKind;
    use ks_compiler::options::Options;
    use ks_compiler::pipeline;
    use ks_compiler::source::Span;

    let Ok(script) = pipeline::parse(TOOL, text.as_bytes(), Options::new(TOOL)) else {
        return Facts::default();
    };
    let spelled = |span: Span| &text[span.start as usize..span.end as usize];
    let functions = script.ast.items.iter().filter_map(|item| match &item.kind {
        ItemKind::Function(function) => Some(function),
        _ => None,
    });
    let programs = functions.flat_map(|function| &function.attributes).filter(|attribute| {
        let name = attribute.name.name.as_str();
        name == PROFILE.0 || PROGRAM_KINDS.iter().any(|row| row.name == name)
    });
    let mut attached = Vec::new();
    for attribute in programs.filter_map(|attribute| spelled(attribute.span).strip_prefix('@')) {
        // On one line, as the formatter writes a short one.
        let attribute = attribute.split_whitespace().collect::<Vec<_>>().join(" ");
        let attribute = attribute.replace("( ", "(").replace(", )", ")");
        if !attached.contains(&attribute) {
            attached.push(attribute);
        }
    }
    let mut names = script.tokens.iter().filter(|token| token.kind == TokenKind::Ident);
    Facts { attached, draws: names.any(|token| spelled(token.span) == REDRAW) }
}

/// What compiles scripts knows them; without it there are their names.
#[cfg(not(feature = "script"))]
fn facts(_: &'static str) -> Facts {
    Facts::default()
}

/// The builtin that begins a picture.
#[cfg(feature = "script")]
const REDRAW: &str = "redraw";

/// Returns the tool of this name.
fn tool(name: &str) -> anyhow::Result<Tool> {
    if let Some(&(name, text)) = TOOLS.iter().find(|(other, _)| *other == name) {
        return Ok(Tool { name, text });
    }
    let near = near(name, TOOLS.iter().map(|(name, _)| (*name).to_owned()));
    let meant = near.first().map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    anyhow::bail!("there is no tool {}\n  do: {meant}`ks-host tools` lists all", shown(name))
}

/// Lists the tools, or shows one, and returns the exit code.
pub(crate) fn list(args: &ListArgs) -> anyhow::Result<u8> {
    let tools = match &args.name {
        Some(name) => vec![tool(name)?],
        None => TOOLS.iter().map(|&(name, text)| Tool { name, text }).collect(),
    };
    let listed = || tools.iter().copied().map(ListedTool::of);
    let text = match tools.first() {
        Some(tool) if args.policy => {
            let name = Path::new(tool.name);
            return match compiled(
                name,
                tool.text.as_bytes(),
                EntryPoint::Main,
                Compiling::uncached(Isolation::Process),
            ) {
                Ok(plugin) => inspect::write_policy(name, plugin),
                Err(code) => Ok(code),
            };
        }
        Some(tool) if args.source => tool.text.to_owned(),
        _ if args.json => json_text(&listed().collect::<Vec<_>>())?,
        _ => output::aligned(&listed().map(|tool| tool.row()).collect::<Vec<_>>()),
    };
    write_lines(&text)?;
    Ok(0)
}

/// Runs a tool and returns its exit code.
pub(crate) fn run(args: Args) -> anyhow::Result<u8> {
    let tool = tool(&args.name)?;
    let command = clap::Command::new("ks-host tool").disable_help_flag(true);
    let command = run::Args::augment_args(command);
    let (host, own) = split(&command, args.options);
    let view = view_form(&tool, &host);
    let line = [OsString::from("ks-host tool")].into_iter().chain(host).chain(view);
    let line = line.chain([tool.name.into(), "--".into()]).chain(own);
    let parsed = command.try_get_matches_from(line).and_then(|matches| run::Args::from_arg_matches(&matches));
    let mut parsed = match parsed {
        Ok(parsed) => parsed,
        Err(answer) => {
            // If standard error is closed, only the exit code can report the failure.
            let _ = answer.print();
            return Ok(HOST_FAILURE);
        }
    };
    parsed.exec = args.exec;
    let source = Source { is_tool: true, ..Source::script(tool.name, tool.text.as_bytes().to_vec()) };
    run::run_sources(parsed, |_| Ok(vec![source]))
}

/// Returns the option that makes a tool that draws a view on a terminal, unless an option says how else it prints.
fn view_form(tool: &Tool, options: &[OsString]) -> Option<OsString> {
    let is_form = |option: &OsString| {
        let name = option.to_str().and_then(|option| option.split('=').next()).unwrap_or_default();
        ["--watch", "--json", "--output", "--raw", "--record", "--restart"].contains(&name)
    };
    let is_on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let may_be_view = cfg!(feature = "watch") && is_on_terminal && !options.iter().any(is_form);
    (may_be_view && facts(tool.text).draws).then(|| "--watch".into())
}

/// Splits the options after the name of a tool into those of `ks-host run`, with their values, and the tool's own.
fn split(command: &clap::Command, options: Vec<OsString>) -> (Vec<OsString>, Vec<OsString>) {
    let (mut host, mut own) = (Vec::new(), Vec::new());
    let mut options = options.into_iter();
    while let Some(option) = options.next() {
        if option == "--" {
            own.extend(options);
            break;
        }
        let text = option.to_string_lossy().into_owned();
        let (name, has_value) = match text.split_once('=') {
            Some((name, _)) => (name, true),
            None => (text.as_str(), false),
        };
        let long = name.strip_prefix("--").unwrap_or_default();
        match command.get_arguments().find(|argument| argument.get_long() == Some(long)) {
            Some(argument) => {
                host.push(option);
                let takes_value =
                    argument.get_action().takes_values() && !has_value && !argument.is_require_equals_set();
                host.extend(takes_value.then(|| options.next()).flatten());
            }
            None => own.push(option),
        }
    }
    (host, own)
}

/// Returns the command line as it is parsed: a link `opensnoop` to this program runs that tool, and what stands after
/// the name of a tool is not this command's, `--help` among it.
pub(crate) fn normal(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let called = arguments.first().map(PathBuf::from).unwrap_or_default();
    let name = called.file_name().and_then(OsStr::to_str).unwrap_or_default();
    if TOOLS.iter().any(|(tool, _)| *tool == name) {
        arguments.splice(0..1, ["ks-host".into(), TOOL.into(), name.into()]);
    }
    let is_option = |argument: &OsString| argument.as_bytes().starts_with(b"-");
    let command = 1 + arguments.iter().skip(1).take_while(|argument| is_option(argument)).count();
    let is_tool = arguments.get(command).is_some_and(|argument| argument == TOOL);
    if is_tool && arguments.get(command + 1).is_some_and(|name| !is_option(name)) {
        arguments.insert(command + 2, "--".into());
    }
    arguments
}
