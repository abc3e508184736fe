//! The running kernel's BTF. These tests need it and report if it is missing.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use ks_compiler::kernel_types::{
    ArgumentPassing, KernelLookupError, KernelType, KernelTypes, OpsMemberKind, Pointee, Record, Spelling,
};

static KERNEL: LazyLock<KernelTypes> = LazyLock::new(|| {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux")
        .expect("these tests need a kernel with CONFIG_DEBUG_INFO_BTF and /sys/kernel/btf/vmlinux");
    KernelTypes::from_btf(bytes).expect("the kernel's BTF is well-formed")
});

fn pointer(name: &str) -> KernelType {
    KernelType::Pointer(Pointee::Struct(name.to_owned()))
}

#[test]
fn a_function_has_its_parameters() {
    let read = KERNEL.function("vfs_read").expect("every kernel has it");
    let param_texts: Vec<_> =
        read.proto.params.iter().map(|param| format!("{}: {}", param.name, param.ty)).collect();
    assert_eq!(param_texts, ["file: *file", "buf: *char", "count: size_t", "pos: *i64"]);
    assert_eq!(read.proto.result, KernelType::signed_int(8));
    assert_eq!((read.agreed, read.entry), (4, ArgumentPassing::Direct));

    let exit = KERNEL.function("do_exit").expect("every kernel has it");
    assert_eq!(exit.proto.result, KernelType::Void);
}

#[test]
fn a_wrong_function_has_near_ones() {
    let Err(KernelLookupError::Missing { near }) = KERNEL.function("vfs_raed") else {
        panic!("there is none")
    };
    assert!(near.contains(&"vfs_read".to_owned()), "{near:?}");
    assert!(near.len() <= 3);
    // A wrong first letter is corrected, too.
    let Err(KernelLookupError::Missing { near }) = KERNEL.function("qdo_exit") else {
        panic!("there is none")
    };
    assert!(near.contains(&"do_exit".to_owned()), "{near:?}");
    let Err(KernelLookupError::Missing { near }) = KERNEL.function("zzqqzzqqzzqq") else {
        panic!("there is none")
    };
    assert_eq!(near, Vec::<String>::new());
}

#[test]
fn a_system_call_means_its_wrapper_with_its_own_arguments() {
    let open = KERNEL.function("sys_openat").expect("every kernel has it");
    assert!(open.target.ends_with("_sys_openat") && open.target.starts_with("__"), "{}", open.target);
    assert_eq!(open.entry, ArgumentPassing::Syscall { known: true });
    let names: Vec<_> = open.proto.params.iter().map(|param| param.name.as_str()).collect();
    assert_eq!(names, ["dfd", "filename", "flags", "mode"]);
    assert_eq!(open.proto.params[1].ty, KernelType::Pointer(Pointee::Char));
    // From the wrapped function, if the kernel has kept it in its BTF.
    assert_eq!(KERNEL.function("sys_clone").expect("every kernel has it").proto.params.len(), 5);
    // A call without arguments.
    assert_eq!(KERNEL.function("sys_getpid").expect("every kernel has it").proto.params, []);
    let Err(KernelLookupError::Missing { near }) = KERNEL.function("sys_opennat") else {
        panic!("there is none")
    };
    assert!(near.contains(&"sys_openat".to_owned()), "{near:?}");
}

#[test]
fn members_are_found_through_anonymous_structs() {
    let task = KERNEL.structure("task_struct").expect("every kernel has it");
    let comm = task.member("comm").expect("a task has a name");
    let char = KernelType::Int { bytes: 1, signed: true, spelling: Spelling::Char };
    assert_eq!(comm.ty, KernelType::Array { element: Box::new(char), len: 16 });
    assert_eq!(KERNEL.member("task_struct", "comm").as_ref(), Some(comm));
    assert_eq!(KERNEL.member("task_struct", "nothing"), None);

    // In sk_buff every member is nested in something nameless.
    let buffer = KERNEL.structure("sk_buff").expect("every kernel has it");
    for (name, in_union) in [("next", true), ("len", false), ("protocol", true)] {
        let member = buffer.member(name).unwrap_or_else(|| panic!("sk_buff.{name}"));
        assert_eq!(KERNEL.member("sk_buff", name).as_ref(), Some(member), "{name}");
        assert_eq!(member.in_union, in_union, "{name}");
    }
    let bits = buffer.member("pkt_type").expect("a member").bitfield.expect("it has 3 bits");
    assert_eq!(bits.bits, 3);
    // Found by its typedef.
    assert!(KERNEL.has_structure("sigset_t"));
    assert!(!KERNEL.has_structure("size_t"));
    assert!(!KERNEL.has_structure("no_such_struct"));
}

#[test]
fn bundled_layouts_are_those_of_the_kernel() {
    let bundled = KernelTypes::bundled();
    for name in [
        "xdp_md",
        "__sk_buff",
        "bpf_sock_addr",
        "trace_entry",
        "trace_event_raw_sys_enter",
        "trace_event_raw_sys_exit",
    ] {
        let own = KERNEL.structure(name).unwrap_or_else(|| panic!("{name} is in every kernel"));
        let ours = bundled.structure(name).expect("bundled");
        for member in &ours.members {
            let real = own.member(&member.name).unwrap_or_else(|| panic!("{name}.{}", member.name));
            assert_eq!(real.offset, member.offset, "{name}.{}", member.name);
            if real.ty.bytes() != Some(0) {
                assert_eq!(real.ty.bytes(), member.ty.bytes(), "{name}.{}", member.name);
            }
        }
        assert!(own.bytes >= ours.members.iter().map(|member| member.offset).max().unwrap_or(0), "{name}");
    }
}

#[test]
fn an_event_has_a_record() {
    let record = |category, event| KERNEL.tracepoint(category, event).map(|found| found.record);
    let own = |name: &str| Ok(Record::Struct(name.to_owned()));
    assert_eq!(record("sched", "sched_switch"), own("trace_event_raw_sched_switch"));
    assert_eq!(record("syscalls", "sys_enter_openat"), own("trace_event_raw_sys_enter"));
    assert_eq!(record("syscalls", "sys_exit_getpid"), own("trace_event_raw_sys_exit"));
    // An event of a class: its arguments identify the class, and the name decides between two with these
    // arguments.
    let wakeup = KERNEL.tracepoint("sched", "sched_wakeup").expect("every kernel has it");
    let likely = KERNEL.likely_record(&wakeup, "sched_wakeup");
    assert_eq!(likely.as_deref(), Some("trace_event_raw_sched_wakeup_template"));
    assert_eq!(wakeup.record, Record::Class);

    let near = |category, event| match KERNEL.tracepoint(category, event) {
        Err(KernelLookupError::Missing { near }) => near,
        other => panic!("{other:?}"),
    };
    assert!(near("sched", "sched_swich").contains(&"sched/sched_switch".to_owned()));
    assert!(near("syscalls", "sys_enter_opennat").contains(&"syscalls/sys_enter_openat".to_owned()));
    // Of a call in two versions no program of 64 bits can call the older one.
    assert_eq!(near("syscalls", "sys_enter_stat"), ["syscalls/sys_enter_newstat"]);
    assert!(KERNEL.has_syscall("newuname") && !KERNEL.has_syscall("uname"));
    assert!(KERNEL.function("sys_newuname").is_ok());
    let of_older = KernelLookupError::Missing { near: vec!["sys_newuname".to_owned()] };
    assert_eq!(KERNEL.function("sys_uname").err(), Some(of_older));
}

#[test]
fn a_raw_tracepoint_has_named_arguments() {
    let params = KERNEL.raw_tracepoint("sched_switch").expect("every kernel has it");
    assert_eq!(params.len(), 4);
    assert_eq!(params[0].ty, KernelType::Bool);
    assert_eq!(params[1].ty, pointer("task_struct"));
    let Err(KernelLookupError::Missing { near }) = KERNEL.raw_tracepoint("sched_swich") else {
        panic!("there is none")
    };
    assert!(near.contains(&"sched_switch".to_owned()), "{near:?}");
}

#[test]
fn hooks_tables_and_functions_for_programs() {
    let open = KERNEL.lsm_hook("file_open").expect("a kernel with BPF LSM has it");
    assert_eq!(open.params[0].ty, pointer("file"));
    assert_eq!(open.result, KernelType::signed_int(4));
    let misspelled = KERNEL.lsm_hook("file_opne");
    assert!(matches!(misspelled, Err(KernelLookupError::Missing { near }) if near[0] == "file_open"));

    let tcp = KERNEL.struct_ops("tcp_congestion_ops").expect("every kernel has it");
    assert!(tcp.registrable && tcp.from_btf);
    let OpsMemberKind::Function(ssthresh) = &tcp.member("ssthresh").expect("it has it").kind else {
        panic!("a function")
    };
    assert_eq!((ssthresh.params.len(), &ssthresh.result), (1, &KernelType::unsigned_int(4)));
    // The kernel's BTF has no names for the parameters of function pointers in a struct.
    assert_eq!(ssthresh.params[0].name, "sk");
    assert!(matches!(tcp.member("flags").expect("it has it").kind, OpsMemberKind::Data(_)));
    assert!(KERNEL.struct_ops_names().contains(&"tcp_congestion_ops".to_owned()));
    assert_eq!(KERNEL.near_struct_ops("tcp_congestion_op"), ["tcp_congestion_ops"]);
    // A struct, but not for struct_ops; and one whose name only looks like one.
    assert!(!KERNEL.struct_ops("file_operations").expect("every kernel has it").registrable);
    assert!(!KERNEL.struct_ops_names().contains(&"map".to_owned()));

    let kfunc = KERNEL.kfunc("bpf_task_from_pid").expect("since v6.2");
    assert_eq!(kfunc.proto.result, pointer("task_struct"));
    assert_eq!(kfunc.marked, KERNEL.kfunc_names().contains(&"bpf_task_from_pid".to_owned()));
    let Err(KernelLookupError::Missing { near }) = KERNEL.kfunc("bpf_task_from_pdi") else {
        panic!("there is none")
    };
    assert!(near.contains(&"bpf_task_from_pid".to_owned()), "{near:?}");
    assert!(!KERNEL.kfunc("vfs_read").expect("a function").marked);
}

#[test]
fn bundled_system_calls_agree_with_the_kernel() {
    let bundled = KernelTypes::bundled();
    let mut compared = 0;
    for call in ["clone", "brk", "execve", "getpid", "adjtimex", "add_key", "capget", "openat", "fork"] {
        let (Some(own), Some(ours)) = (KERNEL.syscall(call), bundled.syscall(call)) else { continue };
        let shape = |params: &[ks_compiler::kernel_types::Param]| {
            params.iter().map(|param| param.ty.bytes()).collect::<Vec<_>>()
        };
        assert_eq!(shape(&own), shape(&ours), "{call}");
        compared += 1;
    }
    assert!(compared >= 6, "only {compared} calls could be compared");
}

/// Returns the structs of a header and of those in the folders below.
fn structs_of_headers(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            structs_of_headers(&path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            let names = text.lines().filter_map(|line| line.strip_prefix("struct ")?.strip_suffix(" {"));
            found.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn what_user_programs_share_with_the_kernel_is_not_internal() {
    let mut shared = BTreeSet::new();
    for folder in ["asm-generic", "drm", "linux", "misc", "mtd", "rdma", "scsi", "sound"] {
        structs_of_headers(&Path::new("/usr/include").join(folder), &mut shared);
    }
    let shared: Vec<_> = shared.iter().filter(|name| KERNEL.has_structure(name)).collect();
    assert!(shared.len() > 300, "the kernel's headers are installed: {}", shared.len());
    let internal: Vec<_> = shared.into_iter().filter(|name| KERNEL.is_internal(name)).collect();
    // The kernel's is that of fs/binfmt_misc.c, the header's one of the Amiga.
    assert_eq!(internal, ["Node"]);
}

#[test]
fn what_the_kernel_keeps_is_internal() {
    for name in [
        "task_struct",
        "mm_struct",
        "file",
        "files_struct",
        "fdtable",
        "dentry",
        "inode",
        "sock",
        "sk_buff",
        "cred",
        "pid",
        "request",
        "net_device",
        "cgroup",
        "rq",
        "page",
        "sock_common",
    ] {
        assert!(KERNEL.is_internal(name), "{name}");
    }
    for name in ["no_such_struct", "iovec", "robust_list_head", "user_msghdr", "pt_regs", "qstr"] {
        assert!(!KERNEL.is_internal(name), "{name}");
    }
}
