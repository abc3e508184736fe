//! Memory of a global data section: libbpf's image before the load, the map's own pages after it.
//!
//! libbpf keeps the initial contents in anonymous memory. When it has created the map, it maps the map's
//! pages over them at the same address (`bpf_object__populate_internal_map`, libbpf 1.7). From then on this
//! memory is shared with BPF programs, which write to it. It stays there until the object is closed.
#![expect(unsafe_code, reason = "atomic access to memory that the kernel writes, too")]

use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

use libbpf_rs::{AsRawLibbpf, MapCore as _, MapMut, MapType};
use libbpf_sys::bpf_map;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};

/// The memory of one section, valid while the object it belongs to is borrowed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Image<'object> {
    base: NonNull<u8>,
    len: usize,
    object: PhantomData<&'object ()>,
}

// SAFETY: the memory belongs to no thread, and is accessed by atomic loads and stores only.
unsafe impl Send for Image<'_> {}

impl<'object> Image<'object> {
    /// Returns the image of a map of an open or loaded object; `None` if libbpf keeps none. The memory is
    /// page-aligned.
    pub(super) fn of<M: AsRawLibbpf<LibbpfType = bpf_map>>(
        map: &M,
        _object: &'object impl Sized,
    ) -> Option<Image<'object>> {
        let mut len: libbpf_sys::size_t = 0;
        // SAFETY: the map belongs to a live object; libbpf writes the size to the pointer.
        let base = unsafe {
            libbpf_sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), (&raw mut len).cast())
        };
        let base = NonNull::new(base.cast::<u8>())?;
        Some(Image { base, len: usize::try_from(len).ok()?, object: PhantomData })
    }

    /// Performs one atomic load of 1, 2, 4 or 8 bytes, zero-extended. `None` for another width, outside the
    /// image, or if unaligned.
    pub(super) fn load(&self, offset: usize, width: usize) -> Option<u64> {
        let at = self.at(offset, width)?.as_ptr();
        // SAFETY: `at` checked that the bytes lie inside the image and are aligned; everything here and every
        // BPF program of ours accesses them by their natural width. ORDERING: relaxed. BPF programs publish
        // nothing through these variables; a value is read for itself.
        Some(unsafe {
            match width {
                1 => u64::from(AtomicU8::from_ptr(at).load(Ordering::Relaxed)),
                2 => u64::from(AtomicU16::from_ptr(at.cast()).load(Ordering::Relaxed)),
                4 => u64::from(AtomicU32::from_ptr(at.cast()).load(Ordering::Relaxed)),
                8 => AtomicU64::from_ptr(at.cast()).load(Ordering::Relaxed),
                _ => return None,
            }
        })
    }

    /// Performs one atomic store of the low 1, 2, 4 or 8 bytes. `None` as for [`Image::load`]. The image must
    /// be writable; a loaded `.rodata` is not.
    pub(super) fn store(&self, offset: usize, width: usize, value: u64) -> Option<()> {
        let at = self.at(offset, width)?.as_ptr();
        // SAFETY: as in `load`; `Object::check_writable` prevents stores to read-only pages. The conversions
        // keep the low bytes, as intended. ORDERING: as in `load`.
        unsafe {
            match width {
                1 => AtomicU8::from_ptr(at).store(value as u8, Ordering::Relaxed),
                2 => AtomicU16::from_ptr(at.cast()).store(value as u16, Ordering::Relaxed),
                4 => AtomicU32::from_ptr(at.cast()).store(value as u32, Ordering::Relaxed),
                8 => AtomicU64::from_ptr(at.cast()).store(value, Ordering::Relaxed),
                _ => return None,
            }
        }
        Some(())
    }

    /// Copies bytes, in aligned words of 8 where possible, each as by [`Image::load`]. `None` outside the
    /// image.
    pub(super) fn copy(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len)?;
        let mut bytes = Vec::with_capacity(len);
        let mut at = offset;
        while at < end {
            let width = if at.is_multiple_of(8) && end - at >= 8 { 8 } else { 1 };
            bytes.extend_from_slice(&self.load(at, width)?.to_le_bytes()[..width]);
            at += width;
        }
        Some(bytes)
    }

    /// Returns the size in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns a pointer to `width` bytes inside the image, aligned to `width`.
    fn at(&self, offset: usize, width: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(width)?;
        let aligned = width.is_power_of_two() && offset.is_multiple_of(width);
        if end > self.len || !aligned {
            return None;
        }
        // SAFETY: the result is inside the image.
        Some(unsafe { self.base.add(offset) })
    }
}

/// Returns whether this map may be the one of a data section. Only arrays: a struct_ops map may have a section's
/// name, but it contains pointers of libbpf.
pub(super) fn has_image(ty: MapType) -> bool {
    ty == MapType::Array
}

/// A loaded object and the images of its maps: to find one again means to ask libbpf for each map's name.
#[derive(Debug)]
pub(super) struct WithImages {
    object: libbpf_rs::Object,
    /// By the map's name. They are valid as long as the object, which nothing takes out.
    images: Vec<(OsString, Image<'static>)>,
}

impl WithImages {
    /// Finds the images of a loaded object.
    pub(super) fn of(object: libbpf_rs::Object) -> WithImages {
        let maps = object.maps().filter(|map| has_image(map.map_type()));
        let images = maps.filter_map(|map| {
            let Image { base, len, .. } = Image::of(&map, &object)?;
            Some((map.name().to_owned(), Image { base, len, object: PhantomData }))
        });
        let images = images.collect();
        WithImages { object, images }
    }

    /// Returns the object's maps.
    pub(super) fn maps_mut(&mut self) -> impl Iterator<Item = MapMut<'_>> {
        self.object.maps_mut()
    }

    /// Returns the image of the first map whose name is wanted.
    pub(super) fn image(&self, is_wanted: impl Fn(&OsStr) -> bool) -> Option<Image<'_>> {
        self.images.iter().find(|(name, _)| is_wanted(name)).map(|(_, image)| *image)
    }
}

impl Deref for WithImages {
    type Target = libbpf_rs::Object;

    fn deref(&self) -> &libbpf_rs::Object {
        &self.object
    }
}

/// A second, read-only mapping of a section's pages. It outlives the object.
#[derive(Debug)]
pub(super) struct SharedImage {
    base: NonNull<u8>,
    len: NonZeroUsize,
}

// SAFETY: the mapping belongs to no thread and is only read, by atomic loads.
unsafe impl Send for SharedImage {}
// SAFETY: as above.
unsafe impl Sync for SharedImage {}

impl SharedImage {
    /// Maps the first `len` bytes of a section's map.
    ///
    /// # Errors
    /// Those of mmap(2).
    pub(super) fn map(section: BorrowedFd<'_>, len: usize) -> Result<SharedImage, Errno> {
        let len = NonZeroUsize::new(len).ok_or(Errno::EINVAL)?;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let base = unsafe { mmap(None, len, ProtFlags::PROT_READ, MapFlags::MAP_SHARED, section, 0) }?;
        Ok(SharedImage { base: base.cast(), len })
    }

    /// Performs one atomic load, as [`Image::load`].
    pub(super) fn load(&self, offset: usize, width: usize) -> Option<u64> {
        Image { base: self.base, len: self.len.get(), object: PhantomData }.load(offset, width)
    }
}

impl Drop for SharedImage {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and has this size, and no reference outlives `self`. munmap cannot fail
        // then.
        let _ = unsafe { munmap(self.base.cast(), self.len.get()) };
    }
}
