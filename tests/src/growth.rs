//! Hosts that offer more than the contract has, in each way that it may grow (docs/contract.md).

use ks_host::{Host, RunOptions};
use wasmtime::component::{ComponentNamedList, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType};

use crate::plugins::{RunOutput, run_on};

/// A change of what a host offers.
pub type Change<T> = fn(&mut Linker<T>) -> wasmtime::Result<()>;

/// Each kind of addition, with an example.
pub fn additions<T: 'static>() -> [(&'static str, Change<T>); 4] {
    [
        ("an interface", |linker| offer::<T, (), (u32,)>(&mut of(linker, "later")?, "new")),
        ("a function", |linker| offer::<T, (u32,), (u32,)>(&mut of(linker, "clock")?, "later")),
        ("a resource", |linker| {
            let mut clock = of(linker, "clock")?;
            handle(&mut clock, "timer")?;
            offer::<T, (), (Resource<()>,)>(&mut clock, "[constructor]timer")
        }),
        ("methods", |linker| {
            let mut perf = of(linker, "perf")?;
            offer::<T, (u64,), (u64,)>(&mut perf, "[method]attachment.later")?;
            offer::<T, (), (u64,)>(&mut perf, "[static]attachment.later")
        }),
    ]
}

/// Runs a plugin on a host with all additions.
///
/// # Panics
/// If the plugin cannot be linked with them.
pub fn run_on_larger_host(host: Host, file: Vec<u8>, change: impl FnOnce(&mut RunOptions)) -> RunOutput {
    let host = host.with_offer(|linker| additions().into_iter().try_for_each(|(_, add)| add(linker)));
    run_on(&host, file, change)
}

/// Interface of the contract, by its name without package.
///
/// # Errors
/// Those of wasmtime.
pub fn of<'a, T: 'static>(linker: &'a mut Linker<T>, name: &str) -> wasmtime::Result<LinkerInstance<'a, T>> {
    let (package, version) = ks_wit::CONTRACT.split_once('@').expect("it has a version");
    linker.instance(&format!("{package}/{name}@{version}"))
}

/// Offers a resource that nobody makes.
///
/// # Errors
/// If the name is taken.
pub fn handle<T: 'static>(linker: &mut LinkerInstance<'_, T>, name: &str) -> wasmtime::Result<()> {
    linker.resource(name, ResourceType::host::<()>(), |_, _| Ok(()))
}

/// Offers a function that is never called.
///
/// # Errors
/// If the name is taken.
pub fn offer<T, P, R>(linker: &mut LinkerInstance<'_, T>, name: &str) -> wasmtime::Result<()>
where
    T: 'static,
    P: ComponentNamedList + Lift + 'static,
    R: ComponentNamedList + Lower + 'static,
{
    linker.func_wrap(name, |_, _: P| -> wasmtime::Result<R> { wasmtime::bail!("nothing calls it") })
}
