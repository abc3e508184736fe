//! Return types of the plugin's main function.

use core::fmt::Display;

use crate::error;

/// The return type of a function with `#[ks_guest::main]`, which determines how the plugin ends.
pub trait Termination {
    /// Reports the result and returns success, or the exit code of `ks-host`, from 1.
    fn report(self) -> Result<(), u8>;
}

impl Termination for () {
    fn report(self) -> Result<(), u8> {
        Ok(())
    }
}

/// 0 is success; of another number the low 8 bits are the exit code.
impl Termination for i32 {
    fn report(self) -> Result<(), u8> {
        if self == 0 { Ok(()) } else { Err(self.to_le_bytes()[0].max(1)) }
    }
}

/// Prints an error on standard error and exits with code 1.
impl<T: Termination, E: Display> Termination for Result<T, E> {
    fn report(self) -> Result<(), u8> {
        match self {
            Ok(value) => value.report(),
            Err(error) => {
                error!("{error}");
                Err(1)
            }
        }
    }
}
