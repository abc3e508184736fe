//! What the loader gets of an object, which depends on nothing but the object and the running kernel.

use ks_compiler::object::Object as Model;

use crate::bpf::kernel_types;
use crate::bpf::loader::KernelPart;
use crate::policy::{ObjectError, PluginObject};

/// An object's file, written from the judged model.
#[derive(Debug, Clone)]
pub(crate) struct ObjectFile {
    object: PluginObject,
    pub(super) elf: Vec<u8>,
    /// What libbpf needs of the kernel's types, so that it does not read all of them. None if it needs none, if they are not
    /// open here and no image of them is there, or if a part does not do.
    pub(super) kernel: Option<KernelPart>,
}

impl ObjectFile {
    /// Writes the file.
    ///
    /// # Errors
    /// [`ObjectError::Write`].
    pub(crate) fn of(object: &PluginObject) -> Result<ObjectFile, ObjectError> {
        let elf = object.elf(&KernelPart::functions(object.model(), kernel_types::opened))?;
        Ok(ObjectFile { object: object.clone(), elf, kernel: kernel_part(object.model()) })
    }

    /// Whether it is that of this object.
    pub(super) fn is_of(&self, object: &PluginObject) -> bool {
        self.object.is_same(object)
    }
}

fn kernel_part(model: &Model) -> Option<KernelPart> {
    if !KernelPart::is_needed(model) {
        return None;
    }
    KernelPart::of(model, kernel_types::opened()?)
}
