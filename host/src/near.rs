//! Names that a person may have meant.

/// Longest word that is compared with others, which takes time by the product of their lengths. Guards against a plugin
/// that asks for names of a megabyte.
const MAX_NAME_BYTES: usize = 256;

/// Of `names` those that are near to `wanted`, the nearest first, at most three. Case, `-` and `_` make no difference.
pub fn near(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    if wanted.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let wanted = normal(wanted);
    let most_edits = wanted.len() / 4 + 1;
    let mut candidates: Vec<(usize, String)> = names
        .into_iter()
        // A word cannot be nearer than the lengths differ, which is cheap to tell.
        .filter(|candidate| candidate.len().abs_diff(wanted.len()) <= most_edits)
        // Two neighbours that changed places are one mistake.
        .map(|candidate| (strsim::osa_distance(&wanted, &normal(&candidate)), candidate))
        .filter(|(distance, _)| *distance <= most_edits)
        .collect();
    candidates.sort();
    candidates.dedup();
    candidates.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// The form in which names are compared.
pub(crate) fn normal(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_near() {
        let names = || ["cache_misses", "cache_references", "page_faults"].map(str::to_owned);
        assert_eq!(near("cache_miss", names()), ["cache_misses"]);
        assert_eq!(near("Page-Fault", names()), ["page_faults"]);
        assert_eq!(near("xpd", ["xdp", "tc"].map(str::to_owned)), ["xdp"]);
        assert!(near("elephants", names()).is_empty());
        assert!(near("", names()).is_empty());
        let long = "x".repeat(1 << 20);
        assert!(near(&long, [long.clone()]).is_empty());
    }
}
