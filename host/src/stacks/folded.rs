//! Folded stacks: one line for each, `command;main;work;read_[k] 5`, the input format of flame graph tools, or an object
//! of JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

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

/// An object for one stack, and for all equal ones.
#[derive(Debug, Serialize)]
struct FoldedStack<'a> {
    plugin: &'a str,
    /// The task and its functions, from the outermost caller on, labelled as in [`folded`].
    stack: Vec<String>,
    /// The value of the map, in the plugin's unit.
    weight: u64,
}

/// Returns the stacks of a plugin as objects of JSON, one a line, in order.
pub fn json_lines(plugin: &str, profile: &Profile) -> String {
    let mut stacks: BTreeMap<Vec<String>, u64> = BTreeMap::new();
    for sample in &profile.samples {
        let weight = stacks.entry(sample.labels()).or_default();
        *weight = weight.saturating_add(sample.weight);
    }
    let objects = stacks.into_iter().map(|(stack, weight)| FoldedStack { plugin, stack, weight });
    objects.map(|one| serde_json::to_string(&one).expect("text and numbers are JSON") + "\n").collect()
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
    fn objects_have_the_functions_of_each_stack() {
        let mut twice = profile();
        twice.samples.extend(profile().samples);
        let text = json_lines("p", &twice);
        let objects: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(objects.len(), 3, "{text}");
        let deepest = serde_json::json!({
            "plugin": "p", "stack": ["program; x", "main", "work", "read_[k]"], "weight": 10
        });
        assert!(objects.contains(&deepest), "{text}");
    }

    #[test]
    fn equal_stacks_are_one_line() {
        let mut twice = profile();
        twice.samples.extend(profile().samples);
        assert_eq!(folded(&twice).lines().count(), 3);
        assert!(folded(&twice).contains("read_[k] 10\n"));
    }
}
