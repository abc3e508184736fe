//! Comparison of two builds of the benches: is a difference larger than that between two runs of one build?
//!
//! For each row there are several pairs: BASE, NEW and BASE again, in one run. The result is the median of
//! NEW / BASE over the pairs. BASE / BASE of the same pairs measures the noise of the machine. The spread is
//! the bound that the median of as many noise pairs exceeds in one of a hundred cases. A difference within
//! the spread counts as none.

use std::collections::BTreeMap;
use std::fmt;

/// The figures of one pair in one row, in the row's unit.
#[derive(Debug, Clone, Copy)]
pub struct Pair {
    /// The first run of BASE.
    pub base: f64,
    /// The second run of BASE.
    pub base_again: f64,
    /// The run of NEW between them.
    pub new: f64,
}

/// One row of the comparison table.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The median of BASE, in the row's unit.
    pub base: f64,
    /// The median of NEW, in the row's unit.
    pub new: f64,
    /// The median of NEW / BASE over the pairs.
    pub ratio: f64,
    /// The noise bound: ratios from 1 / spread to spread count as no difference.
    pub spread: f64,
}

/// The direction in which NEW differs from BASE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference {
    /// The ratio is within the spread.
    Same,
    /// NEW's figure is smaller.
    Smaller,
    /// NEW's figure is larger.
    Larger,
}

/// Number of resamplings that estimate the spread.
const RESAMPLINGS: usize = 4000;

impl Comparison {
    /// Compares the pairs of a row; returns none without pairs.
    pub fn of(pairs: &[Pair]) -> Option<Comparison> {
        let changes = pairs.iter().map(|pair| (pair.new / (pair.base * pair.base_again).sqrt()).ln());
        let own: Vec<f64> = pairs.iter().map(|pair| (pair.base_again / pair.base).ln()).collect();
        let base = pairs.iter().flat_map(|pair| [pair.base, pair.base_again]);
        Some(Comparison {
            base: median(base.collect())?,
            new: median(pairs.iter().map(|pair| pair.new).collect())?,
            ratio: median(changes.collect())?.exp(),
            spread: spread(&own)?.exp(),
        })
    }

    /// Returns whether and how NEW differs from BASE.
    pub fn difference(&self) -> Difference {
        match self.ratio.ln().abs() > self.spread.ln() {
            false => Difference::Same,
            true if self.ratio < 1.0 => Difference::Smaller,
            true => Difference::Larger,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Difference::Same => "same",
            Difference::Smaller => "smaller",
            Difference::Larger => "LARGER",
        })
    }
}

/// Groups the figures by row and pair. Rows that a run lacks are left out.
pub fn pairs(runs: &[[BTreeMap<String, f64>; 3]]) -> BTreeMap<String, Vec<Pair>> {
    let mut rows = BTreeMap::new();
    let Some(first) = runs.first() else { return rows };
    for name in first[0].keys() {
        let pair = |[base, new, again]: &[BTreeMap<String, f64>; 3]| {
            Some(Pair { base: *base.get(name)?, new: *new.get(name)?, base_again: *again.get(name)? })
        };
        if let Some(pairs) = runs.iter().map(pair).collect() {
            rows.insert(name.clone(), pairs);
        }
    }
    rows
}

/// Returns the 99th percentile of the absolute median of as many logarithms, drawn from these with random
/// sign.
fn spread(own: &[f64]) -> Option<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    // xorshift64: the same draws in every run.
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut medians = Vec::with_capacity(RESAMPLINGS);
    for _ in 0..RESAMPLINGS {
        let sample = own.iter().map(|_| {
            let number = draw();
            let value = own[(number >> 1) as usize % own.len()];
            if number & 1 == 0 { value } else { -value }
        });
        medians.push(median(sample.collect())?.abs());
    }
    medians.sort_by(f64::total_cmp);
    medians.get(RESAMPLINGS * 99 / 100).copied()
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.get(values.len().checked_sub(1)? / 2)?, values.get(values.len() / 2)?);
    Some((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns nine pairs whose BASE varies by up to two percent, with this NEW.
    fn noisy(new: f64) -> Vec<Pair> {
        let noise = [0.99, 1.01, 1.0, 1.02, 0.98, 1.005, 0.995, 1.015, 0.99];
        let pair = |(index, one): (usize, &f64)| Pair {
            base: 100.0 * one,
            base_again: 100.0 * noise[(index + 4) % 9],
            new: 100.0 * new * noise[(index + 7) % 9],
        };
        noise.iter().enumerate().map(pair).collect()
    }

    #[test]
    fn a_difference_inside_the_spread_of_base_is_none() {
        let same = Comparison::of(&noisy(1.002)).unwrap();
        assert_eq!(same.difference(), Difference::Same, "{same:?}");
        let slower = Comparison::of(&noisy(1.06)).unwrap();
        assert_eq!(slower.difference(), Difference::Larger, "{slower:?}");
        let faster = Comparison::of(&noisy(0.94)).unwrap();
        assert_eq!(faster.difference(), Difference::Smaller, "{faster:?}");
        assert!((1.0..1.05).contains(&slower.spread), "{slower:?}");
        assert_eq!(Comparison::of(&[]), None);
    }

    #[test]
    fn rows_that_one_run_lacks_are_left_out() {
        let run = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1.0)).collect();
        let runs = [
            [run(&["a", "b"]), run(&["a", "b", "c"]), run(&["a", "b"])],
            [run(&["a", "b"]), run(&["a"]), run(&["a", "b"])],
        ];
        assert_eq!(pairs(&runs).keys().collect::<Vec<_>>(), ["a"]);
    }
}
