//! The functions of the world as a worker calls them: by number, with arguments and results in bytes.
//!
//! The broker runs no plugin: it has a store with the plugin's state, and no instance in it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;

use wasmtime::{AsContextMut as _, Store, StoreContextMut};

use super::direct::Direct;
use super::state::State;
use super::wire::{self, Input, Malformed, Wire};
use crate::host_bytes::HostBytes;
use crate::plugin::SharedMemory;

/// The number of a function in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Number(u32);

impl Number {
    pub(super) const WASI_WORDS: Number = Number(u32::MAX);
    pub(super) const WASI_WRITE: Number = Number(u32::MAX - 1);
    pub(super) const WASI_WARNING: Number = Number(u32::MAX - 2);
    pub(super) const WASI_WAIT: Number = Number(u32::MAX - 3);
    pub(super) const RING_WAIT: Number = Number(u32::MAX - 4);

    /// The number of the first function of the bindings; the others follow.
    pub(super) const FIRST: Number = Number(0);

    /// Returns the number after this one.
    pub(super) fn next(self) -> Number {
        Number(self.0 + 1)
    }
}

/// A function that takes and returns bytes.
type ServedFunction<T> =
    Box<dyn Fn(StoreContextMut<'_, T>, &mut Input<'_>) -> wasmtime::Result<Vec<u8>> + Send + Sync>;

/// The functions that a worker may call.
pub(crate) struct Served<T: 'static> {
    functions: BTreeMap<Number, ServedFunction<T>>,
    /// Those that a worker need not wait for.
    without_answer: BTreeSet<Number>,
}

impl<T> Default for Served<T> {
    fn default() -> Served<T> {
        Served { functions: BTreeMap::new(), without_answer: BTreeSet::new() }
    }
}

impl<T: 'static> Served<T> {
    pub(super) fn add(
        &mut self,
        number: Number,
        function: impl Fn(StoreContextMut<'_, T>, &mut Input<'_>) -> wasmtime::Result<Vec<u8>>
        + Send
        + Sync
        + 'static,
    ) {
        self.functions.insert(number, Box::new(function));
    }

    /// Lets a worker call a function without waiting for its end.
    pub(super) fn allow_tell(&mut self, number: Number) {
        self.without_answer.insert(number);
    }

    /// Adds a function that the contract does not have.
    pub(super) fn add_own<P: Wire, R: Wire>(
        &mut self,
        number: Number,
        function: impl Fn(&mut T, P) -> wasmtime::Result<R> + Send + Sync + 'static,
    ) {
        self.add(number, move |mut store, params| {
            let mut answer = Vec::new();
            function(store.data_mut(), wire::last(params)?)?.put(&mut answer);
            Ok(answer)
        });
    }

    /// Answers a call of a worker, whose arguments may take so many bytes of memory.
    ///
    /// # Errors
    /// The trap that ends the plugin; [`Malformed`] for a function that it does not import, or arguments that are
    /// none of that function.
    pub(crate) fn answer(&self, store: &mut Store<T>, call: &[u8], most: usize) -> wasmtime::Result<Vec<u8>> {
        let mut call = Input::new(call, most);
        let number = Number(u32::take(&mut call)?);
        let function = self.functions.get(&number).ok_or(Malformed)?;
        function(store.as_context_mut(), &mut call)
    }

    /// Executes a call that a worker does not wait for.
    ///
    /// # Errors
    /// As [`Served::answer`]; [`Malformed`] for a function that has an answer, or does more than it says at once.
    pub(crate) fn obey(&self, store: &mut Store<T>, call: &[u8], most: usize) -> wasmtime::Result<()> {
        let number = Number(u32::take(&mut Input::new(call, most))?);
        if !self.without_answer.contains(&number) {
            return Err(Malformed.into());
        }
        self.answer(store, call, most).map(drop)
    }
}

/// When a call without a result is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// Somebody sees what it does.
    Now,
    /// It prepares the next one.
    WithNext,
}

/// The connection of a worker to its broker.
pub(crate) trait Broker: Send {
    /// Sends a call and waits for its answer. Meanwhile the broker may ask for pages of maps, and pass on descriptors.
    ///
    /// # Errors
    /// The trap that ends the plugin.
    fn ask(&mut self, call: Vec<u8>, own: WorkerOwn<'_>) -> wasmtime::Result<Vec<u8>>;

    /// Sends a call without a result. A trap in it ends the plugin later.
    ///
    /// # Errors
    /// If there is no broker any more.
    fn tell(&mut self, call: Vec<u8>, when: When) -> wasmtime::Result<()>;
}

/// What a worker has itself.
pub(crate) struct WorkerOwn<'a> {
    pub(crate) memory: Option<&'a mut dyn MapPages>,
    pub(crate) direct: &'a mut Direct,
    pub(crate) host_bytes: &'a HostBytes,
}

/// A plugin's memory that pages of maps can be mapped into.
pub(crate) trait MapPages: Send {
    /// Maps the first `bytes` bytes of a map, once. Returns their address; none if there is no room.
    fn map_pages(&mut self, name: &str, bytes: usize, from: BorrowedFd<'_>) -> Option<u32>;
}

impl MapPages for SharedMemory {
    fn map_pages(&mut self, name: &str, bytes: usize, from: BorrowedFd<'_>) -> Option<u32> {
        SharedMemory::map_pages(self, name, bytes, from)
    }
}

impl State {
    /// Has a call answered by the broker.
    ///
    /// # Errors
    /// The trap that ends the plugin.
    pub(super) fn ask_broker(
        &mut self,
        number: Number,
        arguments: impl FnOnce(&mut Vec<u8>),
    ) -> wasmtime::Result<Vec<u8>> {
        let call = call_of(number, arguments);
        let broker = self.broker.as_mut().ok_or_else(no_broker)?;
        let own = WorkerOwn {
            memory: self.shared.as_mut().map(|memory| &mut **memory as &mut dyn MapPages),
            direct: &mut self.direct,
            host_bytes: &self.host_bytes,
        };
        broker.ask(call, own)
    }

    /// Has a call executed by the broker, without waiting for its end.
    ///
    /// # Errors
    /// If there is no broker any more.
    pub(super) fn tell_broker(
        &mut self,
        number: Number,
        when: When,
        arguments: impl FnOnce(&mut Vec<u8>),
    ) -> wasmtime::Result<()> {
        let call = call_of(number, arguments);
        self.broker.as_mut().ok_or_else(no_broker)?.tell(call, when)
    }
}

fn call_of(number: Number, arguments: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut call = Vec::new();
    number.0.put(&mut call);
    arguments(&mut call);
    call
}

fn no_broker() -> wasmtime::Error {
    wasmtime::Error::msg("ks-host has a defect: there is no broker")
}
