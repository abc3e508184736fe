//! Files that this program writes, usually as root and into folders that others may own. No link is followed
//! and no file of others is written; every file is readable only for this user, whatever its mode was.
//!
//! | written         | by           | the name gets the new file                                          |
//! |-----------------|--------------|---------------------------------------------------------------------|
//! | as a whole      | [`replace`]  | when it is complete                                                 |
//! | while a run     | [`create`]   | before anything is written, so that what was written is found after |
//! |                 |              | a crash                                                             |
//! | by several runs | [`append`]   | never, if it exists: it is continued if it is this user's           |

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::libc;

/// How many random names are tried if the name is taken.
const ATTEMPTS: usize = 16;

/// Whether a file's name means standard output.
pub(crate) fn is_standard_output(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Refuses standard output for what cannot share it with the plugins' lines.
///
/// # Errors
/// If the file's name means standard output.
pub(crate) fn demand_file(file: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        !is_standard_output(file),
        "standard output has what the plugins print: name a file (`./-` for one of this name)"
    );
    Ok(())
}

/// Replaces a file atomically: a concurrent reader gets the old contents or the new, which only this user can
/// read. A link, a device or a FIFO of that name stays as it is.
///
/// # Errors
/// Of the system calls; `InvalidInput` if something of that name is not a regular file.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(facts) if !facts.is_file() => return Err(not_a_file()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    new_file(path, |part| part.write_all(bytes)).map(drop)
}

/// Creates a file beside the path, lets the caller write it, and renames it to the path.
fn new_file(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<File> {
    let (mut part, name) = create_part(path)?;
    let written = write(&mut part).and_then(|()| fs::rename(&name, path));
    if let Err(error) = written {
        // The partial file is of no use; the caller reports the failed write.
        let _ = fs::remove_file(&name);
        return Err(error);
    }
    Ok(part)
}

/// Opens a file for appending, and makes it readable only for this user.
///
/// # Errors
/// Of open(2), including ELOOP for a link; `InvalidInput` if it is neither a regular file nor a device of
/// root, or belongs to another user.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    let file = own(OpenOptions::new().append(true).create(true), path)?;
    let facts = file.metadata()?;
    if facts.is_file() && facts.mode() & 0o077 != 0 {
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Replaces a file by an empty one, which is then written piece by piece. Whoever has the old one open keeps
/// its contents.
///
/// # Errors
/// Like [`append`], but a file with several names is replaced under this one.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(facts) if facts.is_file() && facts.uid() == nix::unistd::geteuid().as_raw() => {}
        Ok(facts) if facts.is_file() => return Err(not_own()),
        Ok(_) => return own(OpenOptions::new().write(true), path),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Err(_) => {}
    }
    new_file(path, |_| Ok(()))
}

fn own(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = options.mode(0o600).custom_flags(flags).open(path);
    let file = opened.map_err(|error| match error.raw_os_error() {
        // A FIFO without a reader, or a socket.
        Some(libc::ENXIO) => not_a_file(),
        Some(libc::ELOOP) => {
            io::Error::new(io::ErrorKind::InvalidInput, "it is a link: name the file itself")
        }
        _ => error,
    })?;
    let facts = file.metadata()?;
    // Only root can create devices: whoever names `/dev/null` means it.
    if facts.file_type().is_char_device() && facts.uid() == 0 {
        return Ok(file);
    }
    if !facts.is_file() {
        return Err(not_a_file());
    }
    if facts.uid() != nix::unistd::geteuid().as_raw() || facts.nlink() != 1 {
        return Err(not_own());
    }
    Ok(file)
}

/// Creates a file with a random, unpredictable name in the same folder.
fn create_part(path: &Path) -> io::Result<(File, PathBuf)> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().ok_or_else(not_a_file)?;
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
    let mut answer = Err(io::ErrorKind::AlreadyExists.into());
    for _ in 0..ATTEMPTS {
        let mut random = [0; 8];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let mut part = OsString::from(".");
        part.push(name);
        part.push(format!(".{:016x}.part", u64::from_ne_bytes(random)));
        let part = folder.join(part);
        answer = options.open(&part).map(|file| (file, part));
        match &answer {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            _ => break,
        }
    }
    answer
}

fn not_own() -> io::Error {
    let reason = "it is another user's file, or has another name: name a new file";
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is a link, or no regular file: name another file")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("ks-output-{}-{name}", std::process::id()));
            fs::create_dir(&path).expect("the temporary folder is writable");
            fs::write(path.join("victim"), "before").expect("it is ours");
            symlink("victim", path.join("link")).expect("it is ours");
            let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
            nix::unistd::mkfifo(&path.join("fifo"), mode).expect("it is ours");
            Folder(path)
        }

        fn text(&self, name: &str) -> String {
            fs::read_to_string(self.0.join(name)).expect("it is there")
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            // A folder that is left in the temporary directory does no harm.
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn only_regular_files_are_written() {
        let folder = Folder::new("kinds");
        for name in ["link", "fifo", "."] {
            let path = folder.0.join(name);
            assert!(replace(&path, b"new").is_err(), "{name}");
            assert!(append(&path).is_err() && create(&path).is_err(), "{name}");
        }
        assert!(replace(Path::new("/dev/null"), b"").is_err());
        assert!(append(Path::new("/dev/null")).is_ok() && create(Path::new("/dev/zero")).is_ok());
        assert_eq!(folder.text("victim"), "before");
        fs::hard_link(folder.0.join("victim"), folder.0.join("hard")).expect("it is ours");
        assert!(append(&folder.0.join("hard")).is_err());
        // The new file takes the name; the other hard link keeps the old contents.
        replace(&folder.0.join("hard"), b"new").expect("the folder is ours");
        assert_eq!((folder.text("victim"), folder.text("hard")), ("before".into(), "new".into()));
        fs::remove_file(folder.0.join("hard")).expect("it is ours");
        fs::hard_link(folder.0.join("victim"), folder.0.join("hard")).expect("it is ours");
        create(&folder.0.join("hard")).expect("the folder is ours");
        assert_eq!((folder.text("victim"), folder.text("hard")), ("before".into(), String::new()));
        assert_eq!(fs::read_dir(&folder.0).expect("it is ours").count(), 4);
    }

    #[test]
    fn files_are_private_to_the_user_whatever_they_were() {
        let folder = Folder::new("modes");
        let path = |name: &str| folder.0.join(name);
        for name in ["victim", "audit", "record"] {
            fs::write(path(name), "").expect("the folder is ours");
            fs::set_permissions(path(name), fs::Permissions::from_mode(0o666)).expect("it is ours");
        }
        // Somebody may have opened a file before this user wrote it.
        let mut spy = File::open(path("record")).expect("everybody may read it");
        replace(&path("victim"), b"one").expect("the folder is ours");
        append(&path("audit")).and_then(|mut file| file.write_all(b"a")).expect("the folder is ours");
        append(&path("audit")).and_then(|mut file| file.write_all(b"b")).expect("the folder is ours");
        create(&path("record")).and_then(|mut file| file.write_all(b"longer")).expect("the folder is ours");
        create(&path("record")).and_then(|mut file| file.write_all(b"c")).expect("the folder is ours");
        for (name, text) in [("victim", "one"), ("audit", "ab"), ("record", "c")] {
            let mode = fs::metadata(path(name)).expect("it is there").permissions().mode() & 0o777;
            assert_eq!((folder.text(name).as_str(), mode), (text, 0o600), "{name}");
        }
        let mut seen = String::new();
        spy.read_to_string(&mut seen).expect("it is open");
        assert_eq!(seen, "");
    }

    #[test]
    fn a_file_that_is_being_written_is_found_under_its_name() {
        let folder = Folder::new("crash");
        let mut file = create(&folder.0.join("record")).expect("the folder is ours");
        file.write_all(b"begun").expect("it is ours");
        assert_eq!(folder.text("record"), "begun");
        assert_eq!(fs::read_dir(&folder.0).expect("it is ours").count(), 4);
    }
}
