//! Pointers of the kernel half inside structs and arrays, and pointers to pointers. These tests need root.

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, command, finish, run_script};

const ALL: &[&str] = &["root_a_cursor", "root_pointers"];

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), ALL);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), ALL);
}

/// Runs the tests of a script.
#[track_caller]
fn passes(name: &str, script: &str) {
    let folder = Folder::new();
    let file = folder.write(&format!("{name}.ks"), script);
    let ran = finish(command("ks-host").arg("test").arg(file));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn root_a_cursor_in_a_struct_traverses_a_packet() {
    passes("cursor", include_str!("scripts/held_pointers_packet.ks"));
}

#[test]
fn root_pointers_of_the_kernel_lie_in_memory() {
    let script = include_str!("scripts/held_pointers_kernel.ks");
    let ran = run_script::<&str>("kernels", script, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 0\n"), "{ran:#?}");
}

#[test]
fn root_pointers_in_memory_lead_where_they_led() {
    passes("memory", include_str!("scripts/held_pointers_memory.ks"));
}
