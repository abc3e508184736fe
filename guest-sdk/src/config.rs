//! Config blocks of the plugin's kernel half.

use alloc::format;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::args;
#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::{Error, Result};
use crate::map::Map;
use crate::plain::Plain;

/// A config block: fields that the plugin sets and its programs read.
///
/// [`kernel!`](crate::kernel!) generates a function for each block that programs use. Before the functions of
/// `kernel!` load a program, each field gets its default, or the value that the person who started the plugin
/// set: `ks-host --config block.field=value`. A program that is loaded by its name alone, by
/// [`Program::load`](crate::Program::load), may find zeros.
///
/// If the plugin has a shared memory, a block is read and stored without host calls, like a variable. A
/// program may read a block of more than 8 bytes while it is stored: each number is whole.
///
/// ```ignore
/// let limits = probe::limits()?;
/// limits.set(&probe::limits { burst: 40, ..limits.get()? })?;
/// ```
#[derive(Debug)]
pub struct Config<T> {
    map: Map<u32, T>,
}

/// Name of the map with a block: an array of one element.
pub(crate) fn map_name(block: &str) -> alloc::string::String {
    format!("{block}_config_map")
}

impl<T: Plain> Config<T> {
    /// Opens the block of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// # Errors
    /// See [`Map::open`].
    pub fn open(block: &str) -> Result<Config<T>> {
        Ok(Config { map: Map::open(&map_name(block))? })
    }

    /// Reads the current fields.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    #[inline]
    pub fn get(&self) -> Result<T> {
        self.map.get(&0)?.ok_or_else(|| Error::invalid("the map of this config block has no element".into()))
    }

    /// Stores all fields.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    #[inline]
    pub fn set(&self, value: &T) -> Result<()> {
        self.map.insert(&0, value)
    }

    /// Writes the initial values of a block: these bytes, or the values that were set from outside.
    #[doc(hidden)]
    pub fn start(block: &str, defaults: &[u8]) -> Result<()> {
        Config::<T>::open(block)?.set(&args::config(block, &T::from_bytes(defaults)))
    }
}

/// Whether the initial values are written. For [`kernel!`](crate::kernel!).
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Written(AtomicBool);

impl Written {
    /// Creates the state before the initial values are written.
    pub const fn new() -> Written {
        Written(AtomicBool::new(false))
    }

    /// Calls `write` unless it was called before. The host of a test gets the values from its `declare`.
    pub fn once(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        if cfg!(all(feature = "std", not(target_family = "wasm"))) || self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        write()?;
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}
