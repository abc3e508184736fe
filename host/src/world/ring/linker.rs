//! Linking of the interface `ring`, equivalent to generated bindings except for the result of `poll`: see
//! [`super::entries::Entries`].

use wasmtime::component::{HasData, Resource, ResourceType};

use super::super::bindings::kernelscript::host::types::{Error, Host as _};
use super::super::error::HostError;
use super::super::linker::Linker;
use super::super::state::State;
use super::{BatchHandle, RingHandle};

/// Name of the interface in the contract.
pub(super) const INTERFACE: &str = "kernelscript:host/ring@0.2.0";

/// Access to a plugin's state.
pub trait Host {
    /// Returns the state that calls operate on.
    fn state(&mut self) -> &mut State;
}

impl Host for &mut State {
    fn state(&mut self) -> &mut State {
        self
    }
}

/// Trait that the generated bindings require next to [`Host`]; nothing here needs the store.
pub trait HostWithStore<T>: HasData {}

impl<T, D: HasData + ?Sized> HostWithStore<T> for D {}

/// A list of borrowed rings.
type Rings = Vec<Resource<RingHandle>>;

/// Adds every function to a linker.
///
/// # Errors
/// If the interface is already defined.
pub fn add_to_linker<T: 'static, D>(
    linker: &mut Linker<T>,
    host: fn(&mut T) -> D::Data<'_>,
) -> wasmtime::Result<()>
where
    D: HasData,
    for<'a> D::Data<'a>: Host,
{
    let mut ring = linker.instance(INTERFACE)?;
    ring.resource("ring", ResourceType::host::<RingHandle>(), move |mut store, handle| {
        host(store.data_mut()).state().ring_drop(Resource::new_own(handle))
    })?;
    ring.resource("batch", ResourceType::host::<BatchHandle>(), move |mut store, handle| {
        host(store.data_mut()).state().batch_drop(Resource::new_own(handle))
    })?;
    ring.func_wrap("[static]ring.open", move |mut store, (name,): (String,)| {
        let mut host = host(store.data_mut());
        call_host(host.state(), |state| state.ring_open(name))
    })?;
    ring.func_wrap("[static]ring.open-perf-event-array", move |mut store, (name, bytes): (String, u32)| {
        let mut host = host(store.data_mut());
        call_host(host.state(), |state| state.ring_open_events(name, bytes))
    })?;
    type This = (Resource<RingHandle>,);
    ring.func_wrap("[method]ring.size", move |mut store, (this,): This| {
        Ok((host(store.data_mut()).state().ring_size(&this)?,))
    })?;
    ring.func_wrap("[method]ring.waiting", move |mut store, (this,): This| {
        Ok((host(store.data_mut()).state().ring_waiting(&this)?,))
    })?;
    ring.func_wrap("[method]ring.lost", move |mut store, (this,): This| {
        Ok((host(store.data_mut()).state().ring_lost(&this)?,))
    })?;
    ring.func_wrap("poll", move |mut store, (rings, timeout, most): (Rings, Option<u64>, u32)| {
        let mut host = host(store.data_mut());
        call_host(host.state(), |state| state.ring_poll(&rings, timeout, most))
    })?;
    type Batch = Resource<BatchHandle>;
    ring.func_wrap("[method]batch.put-back", move |mut store, (this, records): (Batch, Vec<u8>)| {
        let mut host = host(store.data_mut());
        call_host(host.state(), |state| state.batch_put_back(&this, &records))
    })
}

/// Calls the host function. An error is returned to the plugin or is a trap.
fn call_host<R>(
    state: &mut State,
    call: impl FnOnce(&mut State) -> Result<R, HostError>,
) -> wasmtime::Result<(Result<R, Error>,)> {
    match call(state) {
        Ok(result) => Ok((Ok(result),)),
        Err(error) => Ok((Err(state.convert_error(error)?),)),
    }
}
