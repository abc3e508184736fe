//! The macros of `ks-guest`, which re-exports them: use that crate.

#[cfg(feature = "kernel")]
mod kernel;
mod main_fn;
mod plain;

use proc_macro::TokenStream;

/// Marks the function with which the plugin starts: `#[ks_guest::main] fn main()`.
///
/// It takes no parameters, and its result implements `ks_guest::Termination`: nothing, an exit code, or a
/// `Result` whose error is shown on standard error and ends the plugin with code 1.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, item: TokenStream) -> TokenStream {
    main_fn::expand(arguments.into(), item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Derives the layout of a struct of plain data, for keys, values, records and variables: `#[derive(Plain)]`.
///
/// Its fields have C's layout, in the order of declaration; padding is written as zeros. The type of each
/// field is plain data, too: integers, `bool`, arrays and structs of them.
///
/// The name of the struct in the object matters only for records of ring buffers (`ks_guest::Ring::open`). It
/// can be set: `#[plain(name = "opened_t")]`.
#[proc_macro_derive(Plain, attributes(plain))]
pub fn plain(item: TokenStream) -> TokenStream {
    plain::expand(item.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Compiles a kernel half in KernelScript with the plugin: `ks_guest::kernel!("probe.ks");`.
///
/// The object becomes part of the plugin file. The macro generates a function for each program, map, ring
/// buffer, variable and config block that its programs use, which opens it with its types. It generates a
/// type with the kernel half's layout for each struct and enum in them:
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
/// In a build for unit tests there is also `declare`, which declares all of it to a
/// `ks_guest::testing::Host`.
///
/// ```ignore
/// mod probe {
///     ks_guest::kernel!("probe.ks");
/// }
///
/// probe::counts()?.insert(&7, &probe::Count { hits: 0 })?;
/// ```
///
/// Before one of these functions loads a program, config blocks get their defaults, or the values of `ks-host
/// --config net.step=2`.
///
/// The path is relative to the source file of the call. The plugin is rebuilt when the script or a file that
/// it names changes. `main` and the other functions of the userspace half are omitted. A plugin has one
/// kernel half.
///
/// The layouts of the kernel's structs are the bundled ones, or those of a BTF file:
/// `ks_guest::kernel!("probe.ks", btf = "vmlinux.btf")`. The kernel of the machine that builds is never used.
///
/// # Errors
/// Errors of the script are errors of the plugin's compilation, with their source locations in the script.
#[cfg(feature = "kernel")]
#[proc_macro]
pub fn kernel(arguments: TokenStream) -> TokenStream {
    // An editor that expands the macro by itself may not report the source file.
    let file = proc_macro::Span::call_site().local_file().unwrap_or_default();
    let folder = file.parent().unwrap_or(std::path::Path::new(""));
    let plugin = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "plugin".to_owned());
    kernel::expand(arguments.into(), folder, &plugin).unwrap_or_else(|error| error.to_compile_error()).into()
}
