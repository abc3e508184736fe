//! Options of a compilation.

use std::sync::Arc;

use crate::kernel_types::KernelTypes;
use crate::source::{Files, NoFiles};

/// The inputs of a compilation besides the script: a name, the dialect, and the sources of modules and types.
#[derive(Debug, Clone)]
pub struct Options {
    /// Names the plugin, its BPF object, and the folder of its pinned maps.
    pub project: String,
    /// Accepts only KernelScript 0.1.1: extensions of ours are errors, and so are the gaps of 0.1.1 itself.
    pub strict_011: bool,
    /// Compiles the `@test` functions instead of `main`.
    pub tests: bool,
    /// Compiles the kernel half only, for a plugin whose userspace half is not a script: a script without
    /// `main` gets none.
    pub kernel_half_only: bool,
    /// Nanoseconds after which a script without `main` prints what it keeps, again and again; none: only at its end.
    pub refresh: Option<u64>,
    /// Reads modules and headers by their paths.
    pub files: Arc<dyn Files>,
    /// Folders that are searched for headers, after the folder of the including file.
    pub include: Vec<String>,
    /// Types of the kernel that the script is checked against.
    pub kernel: Arc<KernelTypes>,
}

impl Options {
    /// Options for a script without modules, headers or kernel types.
    pub fn new(project: impl Into<String>) -> Options {
        Options {
            project: project.into(),
            strict_011: false,
            tests: false,
            kernel_half_only: false,
            refresh: None,
            files: Arc::new(NoFiles),
            include: Vec::new(),
            kernel: Arc::new(KernelTypes::bundled()),
        }
    }
}
