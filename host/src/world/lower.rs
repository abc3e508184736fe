//! Lowering of readings and records to a plugin's memory: each reading, the list of a group's entries, and the
//! records of rings are written as a whole.
//!
//! Generated bindings write field by field and look the memory up for each field. For a reading that costs
//! more instructions than everything else in the host. Here the words of a record are laid out according to
//! the canonical ABI and copied. wasmtime's `Lower` is not a documented interface; this code follows the
//! release that the workspace's manifest names.
#![expect(unsafe_code, reason = "wasmtime demands it of types that it lowers")]

#[cfg(test)]
mod tests;

use std::mem::MaybeUninit;

use wasmtime::ValRaw;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LowerContext};
use wasmtime::component::{ComponentType, Linker, Lower, Resource};

use super::bindings::kernelscript::host::perf::{Entry, GroupReading, Reading};
use super::bindings::kernelscript::host::types::{Error, Host as _};
use super::direct::Direct;
use super::error::HostError;
use super::linker::Numbers;
use super::perf::{AttachmentHandle, from_group_reading, from_reading};
use super::ring::Entries;
use super::served::Number;
use super::state::State;
use super::wire::{self, Malformed, Wire};
use crate::perf::{self, AttachmentId, Snapshot};

/// Name of the interface in the contract.
const INTERFACE: &str = "kernelscript:host/perf@0.2.0";
/// Size in bytes of a word. Every field of these records begins at a multiple of its size, and none is
/// larger.
const WORD: usize = size_of::<u64>();
/// Size of a reading in words.
const READING: usize = <Reading as ComponentType>::SIZE32 / WORD;
/// Size of an entry in a group's list in words.
const ENTRY: usize = <Entry as ComponentType>::SIZE32 / WORD;

/// Substitutes the functions that return readings for those of the bindings.
///
/// # Errors
/// Those of the linker.
pub fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    type This = (Resource<AttachmentHandle>,);
    linker.allow_shadowing(true);
    let mut perf = linker.instance(INTERFACE)?;
    perf.func_wrap("[method]attachment.read", |mut store, (this,): This| {
        call_host(store.data_mut(), |state| state.read_attachment(state.attachment(&this)?))
    })?;
    perf.func_wrap("[method]attachment.snapshot", |mut store, (this,): This| {
        call_host(store.data_mut(), |state| state.read_group(state.attachment(&this)?))
    })?;
    type OnCpu = (Resource<AttachmentHandle>, u32);
    perf.func_wrap("[method]attachment.snapshot-cpu", |mut store, (this, cpu): OnCpu| {
        call_host(store.data_mut(), |state| state.read_group_on(state.attachment(&this)?, cpu))
    })?;
    perf.func_wrap("read-by-id", |mut store, (id,): (u64,)| {
        call_host(store.data_mut(), |state| state.read_attachment(AttachmentId::of(id)))
    })?;
    perf.func_wrap("snapshot-by-id", |mut store, (id,): (u64,)| {
        call_host(store.data_mut(), |state| state.read_group(AttachmentId::of(id)))
    })?;
    perf.func_wrap("read-many", |mut store, (ids,): (Vec<u64>,)| {
        call_host(store.data_mut(), |state| state.read_attachments(&ids))
    })?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Substitutes the functions that return readings for those of the bindings, in a worker: it reads what its broker has
/// passed on, and asks the broker for the rest.
///
/// # Errors
/// Those of the linker.
pub fn add_to_linker_of_worker(linker: &mut Linker<State>, numbers: &Numbers) -> wasmtime::Result<()> {
    type This = (Resource<AttachmentHandle>,);
    linker.allow_shadowing(true);
    let mut perf = linker.instance(INTERFACE)?;
    if let Some(number) = numbers.get("perf.[method]attachment.read").copied() {
        perf.func_wrap("[method]attachment.read", move |mut store, params: This| {
            let read = |direct: &mut Direct| direct.read(params.0.rep());
            here_or_by_broker(store.data_mut(), read, number, &params)
        })?;
    }
    if let Some(number) = numbers.get("perf.[method]attachment.snapshot").copied() {
        perf.func_wrap("[method]attachment.snapshot", move |mut store, params: This| {
            let read = |direct: &mut Direct| direct.snapshot(params.0.rep());
            here_or_by_broker(store.data_mut(), read, number, &params)
        })?;
    }
    if let Some(number) = numbers.get("perf.[method]attachment.snapshot-cpu").copied() {
        type OnCpu = (Resource<AttachmentHandle>, u32);
        perf.func_wrap("[method]attachment.snapshot-cpu", move |mut store, params: OnCpu| {
            let read = |direct: &mut Direct| direct.snapshot_cpu(params.0.rep(), params.1);
            here_or_by_broker(store.data_mut(), read, number, &params)
        })?;
    }
    if let Some(number) = numbers.get("perf.read-by-id").copied() {
        perf.func_wrap("read-by-id", move |mut store, params: (u64,)| {
            let read = |direct: &mut Direct| direct.read_by_id(params.0);
            here_or_by_broker(store.data_mut(), read, number, &params)
        })?;
    }
    if let Some(number) = numbers.get("perf.read-many").copied() {
        perf.func_wrap("read-many", move |mut store, params: (Vec<u64>,)| {
            let read = |direct: &mut Direct| direct.read_many(&params.0);
            here_or_by_broker(store.data_mut(), read, number, &params)
        })?;
    }
    if let Some(number) = numbers.get("perf.snapshot-by-id").copied() {
        perf.func_wrap("snapshot-by-id", move |mut store, params: (u64,)| {
            let read = |direct: &mut Direct| direct.snapshot_by_id(params.0);
            here_or_by_broker(store.data_mut(), read, number, &params)
        })?;
    }
    linker.allow_shadowing(false);
    Ok(())
}

/// Reads what this worker can read itself, else asks the broker.
fn here_or_by_broker<R: ReadByBroker>(
    state: &mut State,
    read: impl FnOnce(&mut Direct) -> Option<R>,
    number: Number,
    params: &impl Wire,
) -> wasmtime::Result<(Whole<R>,)>
where
    R::Type: Wire,
{
    let state = state.called();
    if let Some(reading) = read(&mut state.direct) {
        return Ok((Whole(Ok(reading)),));
    }
    let answer = state.ask_broker(number, |call| params.put(call))?;
    let (answer,): (Result<R::Type, Error>,) = wire::read(&answer)?;
    Ok((Whole(match answer {
        Ok(reading) => Ok(R::of_broker(reading)?),
        Err(error) => Err(error),
    }),))
}

/// What a broker may read for its worker.
trait ReadByBroker: LowerWords + Sized {
    /// Returns the reading of an answer.
    ///
    /// # Errors
    /// [`Malformed`] if no broker answers so.
    fn of_broker(answer: Self::Type) -> Result<Self, Malformed>;
}

impl ReadByBroker for perf::Reading {
    fn of_broker(answer: Reading) -> Result<perf::Reading, Malformed> {
        from_reading(answer)
    }
}

impl ReadByBroker for Vec<perf::Reading> {
    fn of_broker(answer: Vec<Reading>) -> Result<Vec<perf::Reading>, Malformed> {
        answer.into_iter().map(from_reading).collect()
    }
}

impl ReadByBroker for Snapshot {
    fn of_broker(answer: GroupReading) -> Result<Snapshot, Malformed> {
        from_group_reading(&answer)
    }
}

/// Calls the host function. An error is returned to the plugin or is a trap.
fn call_host<R>(
    state: &mut State,
    call: impl FnOnce(&mut State) -> Result<R, HostError>,
) -> wasmtime::Result<(Whole<R>,)> {
    let state = state.called();
    match call(state) {
        Ok(result) => Ok((Whole(Ok(result)),)),
        Err(error) => Ok((Whole(Err(state.convert_error(error)?)),)),
    }
}

/// A type whose representation as words in a plugin's memory is known.
trait LowerWords: Send + Sync {
    /// The type in the contract.
    type Type: ComponentType + Lower;

    /// Writes the words of `result<Self, error>`, with `self` as the success value, to an offset.
    fn lower<T>(&self, cx: &mut LowerContext<'_, T>, offset: usize) -> wasmtime::Result<()>;
}

impl LowerWords for perf::Reading {
    type Type = Reading;

    fn lower<T>(&self, cx: &mut LowerContext<'_, T>, offset: usize) -> wasmtime::Result<()> {
        let [raw, is_some, scaled, enabled, running, state, partial] = reading(self);
        let to: &mut [u8; (1 + READING) * WORD] = cx.get(offset);
        let (to, _) = to.as_chunks_mut();
        write_words(to, &[OK, raw, is_some, scaled, enabled, running, state, partial]);
        Ok(())
    }
}

impl LowerWords for Snapshot {
    type Type = GroupReading;

    fn lower<T>(&self, cx: &mut LowerContext<'_, T>, offset: usize) -> wasmtime::Result<()> {
        let entries = list(cx, &self.entries, entry)?;
        let own = halves(self.partial.into(), u32::try_from(self.own)?);
        let [at, len] = entries.range;
        let words = [OK, self.time_enabled, self.time_running, state(self.state), own, halves(at, len)];
        write_words(entries.memory[offset..].as_chunks_mut().0, &words);
        Ok(())
    }
}

impl LowerWords for Vec<perf::Reading> {
    type Type = Vec<Reading>;

    fn lower<T>(&self, cx: &mut LowerContext<'_, T>, offset: usize) -> wasmtime::Result<()> {
        let readings = list(cx, self, reading)?;
        let [at, len] = readings.range;
        // No field of this result is wider than 32 bits.
        let (to, _) = readings.memory[offset..].as_chunks_mut();
        for (to, word) in to.iter_mut().zip([OK as u32, at, len]) {
            *to = word.to_le_bytes();
        }
        Ok(())
    }
}

/// A list in a plugin's memory.
struct List<'a> {
    /// Address and number of elements.
    range: [u32; 2],
    /// The whole linear memory. Looking it up costs more than writing a record.
    memory: &'a mut [u8],
}

/// Copies a list of records to memory that the plugin allocates.
#[inline]
fn list<'a, T, R, const N: usize>(
    cx: &'a mut LowerContext<'_, T>,
    records: &[R],
    words: impl Fn(&R) -> [u64; N],
) -> wasmtime::Result<List<'a>> {
    let bytes = records.len() * N * WORD;
    let at = cx.realloc(0, 0, WORD as u32, bytes)?;
    let range = [u32::try_from(at)?, u32::try_from(records.len())?];
    let memory = cx.as_slice_mut();
    // wasmtime has checked that the allocation is in bounds.
    let (to, _) = memory[at..][..bytes].as_chunks_mut::<WORD>();
    let (to, _) = to.as_chunks_mut::<N>();
    for (to, record) in to.iter_mut().zip(records) {
        write_words(to, &words(record));
    }
    Ok(List { range, memory })
}

/// The discriminant of a successful result.
const OK: u64 = 0;

#[inline]
fn reading(reading: &perf::Reading) -> [u64; READING] {
    let [is_some, scaled] = option(reading.scaled);
    let [enabled, running] = [reading.time_enabled, reading.time_running];
    [reading.raw, is_some, scaled, enabled, running, state(reading.state), reading.partial.into()]
}

#[inline]
fn entry(entry: &perf::GroupEntry) -> [u64; ENTRY] {
    let [is_some, scaled] = option(entry.scaled);
    [entry.id.get(), entry.kernel_id, entry.raw, is_some, scaled]
}

#[inline]
fn option(value: Option<u64>) -> [u64; 2] {
    [value.is_some().into(), value.unwrap_or(0)]
}

/// Returns the discriminant of the contract's enum.
#[inline]
fn state(state: perf::State) -> u64 {
    match state {
        perf::State::Counted => 0,
        perf::State::Multiplexed => 1,
        perf::State::NeverRan => 2,
        perf::State::Idle => 3,
    }
}

/// Combines two fields of 32 bits.
#[inline]
fn halves(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Writes words, one after the other. Simple loops: what the library's arrays have for it is called and not
/// inlined at this level of optimisation, and took a tenth of the time of a snapshot.
#[inline]
fn write_words(to: &mut [[u8; WORD]], words: &[u64]) {
    for (to, word) in to.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
}

/// A result whose success value is written as a whole.
struct Whole<R>(Result<R, Error>);

/// The type in the contract that corresponds to [`Whole`].
type InContract<'a, R> = Result<<R as LowerWords>::Type, &'a Error>;

// SAFETY: all answers are those of the type in the contract, which has the same representation.
unsafe impl<R: LowerWords> ComponentType for Whole<R> {
    type Lower = <InContract<'static, R> as ComponentType>::Lower;

    const ABI: CanonicalAbiInfo = <InContract<'static, R> as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        <InContract<'static, R> as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: all fields of the result are written, at the offsets of the canonical ABI. Tests compare them with
// what generated code reads.
unsafe impl<R: LowerWords> Lower for Whole<R> {
    fn linear_lower_to_flat<T>(
        &self,
        _: &mut LowerContext<'_, T>,
        _: InterfaceType,
        _: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        unreachable!("a result of more than one value is written to memory")
    }

    fn linear_lower_to_memory<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        offset: usize,
    ) -> wasmtime::Result<()> {
        match &self.0 {
            Ok(record) => record.lower(cx, offset),
            Err(error) => InContract::<R>::Err(error).linear_lower_to_memory(cx, ty, offset),
        }
    }
}

/// Copies records of rings to memory that the plugin allocates. Returns address and length.
fn records<T>(cx: &mut LowerContext<'_, T>, entries: &Entries) -> wasmtime::Result<[u32; 2]> {
    let address = cx.realloc(0, 0, 1, entries.len())?;
    // wasmtime has checked that the allocation is in bounds.
    entries.copy_to(&mut cx.as_slice_mut()[address..][..entries.len()]);
    Ok([u32::try_from(address)?, u32::try_from(entries.len())?])
}

// SAFETY: all answers are those of `list<u8>`.
unsafe impl ComponentType for Entries {
    type Lower = <[u8] as ComponentType>::Lower;

    const ABI: CanonicalAbiInfo = <[u8] as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> wasmtime::Result<()> {
        <[u8] as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: both forms write the address and length of a list in the plugin's memory, which is all of its
// representation.
unsafe impl Lower for Entries {
    fn linear_lower_to_flat<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        _: InterfaceType,
        dst: &mut MaybeUninit<Self::Lower>,
    ) -> wasmtime::Result<()> {
        dst.write(records(cx, self)?.map(|half| ValRaw::i64(half.into())));
        Ok(())
    }

    fn linear_lower_to_memory<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        _: InterfaceType,
        offset: usize,
    ) -> wasmtime::Result<()> {
        let [address, len] = records(cx, self)?;
        *cx.get(offset) = address.to_le_bytes();
        *cx.get(offset + 4) = len.to_le_bytes();
        Ok(())
    }
}

// The written words are all of each record.
const _: () = assert!(READING == 7 && <Reading as ComponentType>::ALIGN32 == WORD as u32);
const _: () = assert!(ENTRY == 5 && <GroupReading as ComponentType>::SIZE32 == 5 * WORD);
const _: () = assert!(<Result<Vec<Reading>, Error> as ComponentType>::ALIGN32 == 4);
