//! Folded stacks: one line for each, `command;main;work;read_[k] 5`, the input format of flame graph tools.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Profile;

/// Returns the lines in order, one for all equal stacks. Frames of the kernel end with `_[k]`, inlined ones
/// with `_[i]`.
pub fn folded(profile: &Profile) -> String {
    let mut text = String::new();
    for (line, weight) in lines(profile) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line} {weight}");
    }
    text
}

fn lines(profile: &Profile) -> BTreeMap<String, u64> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for sample in &profile.samples {
        let labels: Vec<String> = sample.labels().iter().map(|label| clean(label)).collect();
        let line = if labels.is_empty() { super::naming::NO_STACK.to_owned() } else { labels.join(";") };
        let weight = lines.entry(line).or_default();
        *weight = weight.saturating_add(sample.weight);
    }
    lines
}

/// Replaces the characters that separate fields.
fn clean(label: &str) -> String {
    label.chars().map(|letter| if letter == ';' { ':' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::profile;
    use super::*;

    #[test]
    fn lines_are_stacks_from_the_outermost_caller_on() {
        let text = folded(&profile());
        assert_eq!(text, "program: x;main;rest 1\nprogram: x;main;work 3\nprogram: x;main;work;read_[k] 5\n");
    }

    #[test]
    fn equal_stacks_are_one_line() {
        let mut twice = profile();
        twice.samples.extend(profile().samples);
        assert_eq!(folded(&twice).lines().count(), 3);
        assert!(folded(&twice).contains("read_[k] 10\n"));
    }
}
