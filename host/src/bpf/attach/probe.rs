//! Attach points of kprobes and uprobes, as given by the programs' sections.

use std::ffi::CString;
use std::path::Path;

use ks_wit::target::UprobeTarget;

use super::super::error::BpfError;
use super::super::program::Program;
use crate::probed::{ProbeMoment, ProbePoint, When, with_path};

/// The files that may be probed.
#[derive(Clone, Copy)]
pub struct FileRules<'a> {
    /// Accepts the location of a probe with the path of its file without links; none if the file has none.
    pub target: &'a dyn Fn(Option<&str>) -> bool,
    /// Accepts a file with Go code, by its path, for probes of returns.
    pub go_returns: &'a dyn Fn(&Path) -> bool,
}

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

/// A program of a probe: what it is put at, and when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeKind {
    /// Whether it is put at functions of programs and libraries, rather than of the kernel.
    pub in_files: bool,
    /// The moment at which it runs.
    pub moment: ProbeMoment,
}

impl Program<'_> {
    /// Returns what kind of probe the program is for.
    ///
    /// # Errors
    /// [`BpfError::UnsupportedKind`] for kinds that this host does not attach.
    pub fn probe_kind(&self) -> Result<ProbeKind, BpfError> {
        let section = self.section();
        // Match the kind exactly: a probe that the policy judged as one of the kernel must not become one of
        // a file.
        let (in_files, moment) = match section.split('/').next().unwrap_or_default() {
            "kprobe" => (false, ProbeMoment::Instruction),
            "kretprobe" => (false, ProbeMoment::Return),
            "uprobe" | "uprobe.s" => (true, ProbeMoment::Instruction),
            "uretprobe" | "uretprobe.s" => (true, ProbeMoment::Return),
            _ => return Err(BpfError::UnsupportedKind { program: self.name(), kind: self.kind() }),
        };
        Ok(ProbeKind { in_files, moment })
    }

    /// Returns the attach points that the program's section names: at least one, one for each function of the
    /// name, in a file that `rules` allow.
    ///
    /// # Errors
    /// [`BpfError::NoTarget`]; [`BpfError::UnsupportedKind`]; [`BpfError::ProbeAttachPoint`] for an
    /// instruction that is not probed.
    pub fn own_probe_attach_points(&self, rules: FileRules<'_>) -> Result<Vec<ProbeAttachPoint>, BpfError> {
        let own = self.own_target()?;
        match self.probe_kind() {
            Ok(ProbeKind { in_files: true, .. }) => self.file_attach_points(&own, rules),
            Ok(ProbeKind { in_files: false, .. }) => {
                let (function, offset) = own.split_once('+').unwrap_or((&own, "0"));
                let offset = offset.parse().map_err(|_| self.target(&own, FUNCTION))?;
                Ok(vec![self.kernel_attach_point(function, offset)?])
            }
            Err(unsupported) => {
                // Of other kinds of returns, a file with Go code is the more useful error.
                if self.section().starts_with('u') {
                    self.find_in_file(&own, When::Return(rules.go_returns), rules)?;
                }
                Err(unsupported)
            }
        }
    }

    /// Returns the attach point in a function of the kernel.
    ///
    /// # Errors
    /// [`BpfError::Target`] for a name with a zero byte.
    pub fn kernel_attach_point(&self, function: &str, offset: u64) -> Result<ProbeAttachPoint, BpfError> {
        let name = CString::new(function).ok().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| self.target(function, FUNCTION))?;
        Ok(ProbeAttachPoint::Kernel(name, offset))
    }

    /// Returns the attach points in a file, given as `path:function` or another form of
    /// [`ks_wit::target`], if `rules` allow that file.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::ProbeAttachPoint`] for an instruction that is not probed.
    pub fn file_attach_points(
        &self,
        target: &str,
        rules: FileRules<'_>,
    ) -> Result<Vec<ProbeAttachPoint>, BpfError> {
        let when = match self.probe_kind()?.moment {
            ProbeMoment::Instruction => self.convention.map_or(When::Instruction, When::Arguments),
            ProbeMoment::Return => When::Return(rules.go_returns),
        };
        self.find_in_file(target, when, rules)
    }

    fn find_in_file(
        &self,
        target: &str,
        when: When<'_>,
        rules: FileRules<'_>,
    ) -> Result<Vec<ProbeAttachPoint>, BpfError> {
        let parsed = UprobeTarget::parse(target).map_err(|error| BpfError::Target {
            program: self.name(),
            target: format!("{target} ({error})"),
            expected: "a place in a program or library: `path:function`",
        })?;
        let allows =
            |path: Option<&Path>| (rules.target)(path.map(|path| with_path(target, path)).as_deref());
        let points = ProbePoint::find(&parsed, when, &allows).map_err(|error| {
            BpfError::ProbeAttachPoint { program: self.name(), attach_point: target.to_owned(), error }
        })?;
        Ok(points.into_iter().map(ProbeAttachPoint::File).collect())
    }
}

const FUNCTION: &str = "a function of the kernel, and an offset in it";
