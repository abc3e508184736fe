//! Hits of tracepoints that the kernel skipped: it runs no program while another one runs on that CPU, and then counts
//! the hit for nobody.
//!
//! Source: kernel/trace/bpf_trace.c, `trace_call_bpf`; kernel/events/core.c, `perf_trace_run_bpf_submit`, v6.18.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::state::State;
use crate::perf::AttachmentId;

/// A program's misses are reported so often while it runs.
const REPORTED_EVERY: Duration = Duration::from_secs(1);

/// The plugin's programs at tracepoints, and what is known of their misses.
#[derive(Default)]
pub(super) struct Misses {
    programs: BTreeMap<String, Watched>,
}

struct Watched {
    /// Tracepoints that it is or was attached to: their numbers and names.
    tracepoints: BTreeMap<u64, String>,
    /// Whether the kernel counts its misses.
    is_counted: Arc<AtomicBool>,
    /// How many were reported, and when.
    reported: u64,
    at: Option<Instant>,
}

impl Misses {
    /// Notes that a program is attached to a tracepoint. The flag says whether the kernel counts misses.
    pub(super) fn watch(&mut self, program: &str, number: u64, name: &str, is_counted: Arc<AtomicBool>) {
        let watched = self.programs.entry(program.to_owned()).or_insert_with(|| Watched {
            tracepoints: BTreeMap::new(),
            is_counted,
            reported: 0,
            at: None,
        });
        watched.tracepoints.insert(number, name.to_owned());
    }

    /// The programs at one of these tracepoints.
    fn at(&self, numbers: &BTreeSet<u64>) -> Vec<String> {
        let is_there = |watched: &Watched| numbers.iter().any(|one| watched.tracepoints.contains_key(one));
        let there = self.programs.iter().filter(|(_, watched)| is_there(watched));
        there.map(|(program, _)| program.clone()).collect()
    }
}

impl State {
    /// Reports what the kernel skipped of tracepoints that were just read.
    pub(super) fn report_misses_of(&mut self, ids: &[AttachmentId]) {
        if self.misses.programs.is_empty() {
            return;
        }
        let numbers = ids.iter().flat_map(|id| self.attachments.tracepoints(*id)).collect();
        for program in self.misses.at(&numbers) {
            self.report_misses(&program, false);
        }
    }

    /// Reports what the kernel skipped of all tracepoints and was not reported yet.
    pub(super) fn report_all_misses(&mut self) {
        let programs: Vec<String> = self.misses.programs.keys().cloned().collect();
        for program in programs {
            self.report_misses(&program, true);
        }
    }

    fn report_misses(&mut self, program: &str, is_last: bool) {
        let Some(watched) = self.misses.programs.get(program) else { return };
        let names: Vec<String> = watched.tracepoints.values().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        if !watched.is_counted.load(Ordering::Relaxed) {
            if !is_last {
                self.warn_once(
                    0,
                    &format!(
                        "{names}: hits while another BPF program runs on that CPU are counted for nobody, because \
                         program `{program}` is attached there; this kernel does not count them (Linux 6.7 does)"
                    ),
                );
            }
            return;
        }
        let missed = self.object().ok().and_then(|object| object.program(program).ok()?.missed());
        let Some(watched) = self.misses.programs.get_mut(program) else { return };
        let missed = missed.filter(|missed| *missed > watched.reported);
        let is_due = is_last || watched.at.is_none_or(|at| at.elapsed() >= REPORTED_EVERY);
        let (Some(missed), true) = (missed, is_due) else { return };
        watched.reported = missed;
        watched.at = Some(Instant::now());
        let hits = if missed == 1 { "hit" } else { "hits" };
        self.tell(&format!(
            "{missed} {hits} of {names} were skipped by the kernel, because another BPF program ran on that CPU: program \
             `{program}` did not see them, and no counter of the tracepoint has them, also of other processes; a \
             `@raw_tracepoint` program takes nothing from counters"
        ));
    }
}
