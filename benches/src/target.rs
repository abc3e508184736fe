//! The project's performance targets, and the check of figures against them.

use std::fmt;

use serde::Serialize;

use crate::record::Record;

/// The maximum of a ratio of two figures of one run of a bench.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Target {
    /// Description of the path and its baseline, for the table.
    pub what: &'static str,
    /// Name of the bench whose records are used.
    pub bench: &'static str,
    /// The case of the records. A name that ends with a slash is a prefix: the median of all its cases
    /// counts.
    pub case: &'static str,
    /// The measured implementation, which is the last part of a record's name.
    pub subject: &'static str,
    /// The implementation that the subject is compared with.
    pub baseline: &'static str,
    /// The maximum of subject / baseline.
    pub at_most: f64,
}

/// Creates a target from one line of `TARGETS`, in the order of the table's columns.
const fn target(
    what: &'static str,
    [bench, case, subject, baseline]: [&'static str; 4],
    at_most: f64,
) -> Target {
    Target { what, bench, case, subject, baseline, at_most }
}

/// All targets of the project.
pub const TARGETS: [Target; 23] = [
    target(
        "scalar read / read(2), 4 members",
        ["perf_read", "perf/read/4-members", "plugin-scalar", "native"],
        1.35,
    ),
    target(
        "snapshot / read(2), 16 members",
        ["perf_read", "perf/read/16-members", "plugin-snapshot", "native"],
        1.45,
    ),
    target(
        "scalar read in a process / read(2), filtered",
        ["perf_read", "perf/read/4-members", "process-scalar", "native-filtered"],
        1.22,
    ),
    target(
        "snapshot in a process / read(2), filtered",
        ["perf_read", "perf/read/16-members", "process-snapshot", "native-filtered"],
        1.35,
    ),
    target(
        "scalar read in a process / on a thread",
        ["perf_read", "perf/read/4-members", "process-scalar", "thread-scalar"],
        0.92,
    ),
    target(
        "snapshot in a process / on a thread",
        ["perf_read", "perf/read/16-members", "process-snapshot", "thread-snapshot"],
        0.92,
    ),
    target(
        "shared variable / load of mapped pages",
        ["map_read", "map/read", "shared-variable", "native"],
        2.0,
    ),
    target(
        "shared array element / load of mapped pages",
        ["map_read", "map/read", "shared-element", "native"],
        2.0,
    ),
    target(
        "shared variable / lookup system call",
        ["map_read", "map/read", "shared-variable", "lookup"],
        0.01,
    ),
    target(
        "shared array element / lookup system call",
        ["map_read", "map/read", "shared-element", "lookup"],
        0.01,
    ),
    target("SDK variable / load of mapped pages", ["map_read", "map/read", "sdk-variable", "native"], 2.0),
    target("SDK variable / lookup system call", ["map_read", "map/read", "sdk-variable", "lookup"], 0.01),
    target("SDK array element / lookup system call", ["map_read", "map/read", "sdk-element", "lookup"], 0.01),
    target("walk over a hash map / native batches", ["map_read", "map/walk", "plugin", "native"], 1.2),
    target("map lookup in a process / on a thread", ["map_read", "map/lookup", "process", "thread"], 1.02),
    target("map update in a process / on a thread", ["map_read", "map/update", "process", "thread"], 1.02),
    target("walk over a map in a process / on a thread", ["map_read", "map/walk", "process", "thread"], 1.02),
    target(
        "ring records a second, libbpf / plugin",
        ["rings", "ring/16-bytes-1-producers", "libbpf", "plugin"],
        1.25,
    ),
    target(
        "warm start to first attach / bpftrace's",
        ["startup", "start", "ks-host-with-program", "bpftrace"],
        0.05,
    ),
    target(
        "tool of 95 of 100, started again, to first output / 15 ms",
        ["tools", "tool/slowest-of-95", "again", "promised"],
        1.0,
    ),
    target("script to plugin in process / clang", ["kernel_half", "compile/", "in-process", "clang"], 0.02),
    target("ks build, whole process / clang", ["kernel_half", "compile/", "process", "clang"], 0.05),
    target(
        "memory of a plugin among 1,000 / 1 MiB",
        ["scale", "memory/1000-plugins", "plugin", "mebibyte"],
        1.0,
    ),
];

/// A target and the ratio that was measured for it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct TargetResult {
    /// The target that was checked.
    #[serde(flatten)]
    pub target: Target,
    /// Subject / baseline; none if one of them was not measured.
    pub ratio: Option<f64>,
    /// Whether the target is met; false if it was not measured.
    pub holds: bool,
}

/// Checks all figures, by bench, against all targets.
pub fn judge(benches: &[(String, Vec<Record>)]) -> Vec<TargetResult> {
    TARGETS.iter().map(|target| target.judge(benches)).collect()
}

impl Target {
    fn judge(&self, benches: &[(String, Vec<Record>)]) -> TargetResult {
        let records = benches.iter().find(|(bench, _)| bench == self.bench).map(|(_, records)| records);
        let ratio = records.and_then(|records| self.ratio(records));
        TargetResult { target: *self, ratio, holds: ratio.is_some_and(|ratio| ratio <= self.at_most) }
    }

    fn ratio(&self, records: &[Record]) -> Option<f64> {
        let mut ratios: Vec<f64> =
            records.iter().filter_map(|record| self.of_subject(record, records)).collect();
        ratios.sort_by(f64::total_cmp);
        ratios.get(ratios.len() / 2).copied()
    }

    /// Returns the ratio of this record to the baseline of its case, or none if it is not a subject of this
    /// target.
    fn of_subject(&self, record: &Record, records: &[Record]) -> Option<f64> {
        let (case, who) = record.parts();
        if who != self.subject || !self.has(case) {
            return None;
        }
        let baseline = records.iter().find(|other| other.parts() == (case, self.baseline))?;
        Some(record.value / baseline.value)
    }

    fn has(&self, case: &str) -> bool {
        if self.case.ends_with('/') { case.starts_with(self.case) } else { case == self.case }
    }
}

impl fmt::Display for TargetResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TargetResult { target, ratio, holds } = self;
        let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.4}"));
        let status = match (holds, self.ratio) {
            (true, _) => "holds",
            (false, Some(_)) => "MISSED",
            (false, None) => "NOT MEASURED",
        };
        write!(f, "{:<46} {ratio:>9} {:>9}  {status}", target.what, target.at_most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPILE: Target = target("compile", ["kernel_half", "compile/", "ks", "clang"], 0.05);

    fn judged(target: Target, figures: &[(&str, f64)]) -> TargetResult {
        let records = figures.iter().map(|(name, value)| Record::new(*name, *value, "ns")).collect();
        target.judge(&[(target.bench.to_owned(), records)])
    }

    #[test]
    fn a_ratio_is_that_of_one_case_and_the_median_of_several() {
        let figures = [
            ("compile/a/ks", 4.0),
            ("compile/a/clang", 100.0),
            ("compile/b/ks", 2.0),
            ("compile/b/clang", 200.0),
            ("compile/c/ks", 90.0),
            ("compile/c/clang", 100.0),
            ("other/d/ks", 1.0),
            ("other/d/clang", 100.0),
        ];
        let all = judged(COMPILE, &figures);
        assert_eq!((all.ratio, all.holds), (Some(0.04), true));
        let one = judged(Target { case: "compile/c", ..COMPILE }, &figures);
        assert_eq!((one.ratio, one.holds), (Some(0.9), false));
        assert!(one.to_string().ends_with("0.9000      0.05  MISSED"), "{one}");
    }

    #[test]
    fn targets_without_measurements_fail() {
        let alone = judged(COMPILE, &[("compile/a/ks", 4.0)]);
        assert_eq!((alone.ratio, alone.holds), (None, false));
        assert!(alone.to_string().ends_with("NOT MEASURED"), "{alone}");
        assert!(judge(&[]).iter().all(|result| !result.holds));
    }

    #[test]
    fn a_figure_of_another_bench_does_not_count() {
        let records =
            vec![Record::new("compile/a/ks", 1.0, "ns"), Record::new("compile/a/clang", 100.0, "ns")];
        assert_eq!(COMPILE.judge(&[("check".to_owned(), records)]).ratio, None);
    }
}
