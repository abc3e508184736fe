//! `ks-host completions SHELL` and `ks-host man`: completions for shells, and the manual page.

use clap_complete::Shell;
use ks_wit::command_output::write_stdout;

/// Arguments of `ks-host completions`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that reads the completions.
    shell: Shell,
}

/// Writes the completions of a shell.
pub(crate) fn completions(args: &CompletionsArgs, mut command: clap::Command) -> anyhow::Result<u8> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut command, "ks-host", &mut text);
    write_stdout(&text)?;
    Ok(0)
}

/// Writes the manual page: first that of the command, then a section for each subcommand.
pub(crate) fn man(command: clap::Command) -> anyhow::Result<u8> {
    let mut command = command;
    command.build();
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    for verb in command.get_subcommands().filter(|verb| verb.get_name() != "help") {
        let page = clap_mangen::Man::new(verb.clone());
        let name = verb.get_name();
        text.extend(format!(".SH \"KS-HOST {}\"\n", name.to_uppercase()).bytes());
        page.render_description_section(&mut text)?;
        page.render_synopsis_section(&mut text)?;
        page.render_options_section(&mut text)?;
    }
    write_stdout(&text)?;
    Ok(0)
}
