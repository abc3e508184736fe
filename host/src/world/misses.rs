//! Tracepoint hits that the kernel skipped: it runs no program while another one runs on that CPU, and then
//! counts the hit in no counter.
//!
//! Source: kernel/trace/bpf_trace.c, `trace_call_bpf`; kernel/events/core.c, `perf_trace_run_bpf_submit`,
//! v6.18.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::losses::{LossReport, REPORTED_EVERY};
use super::state::State;
use crate::bpf::statistics::SkippedRuns;
use crate::perf::AttachmentId;

/// The plugin's programs at tracepoints, with their reported misses.
#[derive(Default)]
pub(super) struct Misses {
    programs: BTreeMap<String, Watched>,
}

struct Watched {
    /// Tracepoints that the program is or was attached to: names by id.
    tracepoints: BTreeMap<u64, String>,
    skipped: Arc<Skipped>,
    /// Time of the last report.
    at: Option<Instant>,
}

/// Misses of a program, shared with the watching thread.
pub(super) struct Skipped {
    runs: SkippedRuns,
    /// Whether this kernel counts misses.
    is_counted: Arc<AtomicBool>,
    /// Number of misses in the last report.
    reported: AtomicU64,
}

impl Skipped {
    /// Starts with no reported misses. `is_counted` says whether this kernel counts them.
    pub(super) fn new(runs: SkippedRuns, is_counted: Arc<AtomicBool>) -> Skipped {
        Skipped { runs, is_counted, reported: AtomicU64::new(0) }
    }

    /// Returns the number of misses; none if this kernel does not count them.
    fn count(&self) -> Option<u64> {
        self.is_counted.load(Ordering::Relaxed).then(|| self.runs.count()).flatten()
    }

    /// Returns the number of misses if it has grown since the last report.
    pub(super) fn grown(&self) -> Option<u64> {
        self.count().filter(|count| *count > self.reported.load(Ordering::Relaxed))
    }
}

impl Misses {
    /// Returns the programs at one of these tracepoints.
    fn at(&self, numbers: &BTreeSet<u64>) -> Vec<String> {
        let is_there = |watched: &Watched| numbers.iter().any(|one| watched.tracepoints.contains_key(one));
        let there = self.programs.iter().filter(|(_, watched)| is_there(watched));
        there.map(|(program, _)| program.clone()).collect()
    }
}

impl State {
    /// Records that a program is attached to a tracepoint.
    pub(super) fn watch_skipped(&mut self, program: &str, number: u64, name: &str, skipped: Skipped) {
        if !self.misses.programs.contains_key(program) {
            let skipped = Arc::new(skipped);
            self.watch_program(Arc::clone(&skipped));
            let watched = Watched { tracepoints: BTreeMap::new(), skipped, at: None };
            self.misses.programs.insert(program.to_owned(), watched);
        }
        self.attachments.report_with_readings_of(number);
        if let Some(watched) = self.misses.programs.get_mut(program) {
            watched.tracepoints.insert(number, name.to_owned());
        }
    }

    /// Returns the programs at tracepoints, each with its skipped runs; none if this kernel does not count them.
    pub(super) fn skipped_runs(&self) -> impl Iterator<Item = (String, Option<u64>)> {
        self.misses.programs.iter().map(|(program, watched)| (program.clone(), watched.skipped.count()))
    }

    /// Reports misses of tracepoints whose events were just read.
    pub(super) fn report_misses_of(&mut self, ids: &[AttachmentId]) {
        if self.misses.programs.is_empty() {
            return;
        }
        let numbers = ids.iter().flat_map(|id| self.attachments.tracepoints(*id)).collect();
        for program in self.misses.at(&numbers) {
            self.report_misses(&program, LossReport::Due);
        }
    }

    /// Reports misses of all tracepoints that were not reported yet.
    pub(super) fn report_all_misses(&mut self, report: LossReport) {
        let programs: Vec<String> = self.misses.programs.keys().cloned().collect();
        for program in programs {
            self.report_misses(&program, report);
        }
    }

    fn report_misses(&mut self, program: &str, report: LossReport) {
        let Some(watched) = self.misses.programs.get_mut(program) else { return };
        let names: Vec<String> = watched.tracepoints.values().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        if !watched.skipped.is_counted.load(Ordering::Relaxed) {
            if report == LossReport::Due {
                self.output.warn_once(
                    0,
                    &format!(
                        "{names}: hits while another BPF program runs on that CPU are counted for nobody, \
                         because program `{program}` is attached there; this kernel does not count them \
                         (Linux 6.7 does)"
                    ),
                );
            }
            return;
        }
        let is_due = report == LossReport::Last || watched.at.is_none_or(|at| at.elapsed() >= REPORTED_EVERY);
        let (Some(missed), true) = (watched.skipped.grown(), is_due) else { return };
        watched.skipped.reported.store(missed, Ordering::Relaxed);
        watched.at = Some(Instant::now());
        let hits = if missed == 1 { "hit" } else { "hits" };
        self.output.report(&format!(
            "{missed} {hits} of {names} were skipped by the kernel, because another BPF program ran on that \
             CPU: program `{program}` did not see them, and no counter of the tracepoint has them, also of \
             other processes; a `@raw_tracepoint` program takes nothing from counters"
        ));
    }
}
