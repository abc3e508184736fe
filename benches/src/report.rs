//! The final table: the time of an iteration of each bench, and its ratio to the baseline.

use std::cell::RefCell;
use std::fmt;
use std::time::Duration;

use anyhow::Result;
use criterion::Criterion;

use crate::record::{self, Record};

/// The last part of the baseline's name; the other rows of a case are compared with it.
const BASELINE: &str = "native";
/// Minimum of iterations for a figure; when a test runs each bench once, there are fewer.
const MIN_ITERATIONS: u64 = 1000;
/// Samples of each of two forms that are measured alternately, and how long one takes.
const ALTERNATING: usize = 100;
const SAMPLE: Duration = Duration::from_millis(20);

/// All measurements of this run, in the order of the benches.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    name: String,
    samples: Vec<Sample>,
    /// The ratio to the form that it was measured alternately with.
    beside: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    iterations: u64,
    elapsed: Duration,
}

impl Sample {
    /// Returns the nanoseconds of an iteration.
    fn per_iteration(&self) -> f64 {
        self.elapsed.as_nanos() as f64 / self.iterations as f64
    }
}

/// Returns criterion's settings: how long it measures each read path.
pub fn criterion() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(50)
        .without_plots()
        .configure_from_args()
}

impl Report {
    /// Measures `loop_for` with criterion. `loop_for` takes a number of iterations and returns the time of
    /// these iterations alone. Panics, which ends the run with an exit code, if a loop fails.
    pub fn bench(
        &mut self,
        criterion: &mut Criterion,
        name: &str,
        loop_for: impl FnMut(u64) -> Result<Duration>,
    ) {
        let loop_for = RefCell::new(loop_for);
        let mut samples = Vec::new();
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|iterations| {
                let elapsed =
                    loop_for.borrow_mut()(iterations).unwrap_or_else(|error| panic!("{name}: {error:#}"));
                samples.push(Sample { iterations, elapsed });
                elapsed
            });
        });
        self.rows.push(Row { name: name.into(), samples, beside: None });
    }

    /// Measures two forms of one case alternately; `loop_for` takes the index of the form and a number of iterations. The
    /// second form's ratio is the median over pairs of samples: what disturbs the machine for longer disturbs both.
    ///
    /// # Errors
    /// Those of the loops.
    pub fn bench_alternately(
        &mut self,
        case: &str,
        forms: [&str; 2],
        mut loop_for: impl FnMut(usize, u64) -> Result<Duration>,
    ) -> Result<()> {
        let mut measure =
            |form, iterations| anyhow::Ok(Sample { iterations, elapsed: loop_for(form, iterations)? });
        let (pairs, iterations) = if record::is_measured() {
            let first = measure(0, MIN_ITERATIONS)?;
            (ALTERNATING, (SAMPLE.as_nanos() as f64 / first.per_iteration()) as u64 + 1)
        } else {
            (1, 1)
        };
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..pairs {
            for (form, samples) in samples.iter_mut().enumerate() {
                samples.push(measure(form, iterations)?);
            }
        }
        let [one, other] = &samples;
        let mut ratios: Vec<f64> =
            one.iter().zip(other).map(|(one, other)| other.per_iteration() / one.per_iteration()).collect();
        ratios.sort_by(f64::total_cmp);
        let beside = [None, Some(ratios[pairs / 2])];
        for ((form, samples), beside) in forms.into_iter().zip(samples).zip(beside) {
            self.rows.push(Row { name: format!("{case}/{form}"), samples, beside });
        }
        Ok(())
    }

    /// Writes the medians for the summary.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn leave(&self, bench: &str) -> Result<()> {
        let figure = |row: &Row| Some(Record::new(&row.name, row.median()?, "ns"));
        record::leave(bench, &self.rows.iter().filter_map(figure).collect::<Vec<_>>())
    }
}

impl Row {
    /// Returns the time of an iteration in nanoseconds, or none if there were too few iterations. It is the
    /// median over iterations, each with the average of its sample: a disturbance of some samples does not
    /// move it, and the short samples of a warm-up hardly count.
    fn median(&self) -> Option<f64> {
        let all: u64 = self.samples.iter().map(|sample| sample.iterations).sum();
        if all < MIN_ITERATIONS {
            return None;
        }
        let mut sorted: Vec<_> = self.samples.iter().filter(|sample| sample.iterations > 0).collect();
        sorted.sort_by(|one, other| one.per_iteration().total_cmp(&other.per_iteration()));
        let mut passed = 0;
        let middle = sorted.into_iter().find(|sample| {
            passed += sample.iterations;
            passed >= all.div_ceil(2)
        });
        middle.map(Sample::per_iteration)
    }

    /// Returns the name without the implementation.
    fn case(&self) -> &str {
        self.name.rsplit_once('/').map_or(&self.name, |(case, _)| case)
    }

    fn is_baseline(&self) -> bool {
        self.name.rsplit('/').next() == Some(BASELINE)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures: Vec<_> = self.rows.iter().filter_map(|row| Some((row, row.median()?))).collect();
        if figures.is_empty() {
            return write!(f, "no table: `cargo bench` measures, a test runs each bench once");
        }
        let width = figures.iter().map(|(row, _)| row.name.len()).max().unwrap_or(0);
        write!(f, "{:<width$} {:>10} {:>10} {:>10}", "bench", "ns/iter", "ratio", "more ns")?;
        for (row, per_iteration) in &figures {
            write!(f, "\n{:<width$} {per_iteration:>10.1}", row.name)?;
            let baseline =
                figures.iter().find(|(other, _)| other.is_baseline() && other.case() == row.case());
            match (row.beside, baseline) {
                (Some(ratio), _) => write!(f, " {ratio:>10.2} {:>10}", "-")?,
                (None, Some((_, native))) => {
                    write!(f, " {:>10.2} {:>10.1}", per_iteration / native, per_iteration - native)?
                }
                (None, None) => write!(f, " {:>10} {:>10}", "-", "-")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, samples: &[(u64, u64)]) -> Row {
        let sample =
            |&(iterations, nanos): &(u64, u64)| Sample { iterations, elapsed: Duration::from_nanos(nanos) };
        Row { name: name.into(), samples: samples.iter().map(sample).collect(), beside: None }
    }

    #[test]
    fn two_forms_are_measured_alternately() {
        let mut report = Report::default();
        let mut order = Vec::new();
        let loop_for = |form, iterations| {
            order.push(form);
            Ok(Duration::from_nanos(iterations * [200, 150][form]))
        };
        report.bench_alternately("map/lookup", ["thread", "process"], loop_for).expect("no loop fails");
        assert_eq!(order, [0, 1]);
        let rows: Vec<_> = report.rows.iter().map(|row| (row.name.as_str(), row.beside)).collect();
        assert_eq!(rows, [("map/lookup/thread", None), ("map/lookup/process", Some(0.75))]);
    }

    #[test]
    fn the_median_is_that_of_iterations_not_of_samples() {
        let warm_up_and_disturbed =
            [(1, 900), (2, 1800), (4000, 800_000), (4000, 840_000), (1000, 9_000_000)];
        assert_eq!(row("a/native", &warm_up_and_disturbed).median(), Some(210.0));
        assert_eq!(row("a/native", &[(1, 900)]).median(), None);
    }

    #[test]
    fn each_row_is_compared_with_the_baseline_of_its_own_case() {
        let report = Report {
            rows: vec![
                row("read/1/native", &[(1000, 200_000)]),
                row("read/1/plugin", &[(1000, 300_000)]),
                row("read/4/native", &[(1000, 250_000)]),
                row("read/4/plugin", &[(1000, 325_000)]),
                row("call/plugin", &[(1000, 20_000)]),
                Row { beside: Some(0.9), ..row("call/process", &[(1000, 19_000)]) },
                row("not/run", &[]),
            ],
        };
        let text = report.to_string();
        let cells: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(cells.len(), 7, "{text}");
        assert_eq!(cells[1], ["read/1/native", "200.0", "1.00", "0.0"]);
        assert_eq!(cells[2], ["read/1/plugin", "300.0", "1.50", "100.0"]);
        assert_eq!(cells[4], ["read/4/plugin", "325.0", "1.30", "75.0"]);
        assert_eq!(cells[5], ["call/plugin", "20.0", "-", "-"]);
        assert_eq!(cells[6], ["call/process", "19.0", "0.90", "-"], "alternately with another");
        let lengths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(lengths.iter().all(|length| *length == lengths[0]), "aligned:\n{text}");
    }
}
