//! `globals`: variables of the plugin's BPF object.

use wasmtime::component::Resource;

use super::bindings::kernelscript::host::globals::{Host, HostVariable};
use super::error::{HostError, check_length, too_much};
use super::state::State;
use crate::bpf::{BpfError, Object, Variable};
use crate::host_bytes::Charged;

/// Host side of a `variable` handle.
pub struct VariableHandle(Charged<Variable>);

impl State {
    /// Returns a variable and the object that it belongs to, or why there is none.
    fn variable(
        &mut self,
        this: &Resource<VariableHandle>,
    ) -> wasmtime::Result<(&Variable, Result<&mut Object, BpfError>)> {
        let (table, object) = self.table_and_object();
        Ok((&table.get(this)?.0, object))
    }
}

impl Host for State {
    fn list_variables(&mut self) -> wasmtime::Result<Vec<String>> {
        // Without an object there is nothing to list.
        Ok(self.object().map(|object| object.variable_names().collect()).unwrap_or_default())
    }
}

impl HostVariable for State {
    fn open(&mut self, name: String) -> Result<Resource<VariableHandle>, HostError> {
        check_length("variable", &name)?;
        let object = self.object()?;
        let variable = object.variable(&name)?;
        if variable.is_pinned() {
            object.load()?;
        }
        let kept = self.host_bytes.keep(variable, name.len())?;
        Ok(self.table.push(VariableHandle(kept))?)
    }

    fn size(&mut self, this: Resource<VariableHandle>) -> wasmtime::Result<u32> {
        Ok(u32::try_from(self.table.get(&this)?.0.size())?)
    }

    fn get(&mut self, this: Resource<VariableHandle>) -> wasmtime::Result<u64> {
        let (variable, object) = self.variable(&this)?;
        object.and_then(|object| object.get(variable)).map_err(wasmtime::Error::new)
    }

    fn set(&mut self, this: Resource<VariableHandle>, value: u64) -> Result<(), HostError> {
        let (variable, object) = self.variable(&this)?;
        Ok(object?.set(variable, value)?)
    }

    fn share(&mut self, this: Resource<VariableHandle>) -> wasmtime::Result<Option<u32>> {
        let (variable, object) = self.variable(&this)?;
        let offset = u32::try_from(variable.offset()).ok();
        let pages = object.ok().and_then(|object| object.pages(variable));
        let start = self.map_pages(pages);
        Ok(start.and_then(|start| start.checked_add(offset?)))
    }

    fn read(&mut self, this: Resource<VariableHandle>) -> wasmtime::Result<Vec<u8>> {
        let bytes = self.table.get(&this)?.0.size();
        // Charged before the copy: a variable may be larger than the plugin's memory.
        let _charge = self.host_bytes.during_call(bytes as u64).map_err(too_much)?;
        let (variable, object) = self.variable(&this)?;
        object.and_then(|object| object.read(variable)).map_err(wasmtime::Error::new)
    }

    fn write(
        &mut self,
        this: Resource<VariableHandle>,
        offset: u32,
        bytes: Vec<u8>,
    ) -> Result<(), HostError> {
        let (variable, object) = self.variable(&this)?;
        Ok(object?.write(variable, offset as usize, &bytes)?)
    }

    fn drop(&mut self, this: Resource<VariableHandle>) -> wasmtime::Result<()> {
        self.table.delete(this)?;
        Ok(())
    }
}
