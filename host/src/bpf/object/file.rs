//! What the loader gets of an object, which depends on nothing but the object and the running kernel.

use std::sync::OnceLock;

use crate::bpf::kernel_types;
use crate::bpf::loader::KernelPart;
use crate::policy::{ObjectError, PluginObject};

/// An object's file, written from the judged model.
#[derive(Debug, Clone)]
pub(crate) struct ObjectFile {
    object: PluginObject,
    pub(super) elf: Vec<u8>,
    /// See [`ObjectFile::kernel_part`]; found when it is first asked for, which a loader in this process does not.
    kernel: OnceLock<Option<KernelPart>>,
}

impl ObjectFile {
    /// Writes the file.
    ///
    /// # Errors
    /// [`ObjectError::Write`].
    pub(crate) fn of(object: &PluginObject) -> Result<ObjectFile, ObjectError> {
        let elf = object.elf(&KernelPart::functions(object.model(), kernel_types::opened))?;
        Ok(ObjectFile { object: object.clone(), elf, kernel: OnceLock::new() })
    }

    /// Returns what libbpf needs of the kernel's types, so that it does not read all of them. None if it needs none, if they
    /// are not open here and no image of them is there, or if a part does not do.
    pub(crate) fn kernel_part(&self) -> Option<&KernelPart> {
        let model = self.object.model();
        let find = || KernelPart::of(model, kernel_types::opened()?);
        self.kernel.get_or_init(|| KernelPart::is_needed(model).then(find).flatten()).as_ref()
    }

    /// Whether it is that of this object.
    pub(super) fn is_of(&self, object: &PluginObject) -> bool {
        self.object.is_same(object)
    }
}
