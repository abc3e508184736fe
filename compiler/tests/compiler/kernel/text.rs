//! Output of the compiler's stages, rejected scripts, and reproducible builds.

use ks_compiler_testing::kernel_half::{build, object, perf_program};
use ks_compiler_testing::loaded::Loaded;
use ks_wit::section::Arch;

#[test]
fn a_program_that_counts_is_five_instructions() {
    let object = object(&perf_program("var hits: u64 = 0", "hits += 1\nreturn 0"));
    assert!(object.mir().contains("atomic_add8"), "{}", object.mir());
    assert!(object.disassembly().contains("lock *(u64 *)"), "{}", object.disassembly());
    // One line for the name, and five instructions.
    assert_eq!(object.disassembly().lines().count(), 6, "{}", object.disassembly());
}

#[test]
fn an_addition_to_a_bound_entry_is_atomic_at_any_index() {
    let script = perf_program(
        "var m: hash<u32, u64[8]>(4)\nvar i: u32 = 1",
        "var b = m[1]\nb[i] += 2\nb[3] += 4\nreturn 0",
    );
    let text = object(&script).disassembly().to_owned();
    assert_eq!(text.matches("lock *(u64 *)").count(), 2, "{text}");
}

#[test]
fn an_entry_that_an_array_always_has_needs_no_value_for_its_absence() {
    let has_value = |map: &str, key: &str| {
        let body = format!("var e = m[{key}]\ne.a += ctx->addr + size as u64\nreturn e.b as i32");
        let head = format!("struct E {{ a: u64, b: u64 }}\nvar m: {map}\nvar size: u32 = 16");
        object(&perf_program(&head, &body)).mir().contains(": 16 bytes at")
    };
    for key in ["3", "cpu() % 16", "time_ns() as u32 & 7"] {
        assert!(!has_value("array<u32, E>(16)", key), "{key}");
        assert!(has_value("hash<u32, E>(16)", key), "{key}");
    }
    for key in ["cpu() % size", "cpu() % 17"] {
        assert!(has_value("array<u32, E>(16)", key), "{key}");
    }
}

#[test]
fn memory_that_others_may_write_is_reloaded_after_a_call() {
    let script = perf_program(
        "var flag: u64 = 0\nvar out: u64 = 0",
        "var a = flag\nvar t = time_ns()\nout = (flag - a) + t\nreturn 0",
    );
    let text = object(&script).disassembly().to_owned();
    let clock = text.find("call bpf_ktime_get_ns").expect("the clock is asked");
    for half in [&text[..clock], &text[clock..]] {
        assert_eq!(half.matches(" = *(u64 *)").count(), 1, "{text}");
    }
}

#[test]
fn a_record_is_asked_for_once() {
    let script = perf_program(
        "struct Seen { at: u64, cpu: u32 }\nvar ring: ringbuf<Seen>(4096)",
        "var seen = ring.reserve()\nif (seen == null) { return 1 }\nseen->at = time_ns()\nseen->cpu = cpu()\n\
         ring.submit(seen)\nreturn 0",
    );
    let object = object(&script);
    assert_eq!(object.mir().matches("is_null").count(), 1, "{}", object.mir());
    assert!(!object.mir().contains("bpf_ringbuf_discard"), "{}", object.mir());
}

#[test]
fn a_small_loop_is_unrolled_while_the_verifier_can_follow_all_paths() {
    let loop_of = |body: &str| {
        let body = format!("var n: u32 = 0\nfor (i in 0..12) {{ {body} }}\nreturn n as i32");
        object(&perf_program("var limit: u64 = 8", &body))
    };
    let small = loop_of("if (ctx->addr > limit + i) { n += i }");
    assert!(!small.mir().contains("bpf_iter_num_next"), "{}", small.mir());
    let many_paths = loop_of("if (ctx->addr > limit + i) { n += i }\nif (ctx->addr > n) { n *= 3 }");
    assert!(many_paths.mir().contains("bpf_iter_num_next"), "{}", many_paths.mir());
}

#[test]
fn the_same_script_gives_the_same_bytes() {
    let script = include_str!("../../cases/kernel/maps.ks");
    assert_eq!(object(script).elf(), object(script).elf());
}

#[test]
fn frames_that_do_not_fit_use_scratch_memory_and_others_do_not() {
    let helper =
        "@helper\nfn deep(n: u32) -> u32 {\nvar a: u8[400] = [0]\na[n] = 1\nreturn a[n] + a[n / 2]\n}";
    let large = perf_program(
        helper,
        "var b: u8[400] = [0]\nb[ctx->sample_period] = 2\n\
         if (deep(b[3]) + deep(b[ctx->addr]) > 1) { return 1 }\nreturn 0",
    );
    assert!(object(&large).mir().contains("scratch_map"), "{}", object(&large).mir());
    let small = perf_program(
        "",
        "var b: u8[400] = [0]\nb[ctx->sample_period] = 2\nif (b[ctx->addr] == 2) { return 1 }\nreturn 0",
    );
    assert!(!object(&small).mir().contains("scratch_map"), "{}", object(&small).mir());
}

#[test]
fn bodies_of_large_loops_and_large_helpers_are_functions_whatever_they_use() {
    let cases: [(&str, &[&str]); 3] = [
        (
            include_str!("../../cases/kernel/contexts_of_programs.ks"),
            &["connect_loop", "connect_loop", "connect", "drop"],
        ),
        (
            include_str!("../../cases/kernel/memory_of_helpers_in_large_loop.ks"),
            &["watch_loop", "watch_loop", "watch"],
        ),
        (
            include_str!("../../cases/kernel/six_arguments_in_large_loop.ks"),
            &["pick_apart", "watch_loop", "watch_loop", "watch"],
        ),
    ];
    for (script, functions) in cases {
        let object = object(script);
        let headers = object.mir().lines().filter(|line| line.ends_with('{'));
        let names = headers.filter_map(|line| line.split(' ').nth(1));
        assert!(names.eq(functions.iter().copied()), "{}", object.mir());
    }
}

#[test]
fn root_the_kernel_shows_the_scripts_lines_and_types() {
    let script = "var hits: u64 = 0
struct Range { low: u32, high: u32 }
var limit: u32 = 3

@helper
fn inside(range: Range, n: u32) -> bool {
    for (i in 0..limit) {
        hits += range.low
    }
    return n >= range.low && n < range.high
}

@perf_event
fn watch(event: *bpf_perf_event_data) -> i32 {
    var range = Range { low: 3, high: 9 }
    hits += 1
    if (inside(range, limit) || inside(range, 7)) {
        return 1
    }
    return 0
}
";
    let dump = Loaded::load(object(script).elf()).translated("watch");
    let expected_lines = [
        "i32 watch(void * event)",
        "bool inside(void * __status, struct Range * range, u32 n)",
        "hits += 1 [file:case.ks line_num:16 line_col:5]",
        "if (inside(range, limit) || inside(range, 7)) { [file:case.ks line_num:17 line_col:",
        "return n >= range.low && n < range.high [file:case.ks line_num:10 line_col:",
        "hits += range.low [file:case.ks line_num:8 line_col:9]",
    ];
    for line in expected_lines {
        assert!(dump.contains(line), "{line} in\n{dump}");
    }
}

#[test]
fn root_map_entries_are_what_the_script_stored() {
    let object = object(include_str!("../../cases/kernel/maps.ks"));
    let loaded = Loaded::load_runnable(object.elf());
    loaded.run("watch");
    let names: std::collections::BTreeMap<String, u64> = loaded
        .entries("names")
        .into_iter()
        .map(|(key, value)| (key.to_string(), value.as_u64().expect("a number")))
        .collect();
    assert_eq!(names.values().copied().collect::<Vec<_>>(), [2, 3], "{names:?}");
    let stats = loaded.entries("stats");
    let stat = |wanted: u64| stats.iter().find(|(key, _)| *key == wanted).map(|(_, stat)| stat);
    assert_eq!(stats.len(), 2, "{stats:?}");
    assert_eq!(stat(7).expect("stored")["kind"], 3);
    let created = stat(8).expect("a part that is changed makes the entry");
    assert_eq!(
        (&created["hits"], &created["bytes"], &created["kind"]),
        (&5.into(), &0.into(), &0.into()),
        "{stats:?}"
    );
}

/// Source: System V ABI, AMD64 Supplement, 3.2.3; Procedure Call Standard for the Arm 64-bit Architecture, 6.8.2.
#[test]
fn arguments_that_no_register_has_are_on_the_stack() {
    let params: Vec<_> = (0..10).map(|at| format!("a{at}: u64")).collect();
    let values: Vec<_> = (0..10).map(|at| format!("a{at}")).collect();
    let script = format!(
        "var sum: u64 = 0\n@uprobe(\"/bin/true:main\")\nfn enters({}) -> i32 {{\nsum = {}\nreturn 0\n}}\n",
        params.join(", "),
        values.join(" ^ ")
    );
    for (arch, stack, offsets) in
        [(Arch::X86_64, 152, [8, 16, 24, 32].as_slice()), (Arch::Aarch64, 248, &[0, 8])]
    {
        let object = build(&script, &[], arch).unwrap_or_else(|errors| panic!("{errors:#?}"));
        let text = object.disassembly();
        assert_eq!(text.matches("call bpf_probe_read_user").count(), offsets.len(), "{arch:?}: {text}");
        assert!(text.contains(&format!(" + {stack})")), "{arch:?}: {text}");
        for offset in offsets.iter().filter(|offset| **offset > 0) {
            assert!(text.contains(&format!(" -= -{offset}\n")), "{arch:?}: {offset}: {text}");
        }
    }
}

#[test]
fn a_second_compilation_stands_in_the_listings_with_its_reason() {
    let script = |numbers: usize| {
        let each = |text: &dyn Fn(usize) -> String| (0..numbers).map(text).collect::<Vec<_>>().join("\n");
        let read = each(&|at| format!("var n{at}: u32 = time_ns() as u32"));
        let written = each(&|at| format!("kept[{at}] = n{at}"));
        perf_program(&format!("var kept: u32[{numbers}]"), &format!("{read}\n{written}\nreturn 0"))
    };
    let once = object(&script(8));
    for text in [once.mir(), once.disassembly()] {
        assert!(!text.contains("compiled again"), "{text}");
    }
    // All are read before the first one is written, and each takes 8 bytes of the frame.
    let twice = object(&script(100));
    for text in [twice.mir(), twice.disassembly()] {
        let first = text.lines().next().expect("a listing");
        assert!(first.starts_with("// compiled again, with small frames: "), "{first}");
        assert!(first.contains("bytes of stack; the limit is 512"), "{first}");
    }
}
