//! `ks build --emit kmod=DIR`: the module is built with a kernel's own headers and loaded into that kernel.
//! Programs then call its functions instead of their own, with the same results. These tests boot emulated
//! kernels.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{Folder, command, finish, finish_within};

/// Calls of a `@kfunc` with semantics that differ between languages: signs, widths, division by zero, indices
/// out of range.
const SCRIPT: &str = include_str!("scripts/modules.ks");

/// The commands in the machine: the plugin without the module and with it, and `ks-host check` of both.
const IN_THE_MACHINE: &str = r#"
PATH=$PATH:$TOOLS
run() {
    ks-host check /mixed.wasm | grep -A 1 'kfunc *mix'
    ks-host --allow all /mixed.wasm &
    while kill -0 $! 2>/dev/null; do ping -c 1 127.0.0.1 >/dev/null; done
    wait $!
}
run && insmod /mixed.ko && run || exit 1
dmesg | sed -n 's/^.*\] mixed: //p'
"#;

#[test]
fn kernel_6_1() {
    functions_of_the_module_are_called(Kernel::V6_1);
}

#[test]
fn kernel_6_12() {
    functions_of_the_module_are_called(Kernel::V6_12);
}

fn functions_of_the_module_are_called(kernel: Kernel) {
    let folder = Folder::new();
    let script = folder.write("mixed.ks", SCRIPT);
    let (plugin, source) = (folder.path("mixed.wasm"), folder.path("module"));
    let emit = format!("kmod={}", source.display());
    let mut build = command("ks");
    build.arg("build").arg(&script).arg("-o").arg(&plugin).args(["--target-kernel", kernel.version()]);
    let built = finish(build.args(["--emit", &emit]));
    assert_eq!(built.code, 0, "{built:#?}");
    build_module(kernel, &source);
    let tools = ks_tests::binary("ks-host");
    let tools = tools.parent().expect("a program lies in a folder").display().to_string();
    let machine = Machine::new(kernel)
        .file_as(&plugin, "/mixed.wasm")
        .file_as(source.join("mixed.ko"), "/mixed.ko")
        .env("TOOLS", &tools);
    let seen = machine.run(&["sh", "-c", IN_THE_MACHINE]);
    assert_eq!(seen.code, 0, "{seen:#?}");
    let count = |text: &str| seen.stdout.lines().filter(|line| *line == text).count();
    assert_eq!(count(EXPECTED), 2, "{seen:#?}");
    // Once from the plugin, which ran the object's own function, and once from the kernel's log.
    assert_eq!((count("mixed -100 1 x"), count("weighs 18446744073709551615")), (2, 2), "{seen:#?}");
    let (without, with) = seen.stdout.split_once(EXPECTED).expect("it was counted");
    assert!(without.contains("optional") && without.contains("neither the kernel nor a module"), "{seen:#?}");
    assert!(with.contains("the module `mixed` has a function of this name"), "{seen:#?}");
}

/// The results of the four calls, computed by hand.
const EXPECTED: &str = "-3663 -5905580938 5905573121 -3920";

/// Builds a module with the headers of a kernel that this machine does not run.
fn build_module(kernel: Kernel, source: &Path) {
    let headers = kernel.headers();
    let mut make = Command::new("make");
    make.arg("-C").arg(headers.join("build")).arg("-f").arg(headers.join("common/Makefile"));
    make.arg(format!("RESOLVE_BTFIDS={}", headers.join("resolve_btfids").display()));
    make.arg(format!("M={}", source.display())).arg("modules");
    let make_outcome = finish_within(&mut make, Duration::from_secs(120));
    assert_eq!(make_outcome.code, 0, "{make_outcome:#?}");
    assert!(!make_outcome.stderr.contains("warning"), "{make_outcome:#?}");
}

#[test]
fn refusals_name_what_a_module_cannot_have() {
    let folder = Folder::new();
    for (declared, body, said) in [
        ("var m : hash<u32, u32>(8)", "m[1] = a\n return a", "a map is not possible in a kernel module"),
        ("var g: u32 = 0", "return a + g", "a variable that programs share is"),
        ("", "var p = &a\n return *p", "a value of type `*u32` is"),
    ] {
        let text = format!(
            "{declared}
             @kfunc
             fn f(a: u32) -> u32 {{ {body} }}
             @xdp
             fn x(ctx: *xdp_md) -> xdp_action {{
                 if (f(1) > 3) {{ return XDP_DROP }}
                 return XDP_PASS
             }}"
        );
        let script = folder.write("refused.ks", text);
        let emit = format!("kmod={}", folder.path("none").display());
        let built = finish(
            command("ks")
                .arg("build")
                .arg(&script)
                .arg("-o")
                .arg(folder.path("refused.wasm"))
                .args(["--emit", &emit]),
        );
        assert_eq!(built.code, 1, "{built:#?}");
        assert!(built.stderr.contains("KS1006") && built.stderr.contains(said), "{built:#?}");
    }
}
