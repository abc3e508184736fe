//! `globals`: variables, stored as bytes.

use std::string::{String, ToString};
use std::vec::Vec;

use crate::bindings::kernelscript::host::types::Error;

use super::super::state::{missing, with};

pub(crate) fn list_variables() -> Vec<String> {
    with(|state| state.globals.keys().cloned().collect())
}

#[derive(Debug)]
pub(crate) struct Variable {
    name: String,
}

impl Variable {
    pub(crate) fn open(name: &str) -> Result<Variable, Error> {
        with(|state| {
            state.permit(name)?;
            if state.globals.contains_key(name) {
                Ok(Variable { name: name.to_string() })
            } else {
                Err(missing("variable", name, "global(..)"))
            }
        })
    }

    pub(crate) fn size(&self) -> u32 {
        self.read().len() as u32
    }

    pub(crate) fn get(&self) -> u64 {
        let mut whole = [0; 8];
        let bytes = self.read();
        whole[..bytes.len()].copy_from_slice(&bytes);
        u64::from_le_bytes(whole)
    }

    pub(crate) fn set(&self, value: u64) -> Result<(), Error> {
        let size = self.size() as usize;
        self.write(0, &value.to_le_bytes()[..size])
    }

    pub(crate) fn share(&self) -> Option<u32> {
        None
    }

    pub(crate) fn read(&self) -> Vec<u8> {
        with(|state| state.globals.get(&self.name).map(|own| own.bytes.clone()).unwrap_or_default())
    }

    pub(crate) fn write(&self, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        with(|state| {
            if let Some(own) = state.globals.get_mut(&self.name) {
                own.bytes[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
            }
        });
        Ok(())
    }
}
