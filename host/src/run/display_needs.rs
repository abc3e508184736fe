//! What a run reads for the texts that it shows.

use std::collections::BTreeSet;

use ks_wit::object::DisplayForm;

use crate::options::RunOptions;
use crate::policy::{Class, PluginObject};
use crate::world::Calls;

/// What the host reads for the texts that it makes for a plugin.
#[derive(Default)]
pub(super) struct DisplayNeeds {
    /// Names of functions of processes.
    pub(super) processes: bool,
    /// Names of functions of processes that have ended.
    pub(super) ended_processes: bool,
    /// The time zone.
    pub(super) times: bool,
    /// The kernel's types.
    pub(super) enums: bool,
}

impl DisplayNeeds {
    /// Returns the needs of a plugin that imports these functions and has this object.
    pub(super) fn of(
        object: Option<&PluginObject>,
        functions: &BTreeSet<String>,
        options: &RunOptions,
    ) -> DisplayNeeds {
        // A recording has the answers.
        if matches!(options.calls, Calls::Replayed(_)) {
            return DisplayNeeds::default();
        }
        let prints = |form: fn(&DisplayForm) -> bool| object.is_some_and(|object| object.displays(form));
        let may_name = options.policy.check_class(Class::Symbols).is_ok();
        let ended =
            ["symbols.process-function", "symbols.process-stack"].iter().any(|one| functions.contains(*one))
                || prints(|form| matches!(form, DisplayForm::ProcessFunction | DisplayForm::ProcessStack(_)));
        DisplayNeeds {
            processes: may_name && (ended || functions.contains("symbols.name")),
            ended_processes: may_name && ended,
            times: functions.contains("display.time-of-day")
                || prints(|form| matches!(form, DisplayForm::TimeOfDay(_))),
            enums: functions.contains("display.enumerator")
                || prints(|form| matches!(form, DisplayForm::Enumerator(_))),
        }
    }
}
