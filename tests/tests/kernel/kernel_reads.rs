//! Lists, structs and paths of the kernel, against what procfs and the processes say. These tests need root.

use ks_tests::{Outcome, allowed, finish};

/// Runs a script until a command has ended.
fn beside(script: &str, command: &[&str]) -> Outcome {
    finish(allowed().args(["-e", script, "--exec"]).args(command))
}

/// Runs a script while Python makes one system call, after other work.
fn beside_python(script: &str, work: &str) -> Outcome {
    beside(script, &["python3", "-S", "-c", &format!("import os; {work}; os.getppid()")])
}

/// A line of Python by which programs tell a process from those of other tests.
fn renamed(comm: &str) -> String {
    format!("open('/proc/self/comm', 'w').write('{comm}')")
}

/// The children of the children of a shell that becomes `true`.
const LISTS: &str = r#"
@raw_tracepoint("sched_process_exec") if (comm() == "true") {
    for (i, child in list(&p->children, task_struct, sibling)) {
        children[child->pid] += 1
        for (j, inner in list(&child->children, task_struct, sibling)) { grandchildren[inner->pid] += 1 }
    }
}
@end {
    print("%u %u", count(children), count(grandchildren))
    clear(children)
    clear(grandchildren)
}
"#;

#[test]
fn root_lists_are_iterated_within_lists() {
    let tree = "(sleep 1 & sleep 1 & wait) & (sleep 1 & wait) & sleep 0.3; exec true";
    let ran = beside(LISTS, &["sh", "-c", tree]);
    assert_eq!(ran.stdout.lines().next(), Some("2 3"), "{ran:#?}");
}

/// A struct of the script with the name of one of the kernel's, and another layout.
const OWN: &str = r#"
struct task_struct { state: i64, pid: i32 }
@syscall_enter("getppid") if (comm() == "own") {
    var task = bpf_get_current_task_btf()
    if (exists(task->state)) { print("older") } else { print("%d %d", task->pid == tid() as i32, task->__state) }
}
"#;

#[test]
fn root_a_declared_struct_is_the_kernels_behind_its_pointers() {
    let ran = beside_python(OWN, &renamed("own"));
    assert_eq!(ran.stdout, "1 0\n", "{ran:#?}");
}

#[test]
fn root_a_struct_is_found_by_a_member_of_the_pointers_type() {
    for (script, wanted) in [
        ("for (i, q in list(&p->children, task_struct, comm)) { n[i] += 1 }", "points to a `list_head`"),
        ("n[container_of(p, task_struct, pid)->tgid] += 1", "points to a `task_struct`"),
    ] {
        let script = format!("@raw_tracepoint(\"sched_process_exec\") {{ {script} }}");
        let ran = beside(&script, &["true"]);
        assert!(ran.code != 0 && ran.stderr.contains("KS0402") && ran.stderr.contains(wanted), "{ran:#?}");
    }
    let head = "struct list_head { next: u64 }\n@raw_tracepoint(\"sched_process_exec\") {
        for (i, q in list(&p->children, task_struct, sibling)) { n[i] += 1 } }";
    let ran = beside(head, &["true"]);
    assert!(ran.code != 0 && ran.stderr.contains("remove the declaration of `list_head`"), "{ran:#?}");
}

/// Paths of the working directory, of a pipe, and of nothing.
const PATHS: &str = r#"
@syscall_enter("getppid") if (comm() == "python3") {
    var task = bpf_get_current_task_btf()
    print("%s", path(&task->fs->pwd, 200))
    var file = task->files->fdt->fd[1]
    print("pipe [%s]", path(&file->f_path))
    var none = 0 as *path
    var nothing = path(none)
    var copy = nothing
    if (nothing == null && path(12345 as u64 as *path) == null) { print("null [%s]", nothing) }
    if (copy != null) { print("a copy of nothing") }
    if (var found = path(&task->fs->root)) { print("root %s", found) }
}
"#;

#[test]
fn root_paths_say_whether_they_are_whole() {
    let folder = ks_tests::Folder::new();
    let deep = |depth: usize| {
        let names = vec!["d"; depth].join("/");
        folder.path("").join(names).display().to_string()
    };
    for depth in [1, 40, 80] {
        let path = deep(depth);
        let ran = beside_python(PATHS, &format!("os.makedirs('{path}', exist_ok=True); os.chdir('{path}')"));
        let (first, rest) = ran.stdout.split_once('\n').unwrap_or_else(|| panic!("{ran:#?}"));
        assert_eq!(rest, "pipe []\nnull []\nroot /\n", "{ran:#?}");
        if depth < 60 {
            assert_eq!(first, path, "{ran:#?}");
        } else {
            // No more than 64 steps, of which some are mounts.
            let end = first.strip_prefix("../").unwrap_or_else(|| panic!("{first}: {ran:#?}"));
            assert!(path.ends_with(end) && end.len() > 100, "{first} {ran:#?}");
        }
        assert!(!ran.stderr.contains("could not be read"), "{ran:#?}");
    }
    let unasked = r#"@syscall_enter("getppid") if (comm() == "python3") {
        var none = 0 as *path
        print("[%s] [%s]", path(none), join(8 as u64 as **u8, " "))
    }"#;
    let ran = beside_python(unasked, "0");
    assert_eq!(ran.stdout, "[] []\n", "{ran:#?}");
    assert_eq!(ran.number_before(" texts could not be read"), 2, "{ran:#?}");
}

/// Text of a process may have line feeds and bytes that are no text.
const OPENED: &str = r#"
@syscall_enter("openat") if (comm() == "python3" && dfd == 99) {
    print("open %u %s", 7, filename)
    names[str(filename, 32)] += 1
}
"#;

#[test]
fn root_a_name_with_a_line_feed_is_one_line_and_keeps_its_bytes() {
    let work = r#"
for name in (b"/x\nopen 1 /etc/shadow", b"/x\\nopen", b"\xff\xfe", b"\xfe\xff"):
    try: os.open(name, 0, dir_fd=99)
    except OSError: pass
"#;
    let command = ["python3", "-S", "-c", &format!("import os\n{work}")];
    let ran = beside(OPENED, &command);
    let mut lines = ran.stdout.lines();
    assert_eq!(lines.next(), Some(r"open 7 /x\nopen 1 /etc/shadow"), "{ran:#?}");
    let ran = finish(allowed().args(["--json", "-e", OPENED, "--exec"]).args(command));
    let objects: Vec<serde_json::Value> =
        ran.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let printed: Vec<_> = objects.iter().filter_map(|one| one.get("values")).collect();
    let wanted = ["/x\nopen 1 /etc/shadow", r"/x\nopen", r"\xff\xfe", r"\xfe\xff"];
    assert_eq!(
        printed,
        wanted.map(|name| serde_json::json!([7, name])).iter().collect::<Vec<_>>(),
        "{ran:#?}"
    );
    let mut keys: Vec<_> = objects.iter().filter_map(|one| one["row"]["key"].as_str()).collect();
    let mut wanted = wanted;
    keys.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(keys, wanted, "{ran:#?}");
}

/// A record of a system call has as many arguments as that: the kernel refuses a program that reads beyond. Other elements
/// are 0.
#[test]
fn root_arguments_of_system_calls_are_read_by_any_index() {
    let script = r#"
var known: u64 = 0
var beyond: u64 = 0
var copied: u64 = 0
var none: u64 = 0

@tracepoint("syscalls/sys_enter_close") if (ctx->args[0] == 4711) {
    for (i in 0..6) {
        if (i == 0) { known += ctx->args[i] } else { beyond += ctx->args[i] }
    }
    var all = ctx->args
    copied += all[beyond % 2] + all[5]
}
@tracepoint("syscalls/sys_enter_getppid") if (comm() == "closing") { none += ctx->args[known % 6] + 1 }
@end { print("%llu %llu %llu %llu", known, beyond, copied, none) }
"#;
    let work =
        "open('/proc/self/comm', 'w').write('closing'); exec('try: os.close(4711)\\nexcept OSError: pass')";
    let ran = beside_python(script, work);
    assert_eq!(ran.stdout, "4711 0 4711 1\n", "{ran:#?}");
}
