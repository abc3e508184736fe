//! Instruction sets and target kernels: no newer feature is used, and unavailable ones are reported.

use ks_compiler::kernel::{Cpu, KernelVersion, Machine};
use ks_compiler::object::btf::{Btf, BtfKind};
use ks_wit::section::Arch;

use ks_compiler_testing::kernel_half::{build, expect_only, object, object_for, perf_program};
use ks_compiler_testing::loaded::Loaded;
use object::{Object, ObjectSection};

#[test]
fn signs_cost_one_instruction_where_there_is_one() {
    let script = perf_program(
        "var a: i8 = -5\nvar b: i64 = -70\nvar c: i32 = -9",
        "b = b / 7\nb += a\nc = c % 4\nreturn c",
    );
    let [old, new] = [Cpu::V3, Cpu::V4].map(|cpu| object_for(&script, cpu).disassembly().to_owned());
    expect_only(Cpu::V3, &object_for(&script, Cpu::V3));
    assert!(new.contains("s/= 7") && new.contains("s%= 4") && new.contains("(s8)"), "{new}");
    assert!(new.lines().count() < old.lines().count(), "{old}\n{new}");
}

#[test]
fn a_loop_without_a_known_end_needs_the_kernels_help() {
    let script = perf_program("var n: u32 = 9\nvar sum: u64 = 0", "for (i in 0..n) { sum += i }\nreturn 0");
    for (major, minor, fine) in [(5, 15, false), (5, 17, true), (6, 1, true), (6, 6, true), (6, 18, true)] {
        let kernel = Some(KernelVersion::new(major, minor));
        let built = build(&script, &[], Machine { kernel, ..Arch::X86_64.into() });
        let codes: Vec<_> = built.err().into_iter().flatten().map(|one| one.code.to_string()).collect();
        assert_eq!(codes, if fine { vec![] } else { vec!["KS1005"] }, "{major}.{minor}");
    }
    let short = perf_program("var sum: u64 = 0", "for (i in 0..9) { sum += i }\nreturn 0");
    let kernel = Some(KernelVersion::new(5, 15));
    assert!(build(&short, &[], Machine { kernel, ..Arch::X86_64.into() }).is_ok());
    let long = perf_program("var sum: u64 = 0", "for (i in 0..1000) { sum += i }\nreturn 0");
    let object = build(&long, &[], Machine { kernel, ..Arch::X86_64.into() })
        .expect("the verifier follows every iteration");
    assert!(!object.mir().contains("bpf_"), "{}", object.mir());
}

#[test]
fn root_the_verifier_follows_a_long_loop_without_branches() {
    let script = perf_program("var sum: u64 = 0", "for (i in 0..4096) { sum += i }\nreturn 0");
    let kernel = Some(KernelVersion::new(5, 15));
    let object =
        build(&script, &[], Machine { kernel, ..Arch::X86_64.into() }).expect("no iterator is needed");
    Loaded::load(object.elf());
}

#[test]
fn loops_are_calls_where_there_are_no_iterators() {
    let body = "for (i in 0..n) { sum += i }\nreturn 0";
    let script = perf_program("var n: u32 = 9\nvar sum: u64 = 0", body);
    let built = |minor| {
        let kernel = Some(KernelVersion::new(6, minor));
        build(&script, &[], Machine { kernel, ..Arch::X86_64.into() }).expect("the kernel has one of both")
    };
    let (old, new) = (built(1), built(6));
    assert!(
        old.mir().contains("call bpf_loop(") && old.mir().contains("function_addr loop_body_0"),
        "{}",
        old.mir()
    );
    assert!(old.disassembly().contains("call bpf_loop"), "{}", old.disassembly());
    assert!(!old.mir().contains("bpf_iter_num") && !new.mir().contains("bpf_loop"), "{}", new.mir());
}

#[test]
fn a_record_that_changes_between_iterations_is_refused_with_the_reason() {
    let items = "struct Entry { value: u64 }\nvar r: ringbuf<Entry>(4096)\nvar n: u32 = 3";
    let body = "var x = r.reserve()\nfor (i in 0..n) { x = r.reserve() }\nr.submit(x)\nreturn 0";
    let kernel = Some(KernelVersion::new(6, 1));
    let errors = build(&perf_program(items, body), &[], Machine { kernel, ..Arch::X86_64.into() });
    let errors = errors.expect_err("a callback cannot hand a pointer on");
    assert_eq!(errors[0].code.to_string(), "KS1005");
    assert!(errors[0].notes.iter().any(|note| note.contains("no entry of a map")), "{errors:#?}");
}

#[test]
fn helpers_are_refused_where_the_kernel_gives_them_to_others_only() {
    let method = |body: &str| {
        format!(
            "var last: u64 = 0\n@struct_ops(\"tcp_congestion_ops\")\nimpl steady {{\n    \
             fn ssthresh(sk: *u8) -> u32 {{\n{body}\n    return 2\n}}\n    \
             fn undo_cwnd(sk: *u8) -> u32 {{ return 2 }}\n}}\nfn main() -> i32 {{ return register(steady) \
             }}\n"
        )
    };
    let codes = |script: &str, minor| {
        let kernel = Some(KernelVersion::new(6, minor));
        let built = build(script, &[], Machine { kernel, ..Arch::X86_64.into() });
        built.err().into_iter().flatten().map(|one| one.code.to_string()).collect::<Vec<_>>()
    };
    for (call, since) in [("pid()", 10), ("uid()", 16), ("gid()", 16), ("cgroup_id()", 4)] {
        let body = format!("last = {call}");
        assert_eq!(codes(&method(&body), since), Vec::<String>::new(), "{call}");
        assert_eq!(codes(&method(&body), since - 1), ["KS1005"], "{call}");
        let observing = perf_program("var last: u64 = 0", &format!("{body}\nreturn 0"));
        assert_eq!(codes(&observing, 1), Vec::<String>::new(), "{call}");
    }
}

#[test]
fn loops_are_calls_in_programs_that_iterate_over_a_map() {
    let items = "var m: hash<u32, u64>(4)\nvar n: u32 = 9\nvar sum: u64 = 0\n\
        @helper fn more() -> u64 { var made: u64 = 1\nfor (i in 0..n) { made *= sum + i }\nreturn made }";
    let (inside, while_loop, called) =
        ("for (i in 0..n) { sum += i }", "while (sum > n) { sum /= 2 }", "sum += more()");
    let map_loop = |statement: &str| format!("for (k, v in m) {{ sum += v\n{statement} }}\n");
    let text =
        |body: String| object(&perf_program(items, &format!("{body}\nreturn 0"))).disassembly().to_owned();
    for statement in [inside, while_loop, called] {
        let around = format!("for (j in 0..n) {{ {} }}", map_loop("sum += j"));
        for body in [
            map_loop(statement),
            format!("{statement}\n{}", map_loop("")),
            format!("{}\n{statement}", map_loop("")),
            around,
        ] {
            let text = text(body);
            assert!(text.contains("call bpf_for_each_map_elem") && text.contains("call bpf_loop"), "{text}");
            assert!(!text.contains("bpf_iter_num"), "{text}");
        }
        assert!(text(statement.to_owned()).contains("bpf_iter_num"), "without a walk: {statement}");
    }
}

#[test]
fn a_loop_that_cannot_be_a_call_is_refused_next_to_a_map_iteration() {
    let items = "struct Entry { value: u64 }\nvar m: hash<u32, Entry>(4)\nvar r: ringbuf<Entry>(4096)\nvar n: u32 = 3";
    let body = "var x = r.reserve()\nfor (i in 0..n) { x = r.reserve() }\nr.submit(x)\n\
                for (k, v in m) { v.value = 1 }\nreturn 0";
    let errors = build(&perf_program(items, body), &[], Arch::X86_64);
    let errors = errors.expect_err("a callback cannot hand a pointer on");
    assert_eq!(errors[0].code.to_string(), "KS0719");
    assert!(errors[0].message.contains("in a program that loops over a map"), "{errors:#?}");
    assert!(errors[0].notes.iter().any(|note| note.contains("no entry of a map")), "{errors:#?}");
}

#[test]
fn types_are_named_as_the_kernel_wants_them() {
    let script = perf_program("var sizes: linear_hist(0, 64, 16)", "sizes.add(7)\nreturn 0");
    let compiled = object(&script);
    let file = object::File::parse(compiled.elf()).expect("it is an ELF file");
    let types = file.section_by_name(".BTF").expect("types").data().expect("in the file").to_vec();
    let types = Btf::parse(types).expect("well-formed");
    let structs: Vec<&str> = types.named(BtfKind::Struct).map(|(_, name)| name).collect();
    assert!(structs.contains(&"linear_hist_0_64_16"), "{structs:?}");
    let is_identifier = |name: &&&str| name.chars().all(|one| one.is_ascii_alphanumeric() || one == '_');
    assert_eq!(structs.iter().find(|name| !is_identifier(name)), None);
}
