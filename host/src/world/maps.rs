//! `maps`: maps of the plugin's BPF object.

use std::sync::Arc;

use wasmtime::component::Resource;

use super::bindings::kernelscript::host::maps::{Host, HostBpfMap, HostCursor, MapInfo, UpdateMode};
use super::direct::{PassedOn, in_table};
use super::error::{HostError, check_length};
use super::state::State;
use crate::bpf::{self, BpfError, Cursor, CursorContent, Map, MapSize};
use crate::host_bytes::{Charged, Full, HostBytes};

/// Host side of a `map` handle.
pub struct MapHandle(Charged<Arc<Map>>);

/// Host side of a `cursor` handle.
pub struct CursorHandle(Charged<Cursor>);

impl MapHandle {
    /// Keeps a map for a plugin.
    ///
    /// # Errors
    /// [`Full`].
    pub(super) fn keep(map: Arc<Map>, host_bytes: &HostBytes) -> Result<MapHandle, Full> {
        host_bytes.keep(map, 0).map(MapHandle)
    }

    /// The map's name in the object.
    pub(super) fn name(&self) -> &str {
        self.0.name()
    }

    /// Records that the broker has frozen the map.
    pub(super) fn note_frozen(&self) {
        self.0.note_frozen();
    }

    /// Runs an operation on one value, while charging for the kernel's buffer and a copy of the value.
    fn with_value<T>(
        &self,
        state: &State,
        call: impl FnOnce(&Map) -> Result<T, BpfError>,
    ) -> Result<T, HostError> {
        let _charge = state.host_bytes.during_call(2 * self.0.value_bytes())?;
        Ok(call(&self.0)?)
    }
}

impl From<UpdateMode> for bpf::UpdateMode {
    fn from(mode: UpdateMode) -> bpf::UpdateMode {
        match mode {
            UpdateMode::Any => bpf::UpdateMode::Any,
            UpdateMode::NoExist => bpf::UpdateMode::NoExist,
            UpdateMode::Exist => bpf::UpdateMode::Exist,
        }
    }
}

impl Host for State {
    fn list_maps(&mut self) -> wasmtime::Result<Vec<String>> {
        // Without an object there is nothing to list.
        Ok(self.object().map(|object| object.map_names().collect()).unwrap_or_default())
    }

    fn set_max_entries(&mut self, map: String, entries: u32) -> Result<(), HostError> {
        self.resize(&map, MapSize::Entries(entries))
    }

    fn settle(&mut self) -> Result<(), HostError> {
        Ok(bpf::settle()?)
    }

    fn set_value_size(&mut self, map: String, bytes: u32) -> Result<(), HostError> {
        self.resize(&map, MapSize::ValueBytes(bytes))
    }
}

impl State {
    /// Returns the map of a handle: in a worker, one that the broker has passed on.
    fn map(&self, this: &Resource<MapHandle>) -> wasmtime::Result<&MapHandle> {
        match self.direct.map(this.rep()) {
            Some(map) => Ok(map),
            None => Ok(self.table.get(this)?),
        }
    }

    /// Creates the inner map that an entry of a map of maps is to be written to, if the mode creates entries.
    fn create_for_entry(
        &mut self,
        this: &Resource<MapHandle>,
        key: &[u8],
        mode: UpdateMode,
    ) -> Result<(), HostError> {
        let map = &self.map(this)?.0;
        let missing = map.inner_to_create(key).filter(|_| mode != UpdateMode::Exist);
        let Some(missing) = missing else { return Ok(()) };
        let map = Arc::clone(map);
        self.create_inner_maps(&map, vec![missing])
    }

    /// Creates the inner maps at these keys. Each takes a descriptor, and as much of the policy's limits as another map.
    fn create_inner_maps(&mut self, map: &Map, keys: Vec<Vec<u8>>) -> Result<(), HostError> {
        if keys.is_empty() {
            return Ok(());
        }
        self.allow_descriptors(keys.len())?;
        let _charge =
            self.host_bytes.during_call(2 * keys.iter().map(|key| key.len() as u64).sum::<u64>())?;
        let target = format!("{}, {} inner maps", map.name(), keys.len());
        self.audited("create", &target, |()| None, |_| Ok(map.create_inner(keys)?))
    }

    fn resize(&mut self, map: &str, size: MapSize) -> Result<(), HostError> {
        check_length("map", map)?;
        let target = match size {
            MapSize::Entries(entries) => format!("{map}, {entries} entries"),
            MapSize::ValueBytes(bytes) => format!("{map}, values of {bytes} bytes"),
        };
        let resize = |state: &mut State| {
            let policy = state.policy.clone();
            Ok(state.object()?.resize(&policy, map, size)?)
        };
        self.audited("resize", &target, |()| None, resize)
    }
}

impl HostBpfMap for State {
    fn open(&mut self, name: String) -> Result<Resource<MapHandle>, HostError> {
        check_length("map", &name)?;
        let map = self.audited("map", &name, |_| None, |state| Ok(state.object()?.map(&name)?))?;
        let handle = self.table.push(MapHandle::keep(Arc::clone(&map), &self.host_bytes)?)?;
        self.pass_map_on(handle.rep(), &map);
        Ok(handle)
    }

    fn info(&mut self, this: Resource<MapHandle>) -> wasmtime::Result<MapInfo> {
        let shape = self.map(&this)?.0.shape();
        Ok(MapInfo {
            type_: shape.ty,
            key_size: shape.key_size,
            value_size: shape.value_size,
            max_entries: shape.max_entries,
            per_cpu: shape.per_cpu,
        })
    }

    fn lookup(&mut self, this: Resource<MapHandle>, key: Vec<u8>) -> Result<Option<Vec<u8>>, HostError> {
        self.map(&this)?.with_value(self, |map| map.lookup(&key))
    }

    fn lookup_locked(
        &mut self,
        this: Resource<MapHandle>,
        key: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, HostError> {
        self.map(&this)?.with_value(self, |map| map.lookup_locked(&key))
    }

    fn lookup_and_delete(
        &mut self,
        this: Resource<MapHandle>,
        key: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, HostError> {
        self.map(&this)?.with_value(self, |map| map.lookup_and_delete(&key))
    }

    fn update(
        &mut self,
        this: Resource<MapHandle>,
        key: Vec<u8>,
        value: Vec<u8>,
        mode: UpdateMode,
    ) -> Result<(), HostError> {
        self.create_for_entry(&this, &key, mode)?;
        self.map(&this)?.with_value(self, |map| map.update(&key, &value, mode.into()))
    }

    fn update_locked(
        &mut self,
        this: Resource<MapHandle>,
        key: Vec<u8>,
        value: Vec<u8>,
        mode: UpdateMode,
    ) -> Result<(), HostError> {
        self.map(&this)?.with_value(self, |map| map.update_locked(&key, &value, mode.into()))
    }

    fn update_sum(
        &mut self,
        this: Resource<MapHandle>,
        key: Vec<u8>,
        value: Vec<u8>,
        mode: UpdateMode,
    ) -> Result<(), HostError> {
        self.map(&this)?.with_value(self, |map| map.update_sum(&key, &value, mode.into()))
    }

    fn update_batch(
        &mut self,
        this: Resource<MapHandle>,
        entries: Vec<u8>,
        mode: UpdateMode,
    ) -> Result<u32, HostError> {
        let map = Arc::clone(&self.map(&this)?.0);
        // A growing vector may have twice the capacity it needs.
        let _charge =
            self.host_bytes.during_call(entries.len() as u64 + 2 * map.padded_bytes(entries.len()))?;
        Ok(map.update_batch(&entries, mode.into())?)
    }

    fn delete_batch(&mut self, this: Resource<MapHandle>, keys: Vec<u8>) -> Result<u32, HostError> {
        let map = Arc::clone(&self.map(&this)?.0);
        let _charge = self.host_bytes.during_call(keys.len() as u64)?;
        Ok(map.delete_batch(&keys)?)
    }

    fn freeze(&mut self, this: Resource<MapHandle>) -> Result<(), HostError> {
        let map = Arc::clone(&self.map(&this)?.0);
        self.audited("freeze", map.name(), |()| None, |_| Ok(map.freeze()?))?;
        self.waiting.push(PassedOn::Frozen(map.name().to_owned()), None);
        Ok(())
    }

    fn delete(&mut self, this: Resource<MapHandle>, key: Vec<u8>) -> Result<bool, HostError> {
        Ok(self.map(&this)?.0.delete(&key)?)
    }

    fn create_inner(&mut self, this: Resource<MapHandle>, keys: Vec<u8>) -> Result<(), HostError> {
        let map = Arc::clone(&self.map(&this)?.0);
        let missing = map.missing_inner(&keys)?;
        self.create_inner_maps(&map, missing)
    }

    fn has_inner(&mut self, this: Resource<MapHandle>, key: Vec<u8>) -> Result<bool, HostError> {
        Ok(self.map(&this)?.0.has_inner(&key)?)
    }

    fn delete_inner(&mut self, this: Resource<MapHandle>, key: Vec<u8>) -> Result<bool, HostError> {
        Ok(self.map(&this)?.0.delete_inner(&key)?)
    }

    fn contains(&mut self, this: Resource<MapHandle>, value: Vec<u8>) -> Result<bool, HostError> {
        self.map(&this)?.with_value(self, |map| map.contains(&value))
    }

    fn share(&mut self, this: Resource<MapHandle>) -> wasmtime::Result<Option<u32>> {
        let pages = self.map(&this)?.0.pages();
        Ok(self.map_pages(pages))
    }

    fn iterate(
        &mut self,
        this: Resource<MapHandle>,
        values: bool,
    ) -> Result<Resource<CursorHandle>, HostError> {
        let map = Arc::clone(&self.map(&this)?.0);
        let content = if values { CursorContent::KeysAndValues } else { CursorContent::Keys };
        let cursor = Cursor::new(map, content, &self.host_bytes)?;
        let kept = self.host_bytes.keep(cursor, 0)?;
        let cursor = self.table.push(CursorHandle(kept))?;
        Ok(self.for_plugin(cursor))
    }

    fn count(&mut self, this: Resource<MapHandle>) -> Result<u32, HostError> {
        let count = self.map(&this)?.0.count(&self.host_bytes)?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn clear(&mut self, this: Resource<MapHandle>) -> Result<(), HostError> {
        Ok(self.map(&this)?.0.clear(&self.host_bytes)?)
    }

    fn drop(&mut self, this: Resource<MapHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostCursor for State {
    fn next(&mut self, this: Resource<CursorHandle>, most: u32) -> Result<Vec<u8>, HostError> {
        Ok(self.table.get_mut(&in_table(&this))?.0.next(most as usize)?)
    }

    fn drop(&mut self, this: Resource<CursorHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
