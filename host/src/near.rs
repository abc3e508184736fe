//! Similar names, for messages about unknown names.

/// Limit on the bytes of a compared name, since the comparison takes time by the product of the lengths.
/// Guards against a plugin that asks for names of a megabyte.
const MAX_NAME_BYTES: usize = 256;

/// Returns up to three of `names` that are similar to `wanted`, the most similar first. Ignores case, `-` and
/// `_`.
pub fn near(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    if wanted.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    let wanted = normal(wanted);
    let most_edits = wanted.len() / 4 + 1;
    let mut candidates: Vec<(usize, String)> = names
        .into_iter()
        // The distance is at least the difference of the lengths, which is cheap to compute.
        .filter(|candidate| candidate.len().abs_diff(wanted.len()) <= most_edits)
        // Two swapped neighbours count as one mistake.
        .map(|candidate| (strsim::osa_distance(&wanted, &normal(&candidate)), candidate))
        .filter(|(distance, _)| *distance <= most_edits)
        .collect();
    candidates.sort();
    candidates.dedup();
    candidates.into_iter().take(3).map(|(_, candidate)| candidate).collect()
}

/// Returns what to do about an unknown name, if there are similar ones.
pub(crate) fn remedy(near: &[String]) -> Option<String> {
    (!near.is_empty()).then(|| format!("use a name that exists, such as `{}`", near.join("`, `")))
}

/// Normalises a name for the comparison.
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
