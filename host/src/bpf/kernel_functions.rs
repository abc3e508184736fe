//! Functions that the running kernel and its modules have, for programs that ask before they use them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Error};

use super::members::has_function;

/// The list of symbols. Everybody may read its names.
pub(super) const SYMBOLS: &str = "/proc/kallsyms";

/// Returns those of the names that are functions of the running kernel.
///
/// # Errors
/// The reason why this cannot be determined, as text.
pub(super) fn existing(names: BTreeSet<&str>) -> Result<BTreeSet<String>, String> {
    let (typed, mut others): (BTreeSet<&str>, BTreeSet<&str>) =
        names.into_iter().partition(|name| has_function(name));
    let mut found: BTreeSet<String> = typed.into_iter().map(str::to_owned).collect();
    if others.is_empty() {
        return Ok(found);
    }
    // The kernel's types lack functions of modules, and those whose types are not clear.
    let unreadable = |error: Error| format!("cannot read {SYMBOLS}: {error}");
    let list = BufReader::new(File::open(SYMBOLS).map_err(unreadable)?);
    for line in list.lines() {
        if others.is_empty() {
            break;
        }
        let line = line.map_err(unreadable)?;
        if let Some(name) = function(&line)
            && others.remove(name)
        {
            found.insert(name.to_owned());
        }
    }
    Ok(found)
}

/// Returns the name of the function that a line of the list describes; none if it describes something else.
///
/// Source: nm(1), the letters of symbols in the text section and of weak ones.
fn function(line: &str) -> Option<&str> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let kind = fields.next()?;
    matches!(kind, "t" | "T" | "w" | "W").then(|| fields.next())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_functions_have_a_name() {
        assert_eq!(function("ffffffff81000000 T vfs_read"), Some("vfs_read"));
        assert_eq!(function("0000000000000000 t helper\t[some_module]"), Some("helper"));
        assert_eq!(function("ffffffff81000000 D jiffies"), None);
        assert_eq!(function("nonsense"), None);
    }

    #[test]
    fn only_functions_of_the_kernel_exist() {
        let found = existing(["vfs_read", "no_such_function", "jiffies"].into()).expect("procfs is there");
        assert_eq!(found, ["vfs_read".to_owned()].into());
    }
}
