//! A wrapper of wasmtime's linker that sees every function of the world. Per run, a call is answered by the
//! host, answered by the host and recorded, or answered from a recording.
//!
//! The bindings refer to wasmtime by the path of [`interposed`], so that every function they link passes
//! through here. The choice is made when a plugin is linked: in a run that is not recorded, the functions are
//! exactly those of wasmtime's own linker. Only functions that the plugin imports are defined: most import a
//! fifth of them, and to define them all took 4% of a start.

use std::collections::BTreeSet;
use std::sync::Arc;

use wasmtime::component::{ComponentNamedList, InstancePre, Lift, Lower, Resource, ResourceType};
use wasmtime::{AsContextMut as _, StoreContextMut};

use super::state::State;
use super::value::{Handles, Recorded as _, RecordedList};
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

/// Source of the answers to a plugin's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The host's functions, directly.
    Host,
    /// The host's functions; each call is recorded with its answer.
    Recorded,
    /// A recording of an earlier run.
    Replayed,
}

/// Wraps wasmtime's `Linker`, with the methods that the bindings use.
pub struct Linker<T: 'static> {
    inner: wasmtime::component::Linker<T>,
    answers: Answers,
    imported: Arc<BTreeSet<String>>,
    state: fn(&mut T) -> &mut State,
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
        Linker { inner, answers, imported, state }
    }

    /// Returns the wrapped linker.
    pub(super) fn into_inner(self) -> wasmtime::component::Linker<T> {
        self.inner
    }

    /// Defines an instance, as wasmtime's `Linker::instance`.
    ///
    /// # Errors
    /// Those of wasmtime.
    pub fn instance(&mut self, name: &str) -> wasmtime::Result<LinkerInstance<'_, T>> {
        Ok(LinkerInstance {
            inner: self.inner.instance(name)?,
            interface: interface_name(name).to_owned(),
            answers: self.answers,
            imported: Arc::clone(&self.imported),
            state: self.state,
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
        self.inner.instantiate_pre(component)
    }
}

/// The host's implementation of a function.
type HostFunction<T, P, R> = Box<dyn Fn(StoreContextMut<'_, T>, P) -> wasmtime::Result<R> + Send + Sync>;

/// Wraps wasmtime's `LinkerInstance`, with the methods that the bindings use.
pub struct LinkerInstance<'a, T: 'static> {
    inner: wasmtime::component::LinkerInstance<'a, T>,
    interface: String,
    answers: Answers,
    imported: Arc<BTreeSet<String>>,
    state: fn(&mut T) -> &mut State,
}

impl<T: 'static> LinkerInstance<'_, T> {
    /// Defines a function, as wasmtime's `LinkerInstance::func_wrap`.
    ///
    /// # Errors
    /// Those of wasmtime.
    pub(crate) fn func_wrap<F, P, R>(&mut self, name: &str, call: F) -> wasmtime::Result<()>
    where
        F: Fn(StoreContextMut<'_, T>, P) -> wasmtime::Result<R> + Send + Sync + 'static,
        P: ComponentNamedList + Lift + RecordedList + 'static,
        R: ComponentNamedList + Lower + RecordedList + 'static,
    {
        let function = format!("{}.{name}", self.interface);
        if !self.imported.contains(&function) {
            return Ok(());
        }
        let (answers, state) = (self.answers, self.state);
        if answers == Answers::Host || self.interface == OF_THE_FILE {
            return self.inner.func_wrap(name, call);
        }
        // Boxed, so that the following closure is compiled once for all functions of one type.
        let call: HostFunction<T, P, R> = Box::new(call);
        self.inner.func_wrap(name, move |mut store, params: P| {
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

    /// Defines a resource, as wasmtime's `LinkerInstance::resource`.
    ///
    /// # Errors
    /// Those of wasmtime.
    pub(crate) fn resource<F>(&mut self, name: &str, ty: ResourceType, drop: F) -> wasmtime::Result<()>
    where
        F: Fn(StoreContextMut<'_, T>, u32) -> wasmtime::Result<()> + Send + Sync + 'static,
    {
        let (answers, state) = (self.answers, self.state);
        if answers == Answers::Host {
            return self.inner.resource(name, ty, drop);
        }
        let function = format!("{}.[resource-drop]{name}", self.interface);
        self.inner.resource(name, ty, move |mut store, own| {
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
}
