//! A wrapper of wasmtime's linker that sees every function of the world. Per run, a call is answered by the
//! host, answered by the host and recorded, answered from a recording, or by the broker, another process.
//!
//! ```text
//! the bindings -> Linker -> wasmtime's linker    (the plugin runs in this process)
//!                       \-> Served               (the broker: a worker calls by message)
//! ```
//!
//! The bindings refer to wasmtime by the path of [`interposed`], so that every function they link passes
//! through here. The choice is made when a plugin is linked: in a run that is not recorded, the functions are
//! exactly those of wasmtime's own linker. Only functions that the plugin imports are defined: most import a
//! fifth of them, and to define them all took 4% of a start.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wasmtime::component::{ComponentNamedList, InstancePre, Lift, Lower, Resource, ResourceType};
use wasmtime::{AsContextMut as _, StoreContextMut};

use super::direct::{answered_here, own_handle};
use super::served::{Number, Served, When};
use super::state::State;
use super::value::{Handles, Recorded as _, RecordedList};
use super::wire::{self, Wire};
use crate::plugin::interface_name;
use crate::record::Answer;

/// The `wasmtime` crate with this module's linker substituted.
pub(crate) mod interposed {
    pub(crate) use wasmtime::*;

    /// `wasmtime::component` with this module's linker substituted.
    pub(crate) mod component {
        pub(crate) use wasmtime::component::*;

        pub(crate) use crate::world::linker::{Linker, LinkerInstance};
        pub(crate) use crate::world::value::flags;
    }
}

/// The interface about the plugin's own file, which is not part of a run: recordings do not contain its
/// calls.
const OF_THE_FILE: &str = "layouts";

/// The function before which a worker stops the counters that it has.
const DISABLE: &str = "perf.[method]attachment.disable";

/// Whether a function has no result and is one for whose end a worker does not wait: text, and what options say before
/// they are used.
fn has_no_answer(function: &str) -> bool {
    const OF_CONSOLE: [&str; 7] = ["line", "print", "warn", "fail", "info", "debug", "warn-once"];
    match function.split_once('.') {
        Some(("console", name)) => OF_CONSOLE.contains(&name),
        Some(("perf", name)) => name.starts_with("[method]options."),
        _ => false,
    }
}

/// Resources that hold nothing but memory of the broker.
const LET_GO: [&str; 3] =
    ["perf.[resource-drop]event", "perf.[resource-drop]options", "console.[resource-drop]table"];

/// Source of the answers to a plugin's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The host's functions, directly.
    Host,
    /// The host's functions; each call is recorded with its answer.
    Recorded,
    /// A recording of an earlier run.
    Replayed,
    /// The broker of this worker.
    Broker,
}

/// Wraps wasmtime's `Linker`, with the methods that the bindings use.
pub struct Linker<T: 'static> {
    to: Destination<T>,
    answers: Answers,
    imported: Arc<BTreeSet<String>>,
    state: fn(&mut T) -> &mut State,
    /// Functions that were defined or left out so far: the number of the next one in messages.
    seen: Number,
    /// In a worker, the numbers of the functions that it imports.
    numbers: Numbers,
}

/// Numbers of functions in messages, for example of `perf.[method]attachment.read`.
pub(crate) type Numbers = BTreeMap<String, Number>;

enum Destination<T: 'static> {
    Engine(Box<wasmtime::component::Linker<T>>),
    Served(Served<T>),
}

impl<T: 'static> Linker<T> {
    /// Wraps an empty linker for a plugin that imports these functions, for example
    /// `perf.[static]event.named`; `state` returns a plugin's state.
    pub(super) fn new(
        inner: wasmtime::component::Linker<T>,
        answers: Answers,
        imported: Arc<BTreeSet<String>>,
        state: fn(&mut T) -> &mut State,
    ) -> Linker<T> {
        Linker {
            to: Destination::Engine(Box::new(inner)),
            answers,
            imported,
            state,
            seen: Number::FIRST,
            numbers: Numbers::new(),
        }
    }

    /// Collects functions for a worker whose plugin imports these interfaces, for example `perf`.
    pub(super) fn serving(
        answers: Answers,
        interfaces: Arc<BTreeSet<String>>,
        state: fn(&mut T) -> &mut State,
    ) -> Linker<T> {
        Linker {
            to: Destination::Served(Served::default()),
            answers,
            imported: interfaces,
            state,
            seen: Number::FIRST,
            numbers: Numbers::new(),
        }
    }

    /// Returns the wrapped linker, with the numbers of a worker's functions; none for functions that are served.
    pub(super) fn into_inner(self) -> Option<(wasmtime::component::Linker<T>, Numbers)> {
        match self.to {
            Destination::Engine(inner) => Some((*inner, self.numbers)),
            Destination::Served(_) => None,
        }
    }

    /// Returns the functions that are served; none if the plugin is linked here.
    pub(super) fn into_served(self) -> Option<Served<T>> {
        match self.to {
            Destination::Engine(_) => None,
            Destination::Served(served) => Some(served),
        }
    }

    /// Defines an instance, as wasmtime's `Linker::instance`.
    ///
    /// # Errors
    /// Those of wasmtime.
    pub fn instance(&mut self, name: &str) -> wasmtime::Result<LinkerInstance<'_, T>> {
        let to = match &mut self.to {
            Destination::Engine(inner) => InstanceDestination::Engine(inner.instance(name)?),
            Destination::Served(served) => InstanceDestination::Served(served),
        };
        Ok(LinkerInstance {
            to,
            interface: interface_name(name).to_owned(),
            answers: self.answers,
            imported: Arc::clone(&self.imported),
            state: self.state,
            seen: &mut self.seen,
            numbers: &mut self.numbers,
        })
    }

    /// Prepares an instantiation, as wasmtime's `Linker::instantiate_pre`.
    ///
    /// # Errors
    /// Those of wasmtime.
    #[expect(dead_code, reason = "the bindings have a constructor that is not used")]
    pub(crate) fn instantiate_pre(
        &self,
        component: &wasmtime::component::Component,
    ) -> wasmtime::Result<InstancePre<T>> {
        match &self.to {
            Destination::Engine(inner) => inner.instantiate_pre(component),
            Destination::Served(_) => Err(wasmtime::Error::msg("a worker instantiates the component")),
        }
    }
}

/// The host's implementation of a function.
type HostFunction<T, P, R> = Box<dyn Fn(StoreContextMut<'_, T>, P) -> wasmtime::Result<R> + Send + Sync>;

/// Wraps wasmtime's `LinkerInstance`, with the methods that the bindings use.
pub struct LinkerInstance<'a, T: 'static> {
    to: InstanceDestination<'a, T>,
    interface: String,
    answers: Answers,
    imported: Arc<BTreeSet<String>>,
    state: fn(&mut T) -> &mut State,
    seen: &'a mut Number,
    numbers: &'a mut Numbers,
}

enum InstanceDestination<'a, T: 'static> {
    Engine(wasmtime::component::LinkerInstance<'a, T>),
    Served(&'a mut Served<T>),
}

impl<T: 'static> LinkerInstance<'_, T> {
    /// Defines a function, as wasmtime's `LinkerInstance::func_wrap`.
    ///
    /// # Errors
    /// Those of wasmtime.
    pub(crate) fn func_wrap<F, P, R>(&mut self, name: &str, call: F) -> wasmtime::Result<()>
    where
        F: Fn(StoreContextMut<'_, T>, P) -> wasmtime::Result<R> + Send + Sync + 'static,
        P: ComponentNamedList + Lift + RecordedList + Wire + 'static,
        R: ComponentNamedList + Lower + RecordedList + Wire + 'static,
    {
        let number = self.next_number();
        let function = format!("{}.{name}", self.interface);
        let state = self.state;
        match &mut self.to {
            InstanceDestination::Served(served) => {
                if self.imported.contains(&self.interface) {
                    // Boxed, here and below, so that what calls it is compiled once for all functions of one type.
                    let call: HostFunction<T, P, R> = Box::new(call);
                    if has_no_answer(&function) {
                        served.allow_tell(number);
                    }
                    let call = answered(self.answers, &self.interface, function, state, call);
                    served.add(number, move |store, params| {
                        let mut answer = Vec::new();
                        call(store, wire::last(params)?)?.put(&mut answer);
                        Ok(answer)
                    });
                }
                Ok(())
            }
            InstanceDestination::Engine(_) if !self.imported.contains(&function) => Ok(()),
            InstanceDestination::Engine(inner) => match self.answers {
                Answers::Host => inner.func_wrap(name, call),
                Answers::Broker if let Some(is_direct) = answered_here(&function) => {
                    inner.func_wrap(name, move |mut store: StoreContextMut<'_, T>, params: P| {
                        let host = state(store.data_mut());
                        if is_direct(&host.direct, params.handle()) {
                            return call(store, params);
                        }
                        Ok(wire::read::<R>(&host.ask_broker(number, |call| params.put(call))?)?)
                    })
                }
                Answers::Broker if has_no_answer(&function) => {
                    let is_printed = self.interface == "console";
                    let when = if is_printed { When::Now } else { When::WithNext };
                    inner.func_wrap(name, move |mut store, params: P| {
                        let host = state(store.data_mut());
                        // What the kernel half prints stands between what the plugin prints before and after it.
                        if host.prints_in_order && is_printed {
                            return Ok(wire::read::<R>(&host.ask_broker(number, |call| params.put(call))?)?);
                        }
                        host.tell_broker(number, when, |call| params.put(call))?;
                        Ok(wire::read::<R>(&[])?)
                    })
                }
                Answers::Broker => {
                    let stops = function == DISABLE;
                    self.numbers.insert(function, number);
                    inner.func_wrap(name, move |mut store, params: P| {
                        let host = state(store.data_mut());
                        params.handle().filter(|_| stops).into_iter().for_each(|it| host.direct.stop(it));
                        let answer = host.ask_broker(number, |call| params.put(call))?;
                        Ok(wire::read::<R>(&answer)?)
                    })
                }
                answers => {
                    let call: HostFunction<T, P, R> = Box::new(call);
                    let call = answered(answers, &self.interface, function, state, call);
                    inner.func_wrap(name, call)
                }
            },
        }
    }

    /// Defines a resource, as wasmtime's `LinkerInstance::resource`.
    ///
    /// # Errors
    /// Those of wasmtime.
    pub(crate) fn resource<F>(&mut self, name: &str, ty: ResourceType, drop: F) -> wasmtime::Result<()>
    where
        F: Fn(StoreContextMut<'_, T>, u32) -> wasmtime::Result<()> + Send + Sync + 'static,
    {
        let number = self.next_number();
        let (answers, state) = (self.answers, self.state);
        let drop = move |function: String| -> HostFunction<T, u32, ()> {
            match answers {
                Answers::Host | Answers::Broker => Box::new(drop),
                Answers::Recorded | Answers::Replayed => recorded_drop(answers, function, state, drop),
            }
        };
        let function = format!("{}.[resource-drop]{name}", self.interface);
        match &mut self.to {
            InstanceDestination::Served(served) => {
                if self.imported.contains(&self.interface) {
                    if LET_GO.contains(&function.as_str()) {
                        served.allow_tell(number);
                    }
                    let drop = drop(function);
                    served.add(number, move |store, own| drop(store, wire::last(own)?).map(|()| Vec::new()));
                }
                Ok(())
            }
            InstanceDestination::Engine(inner) => match answers {
                Answers::Broker if LET_GO.contains(&function.as_str()) => {
                    inner.resource(name, ty, move |mut store, own| {
                        state(store.data_mut()).tell_broker(number, When::WithNext, |call| own.put(call))
                    })
                }
                Answers::Broker => {
                    let drop = drop(function);
                    inner.resource(name, ty, move |mut store, handle| {
                        if let Some(own) = own_handle(handle) {
                            return drop(store, own);
                        }
                        let host = state(store.data_mut());
                        host.direct.forget(handle);
                        let answer = host.ask_broker(number, |call| handle.put(call))?;
                        Ok(wire::read(&answer)?)
                    })
                }
                _ => inner.resource(name, ty, drop(function)),
            },
        }
    }

    /// Returns the number of a function in messages. Both sides link the same bindings in the same order.
    fn next_number(&mut self) -> Number {
        let number = *self.seen;
        *self.seen = number.next();
        number
    }
}

/// Returns what answers the calls of a function: the host, and a recording sees it; or a recording.
fn answered<T, P, R>(
    answers: Answers,
    interface: &str,
    function: String,
    state: fn(&mut T) -> &mut State,
    call: HostFunction<T, P, R>,
) -> HostFunction<T, P, R>
where
    T: 'static,
    P: RecordedList + 'static,
    R: RecordedList + 'static,
{
    if matches!(answers, Answers::Host | Answers::Broker) || interface == OF_THE_FILE {
        return call;
    }
    Box::new(move |mut store, params| {
        if answers == Answers::Replayed {
            let args = params.write_all(&mut Handles::AsTheyAre);
            let host = state(store.data_mut());
            return match host.replayed(&function, &args)? {
                Answer::Own => call(store, params),
                Answer::Recorded { line, answer } => R::read_answer(&answer)
                    .map_err(|misfit| host.misfit(line, &function, &misfit.to_string())),
            };
        }
        let recorder = state(store.data_mut()).recorder()?;
        let args = params.write_all(&mut recorder.handles);
        let result = call(store.as_context_mut(), params);
        let recorder = state(store.data_mut()).recorder()?;
        let answer = match &result {
            Ok(results) => Ok(results.write_all(&mut recorder.handles).pop().unwrap_or_default()),
            Err(trap) => Err(trap.to_string()),
        };
        recorder.recording.call(&function, args, answer)?;
        result
    })
}

/// As [`answered`], for the end of a handle.
fn recorded_drop<T: 'static>(
    answers: Answers,
    function: String,
    state: fn(&mut T) -> &mut State,
    drop: impl Fn(StoreContextMut<'_, T>, u32) -> wasmtime::Result<()> + Send + Sync + 'static,
) -> HostFunction<T, u32, ()> {
    Box::new(move |mut store, own| {
        if answers == Answers::Replayed {
            return match state(store.data_mut()).replayed(&function, &[own.into()])? {
                Answer::Own => drop(store, own),
                Answer::Recorded { .. } => Ok(()),
            };
        }
        let recorder = state(store.data_mut()).recorder()?;
        let handle = Resource::<()>::new_own(own).write(&mut recorder.handles);
        let result = drop(store.as_context_mut(), own);
        let recorder = state(store.data_mut()).recorder()?;
        let answer = result.as_ref().map(|()| serde_json::Value::Null).map_err(ToString::to_string);
        recorder.recording.call(&function, vec![handle], answer)?;
        result
    })
}
