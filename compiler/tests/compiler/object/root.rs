//! Our objects with the real loader and verifier: bpftool (libbpf) reads and loads them.
//!
//! Needs root, bpftool and a kernel with BTF. Programs are pinned in a bpffs that the test mounts for itself,
//! so nothing stays when it ends.

use crate::object::sample;
use ks_compiler_testing::bpffs::{BpfFs, bpftool, bpftool_fails};

#[test]
fn root_the_verifier_accepts_maps_globals_calls_and_kfuncs() {
    let fs = BpfFs::mount();
    let object = fs.write("sample.o", &sample::everything());
    let pinned = fs.pin("sample");
    bpftool(&["prog", "load", &object, &pinned]);

    let program = bpftool(&["prog", "show", "pinned", &pinned]);
    assert!(program.contains("perf_event"), "{program}");
    assert!(program.contains("name count_faults"), "{program}");
    assert!(program.contains("gpl"), "{program}");
}

#[test]
fn root_the_kernel_keeps_lines_and_functions() {
    let fs = BpfFs::mount();
    let object = fs.write("lines.o", &sample::everything());
    let pinned = fs.pin("lines");
    bpftool(&["prog", "load", &object, &pinned]);

    let dump = bpftool(&["prog", "dump", "xlated", "pinned", &pinned, "linum"]);
    // The prototypes come from func_info, the source lines from line_info.
    assert!(dump.contains("int count_faults(struct bpf_perf_event_data * ctx)"), "{dump}");
    assert!(dump.contains("u64 twice(u64 value)"), "{dump}");
    assert!(dump.contains("total += 1 [file:sample.ks line_num:3 line_col:5]"), "{dump}");
    assert!(dump.contains("return value + value [file:sample.ks line_num:9 line_col:1]"), "{dump}");
    assert!(dump.contains("lock *(u64 *)(r"), "{dump}");
    assert!(dump.contains("call bpf_iter_num_next"), "{dump}");
}

#[test]
fn root_bpftool_reads_the_types() {
    let fs = BpfFs::mount();
    let object = fs.write("types.o", &sample::everything());
    let dump = bpftool(&["btf", "dump", "file", &object]);
    for expected in [
        "DATASEC '.bss' size=8 vlen=1",
        "DATASEC '.data' size=4 vlen=1",
        "DATASEC '.rodata' size=8 vlen=1",
        "DATASEC '.maps' size=32 vlen=1",
        "DATASEC '.ksyms' size=0 vlen=3",
        "VAR 'total' type_id=",
        "FUNC 'count_faults' type_id=",
        "linkage=extern",
        "STRUCT 'bpf_perf_event_data' size=",
    ] {
        assert!(dump.contains(expected), "no {expected} in\n{dump}");
    }
}

#[test]
fn root_a_core_relocation_finds_the_running_kernels_offset() {
    let fs = BpfFs::mount();
    let object = fs.write("core.o", &sample::core_relocation());
    let pinned = fs.pin("core");
    bpftool(&["prog", "load", &object, &pinned]);
    let dump = bpftool(&["prog", "dump", "xlated", "pinned", &pinned]);

    let vmlinux = std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has BTF");
    let kernel = ks_compiler::object::btf::Btf::parse(vmlinux).expect("the kernel's BTF is well-formed");
    let task = kernel.find_struct("task_struct").expect("every kernel has task_struct");
    let field = kernel.field(task, "tgid").expect("no error").expect("task_struct has tgid");
    // The object has tgid at offset 4; only the relocation can have put the kernel's offset there.
    let expected = format!("r1 += {}", field.bit_offset / 8);
    assert_ne!(field.bit_offset, 32);
    assert!(dump.contains(&expected), "no {expected} in\n{dump}");
    assert!(dump.contains("r2 = 1"), "tgid exists:\n{dump}");
}

#[test]
fn root_a_static_callback_is_relocated() {
    let fs = BpfFs::mount();
    let object = fs.write("callback.o", &sample::callback());
    let pinned = fs.pin("callback");
    bpftool(&["prog", "load", &object, &pinned]);
    let dump = bpftool(&["prog", "dump", "xlated", "pinned", &pinned]);
    assert!(dump.contains("subprog["), "{dump}");
}

#[test]
fn root_a_missing_kernel_function_is_refused_unless_optional() {
    let fs = BpfFs::mount();
    let required =
        fs.write("required.o", &sample::missing_kfunc(ks_compiler::object::model::Presence::Required));
    let message = bpftool_fails(&["prog", "load", &required, &fs.pin("required")]);
    assert!(message.contains("ks_no_such_kfunc"), "{message}");
    let optional =
        fs.write("optional.o", &sample::missing_kfunc(ks_compiler::object::model::Presence::Optional));
    bpftool(&["prog", "load", &optional, &fs.pin("optional")]);
}
