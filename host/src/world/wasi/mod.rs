//! The part of WASI 0.2 that standard libraries import, so that programs built with one can be plugins.
//!
//! ```text
//! random, clocks, standard output and error, arguments, exit   served by equivalents of the contract
//! files, network, environment, standard input, anything else   refused with the function's error (`refusal`)
//! ```
//!
//! A plugin gains no authority by it: the contract has equivalents for everything that is served. In: the
//! imports of a component whose names begin with `wasi:`, of any version 0.2. The functions are defined by
//! the types in the component, so no definition of WASI is needed here. Source: the WASI repository, wasip2,
//! 0.2.0 to 0.2.9.

pub(crate) mod effects;
mod refusal;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use wasmtime::component::types::{ComponentFunc, ComponentItem};
use wasmtime::component::{Component, Linker, Resource, ResourceDynamic, ResourceType, Val};
use wasmtime::{AsContextMut, StoreContextMut};

use super::bindings::kernelscript::host::clock::Host as _;
use super::state::State;
use crate::plugin::{Abort, Exit};
use crate::processes;

/// Upper limit of random bytes per call. Guards the host's memory.
const MAX_RANDOM_BYTES: u64 = 64 << 10;

/// Bytes that a stream accepts in one write. They are lifted one by one.
const WRITE_BYTES: u64 = 4 << 10;

/// Names of the WASI resources that exist; others are never created.
const RESOURCES: [&str; 4] = ["output-stream", "input-stream", "pollable", "network"];

/// Host side of a WASI handle.
enum Handle {
    Output,
    Error,
    Input,
    /// A pollable that is ready from this time on; none for at once.
    Timer(Option<Instant>),
    Network,
}

/// Returns whether an import is of WASI 0.2.
pub(crate) fn is_wasi(import: &str) -> bool {
    import.starts_with("wasi:")
        && import.split_once('@').is_some_and(|(_, version)| version.starts_with("0.2."))
}

/// Defines a component's imports of WASI.
///
/// # Errors
/// Two imports of one name, which a valid component does not have.
pub(crate) fn add(linker: &mut Linker<State>, component: &Component) -> wasmtime::Result<()> {
    let engine = component.engine();
    for (import, item) in component.component_type().imports(engine).filter(|(import, _)| is_wasi(import)) {
        let ComponentItem::ComponentInstance(interface) = item.ty else { continue };
        let short = import.trim_start_matches("wasi:").split('@').next().unwrap_or_default();
        let mut instance = linker.instance(import)?;
        for (name, item) in interface.exports(engine) {
            match item.ty {
                ComponentItem::Resource(_) => instance.resource(name, resource(name), |mut store, rep| {
                    store.data_mut().table.delete(Resource::<Handle>::new_own(rep))?;
                    Ok(())
                })?,
                ComponentItem::ComponentFunc(_) => {
                    let what = format!("{short}.{name}");
                    instance.func_new(name, move |mut store, ty, params, results| {
                        store.data_mut().called();
                        let params = params.iter().map(|param| denoted(&mut store, param));
                        let params = params.collect::<wasmtime::Result<Vec<Val>>>()?;
                        let answer = match serve(&mut store, &what, &params)? {
                            Some(answer) => Some(answer),
                            None => refused(&mut store, &what, &ty)?,
                        };
                        if let (Some(result), Some(answer)) = (results.first_mut(), answer) {
                            *result = answer;
                        }
                        Ok(())
                    })?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn resource(name: &str) -> ResourceType {
    ResourceType::host_dynamic(kind(name))
}

/// Returns a type number: one for each existing resource, and one for all others.
fn kind(name: &str) -> u32 {
    RESOURCES.iter().position(|known| *known == name).unwrap_or(RESOURCES.len()) as u32
}

/// Returns the refusal of a function, and reports it once on standard error.
///
/// # Errors
/// A trap if the result type cannot express a refusal.
fn refused(
    store: &mut StoreContextMut<'_, State>,
    what: &str,
    ty: &ComponentFunc,
) -> wasmtime::Result<Option<Val>> {
    let Some(result) = ty.results().next() else { return Ok(None) };
    let message = |what: &str| format!("plugins have no `wasi:{what}`: use the contract of the host instead");
    match refusal::of(&result) {
        Some(refusal) => {
            // An empty answer is not reported: standard libraries make these calls at every start.
            if let Val::Result(_) = refusal {
                store.data_mut().wasi_warning(&message(what))?;
            }
            Ok(Some(refusal))
        }
        None => Err(wasmtime::Error::new(Abort(message(what)))),
    }
}

/// Serves a call; none if it is to be refused.
///
/// # Errors
/// A trap or the exit of the plugin.
fn serve(
    store: &mut StoreContextMut<'_, State>,
    what: &str,
    params: &[Val],
) -> wasmtime::Result<Option<Val>> {
    let random = || Ok::<_, wasmtime::Error>(Val::U64(u64::from_le_bytes(random_bytes()?)));
    Ok(Some(match (what, params) {
        ("random/random.get-random-u64" | "random/insecure.get-insecure-random-u64", _) => random()?,
        ("random/insecure-seed.insecure-seed", _) => Val::Tuple(vec![random()?, random()?]),
        ("random/random.get-random-bytes" | "random/insecure.get-insecure-random-bytes", [Val::U64(len)]) => {
            random_list(*len)?
        }
        ("clocks/monotonic-clock.now", _) => Val::U64(store.data_mut().now()?),
        ("clocks/monotonic-clock.resolution", _) => Val::U64(1),
        ("clocks/monotonic-clock.subscribe-duration", [Val::U64(nanoseconds)]) => {
            timer(store, Duration::from_nanos(*nanoseconds))?
        }
        ("clocks/monotonic-clock.subscribe-instant", [Val::U64(time)]) => {
            let left = time.saturating_sub(store.data_mut().now()?);
            timer(store, Duration::from_nanos(left))?
        }
        ("clocks/wall-clock.now", _) => {
            datetime(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
        }
        ("clocks/wall-clock.resolution", _) => datetime(Duration::from_nanos(1)),
        ("cli/stdout.get-stdout", _) => make(store, Handle::Output, "output-stream")?,
        ("cli/stderr.get-stderr", _) => make(store, Handle::Error, "output-stream")?,
        ("cli/stdin.get-stdin", _) => make(store, Handle::Input, "input-stream")?,
        ("sockets/instance-network.instance-network", _) => make(store, Handle::Network, "network")?,
        ("cli/environment.get-arguments", _) => {
            Val::List(store.data_mut().wasi_words()?.into_iter().map(Val::String).collect())
        }
        ("cli/exit.exit", [Val::Result(status)]) => return Err(exit(u8::from(status.is_err()))),
        ("cli/exit.exit-with-code", [Val::U8(code)]) => return Err(exit(*code)),
        ("io/streams.[method]output-stream.check-write", _) => ok(Some(Val::U64(WRITE_BYTES))),
        (
            "io/streams.[method]output-stream.write"
            | "io/streams.[method]output-stream.blocking-write-and-flush",
            [Val::U32(stream), Val::List(bytes)],
        ) => {
            write(store, *stream, bytes)?;
            ok(None)
        }
        ("io/streams.[method]output-stream.flush" | "io/streams.[method]output-stream.blocking-flush", _) => {
            ok(None)
        }
        ("io/streams.[method]output-stream.subscribe" | "io/streams.[method]input-stream.subscribe", _) => {
            make(store, Handle::Timer(None), "pollable")?
        }
        ("io/poll.[method]pollable.ready", [Val::U32(one)]) => {
            Val::Bool(deadline(store.data(), *one)?.is_none_or(|deadline| deadline <= Instant::now()))
        }
        // Without a result: nobody asks which pollable is ready.
        ("io/poll.[method]pollable.block", one @ [_]) => poll(store, one)?,
        ("io/poll.poll", [Val::List(all)]) => poll(store, all)?,
        _ => return Ok(None),
    }))
}

fn ok(value: Option<Val>) -> Val {
    Val::Result(Ok(value.map(Box::new)))
}

fn exit(code: u8) -> wasmtime::Error {
    wasmtime::Error::new(Exit(code))
}

fn random_bytes<const N: usize>() -> wasmtime::Result<[u8; N]> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}

fn random_list(len: u64) -> wasmtime::Result<Val> {
    if len > MAX_RANDOM_BYTES {
        let message =
            format!("{len} random bytes are wanted in one call; a plugin gets at most {MAX_RANDOM_BYTES}");
        return Err(wasmtime::Error::new(Abort(message)));
    }
    let mut bytes = vec![0; len as usize];
    fill(&mut bytes)?;
    Ok(Val::List(bytes.into_iter().map(Val::U8).collect()))
}

fn fill(bytes: &mut [u8]) -> wasmtime::Result<()> {
    processes::sys::fill_randomly(bytes)
        .map_err(|errno| wasmtime::Error::msg(format!("getrandom: {}", errno.desc())))
}

fn datetime(time: Duration) -> Val {
    Val::Record(vec![
        ("seconds".to_owned(), Val::U64(time.as_secs())),
        ("nanoseconds".to_owned(), Val::U32(time.subsec_nanos())),
    ])
}

/// Creates a handle, which counts for the plugin's limit.
fn make(store: &mut StoreContextMut<'_, State>, handle: Handle, name: &str) -> wasmtime::Result<Val> {
    let rep = store.data_mut().table.push(handle)?.rep();
    let any = ResourceDynamic::new_own(rep, kind(name)).try_into_resource_any(store.as_context_mut())?;
    Ok(Val::Resource(any))
}

/// Converts an argument: handles become the numbers that they denote. This also ends the borrow of a borrowed
/// handle, as the canonical ABI requires of the callee.
fn denoted(store: &mut StoreContextMut<'_, State>, param: &Val) -> wasmtime::Result<Val> {
    Ok(match param {
        Val::Resource(any) => {
            Val::U32(ResourceDynamic::try_from_resource_any(*any, store.as_context_mut())?.rep())
        }
        Val::List(all) if matches!(all.first(), Some(Val::Resource(_))) => {
            Val::List(all.iter().map(|one| denoted(store, one)).collect::<wasmtime::Result<_>>()?)
        }
        Val::Option(Some(one)) => Val::Option(Some(Box::new(denoted(store, one)?))),
        other => other.clone(),
    })
}

fn handle(state: &State, rep: u32) -> wasmtime::Result<&Handle> {
    Ok(state.table.get(&Resource::<Handle>::new_borrow(rep))?)
}

/// Creates a pollable that is ready after a duration. If the clock cannot represent the time, it is ready in
/// 136 years.
fn timer(store: &mut StoreContextMut<'_, State>, time: Duration) -> wasmtime::Result<Val> {
    let far = || Instant::now() + Duration::from_secs(u64::from(u32::MAX));
    let deadline = Instant::now().checked_add(time).unwrap_or_else(far);
    make(store, Handle::Timer(Some(deadline)), "pollable")
}

fn deadline(state: &State, rep: u32) -> wasmtime::Result<Option<Instant>> {
    Ok(match handle(state, rep)? {
        Handle::Timer(deadline) => *deadline,
        _ => None,
    })
}

/// Waits until one of the pollables is ready or the plugin is to stop. A request to stop makes all of them
/// ready.
fn poll(store: &mut StoreContextMut<'_, State>, all: &[Val]) -> wasmtime::Result<Val> {
    let mut deadlines = Vec::new();
    for one in all {
        if let Val::U32(one) = one {
            deadlines.push(deadline(store.data(), *one)?);
        }
    }
    let now = Instant::now();
    let first = deadlines.iter().map(|deadline| deadline.unwrap_or(now)).min();
    let left = first.map(|first| first.saturating_duration_since(now)).filter(|left| !left.is_zero());
    let stopping = store.data_mut().wasi_wait(left)?;
    let now = Instant::now();
    let is_ready = |deadline: &Option<Instant>| stopping || deadline.is_none_or(|deadline| deadline <= now);
    let ready = (0_u32..).zip(&deadlines).filter(|(_, deadline)| is_ready(deadline));
    Ok(Val::List(ready.map(|(at, _)| Val::U32(at)).collect()))
}

fn write(store: &mut StoreContextMut<'_, State>, stream: u32, bytes: &[Val]) -> wasmtime::Result<()> {
    let to_error = matches!(handle(store.data(), stream)?, Handle::Error);
    let byte = |value: &Val| if let Val::U8(byte) = value { Some(*byte) } else { None };
    let bytes: Vec<u8> = bytes.iter().filter_map(byte).collect();
    store.data_mut().wasi_write(to_error, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_0_2_of_wasi_are_known() {
        assert!(is_wasi("wasi:cli/stdout@0.2.6"));
        assert!(
            !is_wasi("wasi:cli/stdout@0.3.0") && !is_wasi("wasi:cli/stdout") && !is_wasi("other:cli/a@0.2.0")
        );
    }
}
