//! Objects of other compilers: clang, and rustc with Aya.

use super::super::model::{Callee, Instruction, KsymId, Linkage, Object, Wide};
use super::super::{KernelFunctionIds, write, write_for};
use super::{read, written};

/// Objects of clang and of rustc; their sources are in the same directory.
pub const OBJECTS: [(&str, &[u8]); 3] = [
    ("features", include_bytes!("objects/features.o")),
    ("struct_ops", include_bytes!("objects/struct_ops.o")),
    ("aya", include_bytes!("objects/aya.o")),
];

/// Objects of rustc in the manner of Aya's examples, one for each kind of hook; their sources are in the same
/// directory.
const AYA: [(&[&str], &[u8]); 9] = [
    (&["xdp"], include_bytes!("objects/aya/xdp_drop.o")),
    (&["classifier"], include_bytes!("objects/aya/tc_egress.o")),
    (&["cgroup_skb/egress", "cgroup/connect4"], include_bytes!("objects/aya/cgroup_skb.o")),
    (&["kretprobe/tcp_connect", "kprobe/tcp_connect"], include_bytes!("objects/aya/kprobe_tcp_connect.o")),
    (&["lsm/task_setnice"], include_bytes!("objects/aya/lsm_nice.o")),
    (
        &[
            "raw_tp/sys_enter",
            "tp_btf/sched_process_fork",
            "tracepoint/syscalls/sys_enter_openat",
            "perf_event",
        ],
        include_bytes!("objects/aya/tracepoints.o"),
    ),
    (
        &["uretprobe", "uprobe/lib/x86_64-linux-gnu/libc.so.6:getaddrinfo"],
        include_bytes!("objects/aya/uprobe.o"),
    ),
    (
        &["sk_skb/stream_parser", "sk_skb/stream_verdict", "sk_msg", "sockops"],
        include_bytes!("objects/aya/sk_msg.o"),
    ),
    (
        &["cgroup/dev", "cgroup/setsockopt", "cgroup/sock_create", "cgroup/sysctl", "fexit/do_unlinkat"],
        include_bytes!("objects/aya/cgroups.o"),
    ),
];

fn object(name: &str) -> Object {
    let (_, bytes) = OBJECTS.iter().find(|(known, _)| *known == name).expect("the object is there");
    let object = read(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    written(&object);
    object
}

#[test]
fn objects_of_clang_are_accepted() {
    let object = object("features");
    let names = |name: &str| {
        let (id, _) = object.program(name).expect("the program is there");
        let uses = object.uses(id);
        let helpers: Vec<_> = uses.helpers.iter().map(|helper| helper.name()).collect();
        let kernel =
            uses.kfuncs.iter().chain(&uses.addresses).map(|id| object.ksyms[id.index()].name.to_string());
        (helpers, kernel.collect::<Vec<_>>(), uses)
    };
    let (helpers, kernel, uses) = names("watch");
    assert!(helpers.contains(&"bpf_get_prandom_u32"), "through a function of a function: {helpers:?}");
    assert!(helpers.contains(&"bpf_loop") && helpers.contains(&"bpf_for_each_map_elem"), "{helpers:?}");
    for name in ["bpf_rcu_read_lock", "bpf_rcu_read_unlock", "runqueues", "bpf_prog_active"] {
        assert!(kernel.iter().any(|one| one == name), "{name}: {kernel:?}");
    }
    assert_eq!((uses.kconfig.len(), object.kconfig.len()), (7, 7));
    assert_eq!(names("at_function").2, super::super::model::Uses::default());

    let linkage =
        |name: &str| object.subprograms.iter().find(|one| one.name.as_str() == name).map(|one| one.linkage);
    assert_eq!(linkage("global"), Some(Linkage::Global));
    assert_eq!(linkage("own"), Some(Linkage::Static));
    assert_eq!(linkage("weak"), Some(Linkage::Static), "hidden functions are static to libbpf");
    assert!(!object.program("not_loaded").expect("the program is there").1.section.autoload);

    let instructions = object.programs.iter().flat_map(|one| &one.body.code);
    let has = |wanted: fn(&Instruction) -> bool| instructions.clone().any(wanted);
    assert!(has(|one| matches!(one, Instruction::LoadWide { value: Wide::Subprogram(_), .. })));
    assert!(has(|one| matches!(one, Instruction::Call(Callee::Kfunc(_)))));
    let sections: Vec<_> = object.programs.iter().map(|one| one.section.to_string()).collect();
    assert!(sections.contains(&"kprobe/do_unlinkat+4".to_owned()), "{sections:?}");
    let watch = object.program("watch").expect("the program is there").1;
    assert!(watch.body.core.len() > 8 && watch.body.lines.len() > 8);
}

#[test]
fn structs_of_the_kernel_that_clang_writes_are_accepted() {
    let object = object("struct_ops");
    let found: Vec<_> =
        object.struct_ops.iter().map(|one| (one.ops.as_str(), one.by_link, one.autocreate)).collect();
    assert!(found.contains(&("tcp_congestion_ops", true, true)), "{found:?}");
    assert!(found.contains(&("tcp_congestion_ops___short", false, false)), "{found:?}");
}

#[test]
fn objects_of_rustc_for_aya_are_accepted() {
    let object = object("aya");
    assert_eq!((object.programs.len(), object.maps.len()), (16, 8));
    assert!(object.subprograms[0].name.as_str().starts_with("_RN"), "{}", object.subprograms[0].name);
    let kinds: Vec<_> = object.maps.iter().map(|map| map.shape.kind.name()).collect();
    assert!(kinds.contains(&"RINGBUF") && kinds.contains(&"LRU_HASH"), "{kinds:?}");
}

#[test]
fn programs_in_the_manner_of_ayas_examples_are_accepted() {
    for (sections, bytes) in AYA {
        let object = read(bytes).unwrap_or_else(|error| panic!("{sections:?}: {error}"));
        written(&object);
        let found: Vec<_> = object.programs.iter().map(|one| one.section.to_string()).collect();
        assert_eq!(found, sections);
        assert!(object.subprograms.is_empty() && object.license.as_deref() == Some("Dual MIT/GPL"));
    }
}

#[test]
fn kinds_of_aya_that_nothing_can_attach_are_refused() {
    let error =
        read(include_bytes!("objects/aya/sk_lookup.o")).expect_err("the contract has no way to attach it");
    assert!(error.to_string().contains("none of a kind of program that a plugin may have"), "{error}");
}

/// As the loader writes such calls. Nobody is asked to look the function up then.
#[test]
fn known_functions_of_the_kernel_are_called_by_id() {
    const NAME: &str = "bpf_rcu_read_unlock";
    const CALL: [u8; 8] = [0x85, 0x20, 0, 0, 0x78, 0x56, 0x34, 0x12];
    let object = object("features");
    let at = object.ksyms.iter().position(|ksym| ksym.name.as_str() == NAME).expect("it is called");
    let ids = KernelFunctionIds::from([(KsymId(u32::try_from(at).expect("few")), 0x1234_5678)]);
    let [plain, known] = [write(&object), write_for(&object, &ids)].map(|elf| elf.expect("it was read"));
    let count = |elf: &[u8], part: &[u8]| elf.windows(part.len()).filter(|one| *one == part).count();
    // The text of its line has the name, too.
    let named = [b"\0", NAME.as_bytes(), b"\0"].concat();
    assert_eq!((count(&plain, &CALL), count(&known, &named)), (0, 0));
    assert!(count(&plain, &named) > 0 && count(&known, &CALL) > 0);
}
