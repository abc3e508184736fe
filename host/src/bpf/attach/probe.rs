//! Attach points of kprobes and uprobes, as given by the programs' sections.

use std::ffi::CString;
use std::path::Path;

use ks_wit::target::UprobeTarget;

use super::super::error::BpfError;
use super::super::program::Program;
use crate::probed::{ProbeMoment, ProbePoint, When};

/// An instruction that a probe is placed at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeAttachPoint {
    /// A kernel function, and the offset from its start in bytes.
    Kernel(CString, u64),
    /// An instruction in an executable or library.
    File(ProbePoint),
}

impl ProbeAttachPoint {
    /// Returns the instruction in a file; none for a probe of the kernel.
    pub fn file(&self) -> Option<&ProbePoint> {
        match self {
            ProbeAttachPoint::File(point) => Some(point),
            ProbeAttachPoint::Kernel(..) => None,
        }
    }
}

const OWN: &str = "the target of the program's attribute, or an empty string for it";

impl Program<'_> {
    /// Returns the program's attach points and the moment at which it runs. There is at least one
    /// attach point, one for each function of the name. A non-empty target must denote the same attach point.
    /// Returns in a file with Go code are probed only if `allows_go` accepts the file's path.
    ///
    /// # Errors
    /// [`BpfError::Target`] for another target; [`BpfError::ProbeAttachPoint`] for an instruction that is not
    /// probed.
    pub fn probe_attach_points(
        &self,
        target: &str,
        allows_go: &dyn Fn(&Path) -> bool,
    ) -> Result<(Vec<ProbeAttachPoint>, ProbeMoment), BpfError> {
        let section = self.inner.section().to_string_lossy().into_owned();
        let (kind, own) = section.split_once('/').unwrap_or((&section, ""));
        let returns = When::Return(allows_go);
        // Match the kind exactly: a probe that the policy judged as one of the kernel must not become one of
        // a file.
        match kind {
            "kprobe" => Ok((vec![self.kernel_attach_point(own, target)?], ProbeMoment::Instruction)),
            "kretprobe" => Ok((vec![self.kernel_attach_point(own, target)?], ProbeMoment::Return)),
            "uprobe" | "uprobe.s" => {
                Ok((self.file_attach_points(own, target, When::Instruction)?, ProbeMoment::Instruction))
            }
            "uretprobe" | "uretprobe.s" => {
                Ok((self.file_attach_points(own, target, returns)?, ProbeMoment::Return))
            }
            "uretprobe.multi" | "uretprobe.multi.s" | "uprobe.session" | "uprobe.session.s" => {
                // These kinds are not supported. Resolving the target first reports the more useful error for
                // a file with Go code.
                self.file_attach_points(own, target, returns)?;
                Err(self.target(&section, OWN))
            }
            _ => Err(self.target(&section, OWN)),
        }
    }

    fn kernel_attach_point(&self, own: &str, target: &str) -> Result<ProbeAttachPoint, BpfError> {
        let (function, offset) = own.split_once('+').unwrap_or((own, "0"));
        let offset: u64 = offset.parse().map_err(|_| self.target(own, OWN))?;
        let (same, at) = target.split_once('+').unwrap_or((target, "0"));
        let given =
            at.strip_prefix("0x").map_or_else(|| at.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok());
        let is_own = target.is_empty() || (function.ends_with(same) && given == Some(offset));
        let function = CString::new(function).map_err(|_| self.target(own, OWN))?;
        if is_own { Ok(ProbeAttachPoint::Kernel(function, offset)) } else { Err(self.target(target, OWN)) }
    }

    fn file_attach_points(
        &self,
        own: &str,
        target: &str,
        when: When<'_>,
    ) -> Result<Vec<ProbeAttachPoint>, BpfError> {
        let parsed = UprobeTarget::parse(own).map_err(|error| BpfError::Target {
            program: self.name(),
            target: format!("{own} ({error})"),
            expected: "a place in a program or library: `path:function`",
        })?;
        let written = own.strip_suffix("+0").unwrap_or(own);
        let function = written.get(parsed.path.len() + 1..).unwrap_or_default();
        if !target.is_empty() && ![own, written, parsed.path, function].contains(&target) {
            return Err(self.target(target, OWN));
        }
        let points = ProbePoint::find(&parsed, when).map_err(|error| BpfError::ProbeAttachPoint {
            program: self.name(),
            attach_point: own.to_owned(),
            error,
        })?;
        Ok(points.into_iter().map(ProbeAttachPoint::File).collect())
    }
}
