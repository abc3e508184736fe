//! Scripts that use the running kernel's data: what is refused, and where. These tests need its BTF.

use std::sync::{Arc, LazyLock};

use ks_compiler::diag::Severity;
use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::pipeline::{Options, parse};

static KERNEL: LazyLock<Arc<KernelTypes>> = LazyLock::new(|| {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux")
        .expect("these tests need a kernel with CONFIG_DEBUG_INFO_BTF and /sys/kernel/btf/vmlinux");
    Arc::new(KernelTypes::from_btf(bytes).expect("the kernel's BTF is well-formed"))
});

/// Statements of a program at the end of a task, with the refused part between `[` and `]`.
const REFUSED: [(&str, &str, &str); 17] = [
    ("for (_i, _p in list(&task->children, task_struct, [nothing])) { }", "KS0304", "no member `nothing`"),
    (
        "for (_i, _p in list([&task->comm], task_struct, sibling)) { }",
        "KS0402",
        "expected a list of the kernel",
    ),
    (
        "for (_i, _p in list(&task->children, task_struct, sibling, [0])) { }",
        "KS0705",
        "a constant from 1 to",
    ),
    (
        "for (_i, _p in list(&task->children, task_struct, sibling, [task->pid])) { }",
        "KS0705",
        "a constant from 1",
    ),
    ("for (_i, _p in [list(&task->children)]) { }", "KS0401", "takes a list, the struct"),
    ("var p = [list(&task->children, task_struct, sibling)]", "KS0402", "only iterated over"),
    ("if (exists([own])) { return 1 }", "KS0401", "`own` belongs to the script"),
    ("if (exists([5])) { return 1 }", "KS0401", "takes a member of a kernel struct, or a function"),
    ("print(\"%s\", enum_name([no_such_enum], 1))", "KS0509", "no enum or enumerator `no_such_enum`"),
    ("print(\"%s\", enum_name([task->pid]))", "KS0401", "`pid` of `task_struct` is no enum"),
    ("print(\"%s\", enum_name([\"pid_type\"], 1))", "KS0401", "names an enum of the kernel"),
    ("var kept: str(8) = [enum_name(pid_type, 1)]", "KS0306", "only a value of `print`"),
    ("var text: str(4) = str([task->pid], 4)", "KS0401", "expected a pointer to bytes"),
    ("var text: str(4) = str(task->comm, [0])", "KS0430", "a constant from 1 to 256"),
    ("var text = join([task->comm], \" \")", "KS0401", "takes an array of texts"),
    ("var text: str(9) = path([task->comm])", "KS0401", "takes a pointer to the kernel's `path`"),
    ("if ([TCP_NO_SUCH] == 1) { return 1 }", "KS0301", "no name `TCP_NO_SUCH`"),
];

/// The same for statements of `main`.
const REFUSED_IN_USERSPACE: [(&str, &str, &str); 3] = [
    ("if ([PIDTYPE_TGID] == 1) { return 1 }", "KS0511", "userspace does not know it"),
    ("for (_i, _p in [list(1, task_struct, sibling)]) { }", "KS0306", "`list` belongs to the kernel half"),
    ("if ([exists](vfs_read)) { return 1 }", "KS0306", "`exists` belongs to the kernel half"),
];

/// Scripts that are accepted.
const ACCEPTED: [&str; 5] = [
    "for (_i, p in list(&task->children, task_struct, sibling)) { print(\"%d\", p->pid) }",
    "for (_i, p in list(&task->thread_pid->tasks[0], task_struct, pid_links, 8)) { print(\"%d\", p->pid) }",
    "if (exists(vfs_read) && !exists(own_of_nobody)) { return 1 }",
    "print(\"%s %s\", enum_name(TCP_LISTEN, task->pid), enum_name(socket_state, 1))",
    "if (exists(task->no_such) && task->no_such == 1) { return 1 }",
];

fn script(of_program: &str, of_main: &str) -> String {
    format!(
        "struct task_struct {{ no_such: u32 }}\nfn own() -> i32 {{\nreturn 0\n}}\n\
         @raw_tracepoint(\"sched_process_exit\")\nfn ended(task: *task_struct) -> i32 {{\n{of_program}\nreturn 0\n}}\n\
         fn main() -> i32 {{\n{of_main}\nattach(load(ended), \"\", 0)\nreturn own()\n}}\n"
    )
}

/// Returns the errors of a script, with the texts of the places.
fn errors(script: &str, strict_011: bool) -> Vec<(String, String, String)> {
    let options = Options { kernel: Arc::clone(&KERNEL), strict_011, ..Options::new("facts") };
    let found = parse("facts.ks", script.as_bytes(), options).expect("short").check().diagnostics;
    (found.iter())
        .filter(|one| one.severity == Severity::Error)
        .map(|one| {
            let span = one.primary.span;
            let part = &script[span.start as usize..span.end as usize];
            (one.code.to_string(), one.message.clone(), part.to_owned())
        })
        .collect()
}

#[test]
fn what_the_kernel_does_not_have_is_refused_where_it_stands() {
    let of_program = REFUSED.iter().map(|row| (row, true));
    for ((marked, code, message), is_program) in
        of_program.chain(REFUSED_IN_USERSPACE.iter().map(|row| (row, false)))
    {
        let (before, rest) = marked.split_once('[').expect("marked");
        let (part, after) = rest.rsplit_once(']').expect("marked");
        let statement = format!("{before}{part}{after}");
        let text = if is_program { script(&statement, "") } else { script("", &statement) };
        let found = errors(&text, false);
        let [(found_code, found_message, found_part)] = &found[..] else { panic!("{statement}: {found:#?}") };
        assert_eq!((found_code.as_str(), found_part.as_str()), (*code, part), "{statement}: {found:#?}");
        assert!(found_message.contains(message), "{statement}: {found:#?}");
    }
}

#[test]
fn what_the_kernel_has_is_accepted_but_not_by_0_1_1() {
    for statement in ACCEPTED {
        let text = script(statement, "");
        assert_eq!(errors(&text, false), [], "{statement}");
        let strict = errors(&text, true);
        let is_refused = |(code, message, _): &(String, String, String)| {
            let what = ["loop over the entries", "builtin `exists`", "builtin `enum_name`"];
            matches!(code.as_str(), "KS0201" | "KS0211") && what.iter().any(|what| message.contains(what))
        };
        assert!(strict.iter().any(is_refused), "{statement}: {strict:#?}");
    }
}
