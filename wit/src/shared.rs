//! Shared-memory accesses of a guest whose compiler supports a single memory.
//!
//! LLVM gives a module one memory, and the host maps pages into a second one ([`SHARED_MEMORY`]). Such a
//! guest defines a function for each access, exports it under the name of an [`Access`], and calls it. The
//! bodies of these functions do nothing: `ks share` and `ks build --into` add the memory to the module,
//! replace every call and the bodies by the access itself, and remove the exports. The result is a plugin
//! like one compiled from a script.
//!
//! A guest asks `variable.share` and `map.share` for addresses. Without a second memory they return none, so
//! the placeholder functions of an unconverted plugin are never called.
//!
//! [`SHARED_MEMORY`]: crate::section::SHARED_MEMORY

/// The prefix of every access function's export name.
pub const PREFIX: &str = "kernelscript:shared/";

/// An atomic load or store of natural width. Addresses have 32 bits; values have 32 bits, or 64 for
/// [`Width::W64`]. Loads of less than 32 bits zero-extend; stores take the low bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// A function `(address) -> value`.
    Load(Width),
    /// A function `(address, value)`.
    Store(Width),
}

/// The width of an access; the address is a multiple of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// 1 byte, any address.
    W8,
    /// 2 bytes, 2-byte aligned.
    W16,
    /// 4 bytes, 4-byte aligned.
    W32,
    /// 8 bytes, 8-byte aligned.
    W64,
}

impl Access {
    /// Returns the access that this export name stands for (`kernelscript:shared/load-64`), or none for any
    /// other name.
    pub fn of_export(name: &str) -> Option<Access> {
        let (access, width) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let width = match width {
            "8" => Width::W8,
            "16" => Width::W16,
            "32" => Width::W32,
            "64" => Width::W64,
            _ => return None,
        };
        match access {
            "load" => Some(Access::Load(width)),
            "store" => Some(Access::Store(width)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_encodes_the_access() {
        let of = |rest: &str| Access::of_export(&format!("{PREFIX}{rest}"));
        assert_eq!(of("load-8"), Some(Access::Load(Width::W8)));
        assert_eq!(of("store-64"), Some(Access::Store(Width::W64)));
        assert_eq!((of("load-128"), of("swap-8"), of("load")), (None, None, None));
        assert_eq!(Access::of_export("load-8"), None);
    }
}
