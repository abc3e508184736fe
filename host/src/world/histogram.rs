//! Histograms: counts per slot, formatted as rows with aligned bars.

use std::fmt;

use serde::Serialize;

use super::bindings::kernelscript::host::console::Scale;
use crate::text::{MOST_BYTES, visible};

/// Width of the longest bar in columns.
const BAR: usize = 40;

/// Upper limit of the title's width in columns.
const MAX_TITLE: usize = 80;

/// The range of the values below zero.
const BELOW_ZERO: &str = "below 0";

/// Counts of values, from the lowest slot to the highest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Histogram {
    /// Description of the values.
    pub title: String,
    /// The key and the numbers of all values; none if only the slots were counted.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    /// From the first to the last non-empty slot; empty if all slots are.
    pub slots: Vec<HistogramSlot>,
}

/// What is known of all values of a histogram.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The parts of the key; empty for a histogram without one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub key: Vec<serde_json::Value>,
    /// The number of values.
    pub values: u64,
    /// The sum of all values; none if it is beyond 64 bits.
    pub sum: Option<i64>,
    /// The number of values below zero, which have no slot.
    pub below_zero: u64,
}

impl Summary {
    /// Returns the mean of the values, rounded down; 0 without values, none without a sum.
    pub(super) fn mean(&self) -> Option<i64> {
        let mean = i128::from(self.sum?).checked_div_euclid(self.values.into()).unwrap_or(0);
        i64::try_from(mean).ok()
    }
}

/// The numbers that 64 bits have.
const ALL_NUMBERS: i128 = 1 << 64;

/// Returns the sum of all values, of which `kept` has the low 64 bits: the ranges of the slots say which of the numbers with
/// these bits it is. None if that does not fit 64 bits.
pub(super) fn whole_sum(slots: &[HistogramSlot], below_zero: u64, kept: i64) -> Option<i64> {
    let below = i128::from(below_zero);
    let bounded = |bound: fn(&HistogramSlot) -> u64| {
        let each = slots.iter().map(|slot| i128::from(slot.count).saturating_mul(bound(slot).into()));
        each.fold(0_i128, i128::saturating_add)
    };
    let least = bounded(|slot| slot.low).saturating_add(below * i128::from(i64::MIN));
    let most = bounded(|slot| slot.high.unwrap_or(u64::MAX)).saturating_sub(below);
    let kept = i128::from(kept);
    let first = least.saturating_add(kept.saturating_sub(least).rem_euclid(ALL_NUMBERS));
    // Where values below zero or without a bound make the range wide, several numbers have these bits, and one that fits is
    // the likely one.
    let sum = if (least..=most).contains(&kept) { kept } else { first };
    i64::try_from(sum).ok()
}

/// The number of values in a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct HistogramSlot {
    /// Lowest value of the range.
    pub low: u64,
    /// Highest value of the range; none if it is unbounded.
    pub high: Option<u64>,
    /// Number of values in the range.
    pub count: u64,
}

impl Histogram {
    /// Builds a histogram from the counts of a scale's slots. Omits slots that no 64-bit number belongs to.
    /// Truncates the title and escapes its control characters.
    pub(super) fn new(title: &str, scale: Scale, counts: &[u64]) -> Histogram {
        let range = |slot| match scale {
            Scale::Log2 => log2_range(slot),
            Scale::Linear(linear) => linear_range(linear.low, linear.step, slot, counts.len() as u64),
        };
        let first = counts.iter().position(|count| *count > 0).unwrap_or(counts.len());
        let end = counts.iter().rposition(|count| *count > 0).map_or(first, |last| last + 1);
        let slots = (first..end).filter_map(|slot| {
            let (low, high) = range(slot as u64)?;
            Some(HistogramSlot { low, high, count: counts[slot] })
        });
        Histogram { title: visible(title, MOST_BYTES).into_owned(), summary: None, slots: slots.collect() }
    }
}

/// Returns the range of a slot: slot 0 holds 0, slot n the numbers of n bits.
fn log2_range(slot: u64) -> Option<(u64, Option<u64>)> {
    match slot {
        0 => Some((0, Some(0))),
        1..=64 => Some((1 << (slot - 1), Some(u64::MAX >> (64 - slot)))),
        _ => None,
    }
}

/// Returns the range of a slot: the first holds numbers below `low`, the last all numbers above the others. A
/// step of 0 counts as the whole range of numbers.
fn linear_range(low: u64, step: u64, slot: u64, slots: u64) -> Option<(u64, Option<u64>)> {
    if slot == 0 {
        return Some((0, Some(low.checked_sub(1)?)));
    }
    if step == 0 {
        return (slot == 1).then_some((low, None));
    }
    let from = (slot - 1).checked_mul(step)?.checked_add(low)?;
    let to = from.checked_add(step - 1).filter(|_| slot + 1 < slots);
    Some((from, to))
}

impl fmt::Display for Histogram {
    /// Writes a line with the title and the numbers of all values, then one for each slot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low = |slot: &HistogramSlot| slot.low.to_string();
        let high =
            |slot: &HistogramSlot| slot.high.map_or_else(|| "above".to_owned(), |high| high.to_string());
        let widest =
            |text: &dyn Fn(&HistogramSlot) -> String| self.slots.iter().map(|slot| text(slot).len()).max();
        let (lows, highs) = (widest(&low).unwrap_or(0), widest(&high).unwrap_or(0));
        let below = self.summary.as_ref().map_or(0, |summary| summary.below_zero);
        let slots = self.slots.iter().map(|slot| slot.count);
        let most = slots.chain([below]).max().unwrap_or(0);
        let counts = most.to_string().len().max("count".len());
        let ranges = (lows + " - ".len() + highs).max(self.title.chars().count().min(MAX_TITLE));
        let (title, count) = (&self.title, "count");
        write!(f, "{title:<ranges$}  {count:>counts$}")?;
        match &self.summary {
            Some(all) => match (all.sum, all.mean()) {
                (Some(sum), Some(mean)) => writeln!(f, "  {} values, sum {sum}, mean {mean}", all.values)?,
                _ => writeln!(f, "  {} values, the sum is beyond 64 bits", all.values)?,
            },
            None => writeln!(f)?,
        }
        let slots = self.slots.iter();
        let slots = slots.map(|slot| (format!("{:>lows$} - {:<highs$}", low(slot), high(slot)), slot.count));
        let below = (below > 0).then(|| (BELOW_ZERO.to_owned(), below));
        for (range, count) in below.into_iter().chain(slots) {
            let bar = "#".repeat(columns(count, most));
            writeln!(f, "{range:>ranges$}  {count:>counts$}  |{bar:<BAR$}|")?;
        }
        Ok(())
    }
}

/// Returns the length of a bar, proportional to the longest one and at least 1 for a non-zero count.
fn columns(count: u64, most: u64) -> usize {
    let part = u128::from(count) * BAR as u128 / u128::from(most.max(1));
    (part as usize).max(usize::from(count > 0))
}

#[cfg(test)]
mod tests {
    use super::super::bindings::kernelscript::host::console::Linear;
    use super::*;

    #[test]
    fn rows_of_powers_of_two_are_aligned() {
        let mut counts = [0; 65];
        (counts[0], counts[2], counts[11]) = (1000, 500, 1);
        let display = Histogram::new("ns", Scale::Log2, &counts).to_string();
        let lines: Vec<_> = display.lines().collect();
        assert_eq!(lines[0], "ns           count");
        assert_eq!(lines[1], format!("   0 - 0      1000  |{}|", "#".repeat(40)));
        assert_eq!(lines[2], format!("   1 - 1         0  |{}|", " ".repeat(40)));
        assert_eq!(lines[3], format!("   2 - 3       500  |{}{}|", "#".repeat(20), " ".repeat(20)));
        assert_eq!(lines[12], format!("1024 - 2047      1  |#{}|", " ".repeat(39)));
        assert_eq!(lines.len(), 13);
    }

    #[test]
    fn the_ends_of_a_linear_scale_are_open() {
        let linear = |low, step, counts: &[u64]| {
            let histogram = Histogram::new("ms", Scale::Linear(Linear { low, step }), counts);
            histogram.slots.iter().map(|slot| (slot.low, slot.high, slot.count)).collect::<Vec<_>>()
        };
        let all = [(0, Some(9), 1), (10, Some(14), 2), (15, Some(19), 3), (20, None, 4)];
        assert_eq!(linear(10, 5, &[1, 2, 3, 4]), all);
        // Ranges are clipped at 0 and at 64 bits.
        assert_eq!(linear(0, 5, &[1, 1, 1]), [(0, Some(4), 1), (5, None, 1)]);
        assert_eq!(linear(1, 0, &[1, 1, 1]), [(0, Some(0), 1), (1, None, 1)]);
        assert_eq!(linear(1, u64::MAX, &[1, 1, 1, 1]), [(0, Some(0), 1), (1, Some(u64::MAX), 1)]);
    }

    #[test]
    fn an_empty_histogram_has_only_a_title() {
        assert_eq!(Histogram::new("none", Scale::Log2, &[0; 65]).to_string(), "none  count\n");
        let largest = Histogram::new("x", Scale::Log2, &[u64::MAX; 65]);
        assert_eq!(largest.slots.last().map(|slot| (slot.low, slot.high)), Some((1 << 63, Some(u64::MAX))));
        assert_eq!(largest.to_string().lines().count(), 66);
    }

    #[test]
    fn a_title_is_one_line_and_has_an_end() {
        let long = Histogram::new(&"\x1b\n".repeat(70_000), Scale::Log2, &[1]).to_string();
        assert!(long.starts_with("\\u{1b}\\n") && long.lines().count() == 2 && long.len() < 5000, "{long}");
    }
}
