//! A plugin that is compiled without the types of a kernel leaves out the programs whose targets the running kernel lacks.
//! Needs root.

use std::sync::Arc;

use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{self, Options, Target};
use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, command, finish};

/// System calls since Linux 2.6, 6.5, 6.10 and 6.13.
const CALLS: [&str; 4] = ["getppid", "cachestat", "mseal", "setxattrat"];

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_"]);
}

fn plugin(script: &str) -> Vec<u8> {
    let kernel = Arc::new(KernelTypes::bundled());
    let mut checked =
        pipeline::parse("optional.ks", script.as_bytes(), Options { kernel, ..Options::new("optional") })
            .expect("the script is short")
            .check();
    checked.build(Target::default()).expect("no errors").plugin
}

#[test]
fn root_targets_that_the_running_kernel_lacks_are_left_out() {
    let folder = Folder::new();
    let run = |name: &str, calls: &[&str], more: &str| {
        let targets: Vec<_> = calls.iter().map(|call| format!("\"{call}\"")).collect();
        let script = format!("@syscall_exit({}{more}) {{ calls[comm()] += 1 }}", targets.join(", "));
        let file = folder.write(name, plugin(&script));
        finish(command("ks-host").arg(&file).args(["--exec", "sh", "-c", "true"]))
    };
    let missing: Vec<&str> =
        CALLS.into_iter().filter(|call| run("one.wasm", &[call], "").code != 0).collect();
    let optional = run("optional.wasm", &CALLS, ", optional: true");
    assert_eq!(optional.code, 0, "{optional:#?}");
    let commands: Vec<_> =
        optional.stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.contains(&"sh"), "{optional:#?}");
    let is_said = |call: &&str| optional.stderr.contains(&format!("syscalls/sys_exit_{call}`"));
    assert_eq!(CALLS.into_iter().filter(is_said).collect::<Vec<_>>(), missing, "{optional:#?}");
    let needed = run("needed.wasm", &CALLS, "");
    assert_eq!(needed.code, i32::from(!missing.is_empty()), "{needed:#?}");
}
