//! The macros of `ks-guest`, which re-exports them: use that crate.

#[cfg(feature = "kernel")]
mod kernel;
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
/// Its fields are laid out as C lays them out, in the order in which they stand; padding is written as zeros. The type of
/// each is plain data, too: integers, `bool`, arrays and structs of them.
///
/// What the object calls the struct matters only for records of ring buffers (`ks_guest::Ring::open`). It may be said:
/// `#[plain(name = "opened_t")]`.
#[proc_macro_derive(Plain, attributes(plain))]
pub fn plain(item: TokenStream) -> TokenStream {
    plain::expand(item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Compiles a kernel half in KernelScript with the plugin: `ks_guest::kernel!("probe.ks");`.
///
/// The object goes into the plugin file. For each program, map, ring buffer, variable and config block that its programs use there is
/// a function of its name that opens it with its types, and for each struct and enum of those a type with the layout of
/// the kernel half:
///
/// ```text
/// var counts : hash<u32, Count>(1024)      probe::counts() -> Result<Map<u32, Count>>
/// var seen : percpu_array<u32, u64>(1)     probe::seen()   -> Result<PerCpuMap<u32, u64>>
/// var events : ringbuf<Event>(65536)       probe::events() -> Result<Ring<Event>>
/// var limit : u64 = 7                      probe::limit()  -> Result<Global<u64>>
/// config net { step: u64 = 1 }             probe::net()    -> Result<Config<probe::net>>
/// @perf_event fn on_fault(..)              probe::on_fault() -> Result<Program>
/// struct Count { hits: u64 }               probe::Count { hits: u64 }, #[repr(C)] and Plain
/// enum Kind { READ, WRITE }                probe::Kind(u32), with Kind::READ and Kind::WRITE
/// str(16), *T                              [u8; 16], u64
/// ```
///
/// Where the plugin is built for its tests there is also `declare`, which gives a `ks_guest::testing::Host` all of it.
///
/// ```ignore
/// mod probe {
///     ks_guest::kernel!("probe.ks");
/// }
///
/// probe::counts()?.insert(&7, &probe::Count { hits: 0 })?;
/// ```
///
/// Config blocks have their defaults, or what `ks-host --config net.step=2` says, before one of these functions loads a
/// program.
///
/// The path is relative to the file in which this stands. When the script or a file that it names changes, the plugin
/// is built anew. `main` and the other functions of the userspace half are left out. A plugin has one kernel half.
///
/// The kernel's structs are as the bundled layouts say, or as a BTF file does:
/// `ks_guest::kernel!("probe.ks", btf = "vmlinux.btf")`. The kernel of the machine that builds is never asked.
///
/// # Errors
/// What is wrong with the script is an error when the plugin is compiled, with its place in the script.
#[cfg(feature = "kernel")]
#[proc_macro]
pub fn kernel(arguments: TokenStream) -> TokenStream {
    // An editor that expands the macro on its own may not say which file it is in.
    let file = proc_macro::Span::call_site().local_file().unwrap_or_default();
    let folder = file.parent().unwrap_or(std::path::Path::new(""));
    let plugin = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "plugin".to_owned());
    kernel::expand(arguments.into(), folder, &plugin).unwrap_or_else(|error| error.to_compile_error()).into()
}
