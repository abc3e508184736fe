//! Programs on what the processes of a control group do.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::OFlag;

use super::super::error::BpfError;
use super::super::link::Link;
use super::super::program::Program;

const GROUP: &str = "the folder of a control group of version 2, absolute or below where they are mounted";

/// A control group that is held open: what is asked of a policy is what a program is attached to.
#[derive(Debug)]
pub struct ControlGroup {
    folder: File,
    /// Its path, without links and dots.
    path: PathBuf,
    hierarchy: Option<PathBuf>,
}

impl ControlGroup {
    /// Opens a control group: its folder, absolute or below where the hierarchy of version 2 is mounted.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Kernel`]. `program` is who is to be attached, for messages.
    pub fn open(program: &str, target: &str) -> Result<ControlGroup, BpfError> {
        let no_group =
            || BpfError::Target { program: program.into(), target: target.into(), expected: GROUP };
        if target.is_empty() || target.contains('\0') {
            return Err(no_group());
        }
        let hierarchy = hierarchy();
        // Of an absolute path `join` keeps the path alone.
        let path = hierarchy.as_deref().unwrap_or(Path::new("/")).join(target);
        let not_opened = |errno| BpfError::Kernel {
            tried: format!("open the control group `{}`: program `{program}`", path.display()),
            call: "open(cgroup)",
            errno,
        };
        let folder = open_folder(&path).map_err(not_opened)?;
        // The name that the kernel has of it, whatever way led there.
        let path = fs::read_link(format!("/proc/self/fd/{}", folder.as_raw_fd()))
            .map_err(|error| not_opened(error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw)))?;
        Ok(ControlGroup { folder, path, hierarchy })
    }

    /// Its names: the absolute path, and the one below where the hierarchy is mounted.
    pub fn names(&self) -> Vec<String> {
        let below = self.hierarchy.as_ref().and_then(|root| self.path.strip_prefix(root).ok());
        let below = below.filter(|path| !path.as_os_str().is_empty());
        [Some(self.path.as_path()), below]
            .into_iter()
            .flatten()
            .map(|path| path.display().to_string())
            .collect()
    }
}

impl Program<'_> {
    /// Attaches a program to a control group and all below it.
    ///
    /// # Errors
    /// [`BpfError::Target`] if it is a folder of something else; [`BpfError::Kernel`].
    pub fn attach_to_group(&self, group: &ControlGroup) -> Result<Link, BpfError> {
        match self.create_link(group.folder.as_raw_fd(), 0) {
            // What the kernel says of a folder that is no control group.
            Err(Errno::EBADF) => Err(self.target(&group.path.display().to_string(), GROUP)),
            linked => linked.map_err(|errno| {
                self.not_linked(&format!("the control group `{}`", group.path.display()), errno)
            }),
        }
    }
}

/// Where the hierarchy of version 2 is mounted: `/sys/fs/cgroup`, or a folder in it beside version 1.
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
