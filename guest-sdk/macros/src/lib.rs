//! The macros of `ks-guest`, which re-exports them: use that crate.

mod main_fn;
mod plain;

use proc_macro::TokenStream;

/// The function with which the plugin starts: `#[ks_guest::main] fn main()`.
///
/// It takes no parameters, and returns what implements `ks_guest::Termination`: nothing, an exit code, or a `Result`
/// whose error is shown on standard error and ends the plugin with code 1.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    main_fn::expand(arguments.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// A struct of plain data, for keys, values, records and variables: `#[derive(Plain)]`.
///
/// Its fields are laid out as C lays them out, in the order in which they stand; padding is written as zeros.
#[proc_macro_derive(Plain)]
pub fn plain(item: TokenStream) -> TokenStream {
    plain::expand(item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
