//! Where the programs for kprobes and uprobes belong, as their sections say.

use std::ffi::CString;
use std::path::Path;

use super::super::error::BpfError;
use super::super::program::Program;
use crate::probed::{ProbePoint, Spot, When};

/// An instruction at which a program runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// So many bytes behind the start of a function of the kernel.
    Kernel(CString, u64),
    /// An instruction of a file.
    File(ProbePoint),
}

const OWN: &str = "the target of the program's attribute, or an empty string for it";
const FILE: &str = "a program or library, and a function in it or an offset: `path:function`";

impl Program<'_> {
    /// The place that a program was made for, and whether it runs at the function's returns. A target that is not empty
    /// must be the same place.
    ///
    /// # Errors
    /// [`BpfError::Target`] (another target); [`BpfError::Place`] (a place in a file that is not probed).
    pub fn probe_place(&self, target: &str) -> Result<(Place, bool), BpfError> {
        let section = self.inner.section().to_string_lossy().into_owned();
        let (kind, own) = section.split_once('/').unwrap_or((&section, ""));
        // What the policy takes for a probe of the kernel must not become one of a file.
        match kind {
            "kprobe" | "kretprobe" => Ok((self.kernel_place(own, target)?, kind == "kretprobe")),
            "uprobe" | "uprobe.s" => Ok((self.file_place(own, target, When::Instruction)?, false)),
            "uretprobe" | "uretprobe.s" => Ok((self.file_place(own, target, When::Return)?, true)),
            _ => Err(self.target(&section, OWN)),
        }
    }

    fn kernel_place(&self, own: &str, target: &str) -> Result<Place, BpfError> {
        let (function, offset) = own.split_once('+').unwrap_or((own, "0"));
        let offset: u64 = offset.parse().map_err(|_| self.target(own, OWN))?;
        let (same, at) = target.split_once('+').unwrap_or((target, "0"));
        let given =
            at.strip_prefix("0x").map_or_else(|| at.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
        let is_own = target.is_empty() || (function.ends_with(same) && given == Some(offset));
        let function = CString::new(function).map_err(|_| self.target(own, OWN))?;
        if is_own { Ok(Place::Kernel(function, offset)) } else { Err(self.target(target, OWN)) }
    }

    /// `PATH:FUNCTION+OFFSET` or `PATH:OFFSET`.
    fn file_place(&self, own: &str, target: &str, when: When) -> Result<Place, BpfError> {
        let (path, place) = own.rsplit_once(':').ok_or_else(|| self.target(own, FILE))?;
        let written = place.strip_suffix("+0").unwrap_or(place);
        let is_own = [own, path, written].contains(&target) || target == format!("{path}:{written}");
        if !target.is_empty() && !is_own {
            return Err(self.target(target, OWN));
        }
        let spot = match place.split_once('+') {
            None => Spot::Offset(place.parse().map_err(|_| self.target(own, FILE))?),
            Some((function, offset)) => {
                Spot::Function(function, offset.parse().map_err(|_| self.target(own, FILE))?)
            }
        };
        let point = ProbePoint::find(Path::new(path), spot, when);
        let point =
            point.map_err(|error| BpfError::Place { program: self.name(), place: own.to_owned(), error })?;
        Ok(Place::File(point))
    }
}
