//! `--stacks`: shows what a plugin's programs counted by stacks, after the plugin has ended.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver};

use anyhow::{Context as _, anyhow, ensure};
use ks_host::naming::NamingProcess;
use ks_host::perf::MappingRecorder;
use ks_host::stacks::{self, CountedStacks, FunctionNames, Profile};
use ks_host::text::visible;
use ks_host::world::{StackMap, StackRequest};
use ks_host::{PreparedPlugin, Writer};
use ks_wit::command_output::{shown, write_stdout};

use crate::{output, output_file};

/// Most bytes of a warning that is shown.
const MAX_WARNING_BYTES: usize = 1024;

/// An output form and its destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Output {
    form: Form,
    /// The output file; none means standard output.
    file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Tree,
    Folded,
    Flame,
    Pprof,
    Json,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Output, String> {
        let (form, file) = match text.split_once('=') {
            Some((_, "")) => return Err("no file behind `=`".into()),
            Some((form, file)) => {
                (form, Some(PathBuf::from(file)).filter(|file| !output_file::is_standard_output(file)))
            }
            None => (text, None),
        };
        let form = match form {
            "tree" => Form::Tree,
            "folded" => Form::Folded,
            "flame" => Form::Flame,
            "pprof" => Form::Pprof,
            "json" => Form::Json,
            _ => {
                return Err(
                    "not `tree`, `folded`, `flame`, `pprof` or `json`, with `=FILE` or without".into()
                );
            }
        };
        Ok(Output { form, file })
    }
}

/// The settings of `--stacks` for one plugin.
#[derive(Debug, Clone)]
pub(crate) struct Stacks {
    outputs: Vec<Output>,
    map: StackMap,
    /// Where forms without a file go; none for standard output.
    to: Option<Writer>,
}

/// The counted stacks of a run that has ended, and the mappings of processes during the run.
pub(crate) struct Answer {
    counted: Receiver<Result<CountedStacks, String>>,
    mappings: Option<MappingRecorder>,
}

impl Stacks {
    /// Selects the map to show.
    ///
    /// # Errors
    /// If the plugin has no such map, the chosen map is not one of them, or there are several and none was
    /// chosen.
    pub(crate) fn of(
        outputs: Vec<Output>,
        chosen: Option<&str>,
        plugin: &PreparedPlugin,
        to: Option<Writer>,
    ) -> anyhow::Result<Stacks> {
        let mut maps = plugin.stack_maps();
        let names = maps
            .iter()
            .map(|map| format!("`{}`", output::printable(map.name())))
            .collect::<Vec<_>>()
            .join(", ");
        ensure!(
            !maps.is_empty(),
            "--stacks: the plugin counts nothing by stacks: that is a map of integers whose keys have what \
             `stack_id` or `user_stack_id` gave"
        );
        let index = match chosen {
            None => {
                ensure!(
                    maps.len() == 1,
                    "--stacks: the plugin counts in {names}: choose one with --stacks-of"
                );
                0
            }
            Some(chosen) => maps.iter().position(|map| map.name() == chosen).ok_or_else(|| {
                anyhow!("--stacks-of {chosen}: the plugin counts by stacks in {names} only")
            })?,
        };
        Ok(Stacks { outputs, map: maps.swap_remove(index), to })
    }

    /// Creates the request for one run, and the receiver of its answer.
    pub(crate) fn request(&self) -> (StackRequest, Answer) {
        let (to, counted) = mpsc::channel();
        let mappings = MappingRecorder::start().inspect_err(|errno| {
            output::warn(
                "ks-host",
                &format!(
                    "--stacks: the mappings of processes cannot be recorded ({errno}): functions of \
                 those that end are not named; give ks-host CAP_PERFMON"
                ),
            );
        });
        (StackRequest { map: self.map.clone(), to }, Answer { counted, mappings: mappings.ok() })
    }

    /// Shows the counted stacks of a run; nothing if it ended before its programs were loaded.
    ///
    /// # Errors
    /// If the counts could not be read, or the output cannot be written.
    pub(crate) fn show(&self, plugin: &str, answer: Answer) -> anyhow::Result<()> {
        let mappings = answer.mappings.and_then(|recorder| {
            let mappings = recorder.finish();
            if mappings.is_none() {
                output::warn(
                    plugin,
                    "the mappings of processes were not recorded, because those of one process \
                     cannot be read: functions of processes that have ended are not named",
                );
            }
            mappings
        });
        let mappings = mappings.unwrap_or_default();
        let Ok(counted) = answer.counted.try_recv() else { return Ok(()) };
        let counted = counted.map_err(|error| anyhow!("--stacks: {error}"))?;
        let (lost, forgotten) = (mappings.lost(), mappings.forgotten());
        if lost > 0 {
            output::warn(
                plugin,
                &format!(
                    "{lost} mappings of processes were too many to be recorded: some names may be \
                 missing"
                ),
            );
        }
        if forgotten > 0 {
            output::warn(
                plugin,
                &format!(
                    "the mappings of {forgotten} processes were forgotten, because all together took \
                 too much memory: some names may be missing"
                ),
            );
        }
        let mut names = FunctionNames::new(mappings, Some(NamingProcess::of_this_program()));
        let profile = counted.named(&mut names);
        for warning in names.warnings() {
            output::warn(plugin, &visible(&warning, MAX_WARNING_BYTES));
        }
        let cut = counted.cut();
        if cut > 0 {
            let message = format!(
                "map `{}`: {cut} of {} are of stacks deeper than the kernel keeps: their outermost callers \
                 are missing",
                profile.map,
                profile.total()
            );
            output::warn(plugin, &message);
        }
        self.outputs.iter().try_for_each(|output| output.show(plugin, &profile, self.to.clone()))
    }
}

impl Output {
    fn show(&self, plugin: &str, profile: &Profile, to: Option<Writer>) -> anyhow::Result<()> {
        let bytes = match self.form {
            Form::Tree => stacks::tree(profile).into_bytes(),
            Form::Folded => stacks::folded(profile).into_bytes(),
            Form::Flame => stacks::flame_graph(profile, &format!("{plugin}: {}", profile.map))
                .context("--stacks: cannot draw the flame graph")?,
            Form::Pprof => stacks::pprof(profile).context("--stacks")?,
            Form::Json => stacks::json_lines(plugin, profile).into_bytes(),
        };
        if let Some(file) = &self.file {
            return output_file::replace(file, &bytes)
                .with_context(|| format!("--stacks: cannot write {}", shown(file)));
        }
        if let Some(mut to) = to {
            return to.write_all(&bytes).context("--output: cannot write the stacks");
        }
        ensure!(
            self.form != Form::Pprof || !io::stdout().is_terminal(),
            "--stacks: a pprof file is not text for a terminal: --stacks pprof=FILE"
        );
        Ok(write_stdout(&bytes)?)
    }

    /// The form in which a tool that counts by stacks shows them if no option says it.
    pub(crate) fn of_tool(json: bool) -> Output {
        Output { form: if json { Form::Json } else { Form::Tree }, file: None }
    }

    /// Whether it goes to standard output, between the plugin's prints, and is not JSON.
    pub(crate) fn is_printed_text(&self) -> bool {
        self.file.is_none() && self.form != Form::Json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_follows_the_form() {
        let tree = Output { form: Form::Tree, file: None };
        assert_eq!("tree".parse(), Ok(tree));
        let flame = Output { form: Form::Flame, file: Some("a=b.svg".into()) };
        assert_eq!("flame=a=b.svg".parse(), Ok(flame));
        assert!(["", "trees", "flame=", "=x"].iter().all(|text| text.parse::<Output>().is_err()));
    }
}
