//! What a compilation depends on besides the script.

use std::sync::Arc;

use crate::kernel_types::KernelTypes;
use crate::source::{Files, NoFiles};

/// A compilation's circumstances: a name, the dialect, and where to look things up.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names the plugin and its BPF object, and the folder of its pins.
    pub project: String,
    /// The language of KernelScript 0.1.1 only: what is ours, and what 0.1.1 refuses for a gap of its own, is an error.
    pub strict_011: bool,
    /// `@test` functions are compiled, `main` is not.
    pub tests: bool,
    /// Where modules and headers come from.
    pub files: Arc<dyn Files>,
    /// Folders to look for headers in, after that of the including file.
    pub include: Vec<String>,
    /// The kernel that the script is checked against.
    pub kernel: Arc<KernelTypes>,
}

impl Options {
    /// A script on its own.
    pub fn new(project: impl Into<String>) -> Options {
        Options {
            project: project.into(),
            strict_011: false,
            tests: false,
            files: Arc::new(NoFiles),
            include: Vec::new(),
            kernel: Arc::new(KernelTypes::bundled()),
        }
    }
}
