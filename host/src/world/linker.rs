//! The linker that the bindings fill, which knows every function of the world: here a call is answered by the host
//! alone, answered and written down, or answered by a record.
//!
//! The bindings name wasmtime by the path of [`interposed`], so nothing that they link can miss this. Who answers is
//! decided when a plugin is linked: a run that is not recorded calls the very functions that wasmtime's own linker
//! would.

use wasmtime::component::{ComponentNamedList, InstancePre, Lift, Lower, Resource, ResourceType};
use wasmtime::{AsContextMut as _, StoreContextMut};

use super::state::State;
use super::value::{Handles, Recorded as _, RecordedList};
use crate::plugin::interface_name;
use crate::record::Answer;

/// wasmtime, with the linker of this module in the place of its own.
pub(crate) mod interposed {
    pub(crate) use wasmtime::*;

    /// As wasmtime's.
    pub(crate) mod component {
        pub(crate) use wasmtime::component::*;

        pub(crate) use crate::world::linker::{Linker, LinkerInstance};
        pub(crate) use crate::world::value::flags;
    }
}

/// The interface that tells of the plugin's own file: that is no part of a run, so it stands in no record.
const OF_THE_FILE: &str = "layouts";

/// Who answers the calls of a plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answers {
    /// The host.
    Host,
    /// The host, and each call is written down with its answer.
    Recorded,
    /// A record.
    Replayed,
}

/// As wasmtime's, of which it has the method that bindings use.
pub struct Linker<T: 'static> {
    inner: wasmtime::component::Linker<T>,
    answers: Answers,
    state: fn(&mut T) -> &mut State,
}

impl<T: 'static> Linker<T> {
    /// Around an empty linker; `state` finds the state of a plugin.
    pub(super) fn new(
        inner: wasmtime::component::Linker<T>,
        answers: Answers,
        state: fn(&mut T) -> &mut State,
    ) -> Linker<T> {
        Linker { inner, answers, state }
    }

    /// The linker inside.
    pub(super) fn into_inner(self) -> wasmtime::component::Linker<T> {
        self.inner
    }

    /// As wasmtime's.
    ///
    /// # Errors
    /// As wasmtime's.
    pub fn instance(&mut self, name: &str) -> wasmtime::Result<LinkerInstance<'_, T>> {
        Ok(LinkerInstance {
            inner: self.inner.instance(name)?,
            interface: interface_name(name).to_owned(),
            answers: self.answers,
            state: self.state,
        })
    }

    /// As wasmtime's.
    ///
    /// # Errors
    /// As wasmtime's.
    #[expect(dead_code, reason = "the bindings have a constructor that is not used")]
    pub(crate) fn instantiate_pre(
        &self,
        component: &wasmtime::component::Component,
    ) -> wasmtime::Result<InstancePre<T>> {
        self.inner.instantiate_pre(component)
    }
}

/// What answers a call.
type HostFunction<T, P, R> = Box<dyn Fn(StoreContextMut<'_, T>, P) -> wasmtime::Result<R> + Send + Sync>;

/// As wasmtime's, of which it has the methods that bindings use.
pub struct LinkerInstance<'a, T: 'static> {
    inner: wasmtime::component::LinkerInstance<'a, T>,
    interface: String,
    answers: Answers,
    state: fn(&mut T) -> &mut State,
}

impl<T: 'static> LinkerInstance<'_, T> {
    /// As wasmtime's.
    ///
    /// # Errors
    /// As wasmtime's.
    pub(crate) fn func_wrap<F, P, R>(&mut self, name: &str, call: F) -> wasmtime::Result<()>
    where
        F: Fn(StoreContextMut<'_, T>, P) -> wasmtime::Result<R> + Send + Sync + 'static,
        P: ComponentNamedList + Lift + RecordedList + 'static,
        R: ComponentNamedList + Lower + RecordedList + 'static,
    {
        let (answers, state) = (self.answers, self.state);
        if answers == Answers::Host || self.interface == OF_THE_FILE {
            return self.inner.func_wrap(name, call);
        }
        let function = format!("{}.{name}", self.interface);
        // What follows is compiled once for all functions of one type.
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

    /// As wasmtime's.
    ///
    /// # Errors
    /// As wasmtime's.
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
                return state(store.data_mut()).replayed(&function, &[own.into()]).map(|_| ());
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
