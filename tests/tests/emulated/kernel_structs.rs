//! Structs of the kernel as values, pointers to pointers of the kernel and of user programs, and members that
//! are missing in the running kernel. These tests need root.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::watched::Running;
use ks_tests::{Folder, Outcome, at_switches, try_compile};

const ALL: &[&str] = &["root_copies", "root_declared", "root_double_pointers", "root_pointers"];

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), ALL);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), ALL);
}

fn run(project: &str, script: &str) -> Outcome {
    ks_tests::run_script::<&str>(project, script, &[])
}

#[test]
fn root_copies_have_the_values_of_what_they_copy() {
    let ran = run("copies", include_str!("scripts/kernel_structs_copies.ks"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "0 1\n"), "{ran:#?}");
}

#[test]
fn root_copies_of_structs_within_structs_have_their_values() {
    let ran = run("nested", include_str!("scripts/kernel_structs_nested.ks"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "0 1 1 1\n"), "{ran:#?}");
}

#[test]
fn root_copies_of_what_a_pointer_leads_to_have_its_values() {
    let ran = run("dereferenced", include_str!("scripts/kernel_structs_dereferenced.ks"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "0 1\n"), "{ran:#?}");
}

#[test]
fn root_declared_structs_lie_where_the_kernel_has_them() {
    let ran = run("declared", include_str!("scripts/kernel_structs_declared.ks"));
    let root = fs::metadata("/").expect("there is a root").ino();
    assert_eq!((ran.code, ran.stdout), (0, format!("{root} 0 0\n")), "{}", ran.stderr);
}

#[test]
fn root_pointers_that_loops_change_are_computed_with_as_numbers() {
    let ran = run("in_loops", include_str!("scripts/kernel_structs_pointers_in_loops.ks"));
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "0 1 1\n"), "{ran:#?}");
}

#[test]
fn root_double_pointers_lead_to_what_their_types_say() {
    let script = include_str!("scripts/kernel_structs_double_pointers.ks");
    let running = Running::start::<&str>("double", script, &[]);
    let folder = Folder::new();
    let file = File::create(folder.write("synced", b"text")).expect("the folder is writable");
    file.sync_all().expect("a file of a disk");
    let myself = std::env::current_exe().expect("a test knows its own path");
    let started = Command::new(&myself).args(["first-word", "--exact"]).stdout(Stdio::null()).status();
    assert!(started.expect("it starts").success());
    let ran = running.stop();
    let line = format!("{} first-word --exact\n", myself.display());
    assert!(ran.stdout.contains(&line), "{ran:#?}");
    assert!(ran.stdout.ends_with("\n0 1\n"), "{ran:#?}");
}

#[test]
fn pointers_to_structs_that_a_body_names_are_the_kernels() {
    let declared = "struct kuid_t { val: u32 }\nstruct Held { n: u32, p: *kgid_t }\n\
                    struct kgid_t { val: u32 }\n\
                    @helper fn uid_of(v: kuid_t) -> u32 { return v.val }\n\
                    @helper fn gid_of(v: kgid_t) -> u32 { return v.val }";
    let body = "var t = bpf_get_current_task_btf() as *task_struct\nvar p = &t->cred->uid\nvar q: *kuid_t = \
                null\n\
                q = p\na = uid_of(*q) as i64\nvar h = Held { n: 1, p: &t->cred->gid }\na = gid_of(*h.p) as \
                i64";
    try_compile("pointees", &at_switches(declared, body)).unwrap_or_else(|errors| panic!("{errors}"));
}

#[test]
fn values_of_other_types_are_refused() {
    let refused = |declared: &str, body: &str| {
        try_compile("refused", &at_switches(declared, body)).expect_err("the script is refused")
    };
    let task = "var t = bpf_get_current_task_btf() as *task_struct\n";
    let copy = refused("", &format!("{task}var w = t->fs->pwd\nvar p = &w\na = p->mnt as i64"));
    assert!(
        copy.contains("KS0407") && copy.contains("a copy of the kernel's `path` has no address"),
        "{copy}"
    );
    let other = refused(
        "struct path { dentry: u64, length: u32 }\n@helper fn f(p: path) -> u64 { return p.dentry }",
        &format!("{task}a = f(t->fs->pwd) as i64"),
    );
    assert!(other.contains("the script's own struct of this name"), "{other}");
    let size = refused(
        "struct path { dentry: u64[2] }\n@helper fn f(p: path) -> u64 { return p.dentry[0] }",
        &format!("{task}a = f(t->fs->pwd) as i64"),
    );
    assert!(size.contains("KS0511"), "{size}");
}
