//! Where a value of a record is not of the type that the contract has.

use std::fmt;

/// A value that is not of its type: where in it, and what belongs there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// From the outermost member to the innermost.
    path: Vec<String>,
    wanted: String,
}

impl Misfit {
    /// At the value itself.
    pub(crate) fn wanted(wanted: &str) -> Misfit {
        Misfit { path: Vec::new(), wanted: wanted.to_owned() }
    }

    /// Seen from a member further out.
    #[must_use]
    pub(crate) fn within(mut self, member: &str) -> Misfit {
        self.path.insert(0, member.to_owned());
        self
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "at `{}`: ", self.path.join("."))?;
        }
        write!(f, "there should be {}", self.wanted)
    }
}
