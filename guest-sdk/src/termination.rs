//! Return types of the plugin's main function.

use core::fmt::Display;

use crate::warn;

/// The return type of a function with `#[ks_guest::main]`, which determines how the plugin ends.
pub trait Termination {
    /// Reports the result and returns the exit code of `ks-host`, of which the low 8 bits count; 0 is
    /// success.
    fn report(self) -> i32;
}

impl Termination for () {
    fn report(self) -> i32 {
        0
    }
}

impl Termination for i32 {
    fn report(self) -> i32 {
        self
    }
}

/// Prints an error on standard error and exits with code 1.
impl<T: Termination, E: Display> Termination for Result<T, E> {
    fn report(self) -> i32 {
        match self {
            Ok(value) => value.report(),
            Err(error) => {
                warn!("{error}");
                1
            }
        }
    }
}
