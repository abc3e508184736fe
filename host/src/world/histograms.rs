//! Histograms of one scale, one for each key, that a plugin fills.

use super::bindings::kernelscript::host::console::{Scale, Value};
use super::histogram::{Histogram, Summary, whole_sum};
use super::table::{cell, compare_keys, json};
use crate::host_bytes::{Charge, Full, HostBytes};
use crate::text::visible;

/// Upper limit of a histogram's slots, each of which is a line of output.
const MAX_SLOTS: usize = 4096;

/// Upper limit of the name in bytes; the rest is cut.
const MAX_NAME_BYTES: usize = 4096;

/// Histograms with those that were appended since they were last written.
pub struct Histograms {
    name: String,
    scale: Scale,
    entries: Vec<KeyedCounts>,
    /// The number of those that were cut.
    others: usize,
    /// Charge for the entries.
    charge: Charge,
}

/// The counts of a key.
pub(super) struct KeyedCounts {
    pub(super) key: Vec<Value>,
    pub(super) below_zero: u64,
    pub(super) sum: i64,
    pub(super) counts: Vec<u64>,
}

impl KeyedCounts {
    /// Returns the number of values.
    fn values(&self) -> u64 {
        self.counts.iter().fold(self.below_zero, |all, count| all.saturating_add(*count))
    }
}

impl Histograms {
    /// Creates histograms without any key.
    pub(super) fn new(name: &str, scale: Scale, host_bytes: &HostBytes) -> Histograms {
        let name = visible(name, MAX_NAME_BYTES).into_owned();
        Histograms { name, scale, entries: Vec::new(), others: 0, charge: host_bytes.start() }
    }

    /// Returns the bytes of the name.
    pub(super) fn text_bytes(&self) -> usize {
        self.name.len()
    }

    /// Appends the counts of a key.
    ///
    /// # Errors
    /// [`Full`]: they are dropped.
    pub(super) fn append(&mut self, mut counts: KeyedCounts) -> Result<(), Full> {
        counts.counts.truncate(MAX_SLOTS);
        let text = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
        let key = size_of_val(counts.key.as_slice()) + counts.key.iter().map(text).sum::<usize>();
        self.charge.grow((size_of::<KeyedCounts>() + key + size_of_val(counts.counts.as_slice())) as u64)?;
        self.entries.push(counts);
        Ok(())
    }

    /// Returns the name, made visible.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of parts that each key has.
    pub(super) fn key_len(&self) -> usize {
        self.entries.first().map_or(0, |entry| entry.key.len())
    }

    /// Returns the number of histograms that were cut.
    pub(super) fn others(&self) -> usize {
        self.others
    }

    /// Removes the histograms behind those with the most values.
    pub(super) fn cut(&mut self, most: usize) {
        self.sort();
        self.others = self.entries.len().saturating_sub(most);
        self.entries.truncate(most);
    }

    fn sort(&mut self) {
        self.entries.sort_by(|one, other| {
            other.values().cmp(&one.values()).then_with(|| compare_keys(&one.key, &other.key))
        });
    }

    /// Removes and returns all histograms, those with the most values first.
    pub(super) fn take(&mut self) -> Vec<Histogram> {
        self.take_with_keys().into_iter().map(|(_, histogram)| histogram).collect()
    }

    /// As [`Histograms::take`], each behind its key.
    pub(super) fn take_with_keys(&mut self) -> Vec<(Vec<Value>, Histogram)> {
        self.sort();
        let entries = std::mem::take(&mut self.entries);
        self.others = 0;
        self.charge.shrink(u64::MAX);
        let with_key = |entry: KeyedCounts| {
            let histogram = self.histogram(&entry);
            (entry.key, histogram)
        };
        entries.into_iter().map(with_key).collect()
    }

    fn histogram(&self, entry: &KeyedCounts) -> Histogram {
        let key: Vec<String> = entry.key.iter().map(cell).collect();
        let title =
            if key.is_empty() { self.name.clone() } else { format!("{}[{}]", self.name, key.join(", ")) };
        let histogram = Histogram::new(&title, self.scale, &entry.counts);
        let summary = Summary {
            key: entry.key.iter().map(json).collect(),
            values: entry.values(),
            sum: whole_sum(&histogram.slots, entry.below_zero, entry.sum),
            below_zero: entry.below_zero,
        };
        Histogram { summary: Some(summary), ..histogram }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(key: &str, below_zero: u64, sum: i64, slot: usize, count: u64) -> KeyedCounts {
        let mut counts = vec![0; 65];
        counts[slot] = count;
        KeyedCounts { key: vec![Value::Text(key.into()), Value::Unsigned32(7)], below_zero, sum, counts }
    }

    #[test]
    fn the_largest_comes_first_and_says_number_sum_and_mean() {
        let mut histograms = Histograms::new("lat", Scale::Log2, &HostBytes::new(1 << 20));
        for one in [counts("b", 0, 3, 1, 3), counts("a", 0, 3, 1, 3), counts("c", 2, -7, 3, 4)] {
            histograms.append(one).expect("there is room");
        }
        let texts: Vec<String> = histograms.take().iter().map(ToString::to_string).collect();
        let titles: Vec<&str> = texts.iter().filter_map(|text| text.lines().next()).collect();
        assert_eq!(
            titles,
            [
                "lat[c, 7]  count  6 values, sum -7, mean -2",
                "lat[a, 7]  count  3 values, sum 3, mean 1",
                "lat[b, 7]  count  3 values, sum 3, mean 1"
            ]
        );
        assert!(texts[0].contains("  below 0      2  |##"), "{}", texts[0]);
        assert!(histograms.take().is_empty());
    }

    #[test]
    fn a_sum_beyond_64_bits_is_none() {
        let mut histograms = Histograms::new("lat", Scale::Log2, &HostBytes::new(1 << 20));
        // Two values of 2^62 and six more are 2^65, of which 64 bits are 0; one and the same value is not.
        for one in [counts("a", 0, 0, 63, 8), counts("b", 0, 1 << 62, 63, 1), counts("c", 0, i64::MIN, 63, 2)]
        {
            histograms.append(one).expect("there is room");
        }
        let texts: Vec<String> = histograms.take().iter().map(ToString::to_string).collect();
        let has = |at: usize, wanted: &str| assert!(texts[at].contains(wanted), "{}", texts[at]);
        has(0, "8 values, the sum is beyond 64 bits");
        has(1, "2 values, the sum is beyond 64 bits");
        has(2, "1 values, sum 4611686018427387904, mean 4611686018427387904");
    }

    #[test]
    fn json_has_the_parts_of_the_key() {
        let mut histograms = Histograms::new("lat", Scale::Log2, &HostBytes::new(1 << 20));
        histograms.append(counts("dd", 1, 5, 1, 2)).expect("there is room");
        let json = serde_json::to_string(&histograms.take()[0]).expect("it is JSON");
        assert_eq!(
            json,
            r#"{"title":"lat[dd, 7]","key":["dd",7],"values":3,"sum":5,"below_zero":1,"slots":[{"low":1,"high":1,"count":2}]}"#
        );
    }

    #[test]
    fn counts_are_charged_until_they_are_written() {
        let mut histograms = Histograms::new("", Scale::Log2, &HostBytes::new(1000));
        histograms.append(counts("a", 0, 0, 0, 1)).expect("there is room");
        assert!(histograms.append(counts("a", 0, 0, 0, 1)).is_err());
        histograms.take();
        assert!(histograms.append(counts("a", 0, 0, 0, 1)).is_ok());
    }
}
