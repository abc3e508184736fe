//! The bundled types, without BTF.

use ks_compiler::kernel_types::{KernelLookupError, KernelType, KernelTypes, OpsMemberKind, Record};

#[test]
fn stable_structs_are_bundled() {
    let kernel = KernelTypes::bundled();
    assert!(!kernel.has_btf());
    let data = kernel.structure("bpf_perf_event_data").expect("bundled");
    let offsets: Vec<_> = data.members.iter().map(|member| (member.name.as_str(), member.offset)).collect();
    assert_eq!(offsets, [("regs", 0), ("sample_period", 168), ("addr", 176)]);
    assert_eq!(kernel.member("pt_regs", "ip").map(|ip| ip.offset), Some(128));
    assert_eq!(kernel.structure("task_struct"), None);

    let openat = kernel.syscall("openat").expect("bundled");
    assert_eq!(
        openat.iter().map(|param| param.name.as_str()).collect::<Vec<_>>(),
        ["dfd", "filename", "flags", "mode"]
    );
    let own = |name: &str| Ok(Record::Struct(name.to_owned()));
    let record = |category, event| kernel.tracepoint(category, event).map(|found| found.record);
    assert_eq!(record("sched", "sched_switch"), own("trace_event_raw_sched_switch"));
    assert_eq!(record("syscalls", "sys_exit_openat"), own("trace_event_raw_sys_exit"));

    let tcp = kernel.struct_ops("tcp_congestion_ops").expect("bundled");
    assert!(!tcp.from_btf && tcp.registrable);
    let OpsMemberKind::Function(undo) = &tcp.member("undo_cwnd").expect("a member").kind else { panic!() };
    assert_eq!(undo.result, KernelType::unsigned_int(4));
    assert_eq!(kernel.near_struct_ops("sched_ext_op"), ["sched_ext_ops"]);
}

#[test]
fn the_rest_is_unknown_without_btf() {
    let kernel = KernelTypes::bundled();
    assert_eq!(kernel.function("vfs_read"), Err(KernelLookupError::NoBtf));
    assert_eq!(kernel.function("sys_openat"), Err(KernelLookupError::NoBtf));
    assert_eq!(kernel.tracepoint("sched", "sched_wakeup"), Err(KernelLookupError::NoBtf));
    assert_eq!(kernel.tracepoint("syscalls", "sys_enter_brand_new"), Err(KernelLookupError::NoBtf));
    assert_eq!(kernel.raw_tracepoint("sched_switch"), Err(KernelLookupError::NoBtf));
    assert_eq!(kernel.lsm_hook("file_open"), Err(KernelLookupError::NoBtf));
    assert_eq!(kernel.kfunc("bpf_task_from_pid"), Err(KernelLookupError::NoBtf));
    assert_eq!(kernel.kfunc_names(), Vec::<String>::new());
}

#[test]
fn a_list_of_events_decides() {
    let list = "sched:sched_switch\nsched:sched_wakeup\nmy_module:my_event\nsyscalls:sys_enter_openat\n";
    let kernel = KernelTypes::bundled().with_events(|| Some(list.to_owned()));
    assert!(kernel.tracepoint("sched", "sched_switch").is_ok());
    let near = |category, event| match kernel.tracepoint(category, event) {
        Err(KernelLookupError::Missing { near }) => near,
        other => panic!("{other:?}"),
    };
    assert_eq!(near("task", "sched_wakeup"), ["sched/sched_wakeup"]);
    assert_eq!(near("my_module", "my_evnt"), ["my_module/my_event"]);
    assert_eq!(near("syscalls", "sys_enter_open"), ["syscalls/sys_enter_openat"]);
}

#[test]
fn types_are_read_on_demand() {
    let kernel = KernelTypes::fetched(|| panic!("no question was asked"));
    drop(kernel);
    // The fetched bytes may be no BTF.
    let kernel = KernelTypes::fetched(|| Some(b"rubbish".to_vec()));
    assert!(!kernel.has_btf());
    assert_eq!(kernel.function("vfs_read"), Err(KernelLookupError::NoBtf));
}
