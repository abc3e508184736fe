//! What the function with which a plugin starts may return.

use core::fmt::Display;

use crate::warn;

/// How a plugin ends: what a function with `#[ks_guest::main]` returns.
pub trait Termination {
    /// The exit code of `ks-host`, its low 8 bits; 0 is success.
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

/// The error is told on standard error, and the code is 1.
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
