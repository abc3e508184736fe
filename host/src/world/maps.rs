//! `maps`: maps of the plugin's BPF object.

use std::sync::Arc;

use wasmtime::component::Resource;

use super::bindings::kernelscript::host::maps::{Host, HostMap, MapInfo, UpdateMode};
use super::error::HostError;
use super::state::State;
use crate::bpf::{self, Map};

/// What a `map` denotes.
pub struct MapHandle(Arc<Map>);

impl Host for State {}

impl HostMap for State {
    fn open(&mut self, name: String) -> Result<Resource<MapHandle>, HostError> {
        let map = self.object()?.map(&name)?;
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

    fn drop(&mut self, this: Resource<MapHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
