//! The call tree as text with aligned columns.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Profile;

/// Nodes with a smaller share are hidden, in thousandths of the total.
const SMALLEST: u128 = 5;

/// A node of the call tree.
#[derive(Default)]
struct Node {
    /// Including callees.
    weight: u64,
    /// Excluding callees.
    own: u64,
    calls: BTreeMap<String, Node>,
}

/// The columns total, share and own weight, and the indented function.
type Line = ([String; 3], String);

/// Formats the call tree: each function below its caller, the heaviest first. Columns are the weight of all
/// stacks that pass through the node, its share, the weight of the stacks that end there, and the name. Nodes
/// below 0.5 % are only counted.
pub fn tree(profile: &Profile) -> String {
    let mut root = Node::default();
    for sample in &profile.samples {
        root.add(&sample.labels(), sample.weight);
    }
    let mut lines = Vec::new();
    let mut hidden = 0;
    root.list(root.weight, 0, "", &mut lines, &mut hidden);
    let head = ["total", "share", "own"].map(str::to_owned);
    let width = |column: usize| {
        lines
            .iter()
            .map(|(cells, _)| &cells[column])
            .chain([&head[column]])
            .map(String::len)
            .max()
            .unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    let mut line = |[total, share, own]: &[String; 3], function: &str| {
        let [first, second, third] = widths;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{total:>first$}  {share:>second$}  {own:>third$}  {function}");
    };
    line(&head, "function");
    for (cells, function) in &lines {
        line(cells, function);
    }
    if hidden > 0 {
        let _ = writeln!(text, "{hidden} more below 0.5 %");
    }
    text
}

impl Node {
    fn add(&mut self, labels: &[String], weight: u64) {
        self.weight = self.weight.saturating_add(weight);
        match labels.split_first() {
            None => self.own = self.own.saturating_add(weight),
            Some((first, rest)) => self.calls.entry(first.clone()).or_default().add(rest, weight),
        }
    }

    fn list(&self, all: u64, depth: usize, indent: &str, lines: &mut Vec<Line>, hidden: &mut usize) {
        let mut calls: Vec<(&String, &Node)> = self.calls.iter().collect();
        // The sort is stable and the map is ordered by name, so equal weights are ordered by name.
        calls.sort_by_key(|(_, node)| std::cmp::Reverse(node.weight));
        let visible = calls.iter().filter(|(_, node)| thousandths(node.weight, all) >= SMALLEST).count();
        *hidden += calls.len() - visible;
        for (index, (name, node)) in calls.into_iter().take(visible).enumerate() {
            // An only child is placed straight below its caller.
            let (branch, below) = match (depth, visible - index) {
                (0, _) => ("", "  "),
                (_, 1) if visible == 1 => ("", ""),
                (_, 1) => ("└─ ", "   "),
                _ => ("├─ ", "│  "),
            };
            let share = thousandths(node.weight, all);
            let cells =
                [node.weight.to_string(), format!("{}.{} %", share / 10, share % 10), node.own.to_string()];
            lines.push((cells, format!("{indent}{branch}{name}")));
            node.list(all, depth + 1, &format!("{indent}{below}"), lines, hidden);
        }
    }
}

fn thousandths(part: u64, all: u64) -> u128 {
    (u128::from(part) * 1000 + u128::from(all) / 2).checked_div(u128::from(all)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::profile;
    use super::*;

    #[test]
    fn callers_stand_above_what_they_call() {
        let expected = "\
total    share  own  function
    9  100.0 %    0  program; x
    9  100.0 %    0    main
    8   88.9 %    3    ├─ work
    5   55.6 %    5    │  read_[k]
    1   11.1 %    1    └─ rest
";
        assert_eq!(tree(&profile()), expected);
    }

    #[test]
    fn small_nodes_are_only_counted() {
        let mut profile = profile();
        profile.samples[2].weight = 5000;
        let text = tree(&profile);
        assert!(!text.contains("rest") && text.ends_with("1 more below 0.5 %\n"), "{text}");
    }
}
