//! Files that a plugin names.
//!
//! Each file is accessed only through one descriptor: its type, its contents, and the path for the kernel. So
//! its owner cannot replace it between two accesses. Only regular files are opened: opening a device or a
//! FIFO has effects (it starts a watchdog, rewinds a tape, unblocks a writer), even if nothing is read.
//!
//! Nothing is mapped: truncating a mapped file kills processes that access the mapping (SIGBUS).

use std::ffi::CString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::libc;
use nix::sys::statfs::fstatfs;

use crate::killed;
use crate::opener;

/// The first bytes of a program or library. Source: elf(5).
const ELF: [u8; 4] = *b"\x7fELF";

/// Why a file is not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// A system call failed.
    #[error("{call}: {errno}")]
    Kernel {
        /// Name of the system call.
        call: &'static str,
        /// Errno of the call.
        errno: Errno,
    },
    /// The file is on procfs, sysfs or a similar file system of the kernel.
    #[error("it is a file of the kernel itself, not of a program")]
    OfKernel,
    /// The file is a device, a folder, a FIFO or a socket; the text names its type.
    #[error("it is {0}, not a regular file")]
    NotRegular(&'static str),
    /// The file is not a program or library.
    #[error("it is not an ELF file")]
    NotElf,
    /// The file is shorter than its headers say.
    #[error("it ends where it says that there is more")]
    Short,
    /// The file was written, replaced or renamed since it was opened.
    #[error("it was changed meanwhile")]
    Changed,
    /// The plugin on whose behalf the file is read was killed.
    #[error("the plugin was ended meanwhile")]
    Ended,
}

impl FileError {
    fn of(call: &'static str, error: &io::Error) -> FileError {
        match error.raw_os_error() {
            Some(errno) => FileError::Kernel { call, errno: Errno::from_raw(errno) },
            None => FileError::Short,
        }
    }
}

/// An open regular file, and its state at the time of opening.
#[derive(Debug)]
pub(crate) struct RegularFile {
    file: File,
    path: PathBuf,
    real_path: Option<PathBuf>,
    state: FileState,
}

/// Why no program or library was opened.
#[derive(Debug)]
pub(crate) struct NoProgram {
    pub(crate) error: FileError,
    /// Whether a part of the path is a link: the error then says something about a file that the path does not
    /// name. Looked up by the thread that opens: others may not see the folders.
    pub(crate) is_behind_link: bool,
}

/// Properties that change when a file is written or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Time of modification in seconds and nanoseconds.
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileState {
    fn of(metadata: &Metadata) -> FileState {
        FileState {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl RegularFile {
    /// Opens a program or library, through the opener of the calling thread if it has one. Reads nothing but
    /// whether it is one.
    ///
    /// # Errors
    /// [`NoProgram`], with [`FileError::NotElf`], or as [`RegularFile::open`].
    pub(crate) fn program(path: &Path) -> Result<RegularFile, NoProgram> {
        opener::program(path).unwrap_or_else(|| RegularFile::open_program(path))
    }

    /// Opens a program or library on the calling thread.
    ///
    /// # Errors
    /// As [`RegularFile::program`].
    pub(crate) fn open_program(path: &Path) -> Result<RegularFile, NoProgram> {
        let opened = RegularFile::open(path).and_then(|file| {
            let mut start = [0; ELF.len()];
            match file.read_at(0, &mut start) {
                Ok(()) if start == ELF => Ok(file),
                Ok(()) | Err(FileError::Short) => Err(FileError::NotElf),
                Err(error) => Err(error),
            }
        });
        opened.map_err(|error| NoProgram { error, is_behind_link: leads_through_link(path) })
    }

    /// Opens a regular file for reading.
    ///
    /// # Errors
    /// [`FileError::NotRegular`] and [`FileError::OfKernel`], without opening the file; [`FileError::Kernel`]
    /// of open(2) and fstat(2), EWOULDBLOCK if somebody holds a lease on it; [`FileError::Changed`].
    pub(crate) fn open(path: &Path) -> Result<RegularFile, FileError> {
        // O_PATH finds the file without opening it, so no driver is called.
        let found = open(path, libc::O_PATH)?;
        let state = regular(&found)?;
        if is_of_kernel(&found).map_err(|errno| FileError::Kernel { call: "fstatfs", errno })? {
            return Err(FileError::OfKernel);
        }
        // Reopens the examined file, whatever its path names now. The holder of a lease on it could delay a
        // blocking open(2).
        let file = open(Path::new(&own_path(&found)), libc::O_NONBLOCK | libc::O_NOCTTY)?;
        if regular(&file)? != state {
            return Err(FileError::Changed);
        }
        let real_path = real_path(&file, state);
        Ok(RegularFile { file, path: path.to_owned(), real_path, state })
    }

    /// The path as it was given: for messages only.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The absolute path without links at the time of opening, by which policies know the file; none if no path
    /// of this process's root reached it.
    pub(crate) fn real_path(&self) -> Option<&Path> {
        self.real_path.as_deref()
    }

    /// Size in bytes at the time of opening.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.bytes
    }

    /// Path by which the kernel reaches this file while the descriptor is open, in system calls of this
    /// process.
    pub(crate) fn kernel_path(&self) -> CString {
        // The path contains no NUL byte, since it ends in a number.
        CString::new(own_path(&self.file)).unwrap_or_default()
    }

    /// Fills a buffer from an offset in the file.
    ///
    /// # Errors
    /// [`FileError::Short`]; [`FileError::Kernel`] of pread(2); [`FileError::Ended`], so that no file keeps the
    /// thread of a killed plugin for longer than one piece of it.
    pub(crate) fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), FileError> {
        if killed::is_killed() {
            return Err(FileError::Ended);
        }
        self.file.read_exact_at(buffer, offset).map_err(|error| FileError::of("pread", &error))
    }

    /// Checks that the file is the same as when it was opened, so that everything read from it is still
    /// valid.
    ///
    /// # Errors
    /// [`FileError::Changed`]; [`FileError::Kernel`] of fstat(2).
    pub(crate) fn check_unchanged(&self) -> Result<(), FileError> {
        if regular(&self.file)? == self.state { Ok(()) } else { Err(FileError::Changed) }
    }
}

/// Returns the absolute path that the text of a path denotes if none of its parts is a link: without empty,
/// `.` and `..` parts. The file system is not asked.
pub(crate) fn without_dots(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            // The parent of the root is the root.
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Returns whether a part of a path is a link. An error of such a path says something about a file that the
/// path does not name.
pub(crate) fn leads_through_link(path: &Path) -> bool {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut passed = PathBuf::new();
    absolute.components().any(|part| {
        passed.push(part);
        std::fs::symlink_metadata(&passed).is_ok_and(|found| found.is_symlink())
    })
}

/// Returns the absolute path of an open file without links.
fn real_path(file: &File, state: FileState) -> Option<PathBuf> {
    let path = std::fs::read_link(own_path(file)).ok()?;
    // The kernel prints a path for deleted files and those of other mount namespaces, too.
    let found = FileState::of(&std::fs::symlink_metadata(&path).ok()?);
    ((found.device, found.inode) == (state.device, state.inode)).then_some(path)
}

/// Path of a descriptor's link in /proc. The kernel follows it to the file itself, not to a path.
fn own_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn open(path: &Path, flags: i32) -> Result<File, FileError> {
    // The standard library adds O_CLOEXEC.
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    opened.map_err(|error| FileError::of("open", &error))
}

/// Magic numbers of file systems whose files are functions of the kernel: opening or reading them has effects
/// (registers of devices in sysfs, traces that are read once). None of them holds programs.
///
/// Source: `include/uapi/linux/magic.h`, v6.18.
const OF_KERNEL: [libc::c_long; 18] = [
    0x9fa0,      // proc
    0x9fa1,      // openprom
    0x9fa2,      // usbdevfs
    0x6265_6572, // sysfs
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xcafe_4a11, // bpf
    0xf97c_ff8c, // selinux
    0x4341_5d53, // smack
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
    0x6265_6570, // configfs
    0x4249_4e4d, // binfmt_misc
    0x0765_5821, // resctrl
    0x6573_5543, // fusectl
];

/// Whether a file is a function of the kernel. An `O_PATH` descriptor suffices, which calls no driver.
pub(crate) fn is_of_kernel(file: impl AsFd) -> Result<bool, Errno> {
    let facts = fstatfs(file)?;
    // C libraries declare the number with different types.
    Ok(OF_KERNEL.contains(&(facts.filesystem_type().0 as libc::c_long)))
}

fn regular(file: &File) -> Result<FileState, FileError> {
    let metadata = file.metadata().map_err(|error| FileError::of("fstat", &error))?;
    let kind = metadata.file_type();
    let other = match () {
        () if kind.is_file() => return Ok(FileState::of(&metadata)),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(FileError::NotRegular(other))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;

    use nix::sys::stat::Mode;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("ks-files-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("the temporary folder is writable");
        folder
    }

    #[test]
    fn other_than_regular_files_are_refused_without_waiting() {
        let folder = folder("kinds");
        nix::unistd::mkfifo(&folder.join("fifo"), Mode::S_IRUSR).expect("a FIFO");
        let _socket = UnixListener::bind(folder.join("socket")).expect("a socket");
        for (path, kind) in [
            (folder.join("fifo"), "a FIFO"),
            (folder.join("socket"), "a socket"),
            (folder.clone(), "a folder"),
            ("/dev/zero".into(), "a device"),
        ] {
            let refused = RegularFile::open(&path).expect_err("no regular file");
            assert_eq!(refused, FileError::NotRegular(kind), "{}", path.display());
        }
        let missing = RegularFile::open(&folder.join("none")).expect_err("there is none");
        assert_eq!(missing, FileError::Kernel { call: "open", errno: Errno::ENOENT });
        fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn the_descriptor_is_the_file_whatever_happens_to_its_path() {
        let folder = folder("same");
        let path = folder.join("file");
        fs::write(&path, "one").expect("writable");
        let file = RegularFile::open(&path).expect("a regular file");
        file.check_unchanged().expect("nobody wrote");
        fs::write(folder.join("other"), "other").expect("writable");
        fs::rename(folder.join("other"), &path).expect("ours");
        let seen = fs::read_to_string(file.kernel_path().to_str().expect("a number")).expect("readable");
        assert_eq!(seen, "one");
        let mut bytes = [0; 3];
        file.read_at(0, &mut bytes).expect("three bytes");
        assert_eq!(&bytes, b"one");
        assert_eq!(file.read_at(1, &mut bytes), Err(FileError::Short));
        // The last link of the file is removed.
        assert_eq!(file.check_unchanged(), Err(FileError::Changed));
        fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn the_real_path_is_the_one_without_links() {
        let folder = folder("real").canonicalize().expect("it was made");
        let file = folder.join("file");
        fs::write(&file, "one").expect("writable");
        std::os::unix::fs::symlink(&file, folder.join("link")).expect("ours");
        let by_link = RegularFile::open(&folder.join("link")).expect("a regular file");
        assert_eq!(by_link.real_path(), Some(&*file));
        let opened = fs::File::open(&file).expect("ours");
        let state = regular(&opened).expect("a regular file");
        fs::write(folder.join("other"), "other").expect("writable");
        fs::rename(folder.join("other"), &file).expect("ours");
        assert_eq!(real_path(&opened, state), None, "its path is another file's");
        fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn a_path_is_normalised_by_its_text_and_links_in_it_are_seen() {
        let here = std::env::current_dir().expect("there is one");
        for (path, plain) in
            [("/a/./b//c/", "/a/b/c"), ("/a/../b", "/b"), ("/../a/b/../..", "/"), ("/a/b/../../../c", "/c")]
        {
            assert_eq!(without_dots(Path::new(path)), Path::new(plain), "{path}");
        }
        assert_eq!(without_dots(Path::new("./a/../b")), here.join("b"));
        let folder = folder("links").canonicalize().expect("it was made");
        std::os::unix::fs::symlink("/none", folder.join("link")).expect("ours");
        for (path, links) in [
            ("link", true),
            ("link/below", true),
            ("link/../none", true),
            ("none", false),
            ("./none/x", false),
        ] {
            assert_eq!(leads_through_link(&folder.join(path)), links, "{path}");
        }
        assert!(leads_through_link(Path::new("/proc/self/exe")));
        fs::remove_dir_all(folder).expect("it is ours");
    }

    #[test]
    fn a_file_that_is_written_is_seen_to_change() {
        let folder = folder("written");
        let path = folder.join("file");
        fs::write(&path, "one").expect("writable");
        let file = RegularFile::open(&path).expect("a regular file");
        fs::write(&path, "longer").expect("writable");
        assert_eq!(file.check_unchanged(), Err(FileError::Changed));
        fs::remove_dir_all(folder).expect("it is ours");
    }
}
