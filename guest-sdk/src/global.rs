//! Global variables of the plugin's object.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::layout;
use crate::plain::Plain;
use crate::shared::{self, VariableAddress};
use crate::sys::{globals, layouts};

/// Returns the names of the variables of the plugin's object.
pub fn list_variables() -> Vec<String> {
    globals::list_variables()
}

/// A global variable shared by programs and plugin; there is one copy.
///
/// Variables of 1, 2, 4 or 8 bytes are read and stored whole. A program may write a larger variable during
/// the read: the value may then be a mixture, of which each number is whole.
///
/// Once the object is loaded, a plugin with a shared memory (`ks share`) reads and writes variables without
/// host calls, if they can be mapped; constants cannot. The values are the same. A variable that is opened
/// after the load costs least.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::{Global, println};
///
/// let handled = Global::<u64>::open("handled")?;
/// handled.set(&0)?;
/// println!("{}", handled.get());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Global<T> {
    raw: globals::Variable,
    /// Its address when it was opened. It never changes, so a loop of reads keeps it in a register.
    at: Option<u32>,
    /// The address of a variable that was opened before the object was loaded.
    address: Box<VariableAddress>,
    value: PhantomData<fn() -> T>,
}

/// Whether the contract reads a variable of this size by one access.
const fn is_whole(size: usize) -> bool {
    matches!(size, 1 | 2 | 4 | 8)
}

impl<T: Plain> Global<T> {
    /// Opens the variable of this name. Before the first program is loaded it has its initial value, which
    /// may be changed.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound), [`Invalid`](ErrorKind::Invalid) if it is not a `T` in the object
    /// ([`plain`](crate::plain#checks)); for a pinned one those of [`Map::open`](crate::Map::open).
    pub fn open(name: &str) -> Result<Global<T>> {
        let raw = globals::Variable::open(name)?;
        layout::check::<T>(&format!("variable `{name}`"), layouts::of_variable(name))?;
        let size = raw.size() as usize;
        if size != T::SIZE {
            let message = format!(
                "variable `{name}` has {size} bytes in the plugin's object, its type here has {}\n  \
                 do: open it with a type of {size} bytes",
                T::SIZE
            );
            return Err(Error::invalid(message));
        }
        let address = Box::new(VariableAddress::new());
        let at = address.find::<T>(|| raw.share());
        Ok(Global { raw, at, address, value: PhantomData })
    }

    /// Reads the current value.
    #[inline(always)]
    pub fn get(&self) -> T {
        match self.at {
            Some(at) => shared::read(at),
            None => self.get_late(),
        }
    }

    #[cold]
    #[inline(never)]
    fn get_late(&self) -> T {
        if let Some(at) = self.address.find::<T>(|| self.raw.share()) {
            return shared::read(at);
        }
        if is_whole(T::SIZE) {
            T::from_bytes(&self.raw.get().to_le_bytes())
        } else {
            T::from_bytes(&self.raw.read())
        }
    }

    /// Stores a value.
    ///
    /// # Errors
    /// [`NotPermitted`](ErrorKind::NotPermitted) for a constant of a loaded object.
    #[inline]
    pub fn set(&self, value: &T) -> Result<()> {
        match self.at {
            Some(at) => {
                shared::write(at, value);
                Ok(())
            }
            None => self.set_late(value),
        }
    }

    #[cold]
    #[inline(never)]
    fn set_late(&self, value: &T) -> Result<()> {
        if let Some(at) = self.address.find::<T>(|| self.raw.share()) {
            shared::write(at, value);
            return Ok(());
        }
        if is_whole(T::SIZE) {
            let mut bytes = [0; 8];
            value.write_bytes(&mut bytes);
            Ok(self.raw.set(u64::from_le_bytes(bytes))?)
        } else {
            Ok(self.raw.write(0, &value.to_bytes())?)
        }
    }
}
