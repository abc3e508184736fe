//! Losses of programs, reported at most once a second each while the plugin runs, and at its end.
//!
//! Programs count their losses in variables of their object, and the kernel counts runs that it skipped. The
//! thread that watches the run compares these counts with the reported ones once a second. It wakes the
//! plugin's own thread only if something was lost, so that the plugin's performance counters do not include
//! the checks.
//!
//! ```text
//! watching thread:  Watched::has_news, each second -> wakes the plugin's thread
//! plugin's thread:  waits, ticks -> State::report_losses -> standard error
//! ```

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ks_wit::object::{MAX_ITERATIONS, PRINTS};
use libbpf_rs::MapType;

use super::bindings::kernelscript::host::losses::{self as wit, Cause, Host};
use super::misses::Skipped;
use super::state::State;
use crate::bpf::{Loss, LossCounter};
use crate::perf::OutputLosses;

/// Minimum interval of the reports of one loss while the plugin runs.
pub(super) const REPORTED_EVERY: Duration = Duration::from_secs(1);

/// Upper limit of loops that one report names.
const MOST_LOOPS: usize = 8;

/// Which losses a report contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossReport {
    /// New losses, each at most once a second.
    Due,
    /// All losses that were not reported: the plugin has ended.
    Last,
}

/// The loss counters, and the times of their last reports.
#[derive(Default)]
pub(super) struct Losses {
    watched: Arc<Watched>,
    /// Whether the watching thread has been started.
    is_watching: bool,
    /// Time of the last report of each counter.
    reported_at: Vec<Option<Instant>>,
}

/// State shared with the watching thread.
#[derive(Default)]
struct Watched {
    /// Loss counters of the object; unset before it is loaded.
    counters: OnceLock<Vec<CountedLoss>>,
    /// Arrays of events whose records are read.
    outputs: Mutex<Vec<Arc<CountedOutput>>>,
    /// Programs at tracepoints, whose runs the kernel may skip.
    programs: Mutex<Vec<Arc<Skipped>>>,
    /// Whether the kernel skipped more runs than were reported.
    is_skipped: AtomicBool,
}

struct CountedLoss {
    counter: LossCounter,
    reported: AtomicU64,
}

/// Losses of the records of an array of events.
struct CountedOutput {
    array: String,
    losses: Arc<OutputLosses>,
    reported: AtomicU64,
    /// Time of the last report.
    at: Mutex<Option<Instant>>,
}

impl CountedOutput {
    /// Returns the count if it has grown since the last report.
    fn grown(&self) -> Option<u64> {
        let count = self.losses.count();
        (count > self.reported.load(Ordering::Relaxed)).then_some(count)
    }
}

impl CountedLoss {
    /// Returns the count if it has grown since the last report. Loops are reported with the programs that
    /// they ended.
    fn grown(&self) -> Option<u64> {
        if let Loss::CutLoop { .. } = self.counter.loss() {
            return None;
        }
        let count = self.counter.count();
        (count > self.reported.load(Ordering::Relaxed)).then_some(count)
    }
}

impl Watched {
    fn outputs(&self) -> MutexGuard<'_, Vec<Arc<CountedOutput>>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has_news(&self) -> bool {
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        if programs.iter().any(|one| one.grown().is_some()) {
            self.is_skipped.store(true, Ordering::Relaxed);
        }
        let counters = self.counters.get().into_iter().flatten();
        self.is_skipped.load(Ordering::Relaxed)
            || self.outputs().iter().any(|output| output.grown().is_some())
            || counters.map(CountedLoss::grown).any(|grown| grown.is_some())
    }
}

impl State {
    /// Maps the counters of the object if it is loaded and they are not mapped yet.
    fn find_counters(&mut self) {
        if self.losses.watched.counters.get().is_some() || !self.is_loaded() {
            return;
        }
        let Ok(counters) = self.object().map(|object| object.loss_counters()) else { return };
        self.losses.reported_at = vec![None; counters.len()];
        let counted = |counter| CountedLoss { counter, reported: AtomicU64::new(0) };
        // Cannot fail: only this thread sets it.
        let _ = self.losses.watched.counters.set(counters.into_iter().map(counted).collect());
    }

    /// Starts watching the counters of the loaded object, if there are any.
    pub(super) fn watch_losses(&mut self) {
        self.find_counters();
        if self.losses.watched.counters.get().is_some_and(|counters| !counters.is_empty()) {
            self.watch();
        }
    }

    /// Starts watching the records of an array of events that are lost.
    pub(super) fn watch_output(&mut self, array: &str, losses: Arc<OutputLosses>) {
        let (array, reported) = (array.to_owned(), AtomicU64::new(0));
        let output = CountedOutput { array, losses, reported, at: Mutex::new(None) };
        self.losses.watched.outputs().push(Arc::new(output));
        self.watch();
    }

    /// Starts watching the runs of a program that the kernel skips.
    pub(super) fn watch_program(&mut self, skipped: Arc<Skipped>) {
        self.losses.watched.programs.lock().unwrap_or_else(PoisonError::into_inner).push(skipped);
        self.watch();
    }

    fn watch(&mut self) {
        if !std::mem::replace(&mut self.losses.is_watching, true) {
            let watched = Arc::clone(&self.losses.watched);
            self.stop.wake_when(move || watched.has_news());
        }
    }

    /// Reports new losses.
    pub(super) fn report_losses(&mut self, report: LossReport) {
        self.find_counters();
        let watched = Arc::clone(&self.losses.watched);
        if watched.is_skipped.swap(false, Ordering::Relaxed) || report == LossReport::Last {
            self.report_all_misses(report);
        }
        self.report_lost_outputs(&watched, report);
        let Some(counters) = watched.counters.get() else { return };
        for (position, counted) in counters.iter().enumerate() {
            let Some(count) = counted.grown() else { continue };
            let Some(at) = self.losses.reported_at.get_mut(position) else { continue };
            if report == LossReport::Due && at.is_some_and(|at| at.elapsed() < REPORTED_EVERY) {
                continue;
            }
            *at = Some(Instant::now());
            counted.reported.store(count, Ordering::Relaxed);
            match counted.counter.loss() {
                Loss::Full { map, ty } => self.output.report(&lost_line(map, *ty, count)),
                Loss::Fault { program } => {
                    let runs = if count == 1 { "run" } else { "runs" };
                    let because = fault_causes(counters);
                    self.output.report(&format!(
                        "{count} {runs} of program `{program}` ended by a fault: {because}"
                    ));
                }
                Loss::CutLoop { .. } => {}
                Loss::CutList { line, module } => {
                    let times = if count == 1 { "time" } else { "times" };
                    let at = loop_name(*line, module);
                    self.output.report(&format!(
                        "{count} {times} {at} left a list of the kernel before its end: the list is longer than the \
                         bound, or an element could not be read"
                    ));
                }
                Loss::Unraised => {
                    let values = if count == 1 { "value is" } else { "values are" };
                    self.output.report(&format!(
                        "{count} {values} missing in the least or the greatest of statistics: other CPUs added theirs \
                         at the same moment, again and again"
                    ));
                }
                Loss::Unread => {
                    let texts = if count == 1 {
                        "text could not be read and is"
                    } else {
                        "texts could not be read and are"
                    };
                    self.output.report(&format!(
                        "{count} {texts} empty: there was no memory, or its page was not loaded yet (read the text of a \
                         system call when the call returns)"
                    ));
                }
            }
        }
    }
}

impl State {
    fn report_lost_outputs(&mut self, watched: &Watched, report: LossReport) {
        for output in watched.outputs().iter() {
            let Some(count) = output.grown() else { continue };
            let mut at = output.at.lock().unwrap_or_else(PoisonError::into_inner);
            if report == LossReport::Due && at.is_some_and(|at| at.elapsed() < REPORTED_EVERY) {
                continue;
            }
            *at = Some(Instant::now());
            output.reported.store(count, Ordering::Relaxed);
            self.output.report(&format!(
                "array of events `{}`: {count} records were lost, because its rings were full: open them \
                 larger, or take records out faster",
                output.array
            ));
        }
    }
}

impl Host for State {
    fn list(&mut self) -> wasmtime::Result<Vec<wit::Loss>> {
        self.find_counters();
        let watched = Arc::clone(&self.losses.watched);
        let mut losses = Vec::new();
        for CountedLoss { counter, .. } in watched.counters.get().into_iter().flatten() {
            let (cause, what) = match counter.loss() {
                // The readings are as they were: only text or elements are missing.
                Loss::Unread | Loss::Unraised | Loss::CutList { .. } => continue,
                Loss::Full { map, ty: MapType::RingBuf } if map == PRINTS => (Cause::PrintsFull, map.clone()),
                Loss::Full { map, ty: MapType::RingBuf } => (Cause::RingFull, map.clone()),
                Loss::Full { map, .. } => (Cause::MapFull, map.clone()),
                Loss::Fault { program } => (Cause::Fault, program.clone()),
                Loss::CutLoop { line, module } => (Cause::LoopLimit, loop_name(*line, module)),
            };
            losses.push(wit::Loss { cause, what, attachment: None, count: Some(counter.count()) });
        }
        losses.extend(watched.outputs().iter().map(|output| wit::Loss {
            cause: Cause::RingFull,
            what: output.array.clone(),
            attachment: None,
            count: Some(output.losses.count()),
        }));
        let skipped = self.skipped_runs().map(|(program, count)| wit::Loss {
            cause: Cause::Skipped,
            what: program,
            attachment: None,
            count,
        });
        losses.extend(skipped);
        let throttled = self.attachments.throttled().into_iter().map(|(id, event, count)| wit::Loss {
            cause: Cause::Throttled,
            what: event,
            attachment: Some(id.get()),
            count: Some(count),
        });
        losses.extend(throttled);
        Ok(losses)
    }
}

/// Explains why runs of programs ended by a fault.
fn fault_causes(counters: &[CountedLoss]) -> String {
    let faults: u64 = counters
        .iter()
        .filter(|one| matches!(one.counter.loss(), Loss::Fault { .. }))
        .map(|one| one.counter.count())
        .fold(0, u64::saturating_add);
    // Read after the faults, because a run counts its loop first.
    let loops: Vec<(u64, String)> = counters
        .iter()
        .filter_map(|one| match one.counter.loss() {
            Loss::CutLoop { line, module } => Some((one.counter.count(), loop_name(*line, module))),
            Loss::Full { .. } | Loss::Fault { .. } | Loss::CutList { .. } | Loss::Unread | Loss::Unraised => {
                None
            }
        })
        .collect();
    causes(faults, &loops)
}

fn loop_name(line: u32, module: &str) -> String {
    if module.is_empty() { format!("line {line}") } else { format!("line {line} of `{module}`") }
}

/// Explains a number of faults by the loops that counted ended runs.
fn causes(faults: u64, loops: &[(u64, String)]) -> String {
    const NO_SLOT: &str = "no scratch slot was free";
    if loops.is_empty() {
        return format!("a loop reached its limit, or {NO_SLOT}");
    }
    let cut = loops.iter().filter(|(count, _)| *count > 0);
    let mut names: Vec<String> = cut.clone().take(MOST_LOOPS).map(|(_, name)| name.clone()).collect();
    let (known, more) = (names.len(), cut.clone().count().saturating_sub(MOST_LOOPS));
    if more > 0 {
        names.push(format!("{more} more"));
    }
    let names = names.join(", ");
    let ended = cut.map(|(count, _)| *count).fold(0, u64::saturating_add);
    let cut = match known {
        0 => None,
        1 => Some(format!("the loop in {names} reached its limit of {MAX_ITERATIONS} iterations")),
        _ => Some(format!("loops ({names}) reached their limit of {MAX_ITERATIONS} iterations")),
    };
    let no_slot = (faults > ended).then(|| NO_SLOT.to_owned());
    let causes: Vec<String> = cut.into_iter().chain(no_slot).collect();
    causes.join(", or ")
}

/// Formats the report for a full map or ring buffer.
fn lost_line(name: &str, ty: MapType, lost: u64) -> String {
    match ty {
        MapType::RingBuf if name == PRINTS => {
            format!("{lost} lines that programs printed were lost: they came too fast")
        }
        MapType::StackTrace => format!(
            "map `{name}`: {lost} stacks were lost, because they collided with others: make it larger"
        ),
        MapType::ArrayOfMaps | MapType::HashOfMaps => format!(
            "map `{name}`: {lost} updates by programs were lost, because an inner map was full or there was none \
             for the key: make the inner maps larger, or create them before programs write"
        ),
        MapType::RingBuf => format!(
            "ring buffer `{name}`: {lost} records were lost, because it was full: make it larger, or take \
             records out faster"
        ),
        // Includes the storage of cgroups, whose kind libbpf-rs does not know.
        MapType::TaskStorage | MapType::InodeStorage | MapType::SkStorage | MapType::Unknown => format!(
            "map `{name}`: {lost} updates by programs were lost, because the kernel had no memory for the \
             values, or was at work on the storage of that object itself"
        ),
        _ => {
            format!(
                "map `{name}`: {lost} updates by programs were lost, because it was full: declare it with more entries"
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_the_loops_that_ended_runs_and_the_rest_no_slot() {
        let loops = |counts: &[u64]| -> Vec<(u64, String)> {
            (1..).zip(counts).map(|(line, count)| (*count, loop_name(line, ""))).collect()
        };
        let one = "the loop in line 2 reached its limit of 8388608 iterations";
        assert_eq!(causes(3, &loops(&[0, 3])), one);
        assert_eq!(causes(4, &loops(&[0, 3])), format!("{one}, or no scratch slot was free"));
        assert_eq!(causes(4, &loops(&[0, 0])), "no scratch slot was free");
        assert_eq!(causes(4, &[]), "a loop reached its limit, or no scratch slot was free");
        assert_eq!(
            causes(2, &loops(&[1, 1])),
            "loops (line 1, line 2) reached their limit of 8388608 iterations"
        );
        let many = causes(10, &loops(&[1; 10]));
        assert!(many.starts_with("loops (line 1, ") && many.contains("line 8, 2 more)"), "{many}");
        assert_eq!(loop_name(7, "util"), "line 7 of `util`");
    }
}
