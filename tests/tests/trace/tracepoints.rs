//! Tracepoints: records, arguments, system calls.

use ks_tests::{Folder, command, finish};

use crate::{Opener, WAIT, host, run};

#[test]
fn traced_tracepoint_record() {
    let script = r#"
        var left: u64 = 0
        var strange: u64 = 0

        @tracepoint("sched/sched_switch")
        fn ktrecord(ctx: *trace_event_raw_sched_switch) -> i32 {
            if (ctx->prev_pid == ctx->next_pid || ctx->prev_prio > 139 || ctx->next_comm[0] == '\0') {
                strange += 1
            }
            if (ctx->prev_pid != 0 && ctx->prev_state != 0) {
                left += 1
            }
            return 0
        }

        fn main() -> i32 {
            var program = load(ktrecord)
            if (attach(program, "sched_switch", 0) != 0) {
                return 1
            }
            waited(100)
            print("left {} strange {}", left, strange)
            if (left < 20 || strange != 0) {
                return 2
            }
            return 0
        }
    "#;
    let ran = run("record", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_raw_tracepoint_arguments() {
    let script = r#"
        var switches: u64 = 0
        var known: u64 = 0
        var unread: u64 = 0

        @raw_tracepoint("sched_switch")
        fn ktraw(preempt: bool, prev: *task_struct, next: *task_struct) -> i32 {
            switches += 1
            if (prev->pid == prev->tgid && prev->group_leader->pid == prev->pid) {
                known += 1
            }
            if (next->comm[0] == '\0') {
                unread += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(ktraw), "", 0) != 0) {
                return 1
            }
            waited(100)
            print("switches {} known {} unread {}", switches, known, unread)
            if (switches < 20 || known == 0 || unread != 0) {
                return 2
            }
            return 0
        }
    "#;
    let ran = run("raw", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// Members of arguments are loaded like memory; what was handed to a function is a number, and its members are read by
/// helpers: both give the same.
#[test]
fn traced_members_are_the_same_however_they_are_read() {
    let script = r#"
        var switches: u64 = 0
        var differ: u64 = 0
        var strange: u64 = 0

        @helper
        fn differs(task: *task_struct, pid: i32, start: u64, leader: *task_struct) -> bool {
            return task->pid != pid || task->start_time != start || task->group_leader != leader
        }

        @helper
        fn differs_more(task: *task_struct, policy: u32, letter: char, queued: u8, after: *list_head) -> bool {
            return task->policy != policy || task->comm[1] != letter || task->se.on_rq != queued
                || task->tasks.next != after
        }

        @raw_tracepoint("sched_switch")
        fn ktmembers(preempt: bool, prev: *task_struct, next: *task_struct) -> i32 {
            var leader = prev->group_leader
            if (differs(prev, prev->pid, prev->start_time, leader)) {
                differ += 1
            }
            if (differs_more(prev, prev->policy, prev->comm[1], prev->se.on_rq, prev->tasks.next)) {
                differ += 1
            }
            if ((leader as u64) % 8 != 0 || leader == null) {
                strange += 1
            }
            // The verifier would not multiply a pointer.
            if ((prev->group_leader as u64) * 2 != (leader as u64) * 2) {
                strange += 1
            }
            switches += 1
            return 0
        }

        /// Set anew, a parameter is another pointer.
        @raw_tracepoint("sched_switch")
        fn ktchanged(preempt: bool, prev: *task_struct, next: *task_struct) -> i32 {
            var before = prev->pid
            if (before != next->pid) {
                prev = next
            }
            if (prev->pid != next->pid) {
                strange += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(ktmembers), "", 0) != 0 || attach(load(ktchanged), "", 0) != 0) {
                return 1
            }
            waited(100)
            print("switches {} differ {} strange {}", switches, differ, strange)
            if (switches < 20 || differ != 0 || strange != 0) {
                return 2
            }
            return 0
        }
    "#;
    let ran = run("members", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// `sigset_t` is a typedef of a struct without a name. A task begins with its flags, so the first word is compared with those.
#[test]
fn traced_a_struct_that_only_a_typedef_names() {
    let script = r#"
        var same: u64 = 0
        var others: u64 = 0

        @raw_tracepoint("sched_switch")
        fn kttypedef(preempt: bool, prev: *task_struct, next: *task_struct) -> i32 {
            var words = prev as *sigset_t
            var before = prev->thread_info.flags
            var first = words->sig[0]
            if (first == before || first == prev->thread_info.flags) {
                same += 1
            } else {
                others += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(kttypedef), "", 0) != 0) {
                return 1
            }
            waited(100)
            print("same {} others {}", same, others)
            if (same < 20 || others != 0) {
                return 2
            }
            return 0
        }
    "#;
    let ran = run("typedef", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_lf_074_system_calls() {
    let script = r#"
        var calls: u64 = 0
        var letters: u64 = 0
        var results: u64 = 0
        var numbered: u64 = 0

        @syscall_enter("openat")
        fn ktenter(dfd: i32, filename: *u8, flags: i32, mode: u16) -> i32 {
            calls += 1
            if (*filename == 47) {
                letters += 1
            }
            return 0
        }

        @syscall_exit("openat")
        fn ktexit(ret: i64) -> i32 {
            if (ret == -2 || ret >= 0) {
                results += 1
            }
            return 0
        }

        @tracepoint("syscalls/sys_enter_openat")
        fn ktargs(ctx: *trace_event_raw_sys_enter) -> i32 {
            var place: u32 = 1
            if (ctx->args[place] == ctx->args[1] && ctx->args[1] != 0 && ctx->id > 0) {
                numbered += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(ktenter), "", 0) != 0 || attach(load(ktexit), "openat", 0) != 0) {
                return 1
            }
            if (attach(load(ktargs), "syscalls/sys_enter_openat", 0) != 0) {
                return 1
            }
            print("ready")
            var turns: u32 = 0
            while (turns < 3000 && (letters == 0 || results == 0 || numbered == 0)) {
                sleep(1)
                turns += 1
            }
            print("calls {} letters {} results {} numbered {}", calls, letters, results, numbered)
            if (letters == 0 || results == 0 || numbered == 0) {
                return 2
            }
            return 0
        }
    "#;
    let opener = Opener::start();
    let ran = run("calls", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// What is wrong with a target is said before anything is attached.
#[test]
fn traced_another_target_than_the_attribute_is_refused() {
    let script = r#"
        @raw_tracepoint("sched_switch")
        fn ktother(preempt: bool) -> i32 {
            return 0
        }

        fn main(args: Args) -> i32 {
            return attach(load(ktother), args.target, 0) as i32
        }

        struct Args {
            target: str(32)
        }
    "#;
    let folder = Folder::new();
    let source = folder.write("other.ks", script);
    let plugin = folder.path("other.wasm");
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let ran = finish(host().arg(&plugin).args(["--", "--target=sched_wakeup"]));
    assert_eq!(ran.code, 22, "{ran:#?}");
    assert!(ran.stderr.contains("`sched_wakeup` is no target for `ktother`"), "{ran:#?}");
}

/// A header gives names only: what it says of the types of members may be wrong.
#[test]
fn traced_members_are_read_right_despite_a_wrong_header() {
    let header = "struct task_struct { group_leader: u32, real_parent: u64, pid: i64, prio: i16 }";
    let script = r#"
        include "wrong.kh"

        var sum: u64 = 0
        var strange: u64 = 0

        @helper
        fn leader(task: *task_struct) -> u32 {
            return task->group_leader
        }

        @raw_tracepoint("sched_switch")
        fn kttypes(preempt: bool, prev: *task_struct, next: *task_struct) -> i32 {
            sum += prev->real_parent * 5
            if (prev->pid < 0 || prev->pid > 0x7fffffff || prev->prio < -1 || prev->prio > 139) {
                strange += 1
            }
            if (prev->group_leader == 0 || prev->group_leader != leader(prev)) {
                strange += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(kttypes), "", 0) != 0) {
                return 1
            }
            waited(100)
            print("sum {} strange {}", sum, strange)
            if (sum == 0 || strange != 0) {
                return 2
            }
            return 0
        }
    "#;
    let folder = Folder::new();
    folder.write("wrong.kh", header);
    let source = folder.write("types.ks", format!("{script}{WAIT}"));
    let plugin = folder.path("types.wasm");
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let ran = finish(host().arg(&plugin));
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// LF-072: a header that describes the record wrongly gives names only.
#[test]
fn traced_lf_072_record_is_read_right_despite_a_wrong_header() {
    let script = r#"
        struct trace_event_raw_sched_switch {
            ent: u32, prev_comm: u32, prev_pid: u32, prev_prio: u32, prev_state: u32, next_comm: u32, next_pid: u32
        }

        struct Pids { prev: u32, next: u32 }

        var seen: percpu_array<u32, Pids>(1)
        var right: u64 = 0
        var wrong: u64 = 0

        @raw_tracepoint("sched_switch")
        fn ktbefore(preempt: bool, prev: *task_struct, next: *task_struct) -> i32 {
            seen[0] = Pids { prev: prev->pid as u32, next: next->pid as u32 }
            return 0
        }

        @tracepoint("sched/sched_switch")
        fn ktheader(ctx: *trace_event_raw_sched_switch) -> i32 {
            var pids = seen[0]
            // Whichever program the kernel runs first: of this event, or of the CPU's event before it.
            if (pids.prev == ctx->prev_pid && pids.next == ctx->next_pid) {
                right += 1
            } else if (pids.next == ctx->prev_pid) {
                right += 1
            } else {
                wrong += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(ktbefore), "", 0) != 0) {
                return 1
            }
            waited(100)
            if (attach(load(ktheader), "", 0) != 0) {
                return 1
            }
            waited(100)
            print("right {} wrong {}", right, wrong)
            // A CPU's first event may come before the other program's.
            if (right < 20 || wrong > right / 10) {
                return 2
            }
            return 0
        }
    "#;
    let ran = run("header", &format!("{script}{WAIT}"));
    assert_eq!(ran.code, 0, "{ran:#?}");
}
