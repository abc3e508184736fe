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

impl Program<'_> {
    /// Attaches a program to a control group and all below it: its folder, absolute or below where the hierarchy of
    /// version 2 is mounted.
    pub(super) fn attach_cgroup(&self, target: &str) -> Result<Link, BpfError> {
        if target.is_empty() || target.contains('\0') {
            return Err(self.target(target, GROUP));
        }
        // Of an absolute path `join` keeps the path alone.
        let path = hierarchy().unwrap_or_else(|| PathBuf::from("/")).join(target);
        let folder = open_folder(&path).map_err(|errno| {
            self.kernel(&format!("open the control group `{}`", path.display()), "open(cgroup)", errno)
        })?;
        match self.create_link(folder.as_raw_fd(), 0) {
            // What the kernel says of a folder that is no control group.
            Err(Errno::EBADF) => Err(self.target(target, GROUP)),
            linked => linked
                .map_err(|errno| self.not_linked(&format!("the control group `{}`", path.display()), errno)),
        }
    }
}

/// Where the hierarchy of version 2 is mounted: `/sys/fs/cgroup`, or a folder in it beside version 1.
fn hierarchy() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mut found = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (path, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    });
    found.next()
}

fn open_folder(path: &Path) -> Result<File, Errno> {
    let folder = OpenOptions::new().read(true).custom_flags(OFlag::O_DIRECTORY.bits()).open(path);
    folder.map_err(|error| error.raw_os_error().map_or(Errno::UnknownErrno, Errno::from_raw))
}
