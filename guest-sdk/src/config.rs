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
/// [`kernel!`](crate::kernel!) makes a function for each block that programs use. Before a program is loaded by the functions
/// of `kernel!`, each field has its default, or what the person who started the plugin said:
/// `ks-host --config block.field=value`. A program that is loaded by its name alone, by
/// [`Program::load`](crate::Program::load), may find zeros.
///
/// As a variable, a block is read and stored without calls of the host where the plugin has a shared memory; of one with
/// more than 8 bytes a program may be reading while it is stored: each number is whole.
///
/// ```ignore
/// let limits = probe::limits()?;
/// limits.set(&probe::limits { burst: 40, ..limits.get()? })?;
/// ```
#[derive(Debug)]
pub struct Config<T> {
    map: Map<u32, T>,
}

/// Where `ks` puts a block: an array of one element.
pub(crate) fn map_name(block: &str) -> alloc::string::String {
    format!("{block}_config_map")
}

impl<T: Plain> Config<T> {
    /// The block of this name. Creates the plugin's maps if no program was loaded yet.
    ///
    /// # Errors
    /// As [`Map::open`].
    pub fn open(block: &str) -> Result<Config<T>> {
        Ok(Config { map: Map::open(&map_name(block))? })
    }

    /// Its fields, now.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    #[inline]
    pub fn get(&self) -> Result<T> {
        self.map.get(&0)?.ok_or_else(|| Error::invalid("the map of this config block has no element".into()))
    }

    /// Sets its fields.
    ///
    /// # Errors
    /// [`Kernel`](ErrorKind::Kernel).
    #[inline]
    pub fn set(&self, value: &T) -> Result<()> {
        self.map.insert(&0, value)
    }

    /// Gives a block its first values: these bytes, or what was set from outside.
    #[doc(hidden)]
    pub fn start(block: &str, defaults: &[u8]) -> Result<()> {
        Config::<T>::open(block)?.set(&args::config(block, &T::from_bytes(defaults)))
    }
}

/// Whether the first values are written. For [`kernel!`](crate::kernel!).
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct Written(AtomicBool);

impl Written {
    /// They are not.
    pub const fn new() -> Written {
        Written(AtomicBool::new(false))
    }

    /// Writes them if they are not. The host of a test has them from its `declare`.
    pub fn once(&self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        if cfg!(all(feature = "std", not(target_family = "wasm"))) || self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        write()?;
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}
