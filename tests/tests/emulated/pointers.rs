//! Pointers of the kernel half converted to numbers and back, and memory passed to helpers. These tests need
//! root.

use ks_tests::emulated::{Kernel, Machine};
use ks_tests::{at_switches, run_script, try_compile};

#[test]
fn kernel_6_1() {
    Machine::new(Kernel::V6_1).run_tests(module_path!(), &["root_pointers", "root_numbers", "root_memory"]);
}

#[test]
fn kernel_6_12() {
    Machine::new(Kernel::V6_12).run_tests(module_path!(), &["root_pointers", "root_numbers", "root_memory"]);
}

/// Returns the output of the script of [`at_switches`].
#[track_caller]
fn output_of(declared: &str, body: &str) -> String {
    let ran = run_script::<&str>("pointers", &at_switches(declared, body), &[]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    ran.stdout
}

#[track_caller]
fn refused(declared: &str, body: &str, code: &str) {
    let script = at_switches(declared, body);
    let error = try_compile("pointers", &script).expect_err("the script is refused");
    assert!(error.contains(code), "{error}");
}

#[test]
fn root_numbers_are_pointers_that_lead_where_they_led() {
    let body = "
        var x: u64 = 5
        var number = &x as u64
        var back = number as *u64
        a = *back as i64
        b = (back == &x) as i64
        seen[1] = 9
        var entry = &seen[1] as u64
        c = *(entry as *u64) as i64";
    assert_eq!(output_of("var seen : hash<u32, u64>(4)", body), "5 1 9\n");
}

#[test]
fn root_numbers_become_pointers_to_structs_of_the_kernel() {
    let body = "
        var number = bpf_get_current_task()
        var task = number as *task_struct
        a = (task->pid == tid()) as i64
        b = (task as u64 == number) as i64
        c = (task == number as *task_struct) as i64";
    assert_eq!(output_of("", body), "1 1 1\n");
}

#[test]
fn root_pointers_of_all_kinds_are_compared() {
    let body = "
        var x: u64 = 5
        var task = bpf_get_current_task() as *task_struct
        var any: *u64 = &x
        if (cpu() > 100000) { any = bpf_get_current_task() as *u64 }
        a = (any == &x) as i64
        b = (any != task as *u64) as i64
        if (ctx != null) { c = (task as *u8 > null as *u8) as i64 }";
    assert_eq!(output_of("", body), "1 1 1\n");
}

#[test]
fn root_pointers_are_printed() {
    let body = "
        var word: str(16) = \"word\"
        if (a == -1) {
            a = 1
            print(\"%p %s {} %s\", null as *u8, &word as *u8, null as *u64, &ctx->next_comm as *u8)
            var number = &word as u64
            print(\"%p\", &word)
            print(\"0x%x\", number)
        }";
    let lines = output_of("", body);
    let lines: Vec<_> = lines.lines().collect();
    let [first, pointer, number, last] = lines[..] else { panic!("{lines:?}") };
    assert!(first.starts_with("0x0 word 0x0 ") && first.len() > "0x0 word 0x0 ".len(), "{first}");
    assert!(pointer.starts_with("0xff") && pointer == number, "{pointer} {number}");
    assert_eq!(last, "1 -1 -1");
}

#[test]
fn root_pointers_may_be_misaligned() {
    let body = "
        var zeros: u8[16] = []
        seen[1] = zeros
        var inner = &seen[1][1] as *u64
        *inner += 5
        *inner += 2
        a = *inner as i64
        var kept = &seen[1][9] as *u32
        for (i in 0..2) { kept = &seen[1][9 + i] as *u32 }
        *kept = 3
        b = seen[1][10] as i64
        c = seen[1][1] as i64";
    assert_eq!(output_of("var seen : hash<u32, u8[16]>(4)", body), "7 3 7\n");
}

#[test]
fn root_memory_of_many_bytes_is_copied() {
    let declared = "
        struct Large { words: u64[2000] }
        var one: Large = Large { words: [] }
        var other: Large = Large { words: [] }
        var bytes: u8[3000] = []
        var text: str(2500) = \"\"";
    let body = "
        one.words[1500] = 7
        other = one
        a = other.words[1500] as i64
        one.words = []
        b = one.words[1500] as i64
        bytes[0] = 65
        bytes[1] = 66
        text = bytes
        c = len(text) as i64";
    assert_eq!(output_of(declared, body), "7 0 2\n");
}

#[test]
fn root_memory_for_helpers_need_not_be_there() {
    let declared = "
        struct Name { text: u8[16] }
        var names : hash<u32, Name>(4)
        var events : ringbuf<Name>(4096)
        extern bpf_get_current_comm(name: *u8, bytes: u32) -> i32";
    let body = "
        names[1] = Name { text: [] }
        a = bpf_get_current_comm(&names[1].text, 16)
        if (names[1].text[0] == 0) { a = 100 }
        b = bpf_get_current_comm(&names[2].text, 16)
        // Nobody reads the ring buffer: it is full after some hundred switches.
        if (c == -1) {
            var record = events.reserve()
            c = bpf_get_current_comm(&record->text, 16)
            if (record != null && record->text[0] == 0) { c = 100 }
            events.discard(record)
        }";
    assert_eq!(output_of(declared, body), "0 -22 0\n");
}

#[test]
fn root_memory_for_helpers_may_have_a_size_known_when_they_run() {
    let declared = "extern bpf_probe_read_kernel(to: *u8, bytes: u32, source: *u8) -> i64";
    let body = "
        var source: u64 = 0x1234
        var target: u8[8] = []
        var bytes = pid() % 1 + 2
        a = bpf_probe_read_kernel(target, bytes, &source)
        b = target[0] as i64 * 256 + target[1] as i64
        c = bpf_probe_read_kernel(target, bytes + 7, &source)";
    assert_eq!(output_of(declared, body), "0 13330 -22\n");
}

#[test]
fn pointers_that_the_kernel_cannot_track_are_refused() {
    let comm = "extern bpf_get_current_comm(name: *u8, bytes: u32) -> i32";
    let body = "
        var name: u8[16] = []
        var start = &name[pid() % 16]
        a = bpf_get_current_comm(start, pid() % 16)";
    refused(comm, body, "KS0621");
    refused("", "var other: *trace_event_raw_sched_switch = null\nother = ctx", "KS0401");
    refused("", "var other: *trace_event_raw_sched_switch\nother = ctx", "KS0401");
    refused("", "var other = 5 as *trace_event_raw_sched_switch\na = other->next_pid", "KS0401");
    refused(
        "struct One { x: u64 }",
        "var p: *One = null\nfor (i in 0..4) { p = new One()\np->x = i }\na = p->x as i64",
        "KS0622",
    );
}
