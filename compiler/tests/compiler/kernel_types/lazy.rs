//! The kernel's types are a file of megabytes: the compiler reads it only for scripts that need it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{Options, Target, parse};

/// Whether compiling the script reads the kernel's types.
fn reads(script: &str) -> bool {
    let asked = Arc::new(AtomicBool::new(false));
    let kernel = KernelTypes::fetched({
        let asked = Arc::clone(&asked);
        move || {
            asked.store(true, Ordering::Relaxed);
            None
        }
    });
    let options = Options { kernel: Arc::new(kernel), ..Options::new("lazy") };
    let mut checked = parse("lazy.ks", script.as_bytes(), options).expect("scripts are short").check();
    // The types are read before an unsupported script is rejected.
    let _ = checked.build(Target::default());
    asked.load(Ordering::Relaxed)
}

#[test]
fn only_scripts_that_name_something_of_the_kernel_read_its_types() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for example in ["perf/page_faults", "perf/group", "net/packets", "net/shield", "net/connects"] {
        let file = root.join("examples").join(format!("{example}.ks"));
        let script = std::fs::read_to_string(file).expect("the example is there");
        assert!(!reads(&script), "{example}");
    }
    let probe = "@probe(\"vfs_read\")\nfn count(file: *file) -> i32 {\n    return 0\n}\n";
    assert!(reads(probe), "a probe's parameters are the kernel's");
}
