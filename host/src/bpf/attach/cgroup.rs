//! Attaching programs to cgroups (cgroup v2).

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::super::error::{BpfError, OPEN_GROUP};
use super::super::link::Link;
use super::super::program::Program;
use crate::files;

const GROUP: &str = "the folder of a control group of version 2, absolute or below where they are mounted";

/// Programs that a cgroup takes at a hook. Source: kernel/bpf/cgroup.c, `BPF_CGROUP_MAX_PROGS`, v6.18.
const MOST_PROGRAMS: u32 = 64;

/// The path of a cgroup v2 directory as a plugin gave it. Nothing was opened.
#[derive(Debug)]
pub struct GroupPath {
    target: String,
    path: PathBuf,
    hierarchy: Option<PathBuf>,
}

impl GroupPath {
    /// Interprets an absolute path, or a path relative to the cgroup v2 mount point. `program` is used in error
    /// messages only.
    ///
    /// # Errors
    /// [`BpfError::Target`].
    pub fn of(program: &str, target: &str) -> Result<GroupPath, BpfError> {
        if target.is_empty() || target.contains('\0') {
            return Err(no_group(program, target));
        }
        let hierarchy = hierarchy();
        // `join` replaces the base if `target` is absolute.
        let path = hierarchy.as_deref().unwrap_or(Path::new("/")).join(target);
        Ok(GroupPath { target: target.to_owned(), path, hierarchy })
    }

    /// Returns the names that a policy may use if no part of the path is a link.
    pub fn names(&self) -> Vec<String> {
        names(&files::without_dots(&self.path), self.hierarchy.as_deref())
    }

    /// Returns whether a part of the path is a link.
    pub fn leads_through_link(&self) -> bool {
        files::leads_through_link(&self.path)
    }
}

/// An open cgroup v2 directory. It stays open so that the cgroup a policy allowed is the one a program is
/// attached to.
#[derive(Debug)]
pub struct ControlGroup {
    folder: File,
    /// Absolute, without symbolic links and `.` or `..` components.
    path: PathBuf,
    hierarchy: Option<PathBuf>,
}

impl ControlGroup {
    /// Opens a cgroup. `program` is used in error messages only.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Kernel`].
    pub fn open(program: &str, group: &GroupPath) -> Result<ControlGroup, BpfError> {
        let path = &group.path;
        let not_opened = |errno| BpfError::Kernel {
            tried: format!("open the control group `{}`: program `{program}`", path.display()),
            call: OPEN_GROUP,
            errno,
        };
        let folder = open_folder(path).map_err(|errno| match errno {
            Errno::ENOTDIR => no_group(program, &group.target),
            errno => not_opened(errno),
        })?;
        // The canonical path, independent of symbolic links in `path`.
        let path = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))
            .map_err(|error| not_opened(error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)))?;
        Ok(ControlGroup { folder, path, hierarchy: group.hierarchy.clone() })
    }

    /// Returns the names a policy may use: the absolute path, and the path relative to the cgroup v2 mount
    /// point.
    pub fn names(&self) -> Vec<String> {
        names(&self.path, self.hierarchy.as_deref())
    }
}

/// Returns the absolute path of a cgroup, and its path relative to the cgroup v2 mount point.
fn names(path: &Path, hierarchy: Option<&Path>) -> Vec<String> {
    let below = hierarchy.and_then(|root| path.strip_prefix(root).ok());
    let below = below.filter(|path| !path.as_os_str().is_empty());
    [Some(path), below].into_iter().flatten().map(|path| path.display().to_string()).collect()
}

fn no_group(program: &str, target: &str) -> BpfError {
    BpfError::Target { program: program.into(), target: target.into(), expected: GROUP }
}

impl Program<'_> {
    /// Attaches the program to a cgroup and all its descendants.
    ///
    /// # Errors
    /// [`BpfError::Target`] if the directory is not a cgroup; [`BpfError::Crowded`]; [`BpfError::Kernel`].
    pub fn attach_to_group(&self, group: &ControlGroup) -> Result<Link, BpfError> {
        match self.create_link(group.folder.as_raw_fd(), 0, 0) {
            // The kernel's answer for a directory outside of cgroupfs.
            Err(Errno::EBADF) => Err(self.target(&group.path.display().to_string(), GROUP)),
            Err(Errno::E2BIG) => {
                let group = format!("the control group `{}`", group.path.display());
                Err(self.crowded(&group, MOST_PROGRAMS, Errno::E2BIG))
            }
            linked => linked.map_err(|errno| {
                self.not_linked(&format!("the control group `{}`", group.path.display()), errno)
            }),
        }
    }
}

/// Returns the mount point of cgroup v2: `/sys/fs/cgroup`, or a directory in it if version 1 is mounted, too.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut found = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    });
    found.next()
}

fn open_folder(path: &Path) -> Result<File, Errno> {
    let folder = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(path);
    folder.map_err(|error| error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw))
}
