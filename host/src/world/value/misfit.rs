//! Type errors of values in a recording.

use std::fmt;

/// A recorded value of the wrong type: its position and the expected type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Path from the outermost member to the innermost.
    path: Vec<String>,
    wanted: String,
}

impl Misfit {
    /// Creates an error at the value itself.
    pub(crate) fn wanted(wanted: &str) -> Misfit {
        Misfit { path: Vec::new(), wanted: wanted.to_owned() }
    }

    /// Prefixes the position with an enclosing member.
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
