//! Accesses to shared memory, as placeholders: `ks share` replaces these functions and their calls by atomic
//! instructions. Their names are those of `ks_wit::shared`.
//!
//! A compiler that could analyse the bodies would draw conclusions from them. So each body is opaque and
//! different, and a call that was not replaced ends the plugin, because a wrong value would be worse.
#![allow(unsafe_code, reason = "names of exports, which nobody else has")]

use core::hint::black_box;

fn load(width: u32, at: u32) -> u64 {
    if black_box((width, at)) != (0, 0) {
        not_there();
    }
    black_box(u64::from(at))
}

fn store(width: u32, at: u32, value: u64) {
    if black_box((width, at, value)) != (0, 0, 0) {
        not_there();
    }
}

#[cold]
fn not_there() -> ! {
    panic!("this plugin has no shared memory: `ks share` gives it one")
}

macro_rules! accesses {
    ($($load:ident $store:ident: $ty:ty, $width:literal, $load_name:literal, $store_name:literal;)*) => {
        $(
            /// Loads atomically, extended with zeros.
            // SAFETY: the name is unique to this export.
            #[cfg_attr(target_family = "wasm", unsafe(export_name = $load_name))]
            #[inline(never)]
            pub(super) extern "C" fn $load(at: u32) -> $ty {
                load($width, at) as $ty
            }

            /// Stores the low bits atomically.
            // SAFETY: the name is unique to this export.
            #[cfg_attr(target_family = "wasm", unsafe(export_name = $store_name))]
            #[inline(never)]
            pub(super) extern "C" fn $store(at: u32, value: $ty) {
                store($width, at, u64::from(value));
            }
        )*
    };
}

accesses! {
    load_8 store_8: u32, 8, "kernelscript:shared/load-8", "kernelscript:shared/store-8";
    load_16 store_16: u32, 16, "kernelscript:shared/load-16", "kernelscript:shared/store-16";
    load_32 store_32: u32, 32, "kernelscript:shared/load-32", "kernelscript:shared/store-32";
    load_64 store_64: u64, 64, "kernelscript:shared/load-64", "kernelscript:shared/store-64";
}
