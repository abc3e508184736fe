//! Accesses to shared memory of a guest whose compiler knows one memory.
//!
//! LLVM gives a module one memory, and the pages that a host maps lie in a second one ([`SHARED_MEMORY`]). Such a guest
//! defines a function for each access that it makes, exports it under the name of an [`Access`], and calls it. What these
//! functions do is nothing: `ks share` and `ks build --into` add the memory to the module, put the access in the place of
//! every call and of the functions' own code, and take the exports away. What comes out is a plugin like those of scripts.
//!
//! A guest asks `variable.share` and `map.share` where something lies. Without a second memory they tell no place, so the
//! functions of a plugin that was left as it was are never called.
//!
//! [`SHARED_MEMORY`]: crate::section::SHARED_MEMORY

/// What every name begins with.
pub const PREFIX: &str = "kernelscript:shared/";

/// An atomic load or store of natural width. Addresses are of 32 bits; values have 32 bits, those of [`Width::W64`] 64.
/// Loads of less than 32 bits are extended with zeros, stores take the low bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// `(address) -> value`
    Load(Width),
    /// `(address, value)`
    Store(Width),
}

/// How many bits are read or written, at an address that is a multiple of as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// A byte.
    W8,
    /// 2 bytes.
    W16,
    /// 4 bytes.
    W32,
    /// 8 bytes.
    W64,
}

impl Access {
    /// The access of the function that is exported under this name: `kernelscript:shared/load-64`.
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
