//! `maps`: maps of the plugin's BPF object.

use std::sync::Arc;

use wasmtime::component::Resource;

use super::bindings::kernelscript::host::maps::{Host, HostCursor, HostMap, MapInfo, UpdateMode};
use super::error::HostError;
use super::state::State;
use crate::bpf::{self, Cursor, Map};

/// What a `map` denotes.
pub struct MapHandle(Arc<Map>);

impl Host for State {}

impl HostMap for State {
    fn open(&mut self, name: String) -> Result<Resource<MapHandle>, HostError> {
        let map = self.audited("map", &name, |_| None, |state| Ok(state.object()?.map(&name)?))?;
        Ok(self.table.push(MapHandle(map))?)
    }

    fn info(&mut self, this: Resource<MapHandle>) -> wasmtime::Result<MapInfo> {
        let shape = self.table.get(&this)?.0.shape();
        Ok(MapInfo {
            type_: shape.ty,
            key_size: shape.key_size,
            value_size: shape.value_size,
            max_entries: shape.max_entries,
            per_cpu: shape.per_cpu,
        })
    }

    fn lookup(&mut self, this: Resource<MapHandle>, key: Vec<u8>) -> Result<Option<Vec<u8>>, HostError> {
        Ok(self.table.get(&this)?.0.lookup(&key)?)
    }

    fn update(
        &mut self,
        this: Resource<MapHandle>,
        key: Vec<u8>,
        value: Vec<u8>,
        mode: UpdateMode,
    ) -> Result<(), HostError> {
        let mode = match mode {
            UpdateMode::Any => bpf::UpdateMode::Any,
            UpdateMode::NoExist => bpf::UpdateMode::NoExist,
            UpdateMode::Exist => bpf::UpdateMode::Exist,
        };
        Ok(self.table.get(&this)?.0.update(&key, &value, mode)?)
    }

    fn delete(&mut self, this: Resource<MapHandle>, key: Vec<u8>) -> Result<bool, HostError> {
        Ok(self.table.get(&this)?.0.delete(&key)?)
    }

    fn take(&mut self, this: Resource<MapHandle>) -> Result<Option<Vec<u8>>, HostError> {
        Ok(self.table.get(&this)?.0.take()?)
    }

    fn contains(&mut self, this: Resource<MapHandle>, value: Vec<u8>) -> Result<bool, HostError> {
        Ok(self.table.get(&this)?.0.contains(&value)?)
    }

    fn share(&mut self, this: Resource<MapHandle>) -> wasmtime::Result<Option<u32>> {
        let pages = self.table.get(&this)?.0.pages();
        Ok(self.place(pages))
    }

    fn walk(&mut self, this: Resource<MapHandle>, values: bool) -> Result<Resource<Cursor>, HostError> {
        let cursor = Cursor::new(Arc::clone(&self.table.get(&this)?.0), values)?;
        Ok(self.table.push(cursor)?)
    }

    fn count(&mut self, this: Resource<MapHandle>) -> Result<u32, HostError> {
        let count = self.table.get(&this)?.0.count()?;
        Ok(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn clear(&mut self, this: Resource<MapHandle>) -> Result<(), HostError> {
        Ok(self.table.get(&this)?.0.clear()?)
    }

    fn drop(&mut self, this: Resource<MapHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}

impl HostCursor for State {
    fn next(&mut self, this: Resource<Cursor>, most: u32) -> Result<Vec<u8>, HostError> {
        Ok(self.table.get_mut(&this)?.next(most as usize)?)
    }

    fn drop(&mut self, this: Resource<Cursor>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
