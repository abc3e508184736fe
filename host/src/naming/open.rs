//! Opening files that an observed process names or owns.
//!
//! A path of another process is resolved inside that process's root, never outside, and never through magic
//! links of procfs. The file is checked before it is opened (`O_PATH` has no effect on a device, a FIFO or a
//! lease). Only a regular file of bounded length is opened, without blocking, and none of a file system of the
//! kernel: in a user namespace its owner binds such a file over any path, and opening it has effects. A file's
//! identity is taken from the descriptor, and compared before the file is opened: a path is resolved only once.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::libc;
use nix::sys::stat::Mode;

use crate::files::is_of_kernel;

/// Largest program, library or debug file that is read, in bytes.
pub(crate) const MAX_PROGRAM_BYTES: u64 = 1 << 30;

/// Limit of retries when a rename disturbs path resolution, as openat2(2) advises.
const ATTEMPTS: usize = 16;

/// The reason why a file is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OpenRefusal {
    /// The file does not exist, or lies outside the root in which it is looked up.
    #[error("there is no such file")]
    Missing,
    /// This user may not open it.
    #[error("permission denied")]
    Denied,
    /// It is a device, a FIFO, a directory or a socket.
    #[error("it is not a regular file")]
    NotRegular,
    /// It is on procfs, sysfs or a similar file system of the kernel.
    #[error("it is a file of the kernel itself, not of a program")]
    OfKernel,
    /// Its length in bytes exceeds the limit.
    #[error("it has {0} bytes, more than are read")]
    TooLong(u64),
    /// Another error of the kernel.
    #[error("{0}")]
    Kernel(Errno),
}

impl From<Errno> for OpenRefusal {
    fn from(errno: Errno) -> OpenRefusal {
        match errno {
            // ELOOP and EXDEV: a link where none is allowed, or one that points out of the root.
            Errno::ENOENT | Errno::ENOTDIR | Errno::ESRCH | Errno::ELOOP | Errno::EXDEV => {
                OpenRefusal::Missing
            }
            Errno::EACCES | Errno::EPERM => OpenRefusal::Denied,
            errno => OpenRefusal::Kernel(errno),
        }
    }
}

impl From<io::Error> for OpenRefusal {
    fn from(error: io::Error) -> OpenRefusal {
        OpenRefusal::from(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw))
    }
}

/// Identifies a file and its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileKey {
    /// Device number of its file system.
    pub(crate) device: u64,
    /// Inode number on that device.
    pub(crate) inode: u64,
    /// Length of the file in bytes.
    pub(crate) length: u64,
    /// Time of the last change of contents or metadata: seconds and nanoseconds.
    pub(crate) changed: (i64, i64),
}

/// A regular file, open for reading.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    pub(crate) file: File,
    pub(crate) key: FileKey,
    /// User id of its owner.
    pub(crate) owner: u32,
    /// Number of hard links.
    pub(crate) links: u64,
}

/// A directory in which paths are resolved as if it were the root.
#[derive(Debug)]
pub(crate) struct Root(OwnedFd);

impl Root {
    /// Opens the root of this process.
    pub(crate) fn own() -> Result<Root, OpenRefusal> {
        Root::at(c"/")
    }

    /// Opens a directory of this machine by a path that only root can change.
    pub(crate) fn at(path: &std::ffi::CStr) -> Result<Root, OpenRefusal> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Root(nix::fcntl::open(path, flags, Mode::empty())?))
    }

    /// Opens the root of the process with this procfs directory.
    pub(crate) fn of_process(folder: BorrowedFd<'_>) -> Result<Root, OpenRefusal> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(Root(openat(folder, "root", flags, Mode::empty())?))
    }

    /// Opens a directory below this one. Links are followed inside the root.
    pub(crate) fn folder(&self, path: &[u8]) -> Result<Root, OpenRefusal> {
        self.open_path(
            path,
            OFlag::O_DIRECTORY,
            ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        )
        .map(Root)
    }

    /// Finds the file at this path without opening it. Links are followed inside the root.
    pub(crate) fn find(&self, path: &[u8]) -> Result<FoundFile, OpenRefusal> {
        FoundFile::of(self.open_path(
            path,
            OFlag::empty(),
            ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        )?)
    }

    /// Opens the regular file at this path. Links are followed inside the root.
    pub(crate) fn file(&self, path: &[u8], most_bytes: u64) -> Result<OpenedFile, OpenRefusal> {
        self.find(path)?.open(most_bytes)
    }

    /// Opens the regular file with this name directly in this directory: no link, no subdirectory.
    pub(crate) fn entry(&self, name: &[u8], most_bytes: u64) -> Result<OpenedFile, OpenRefusal> {
        if name.is_empty() || name.contains(&b'/') || name == b".." {
            return Err(OpenRefusal::Missing);
        }
        let found = self.open_path(
            name,
            OFlag::O_NOFOLLOW,
            ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS,
        )?;
        FoundFile::of(found)?.open(most_bytes)
    }

    fn open_path(&self, path: &[u8], flags: OFlag, resolve: ResolveFlag) -> Result<OwnedFd, OpenRefusal> {
        let how = OpenHow::new().flags(OFlag::O_PATH | OFlag::O_CLOEXEC | flags).resolve(resolve);
        let mut answer = Err(Errno::EAGAIN);
        for _ in 0..ATTEMPTS {
            answer = openat2(self.0.as_fd(), path, how);
            if answer.as_ref().err() != Some(&Errno::EAGAIN) {
                break;
            }
        }
        Ok(answer?)
    }
}

/// A file that was found and not opened: its type, length and identity are known.
#[derive(Debug)]
pub(crate) struct FoundFile {
    /// An `O_PATH` descriptor.
    found: File,
    facts: fs::Metadata,
}

impl FoundFile {
    /// Examines the file of an `O_PATH` descriptor.
    pub(crate) fn of(found: OwnedFd) -> Result<FoundFile, OpenRefusal> {
        let found = File::from(found);
        let facts = found.metadata()?;
        Ok(FoundFile { found, facts })
    }

    /// Its identity.
    pub(crate) fn key(&self) -> FileKey {
        FileKey {
            device: self.facts.dev(),
            inode: self.facts.ino(),
            length: self.facts.len(),
            changed: (self.facts.ctime(), self.facts.ctime_nsec()),
        }
    }

    /// Opens the file for reading, if it is a regular file of at most this many bytes, and not of the kernel.
    pub(crate) fn open(self, most_bytes: u64) -> Result<OpenedFile, OpenRefusal> {
        if !self.facts.is_file() {
            return Err(OpenRefusal::NotRegular);
        }
        if is_of_kernel(&self.found)? {
            return Err(OpenRefusal::OfKernel);
        }
        if self.facts.len() > most_bytes {
            return Err(OpenRefusal::TooLong(self.facts.len()));
        }
        // The descriptor refers to this very inode. O_NONBLOCK: an owner may hold a lease, for which open(2)
        // would wait.
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
        let file = options.open(format!("/proc/self/fd/{}", self.found.as_raw_fd()))?;
        Ok(OpenedFile { file, key: self.key(), owner: self.facts.uid(), links: self.facts.nlink() })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("ks-open-{}-{name}", std::process::id()));
            fs::create_dir(&path).expect("the temporary folder is writable");
            Folder(path)
        }

        fn root(&self) -> Root {
            use std::os::unix::ffi::OsStrExt as _;
            let path = std::ffi::CString::new(self.0.as_os_str().as_bytes()).expect("no zero in it");
            Root::at(&path).expect("it was just made")
        }

        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.0.join(name);
            fs::write(&path, text).expect("it is ours");
            path
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // A leftover directory is harmless.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn refused(answer: Result<OpenedFile, OpenRefusal>) -> OpenRefusal {
        answer.expect_err("it is refused")
    }

    #[test]
    fn links_stay_in_the_root() {
        let folder = Folder::new("root");
        folder.write("in", "here");
        symlink("/in", folder.0.join("absolute")).expect("it is ours");
        symlink("../../../etc/passwd", folder.0.join("out")).expect("it is ours");
        symlink("/proc/self/root/etc/passwd", folder.0.join("magic")).expect("it is ours");
        let root = folder.root();
        for path in ["in", "/in", "../../in", "absolute"] {
            assert_eq!(root.file(path.as_bytes(), 9).expect(path).key.length, 4);
        }
        for path in ["out", "magic", "/etc/passwd"] {
            assert_eq!(refused(root.file(path.as_bytes(), 9)), OpenRefusal::Missing, "{path}");
        }
        let own = Root::own().expect("there is one");
        assert_eq!(refused(own.file(b"/proc/self/exe", u64::MAX)), OpenRefusal::Missing);
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = Folder::new("kinds");
        nix::unistd::mkfifo(&folder.0.join("fifo"), Mode::from_bits_truncate(0o666)).expect("it is ours");
        let root = folder.root();
        assert_eq!(refused(root.file(b"fifo", 9)), OpenRefusal::NotRegular);
        assert_eq!(refused(root.file(b".", 9)), OpenRefusal::NotRegular);
        let own = Root::own().expect("there is one");
        assert_eq!(refused(own.file(b"/dev/null", 9)), OpenRefusal::NotRegular);
        folder.write("long", "0123456789");
        assert_eq!(refused(root.file(b"long", 9)), OpenRefusal::TooLong(10));
    }

    /// procfs reports them as regular files without contents.
    #[test]
    fn files_of_the_kernel_are_not_opened() {
        let own = Root::own().expect("there is one");
        for path in [&b"/proc/version"[..], b"/proc/1/mem", b"/sys/kernel/notes"] {
            let found = own.find(path).expect("it is only looked at");
            assert!(found.facts.is_file());
            assert_eq!(refused(found.open(u64::MAX)), OpenRefusal::OfKernel);
        }
    }

    #[test]
    fn entries_are_not_links_and_stay_in_their_folder() {
        let folder = Folder::new("entry");
        folder.write("map", "1");
        symlink("map", folder.0.join("link")).expect("it is ours");
        let root = folder.root();
        assert_eq!(root.entry(b"map", 9).expect("it is there").links, 1);
        assert_eq!(refused(root.entry(b"link", 9)), OpenRefusal::NotRegular);
        for name in ["../map", "/map", "", "..", "none"] {
            assert_eq!(refused(root.entry(name.as_bytes(), 9)), OpenRefusal::Missing, "{name}");
        }
    }
}
