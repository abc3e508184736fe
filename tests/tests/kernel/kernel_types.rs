//! Offsets of members and typed tracepoints are the same whether libbpf reads the kernel's types or gets those that it asks
//! for, from the image in the cache. These tests need root.

use ks_tests::{Folder, allowed, finish};

/// Prints what the kernel says of the command that is started: with members behind pointers, in an anonymous struct and in an
/// array, bit fields, and what only some kernels have.
const SCRIPT: &str = r#"
@raw_tracepoint("sched_process_exec") {
    var is_new = exists(p->__state)
    var limit = p->signal->rlim[7].rlim_cur
    print("%u %u %d %u %llu %s", p->tgid as u32, p->real_parent->tgid as u32, is_new, p->no_cgroup_migration, limit, p->comm)
}
"#;

#[test]
fn root_types_of_the_cache_give_the_same_offsets() {
    let folder = Folder::new();
    let cache = folder.path("cache");
    let says = "echo $$ $PPID $(ulimit -n)";
    let mut shown = Vec::new();
    for start in ["without an image", "with one"] {
        let is_kept = std::fs::read_dir(&cache).is_ok_and(|entries| {
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("types-"))
        });
        assert_eq!(is_kept, start == "with one");
        let mut host = allowed();
        let ran = finish(host.arg("--cache").arg(&cache).args(["-e", SCRIPT, "--exec", "sh", "-c", says]));
        let mut lines = ran.stdout.lines().filter(|line| line.split(' ').count() == 3);
        let words: Vec<&str> = lines.next().unwrap_or_else(|| panic!("{ran:#?}")).split(' ').collect();
        let line = format!("{} {} 1 0 {} sh", words[0], words[1], words[2]);
        assert!(ran.stdout.lines().any(|line_of| line_of == line), "{start}: {line}: {ran:#?}");
        shown.push(words[2].to_owned());
    }
    assert_eq!(shown[0], shown[1]);
}

/// The struct around a part of its part and an element, and a list whose elements are in it by an element.
const PARTS: &str = r#"
@raw_tracepoint("sched_process_exec") if (comm() == "sh") {
    var node = &p->se.run_node
    var k: u32 = 2
    var of_part = container_of(node, task_struct, se.run_node)
    var of_element = container_of(&p->pid_links[1], task_struct, pid_links[1])
    var of_varying = container_of(&p->pid_links[k], task_struct, pid_links[k])
    var beyond = container_of(&p->pid_links[1], task_struct, pid_links[k + 2])
    print("same %d %d %d %d", of_part == p, of_element == p, of_varying == p, beyond == null)
}
@raw_tracepoint("sched_process_exit") if (comm() == "sh") {
    var pid = p->thread_pid
    for (i, task in list(&pid->tasks[PIDTYPE_TGID], task_struct, pid_links[PIDTYPE_TGID])) {
        print("listed %d", task->pid == p->pid)
    }
}
"#;

#[test]
fn root_structs_are_found_around_parts_of_their_members() {
    let ran = finish(allowed().args(["-e", PARTS, "--exec", "sh", "-c", "true"]));
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("same 1 1 1 1\nlisted 1\n", ""), "{ran:#?}");
}

#[test]
fn root_joined_texts_say_that_there_are_more() {
    const SCRIPT: &str =
        r#"@syscall_enter("execve") if (comm() == "sh") { print("%s", join(argv, "-", 200)) }"#;
    let joined = |count: usize| {
        let arguments: Vec<String> = (1..count).map(|number| number.to_string()).collect();
        let arguments = format!("exec /bin/true {}", arguments.join(" "));
        let ran = finish(allowed().args(["-e", SCRIPT, "--exec", "sh", "-c", &arguments]));
        ran.stdout.lines().find(|line| line.starts_with("/bin/true-")).map(str::to_owned)
    };
    let first: Vec<String> = (1..20).map(|number| number.to_string()).collect();
    let first = format!("/bin/true-{}", first.join("-"));
    assert_eq!((joined(20), joined(21)), (Some(first.clone()), Some(format!("{first}-..."))));
}

/// Text of a call's argument, and at an address where nothing is.
const UNREAD: &str = r#"
@helper fn first(p: *u8) -> u8 { return *p }
@syscall_enter("openat") if (comm() == "cat") {
    if (var path = str(filename)) { print("read [%s]", path) }
    var none = str(8 as u64)
    if (none == null && str(8 as u64, 4) == null) { print("null [%s]", none) }
    var bytes: u8[4] = buf(filename, 1)
    var no_bytes: u8[4] = buf(8 as u64, 4)
    if (bytes != null && no_bytes == null) { print("first [%c] [%u]", first(&bytes[0]), no_bytes[0]) }
    // A pointer points to it.
    bytes = buf(8 as u64, 4)
    if (bytes != null) { print("wrong") }
}
"#;

#[test]
fn root_text_that_cannot_be_read_is_null() {
    let mut host = allowed();
    let ran = finish(host.args(["-e", UNREAD, "--exec", "cat", "/dev/null", ""]));
    for wanted in ["read [/dev/null]\nnull []\nfirst [/] [0]\n", "read []\nnull []\nfirst [\\u{0}] [0]\n"] {
        assert!(ran.stdout.contains(wanted), "{ran:#?}");
    }
    assert!(!ran.stderr.contains("could not be read") && !ran.stdout.contains("wrong"), "{ran:#?}");
    let unasked = UNREAD.replace("if (none == null && str(8 as u64, 4) == null)", "if (true)");
    let ran = finish(allowed().args(["-e", &unasked, "--exec", "cat", "/dev/null"]));
    assert!(ran.stdout.contains("null []") && ran.number_before(" texts could not be read") > 0, "{ran:#?}");
}

/// Asks for members that only kernels before 5.14 have, which the script declares.
const DECLARED: &str = r#"
struct task_struct { state: i64 }
struct signal_struct { nr_thr: i32 }
@raw_tracepoint("sched_process_exec") {
    var task = bpf_get_current_task_btf() as *task_struct
    if (exists(task->state)) { print("older %lld", task->state) } else { print("newer %u", task->__state) }
    var signal = task->signal
    if (exists(signal->nr_thr)) { print("older %d", signal->nr_thr) } else { print("threads %d", signal->nr_threads) }
}
"#;

#[test]
fn root_members_that_a_script_declares_are_asked_for_through_any_pointer() {
    let mut host = allowed();
    let ran = finish(host.args(["-e", DECLARED, "--exec", "sh", "-c", "exit 0"]));
    let lines: Vec<&str> = ran.stdout.lines().filter(|line| line.contains(' ')).collect();
    assert!(lines.contains(&"newer 0") && lines.contains(&"threads 1"), "{ran:#?}");
    assert!(!ran.stdout.contains("older"), "{ran:#?}");
}
