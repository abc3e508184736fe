//! Cache of compiled code on disk, so that a plugin is compiled once.
//!
//! In: the bytes of a plugin and the code that the engine compiled from them, or a script and the plugin that it was
//! compiled to. Out: that code or plugin again, byte for byte, or nothing. Loading code is equivalent to running it, so
//! no code is loaded that somebody else could have written. The folder belongs to the effective user with mode 0700 and is not reached through a link.
//! Each entry carries an authentication code made with a key that is kept in the folder. A process with more
//! rights than its user has no cache at all. The compilation itself is elsewhere.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit, Mac};
use nix::fcntl::{self, AtFlags, OFlag};
use nix::sys::stat::Mode;
use nix::unistd::{self, UnlinkatFlags};
use sha2::{Digest, Sha256};

/// Limit on the bytes of all entries; the oldest are removed when a new one would exceed it. Guards the disk
/// against a cache that only grows.
const MAX_CACHE_BYTES: u64 = 512 << 20;

/// Name of the file that holds the key.
const KEY: &str = "key";
const KEY_BYTES: usize = 32;
const TAG_BYTES: usize = 32;

/// A folder of compiled code that is safe to use.
#[derive(Debug)]
pub struct Cache {
    pub(super) path: PathBuf,
    pub(super) folder: OwnedFd,
    key: [u8; KEY_BYTES],
}

/// Why there is no cache, or an entry cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A system call failed.
    #[error("the cache of compiled code {}: {tried}: {source}", .path.display())]
    Io {
        /// The folder of the cache.
        path: PathBuf,
        /// The operation that failed.
        tried: &'static str,
        /// The error of the operation.
        source: io::Error,
    },
    /// The folder belongs to somebody else or is writable for others.
    #[error(
        "the cache of compiled code {} is not safe to use: {what}; remove it, or name another with --cache",
        .path.display()
    )]
    Unsafe {
        /// The folder of the cache.
        path: PathBuf,
        /// The reason why it is unsafe.
        what: String,
    },
    /// The process has capabilities that other processes of its user could gain by writing to the cache.
    #[error(
        "no cache of compiled code: this process has capabilities that its user has not, and the user could \
         write to the cache"
    )]
    Privileged,
}

/// Name of an entry, derived from the plugin's bytes and from the properties of the engine that compiled code
/// depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntryName(String);

impl EntryName {
    /// Returns the name for the code that an engine with this `compatibility` compiles from these bytes.
    pub(super) fn new(plugin: &[u8], compatibility: u64) -> EntryName {
        EntryName(format!("{}-{compatibility:016x}", Hex(&Sha256::digest(plugin))))
    }

    /// Returns the name for what a script with this digest is compiled to.
    fn of_script(digest: &[u8; 32]) -> EntryName {
        EntryName(format!("script-{}", Hex(digest)))
    }
}

/// Code that is trusted: this user's host wrote it into its cache, or a process of this program has just
/// compiled it.
pub(crate) struct TrustedCode(Vec<u8>);

impl TrustedCode {
    /// Trusts code that a process of this program compiled for this process.
    pub(crate) fn own(code: Vec<u8>) -> TrustedCode {
        TrustedCode(code)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Cache {
    /// Returns this user's default folder: `/var/cache/ks-host` for root, else `ks-host` in `XDG_CACHE_HOME`
    /// or in `.cache` of `HOME`. None if no home is known.
    pub fn default_folder(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
        if unistd::geteuid().is_root() {
            return Some("/var/cache/ks-host".into());
        }
        let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
        absolute("XDG_CACHE_HOME")
            .or_else(|| Some(absolute("HOME")?.join(".cache")))
            .map(|caches| caches.join("ks-host"))
    }

    /// Opens a cache; creates the folder and its key if they do not exist.
    ///
    /// # Errors
    /// [`CacheError::Unsafe`] if the folder is a link, or is accessible for others than the effective user;
    /// [`CacheError::Privileged`]; [`CacheError::Io`].
    pub fn open(path: &Path) -> Result<Cache, CacheError> {
        refuse_more_rights()?;
        let failed = |tried| move |source: io::Error| CacheError::Io { path: path.into(), tried, source };
        make_folder(path).map_err(failed("make the folder"))?;
        let folder = open_folder(path)?;
        let key = match read_key(&folder) {
            Some(key) => key,
            None => make_key(&folder).map_err(failed("make the key"))?,
        };
        Ok(Cache { path: path.into(), folder, key })
    }

    /// The folder of the cache, as it was given to [`Cache::open`].
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the code of this name, if the entry exists and is authenticated by the key.
    pub(super) fn load(&self, name: &EntryName) -> Option<TrustedCode> {
        let mut entry = read_file(&self.folder, &name.0).ok()?;
        let tag = entry.split_off(entry.len().checked_sub(TAG_BYTES)?);
        self.mac(name, &entry).verify_slice(&tag).ok()?;
        Some(TrustedCode(entry))
    }

    /// Returns what a script was compiled to. The digest is that of all that decides it.
    pub fn script(&self, digest: &[u8; 32]) -> Option<Vec<u8>> {
        self.load(&EntryName::of_script(digest)).map(|TrustedCode(bytes)| bytes)
    }

    /// Keeps what a script was compiled to.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn keep_script(&self, digest: &[u8; 32], compiled: &[u8]) -> Result<(), CacheError> {
        self.store(&EntryName::of_script(digest), compiled)
    }

    /// Writes the code of this name atomically: a reader sees all of it or nothing. Removes the oldest
    /// entries if the cache would become too large; code that alone exceeds the limit is not stored.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub(super) fn store(&self, name: &EntryName, code: &[u8]) -> Result<(), CacheError> {
        let len = (code.len() + TAG_BYTES) as u64;
        if len > MAX_CACHE_BYTES {
            return Ok(());
        }
        self.make_room(len);
        let tag = self.mac(name, code).finalize().into_bytes();
        write_file(&self.folder, &name.0, &[code, &tag], Replace::Yes).map_err(|source| CacheError::Io {
            path: self.path.clone(),
            tried: "write an entry",
            source,
        })
    }

    fn mac(&self, name: &EntryName, code: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes a key of any length");
        // With the length, no name and code denote the same bytes as another pair.
        mac.update(&(name.0.len() as u64).to_le_bytes());
        mac.update(name.0.as_bytes());
        mac.update(code);
        mac
    }

    /// Removes the oldest entries until `bytes` bytes fit. Entries that cannot be removed stay: the cache is
    /// then too large, which is its only consequence.
    pub(super) fn make_room(&self, bytes: u64) {
        let Ok(listed) = std::fs::read_dir(&self.path) else { return };
        let mut entries: Vec<_> = listed
            .flatten()
            .filter(|entry| entry.file_name() != KEY)
            .filter_map(|entry| {
                let found = entry.metadata().ok()?;
                Some((found.modified().ok()?, found.len(), entry.file_name()))
            })
            .collect();
        entries.sort();
        let mut total: u64 = entries.iter().map(|(_, len, _)| len).sum();
        for (_, len, name) in entries {
            if total.saturating_add(bytes) <= MAX_CACHE_BYTES {
                return;
            }
            if unistd::unlinkat(&self.folder, name.as_os_str(), UnlinkatFlags::NoRemoveDir).is_ok() {
                total -= len;
            }
        }
    }
}

/// Creates the folder with mode 0700, and its missing parents with the mode of the user's umask.
fn make_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    match std::fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn open_folder(path: &Path) -> Result<OwnedFd, CacheError> {
    let refused = |what: String| CacheError::Unsafe { path: path.into(), what };
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let folder = fcntl::open(path, flags, Mode::empty())
        .map_err(|errno| refused(format!("it is a link or no folder ({errno})")))?;
    let found = nix::sys::stat::fstat(&folder).map_err(|errno| refused(errno.to_string()))?;
    let user = unistd::geteuid().as_raw();
    if found.st_uid != user {
        return Err(refused(format!("it belongs to user {}, not to {user}", found.st_uid)));
    }
    let mode = found.st_mode & 0o7777;
    if mode != 0o700 {
        return Err(refused(format!("its mode is {mode:04o}, not 0700")));
    }
    Ok(folder)
}

/// Reads a file of the folder, as [`open_file`] opens it.
fn read_file(folder: &OwnedFd, name: &str) -> io::Result<Vec<u8>> {
    let (mut file, len) = open_file(folder, name)?;
    let mut bytes = Vec::with_capacity(len as usize);
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a file of the folder, if it is a regular file that only this user can read and write. Returns its length, too.
pub(super) fn open_file(folder: &OwnedFd, name: &str) -> io::Result<(File, u64)> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(fcntl::openat(folder, name, flags, Mode::empty())?);
    let found = file.metadata()?;
    let own = found.is_file() && found.uid() == unistd::geteuid().as_raw() && found.mode() & 0o7777 == 0o600;
    if !own || found.len() > MAX_CACHE_BYTES {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok((file, found.len()))
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Replace {
    Yes,
    No,
}

/// Writes a file under a temporary name first, so that no reader sees a part. `Replace::No` keeps an existing
/// file.
pub(super) fn write_file(folder: &OwnedFd, name: &str, parts: &[&[u8]], replace: Replace) -> io::Result<()> {
    let part = format!(".{name}.{}-{:?}.part", std::process::id(), std::thread::current().id());
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    // A killed process with the same process id may have left this file.
    let _ = unistd::unlinkat(folder, part.as_str(), UnlinkatFlags::NoRemoveDir);
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let mut file = File::from(fcntl::openat(folder, part.as_str(), flags, mode)?);
    let written = parts.iter().try_for_each(|bytes| file.write_all(bytes)).and_then(|()| {
        match replace {
            Replace::Yes => fcntl::renameat(folder, part.as_str(), folder, name),
            Replace::No => unistd::linkat(folder, part.as_str(), folder, name, AtFlags::empty()),
        }
        .map_err(io::Error::from)
    });
    if written.is_err() || replace == Replace::No {
        // The first error is the one to report.
        let _ = unistd::unlinkat(folder, part.as_str(), UnlinkatFlags::NoRemoveDir);
    }
    written
}

fn read_key(folder: &OwnedFd) -> Option<[u8; KEY_BYTES]> {
    read_file(folder, KEY).ok()?.try_into().ok()
}

/// Creates the key. If several processes do so at once, one wins and all read its key.
fn make_key(folder: &OwnedFd) -> io::Result<[u8; KEY_BYTES]> {
    let mut key = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    match write_file(folder, KEY, &[&key], Replace::No) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // Either this process created it, or another process did.
        _ => match read_key(folder) {
            Some(key) => Ok(key),
            // The file is not a valid key: entries that it authenticated are worthless, too.
            None => write_file(folder, KEY, &[&key], Replace::Yes).map(|()| key),
        },
    }
}

/// Refuses the cache to a process with more rights than its user.
///
/// # Errors
/// [`CacheError::Privileged`].
pub(super) fn refuse_more_rights() -> Result<(), CacheError> {
    if more_rights_than_the_user() { Err(CacheError::Privileged) } else { Ok(()) }
}

/// Whether the process holds capabilities although its user is not root: file capabilities or ambient ones.
/// Other processes of that user do not have them, and must not gain them through code in the cache.
fn more_rights_than_the_user() -> bool {
    let (real, effective) = (unistd::getuid(), unistd::geteuid());
    if real != effective {
        return true;
    }
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let permitted = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    let none = permitted.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()) == Some(0);
    !effective.is_root() && !none
}

pub(super) struct Hex<'a>(pub(super) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
