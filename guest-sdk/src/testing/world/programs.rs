//! `programs`: the machine of a test has no BPF programs.

use super::types::Error;

pub(crate) use crate::bindings::kernelscript::host::programs::ProgramInfo;

pub(crate) fn next(_after: u32) -> Result<Option<u32>, Error> {
    Ok(None)
}

pub(crate) fn info(_id: u32) -> Result<Option<ProgramInfo>, Error> {
    Ok(None)
}
