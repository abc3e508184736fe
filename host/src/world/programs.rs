//! `programs`: the BPF programs of the machine.

use std::io;

use nix::errno::Errno;

use super::audit::Decision;
use super::bindings::kernelscript::host::programs::{Host, ProgramInfo};
use super::error::HostError;
use super::state::State;
use crate::explain::FailureKind;
use crate::opener;
use crate::policy::Class;

impl Host for State {
    fn next(&mut self, after: u32) -> Result<Option<u32>, HostError> {
        self.count_program_runs()?;
        opener::next_program(after).map_err(|error| refused("list the BPF programs", &error))
    }

    fn info(&mut self, id: u32) -> Result<Option<ProgramInfo>, HostError> {
        self.count_program_runs()?;
        match opener::program_runs(id) {
            Ok(runs) => Ok(Some(ProgramInfo {
                name: runs.name,
                kind: runs.kind.to_string(),
                runs: runs.runs,
                run_time: runs.run_time_ns,
            })),
            Err(error) if error.raw_os_error() == Some(Errno::ENOENT as i32) => Ok(None),
            Err(error) => Err(refused("look at a BPF program", &error)),
        }
    }
}

impl State {
    /// Has the kernel count the runs of all programs, from the first call on.
    fn count_program_runs(&mut self) -> Result<(), HostError> {
        self.allow_class(Class::Programs)?;
        self.note_look("programs", "bpf", Decision::Allowed)?;
        if self.program_statistics.is_none() {
            let counted = opener::statistics();
            let counted = counted.map_err(|error| refused("count the runs of BPF programs", &error))?;
            self.program_statistics = Some(counted);
        }
        Ok(())
    }
}

/// Converts an answer of bpf(2).
fn refused(act: &str, error: &io::Error) -> HostError {
    let errno = Errno::from_raw(error.raw_os_error().unwrap_or_default());
    let (kind, advice) = match errno {
        Errno::EPERM | Errno::EACCES => (
            FailureKind::NotPermitted,
            "\n  do: run ks-host as root, or with CAP_SYS_ADMIN, which the kernel asks for this",
        ),
        Errno::EINVAL => {
            (FailureKind::Unsupported, "\n  do: run Linux 5.8 or newer, which has run-time statistics")
        }
        _ => (FailureKind::Kernel, ""),
    };
    HostError::of_kernel(kind, errno, format!("cannot {act}: {errno}{advice}"))
}
