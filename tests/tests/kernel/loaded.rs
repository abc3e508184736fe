//! Only requests that the policy allows reach the kernel: objects with any programs, calls and maps run under
//! any policy, and the test inspects every bpf(2) and perf_event_open(2) call of the command before the
//! kernel executes it. The policy rule for each program kind and function is stated here independently, by
//! the names of bpf-helpers(7).
//!
//! `PROPTEST_CASES=5000` sets the number of cases.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::Mutex;

use ks_compiler::object::btf::{Btf, Type as KernelType, TypeId};
use ks_compiler::object::model::{Callee, Instruction, Ksym, KsymId, KsymKind, Presence, Type, Types};
use ks_compiler::object::table::MapKind;
use ks_compiler::object::{Object, write};
use ks_host::policy::Policy;
use ks_tests::plugins::models::{map, name, program};
use ks_tests::plugins::{component, with_object};
use ks_tests::refused::{Call, PendingCall, observe};
use ks_tests::{Folder, binary};
use nix::libc;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Sections, the number of their type in `enum bpf_prog_type`, and the rules that allow them. The programs
/// return 0, which hides the hits of a tracepoint from other counters.
const SECTIONS: [(&str, u32, &[&str]); 24] = [
    ("socket", 1, &["socket_filter"]),
    ("kprobe/vfs_read", 2, &["kprobe=vfs_read"]),
    ("tc", 3, &["tc"]),
    (
        "tracepoint/sched/sched_switch",
        5,
        &["tracepoint=sched/sched_switch", "filters_events=sched/sched_switch"],
    ),
    ("xdp", 6, &["xdp"]),
    ("perf_event", 7, &["perf_event"]),
    ("cgroup_skb/egress", 8, &["cgroup"]),
    ("sockops", 13, &["other=sockops"]),
    ("raw_tp/sched_switch", 17, &["raw_tracepoint=sched_switch"]),
    ("fmod_ret/vfs_read", 26, &["modify_return=vfs_read"]),
    ("kretprobe/vfs_write", 2, &["kprobe=vfs_write"]),
    ("uprobe//bin/true:main", 2, &["uprobe=/bin/true:main"]),
    ("tcx/ingress", 3, &["tc"]),
    ("xdp.frags", 6, &["xdp"]),
    ("cgroup/connect4", 18, &["cgroup"]),
    ("cgroup/sock_create", 9, &["other=cgroup/sock_create"]),
    ("cgroup/dev", 15, &["other=cgroup/dev"]),
    ("cgroup/sysctl", 23, &["other=cgroup/sysctl"]),
    ("sk_msg", 16, &["other=sk_msg"]),
    ("sk_skb/verdict", 14, &["other=sk_skb/verdict"]),
    ("raw_tp.w/sched_switch", 24, &["other=raw_tp.w/sched_switch"]),
    ("fentry/vfs_read", 26, &["tracing=vfs_read"]),
    ("tp_btf/sched_switch", 26, &["tracing=sched_switch"]),
    ("lsm/file_open", 29, &["lsm=file_open"]),
];

/// Helpers, their numbers in `enum bpf_func_id`, and the rule that allows them; none for helpers that only
/// read.
const HELPERS: [(u32, Option<&str>); 48] = [
    (5, None),               // ktime_get_ns
    (14, None),              // get_current_pid_tgid
    (16, None),              // get_current_comm
    (112, None),             // probe_read_user
    (27, None),              // get_stackid
    (13, Some("redirect")),  // clone_redirect
    (23, Some("redirect")),  // redirect
    (51, Some("redirect")),  // redirect_map
    (155, Some("redirect")), // redirect_peer
    (36, Some("helper=probe_write_user")),
    (58, Some("helper=override_return")),
    (109, Some("helper=send_signal")),
    (117, Some("helper=send_signal_thread")),
    (166, Some("helper=sys_bpf")),
    (168, Some("helper=sys_close")),
    (49, Some("helper=setsockopt")),
    (64, Some("helper=bind")),
    (179, Some("helper=kallsyms_lookup_name")),
    (171, Some("timer")),    // timer_start
    (169, Some("timer")),    // timer_init
    (1, None),               // map_lookup_elem
    (2, None),               // map_update_elem
    (12, None),              // tail_call
    (25, None),              // perf_event_output
    (35, None),              // get_current_task
    (57, None),              // getsockopt
    (84, None),              // sk_lookup_tcp
    (107, None),             // sk_storage_get
    (113, None),             // probe_read_kernel
    (130, None),             // ringbuf_output
    (141, None),             // get_task_stack
    (181, None),             // loop
    (9, None),               // skb_store_bytes
    (38, None),              // skb_change_tail
    (44, None),              // xdp_adjust_head
    (187, None),             // set_retval
    (52, Some("redirect")),  // sk_redirect_map
    (60, Some("redirect")),  // msg_redirect_map
    (124, Some("redirect")), // sk_assign
    (152, Some("redirect")), // redirect_neigh
    (110, Some("helper=tcp_gen_syncookie")),
    (53, Some("helper=sock_map_update")),
    (59, Some("helper=sock_ops_cb_flags_set")),
    (82, Some("helper=sk_select_reuseport")),
    (104, Some("helper=sysctl_set_new_value")),
    (116, Some("helper=tcp_send_ack")),
    (159, Some("helper=bprm_opts_set")),
    (170, Some("timer")), // timer_set_callback
];

/// Kernel functions without parameters and results, and the rule that allows them.
const KFUNCS: [(&str, Option<&str>); 4] = [
    ("bpf_rcu_read_lock", None),
    ("bpf_rcu_read_unlock", None),
    ("bpf_preempt_disable", Some("kfunc=bpf_preempt_disable")),
    ("bpf_preempt_enable", Some("kfunc=bpf_preempt_enable")),
];

/// Kinds of maps, their numbers in `enum bpf_map_type`, and the rule that allows them.
const MAPS: [(MapKind, u32, Option<&str>); 10] = [
    (MapKind::Hash, 1, None),
    (MapKind::Array, 2, None),
    (MapKind::PerCpuArray, 6, None),
    (MapKind::DevMap, 14, Some("redirect")),
    (MapKind::SockMap, 15, Some("redirect")),
    (MapKind::XskMap, 17, Some("redirect")),
    (MapKind::LruHash, 9, None),
    (MapKind::PerfEventArray, 4, None),
    (MapKind::DevMapHash, 25, Some("redirect")),
    (MapKind::SockHash, 18, Some("redirect")),
];

/// The contents of a test's plugin, as indices into the tables above.
#[derive(Debug, Clone)]
struct Plan {
    programs: Vec<(usize, Vec<usize>, Vec<usize>)>,
    maps: Vec<(usize, u32)>,
    /// Rules that the policy lacks; it has all others.
    left_out: BTreeSet<&'static str>,
    map_bytes: u64,
}

/// The requests that reached the kernel.
#[derive(Debug, Default)]
struct KernelRequests {
    /// The name, the type, the helpers and the kernel functions of each program of the object. libbpf loads a
    /// failed program again for the verifier's log.
    programs: Vec<(String, u32, Vec<u32>, Vec<u32>)>,
    /// The type and the value size in bytes of each map of the object, by its name.
    maps: BTreeMap<String, (u32, u64)>,
    /// The bytes that the kernel charged for all maps of the process when the last program was loaded.
    charged: u64,
    events: usize,
}

fn classes() -> Vec<&'static str> {
    let helpers = HELPERS.iter().filter_map(|one| one.1);
    let kfuncs = KFUNCS.iter().filter_map(|one| one.1);
    let all: BTreeSet<_> =
        SECTIONS.iter().flat_map(|one| one.2).copied().chain(helpers).chain(kfuncs).collect();
    all.into_iter().collect()
}

impl Plan {
    fn object(&self) -> Object {
        let kfunc = |text: &str| Ksym {
            name: name(text),
            kind: KsymKind::Function(TypeId(1)),
            presence: Presence::Required,
        };
        let programs = self.programs.iter().zip(["one", "two", "three"]);
        let programs = programs.map(|((section, helpers, kfuncs), called)| {
            let helpers: Vec<u32> = helpers.iter().map(|index| HELPERS[*index].0).collect();
            let mut section_program = program(SECTIONS[*section].0, &helpers).programs.swap_remove(0);
            section_program.name = name(called);
            let calls = kfuncs.iter().map(|index| Instruction::Call(Callee::Kfunc(KsymId(*index as u32))));
            section_program.body.code.splice(0..0, calls);
            section_program
        });
        let maps = self.maps.iter().zip(["a", "b", "c"]);
        Object {
            license: Some("GPL".into()),
            programs: programs.collect(),
            maps: maps.map(|((kind, entries), called)| map(called, MAPS[*kind].0, 4, *entries)).collect(),
            ksyms: KFUNCS.iter().map(|one| kfunc(one.0)).collect(),
            types: Types {
                list: vec![Type::Signature { result: TypeId(0), params: Vec::new() }],
                notes: Vec::new(),
            },
            ..Object::default()
        }
    }

    /// Returns the rules that a policy needs. An extern that nothing calls needs its rule too.
    fn needed(&self) -> BTreeSet<&'static str> {
        let mut needed: BTreeSet<_> = KFUNCS.iter().filter_map(|one| one.1).collect();
        for (section, helpers, _) in &self.programs {
            needed.extend(SECTIONS[*section].2);
            needed.extend(helpers.iter().filter_map(|index| HELPERS[*index].1));
        }
        needed.extend(self.maps.iter().filter_map(|(kind, _)| MAPS[*kind].2));
        needed
    }

    fn policy(&self) -> Policy {
        let mut policy = Policy::nothing();
        let classes = classes();
        let allowed = classes.iter().filter(|class| !self.left_out.contains(*class));
        for class in allowed.chain(&["import"]) {
            policy.allow_rule(class).expect("a class");
        }
        policy.limit_rule(&format!("map_bytes={}", self.map_bytes)).expect("a limit");
        policy
    }
}

/// Returns a guest that loads the object and ignores the result.
fn guest() -> Vec<u8> {
    component(
        r#"(data (i32.const 512) "one")
        (func (export "run") (result i32) (call $load (i32.const 512) (i32.const 3) (i32.const 1024)) (i32.const 0))"#,
    )
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |four| u32::from_le_bytes(four.try_into().expect("four bytes")))
}

fn text(bytes: &[u8], at: usize) -> String {
    let name = bytes.get(at..).unwrap_or_default().iter().take(16).take_while(|byte| **byte != 0);
    name.map(|byte| char::from(*byte)).collect()
}

/// Source: `union bpf_attr` of include/uapi/linux/bpf.h, v6.18. Requests without a name of the object are
/// libbpf's feature probes.
fn look(asked: &PendingCall, seen: &mut KernelRequests) {
    const MAP_CREATE: u64 = 0;
    const PROG_LOAD: u64 = 5;
    const CALL: u8 = 0x85;
    if asked.kind == 1 {
        seen.events += 1;
        return;
    }
    let attr = asked.memory(asked.args[1], asked.args[2].min(256) as usize).expect("the caller's attributes");
    match asked.args[0] {
        MAP_CREATE if ["a", "b", "c"].contains(&&*text(&attr, 28)) => {
            let bytes = u64::from(u32_at(&attr, 8)) * u64::from(u32_at(&attr, 12));
            seen.maps.insert(text(&attr, 28), (u32_at(&attr, 0), bytes));
        }
        PROG_LOAD if ["one", "two", "three"].contains(&&*text(&attr, 48)) => {
            let address = u64::from(u32_at(&attr, 8)) | u64::from(u32_at(&attr, 12)) << 32;
            let code = asked.memory(address, u32_at(&attr, 4) as usize * 8).expect("the instructions");
            let called = |kind: u8| {
                let calls = code.chunks_exact(8).filter(move |insn| insn[0] == CALL && insn[1] >> 4 == kind);
                calls.map(|insn| u32_at(insn, 4)).collect::<Vec<_>>()
            };
            seen.programs.push((text(&attr, 48), u32_at(&attr, 0), called(0), called(2)));
            seen.charged = charged(asked.thread());
        }
        _ => {}
    }
}

/// Returns the bytes that the kernel charges for the maps of a process, each counted once. Source:
/// kernel/bpf/syscall.c, `bpf_map_show_fdinfo`, v6.18.
fn charged(pid: u32) -> u64 {
    let mut maps = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo")).expect("the caller waits").flatten() {
        let Ok(text) = fs::read_to_string(entry.path()) else { continue };
        let field = |name: &str| -> Option<u64> {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim().parse().ok()
        };
        if let (Some(id), Some(bytes)) = (field("map_id"), field("memlock")) {
            maps.insert(id, bytes);
        }
    }
    maps.values().sum()
}

fn check(plan: &Plan, kernel: &Btf, totals: &Mutex<(usize, usize)>) -> Result<(), TestCaseError> {
    let elf = write(&plan.object()).expect("a sound object");
    let folder = Folder::new();
    let file = folder.write("loaded.wasm", with_object(guest(), elf));
    let policy = folder.write("policy.toml", plan.policy().to_toml());
    let watched = [
        Call { name: "bpf", number: libc::SYS_bpf },
        Call { name: "perf_event_open", number: libc::SYS_perf_event_open },
    ];
    let mut seen = KernelRequests::default();
    let mut command = std::process::Command::new(binary("ks-host"));
    command.arg("--policy").arg(&policy).arg(&file);
    let outcome = observe(&mut command, &watched, |asked| {
        look(asked, &mut seen);
        None
    })
    .expect("the kernel has notifications");
    let lacking: Vec<_> = plan.needed().intersection(&plan.left_out).copied().collect();
    let bytes: u64 = plan.maps.iter().map(|(_, entries)| u64::from(*entries) * 4).sum();
    if !lacking.is_empty() || bytes > plan.map_bytes {
        prop_assert_eq!(outcome.code, 126, "without {:?}: {:?}", lacking, outcome);
        prop_assert!(seen.programs.is_empty() && seen.maps.is_empty(), "without {:?}: {:?}", lacking, seen);
        totals.lock().expect("nobody panics").1 += 1;
        return Ok(());
    }
    prop_assert_eq!(seen.events, 0);
    for (name, kind, helpers, kfuncs) in &seen.programs {
        let index = ["one", "two", "three"].iter().position(|one| one == name);
        let known = index.and_then(|index| plan.programs.get(index)).map(|one| SECTIONS[one.0]);
        let allowed =
            known.is_some_and(|one| one.1 == *kind && one.2.iter().all(|rule| !plan.left_out.contains(rule)));
        prop_assert!(allowed, "program `{}` of type {}", name, kind);
        for helper in helpers {
            let known = HELPERS.iter().find(|one| one.0 == *helper);
            let allowed = known.is_some_and(|one| one.1.is_none_or(|class| !plan.left_out.contains(class)));
            prop_assert!(allowed, "helper {}", helper);
        }
        for id in kfuncs {
            let Ok(KernelType::Func { name, .. }) = kernel.get(TypeId(*id)) else {
                return Err(TestCaseError::fail(format!("a call of type {id}")));
            };
            let known = KFUNCS.iter().find(|one| one.0 == name);
            let allowed = known.is_some_and(|one| one.1.is_none_or(|class| !plan.left_out.contains(class)));
            prop_assert!(allowed, "function {}", name);
        }
    }
    for (kind, _) in seen.maps.values() {
        prop_assert!(plan.maps.iter().any(|(index, _)| MAPS[*index].1 == *kind), "map of type {}", kind);
    }
    let asked: u64 = seen.maps.values().map(|(_, bytes)| bytes).sum();
    prop_assert!(asked <= seen.charged && seen.charged <= plan.map_bytes, "{:?}", seen);
    // What is allowed is not refused for lack of a capability that the host gave up.
    prop_assert!(!seen.programs.is_empty(), "nothing was loaded: {:?}", outcome);
    // The verifier refuses calls without arguments; only the requests count.
    totals.lock().expect("nobody panics").0 += seen.programs.len();
    Ok(())
}

#[test]
fn root_the_kernel_is_given_what_the_policy_allows() {
    let calls = |len: usize| prop::collection::vec(0..len, 0..4);
    let programs =
        prop::collection::vec((0..SECTIONS.len(), calls(HELPERS.len()), calls(KFUNCS.len())), 1..4);
    let entries = prop_oneof![Just(1_u32), Just(100), Just(20_000)];
    let maps = prop::collection::vec((0..MAPS.len(), entries), 0..4);
    let left_out = prop_oneof![
        Just(BTreeSet::new()),
        prop::collection::btree_set(prop::sample::select(classes()), 1..3),
        prop::collection::btree_set(prop::sample::select(classes()), 1..9),
    ];
    let map_bytes = prop_oneof![1 => Just(50_000_u64), 3 => Just(64 << 20)];
    let plan = (programs, maps, left_out, map_bytes).prop_map(|(programs, maps, left_out, map_bytes)| Plan {
        programs,
        maps,
        left_out,
        map_bytes,
    });
    let kernel = fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has its types");
    let kernel = Btf::parse(kernel).expect("the kernel's types");
    let totals = Mutex::new((0, 0));
    let cases = std::env::var("PROPTEST_CASES").map_or(60, |text| text.parse().expect("a number"));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&plan, |plan| check(&plan, &kernel, &totals));
    result.unwrap_or_else(|error| panic!("{error}"));
    let (loaded, denied) = totals.into_inner().expect("nobody panics");
    eprintln!("{cases} plugins: {loaded} programs were given to the kernel, {denied} plugins denied");
    assert!(loaded > 0 && denied > 0);
}
