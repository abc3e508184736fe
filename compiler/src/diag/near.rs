//! Finds similar names for suggestions: few letters differ; two swapped neighbours count as one difference.

/// Maximum length of a compared name in bytes: longer ones are not typing errors of each other.
const LONGEST: usize = 128;

/// Maximum number of differences, however long a name is.
const MOST_MISTAKES: usize = 5;

/// Maximum number of names that [`nears`] returns.
const MOST_NAMES: usize = 3;

/// Returns the name among `candidates` that is most similar to `wanted`: at most a third of its letters
/// differ.
///
/// Among equally similar ones it is the first in alphabetical order, whatever the order of `candidates`.
pub fn near<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    best(wanted, candidates, 1).first().copied()
}

/// Returns up to three names among `candidates` that are similar to `wanted`, the most similar first, without
/// duplicates.
pub fn nears<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    best(wanted, candidates, MOST_NAMES)
}

/// Returns the `most` best names. A candidate that cannot be among them is abandoned early, so many
/// candidates cost little.
fn best<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<&'a str> {
    let mut found: Vec<((usize, usize), &str)> = Vec::with_capacity(most + 1);
    let mut rows = Rows::default();
    for name in candidates {
        let mut bound = allowed(wanted, name);
        if let Some(((worst, _), _)) = found.get(most - 1) {
            bound = bound.min(*worst);
        }
        if name == wanted || name.len() > LONGEST || wanted.len() > LONGEST {
            continue;
        }
        let Some(distance) = rows.distance(wanted.as_bytes(), name.as_bytes(), bound) else { continue };
        let entry = ((distance, other_case(wanted, name)), name);
        if let Err(at) = found.binary_search(&entry) {
            found.insert(at, entry);
            found.truncate(most);
        }
    }
    found.into_iter().map(|(_, name)| name).collect()
}

/// Returns the number of differences up to which a name is similar.
fn allowed(wanted: &str, name: &str) -> usize {
    (wanted.len().max(name.len()) / 3).min(MOST_MISTAKES)
}

/// Returns the number of positions that differ in case only: among equally similar names, the one in the same
/// case is preferred.
fn other_case(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).filter(|(x, y)| x != y && x.eq_ignore_ascii_case(y)).count()
}

/// The rows of the distance table that are in use, allocated once for all names.
#[derive(Default)]
struct Rows {
    before_last: Vec<usize>,
    last: Vec<usize>,
    current: Vec<usize>,
}

impl Rows {
    /// Returns the optimal string alignment distance (Damerau's, no letter edited twice), ignoring the case
    /// of ASCII letters; `None` above `bound`. Only the band of the table that `bound` can reach is computed.
    fn distance(&mut self, a: &[u8], b: &[u8], bound: usize) -> Option<usize> {
        if a.len().abs_diff(b.len()) > bound {
            return None;
        }
        let far = bound + 1;
        let same = |x: u8, y: u8| x.eq_ignore_ascii_case(&y);
        self.last.clear();
        self.last.extend((0..=b.len()).map(|j| j.min(far)));
        self.before_last.clear();
        self.before_last.resize(b.len() + 1, far);
        for i in 1..=a.len() {
            let (first, last) = (i.saturating_sub(bound).max(1), (i + bound).min(b.len()));
            self.current.clear();
            self.current.resize(b.len() + 1, far);
            self.current[0] = i.min(far);
            for j in first..=last {
                let replaced = self.last[j - 1] + usize::from(!same(a[i - 1], b[j - 1]));
                let mut least = replaced.min(self.last[j] + 1).min(self.current[j - 1] + 1);
                if i > 1 && j > 1 && same(a[i - 1], b[j - 2]) && same(a[i - 2], b[j - 1]) {
                    least = least.min(self.before_last[j - 2] + 1);
                }
                self.current[j] = least.min(far);
            }
            if self.current.iter().all(|distance| *distance > bound) {
                return None;
            }
            std::mem::swap(&mut self.before_last, &mut self.last);
            std::mem::swap(&mut self.last, &mut self.current);
        }
        Some(self.last[b.len()]).filter(|distance| *distance <= bound)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Rows, allowed, near, nears};

    #[test]
    fn near_names_are_near() {
        let names = ["cache_misses", "cache_references", "page_faults", "cpu_cycles"];
        assert_eq!(near("cache_miss", names), Some("cache_misses"));
        assert_eq!(near("pagefaults", names), Some("page_faults"));
        assert_eq!(near("zebra", names), None);
        assert_eq!(near("", names), None);
    }

    #[test]
    fn swapped_letters_and_other_case_are_near() {
        assert_eq!(near("pdi", ["pid", "cpu"]), Some("pid"));
        assert_eq!(near("xdp_pass", ["XDP_PASS", "XDP_TX"]), Some("XDP_PASS"));
        assert_eq!(near("Flow", ["flow", "FLOW"]), Some("flow"));
    }

    #[test]
    fn short_names_must_nearly_agree() {
        assert_eq!(near("i", ["j", "k"]), None);
        assert_eq!(near("ab", ["cd"]), None);
        assert_eq!(near("pid", ["cpu"]), None);
    }

    #[test]
    fn the_name_itself_is_not_suggested() {
        assert_eq!(near("pid", ["pid"]), None);
        assert_eq!(near("pid", ["pid", "pids"]), Some("pids"));
    }

    #[test]
    fn ties_go_by_the_alphabet_and_no_name_comes_twice() {
        let mut names = ["count_d", "count_b", "count_c", "count_b", "count_a"];
        assert_eq!(nears("count_x", names), ["count_a", "count_b", "count_c"]);
        names.reverse();
        assert_eq!(nears("count_x", names), ["count_a", "count_b", "count_c"]);
    }

    #[test]
    fn a_near_name_is_found_among_a_hundred_thousand() {
        let names: Vec<String> = (0..100_000).map(|number| format!("kernel_function_{number:05}")).collect();
        let all = || names.iter().map(String::as_str).chain(["vfs_read"]);
        assert_eq!(near("vfs_raed", all()), Some("vfs_read"));
        assert_eq!(near("kernel_fnuction_31415", all()), Some("kernel_function_31415"));
    }

    /// Computes the whole table, without a band.
    fn plain_distance(a: &[u8], b: &[u8]) -> usize {
        let border = |i: usize| (0..=b.len()).map(|j| i + j).collect::<Vec<_>>();
        let mut table: Vec<_> = (0..=a.len()).map(border).collect();
        for i in 1..=a.len() {
            for j in 1..=b.len() {
                let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                table[i][j] = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    table[i][j] = table[i][j].min(table[i - 2][j - 2] + 1);
                }
            }
        }
        table[a.len()][b.len()]
    }

    proptest! {
        #[test]
        fn the_band_changes_nothing(a in "[abc]{0,12}", b in "[abc]{0,12}", bound in 0usize..8) {
            let whole = Some(plain_distance(a.as_bytes(), b.as_bytes())).filter(|whole| *whole <= bound);
            prop_assert_eq!(Rows::default().distance(a.as_bytes(), b.as_bytes(), bound), whole);
        }

        #[test]
        fn a_suggestion_is_never_farther_than_allowed(
            wanted in "[a-d_]{0,9}",
            names in prop::collection::vec("[a-d_]{0,9}", 0..9),
        ) {
            let found = nears(&wanted, names.iter().map(String::as_str));
            prop_assert!(found.len() <= 3);
            for name in found {
                prop_assert!(plain_distance(wanted.as_bytes(), name.as_bytes()) <= allowed(&wanted, name));
            }
        }
    }
}
