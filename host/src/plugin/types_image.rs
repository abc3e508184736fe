//! The running kernel's types in a cache, with indexes of their names: who needs a few of them touches a few pages of a
//! file instead of reading 5 MB from sysfs.
//!
//! There is one image for each boot; a later one removes it. Its name tells kernel and boot, so it is always that of the
//! running kernel, and was written whole since the machine started. It holds what the kernel tells everybody, so it has
//! no authentication code as compiled code has.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use ks_compiler::object::btf::{Btf, IMAGE_VERSION};
use nix::unistd::{self, UnlinkatFlags};
use sha2::{Digest, Sha256};

use super::cache::{Cache, CacheError, Hex, Replace, open_file, open_folder, refuse_more_rights, write_file};
use super::mapped;
use crate::bpf::KERNEL_TYPES;

/// The notes of the kernel's file; one is the digest of its contents (`--build-id` of ld(1)).
const NOTES: &str = "/sys/kernel/notes";
/// A number that is new at each start of the machine. Source: random(4).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// First letters of the names of images.
const PREFIX: &str = "types-";

impl Cache {
    /// Opens the image of the running kernel's types in the cache in this folder; none if there is no such image, or if
    /// [`Cache::open`] would refuse the folder.
    #[must_use]
    pub fn types_in(folder: &Path) -> Option<Btf> {
        refuse_more_rights().ok()?;
        let folder = open_folder(folder).ok()?;
        let (file, _) = open_file(&folder, &name().ok()?).ok()?;
        Btf::open_image(mapped::file(&file).ok()?).ok()
    }

    /// Writes the image of the running kernel's types, and removes those of earlier boots.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn keep_types(&self) -> Result<(), CacheError> {
        let failed =
            |tried| move |source: io::Error| CacheError::Io { path: self.path.clone(), tried, source };
        let name = name().map_err(failed("name the image of the kernel's types"))?;
        let image = image().map_err(failed("make the image of the kernel's types"))?;
        self.remove_images_but(&name);
        self.make_room(image.len() as u64);
        write_file(&self.folder, &name, &[&image], Replace::Yes)
            .map_err(failed("write the image of the kernel's types"))
    }

    /// Removes what no process will open again. One that has it open keeps it until it ends.
    fn remove_images_but(&self, name: &str) {
        let Ok(listed) = fs::read_dir(&self.path) else { return };
        let names = listed.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        for old in names.filter(|old| old.starts_with(PREFIX) && old != name) {
            // An image that stays costs space only.
            let _ = unistd::unlinkat(&self.folder, old.as_str(), UnlinkatFlags::NoRemoveDir);
        }
    }
}

/// Returns the name of the image for the running kernel and this boot.
fn name() -> io::Result<String> {
    let digest = Sha256::new().chain_update(IMAGE_VERSION.to_le_bytes()).chain_update(running_kernel()?);
    Ok(format!("{PREFIX}{}", Hex(&digest.finalize())))
}

/// Returns a digest of what tells the running kernel from others, and this boot from others.
///
/// # Errors
/// If sysfs or procfs cannot be read, or the kernel has no types.
pub fn running_kernel() -> io::Result<[u8; 32]> {
    static DIGEST: OnceLock<[u8; 32]> = OnceLock::new();
    if let Some(digest) = DIGEST.get() {
        return Ok(*digest);
    }
    let types = fs::metadata(KERNEL_TYPES)?.len().to_le_bytes();
    let digest = Sha256::new().chain_update(types).chain_update(fs::read(BOOT_ID)?);
    let digest = digest.chain_update(fs::read(NOTES)?).finalize().into();
    Ok(*DIGEST.get_or_init(|| digest))
}

fn image() -> io::Result<Vec<u8>> {
    let types = Btf::parse(fs::read(KERNEL_TYPES)?).and_then(|types| types.to_image());
    types.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}
