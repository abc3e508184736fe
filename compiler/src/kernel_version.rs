//! Versions of Linux, as the feature tables and `--target-kernel` spell them.

use std::fmt;
use std::str::FromStr;

use ks_wit::helper::Version;

/// A kernel version, such as `6.12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelVersion {
    /// The number before the dot.
    pub major: u32,
    /// The number after the dot; patch levels are ignored.
    pub minor: u32,
}

impl KernelVersion {
    /// Creates the version `major.minor`.
    pub const fn new(major: u32, minor: u32) -> KernelVersion {
        KernelVersion { major, minor }
    }

    /// Converts a version of the contract's tables.
    pub const fn of((major, minor): Version) -> KernelVersion {
        KernelVersion { major, minor }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The error for text that is not a kernel version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a kernel version is two numbers, for example 6.12")]
pub struct NotAVersion;

impl FromStr for KernelVersion {
    type Err = NotAVersion;

    fn from_str(text: &str) -> Result<KernelVersion, NotAVersion> {
        let (major, minor) = text.split_once('.').ok_or(NotAVersion)?;
        let number = |digits: &str| digits.parse().map_err(|_| NotAVersion);
        Ok(KernelVersion { major: number(major)?, minor: number(minor)? })
    }
}
