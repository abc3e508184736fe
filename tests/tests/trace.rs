//! Programs that observe: each kind is compiled for the kernel that runs, attached, and seen to do its work; on this kernel
//! as far as it can, and on the emulated ones. These tests need root.

use std::fs;
use std::process::Command;

use ks_tests::emulated::{Kernel, Machine, here_or_inside};
use ks_tests::{Folder, Outcome, allowed, command, finish, wait_until_gone};

#[test]
fn kernel_6_1() {
    observe_in(Kernel::V6_1);
}

#[test]
fn kernel_6_12() {
    observe_in(Kernel::V6_12);
}

/// A minute and a half each on a machine that is not busy.
fn observe_in(kernel: Kernel) {
    Machine::new(kernel).seconds(400).file("/bin/true").run_tests(&["traced_"]);
}

/// Compiles a script for the kernel that runs and runs it; what it leaves would be named `ktNAME`.
fn run(name: &str, script: &str) -> Outcome {
    let folder = Folder::new();
    let source = folder.write(&format!("{name}.ks"), script);
    let plugin = folder.path(name).with_extension("wasm");
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let ran = finish(host().arg(&plugin));
    wait_until_gone(&format!("kt{name}"));
    ran
}

/// `ks-host`, where tracefs is mounted: in a mount namespace of its own if it is not.
fn host() -> Command {
    if fs::exists("/sys/kernel/tracing/events").unwrap_or_default() {
        return allowed();
    }
    let mut host = Command::new("unshare");
    host.args(["-m", "sh", "-c", "mount -t tracefs tracefs /sys/kernel/tracing && exec \"$0\" \"$@\""]);
    host.arg(ks_tests::binary("ks-host")).args(["--allow", "all"]);
    host
}

/// The kernel refuses what it is locked down for, and lacks what it was built without.
fn has_trampolines() -> bool {
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    has_kprobes() && !lockdown.contains("[integrity]") && !lockdown.contains("[confidentiality]")
}

fn has_kprobes() -> bool {
    fs::exists("/sys/bus/event_source/devices/kprobe").unwrap_or_default()
}

/// A turn that is late already when it would sleep, as happens on a busy machine, switches to no other task: tests that
/// count switches take several turns for each.
const WAIT: &str = r#"
fn waited(turns: u32) -> u32 {
    var done: u32 = 0
    while (done < turns) {
        sleep(1)
        done += 1
    }
    return done
}
"#;

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

/// Opens and reads files, again and again, in another thread.
struct Opener(std::sync::Arc<std::sync::atomic::AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl Opener {
    fn start() -> Opener {
        use std::sync::atomic::{AtomicBool, Ordering};
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            while !seen.load(Ordering::Relaxed) {
                // Whether there is such a file does not matter; one of both is.
                let _ = (fs::read("/proc/self/comm"), fs::read("/nothing/here"));
                let _ = Command::new("/bin/true").status();
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        Opener(stop, Some(thread))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            thread.join().expect("it only opens files");
        }
    }
}

#[test]
fn traced_probes_at_entry_and_return() {
    if !here_or_inside("trampolines for fentry", has_trampolines()) {
        return;
    }
    let script = r#"
        var reads: u64 = 0
        var sizes: u64 = 0
        var bytes: u64 = 0

        @probe("vfs_read")
        fn ktentry(file: *file, buf: *u8, count: size_t) -> i32 {
            reads += 1
            if (file->f_inode->i_mode != 0) {
                sizes += 1
            }
            return 1
        }

        @retprobe("vfs_read")
        fn ktreturn(file: *file, buf: *u8, count: size_t, pos: *i64, ret: i64) -> i32 {
            if (ret > 0 && ret <= count as i64) {
                bytes += ret as u64
            }
            return 5
        }

        fn main() -> i32 {
            if (attach(load(ktentry), "vfs_read", 0) != 0 || attach(load(ktreturn), "", 0) != 0) {
                return 1
            }
            var turns: u32 = 0
            while (turns < 3000 && (reads == 0 || sizes == 0 || bytes == 0)) {
                sleep(1)
                turns += 1
            }
            print("reads {} sizes {} bytes {}", reads, sizes, bytes)
            if (reads == 0 || sizes != reads || bytes == 0) {
                return 2
            }
            return 0
        }
    "#;
    let opener = Opener::start();
    let ran = run("entry", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_lf_070_probe_on_a_system_call() {
    if !here_or_inside("trampolines for fentry", has_trampolines()) {
        return;
    }
    let script = r#"
        var slashes: u64 = 0
        var results: u64 = 0

        @probe("sys_openat")
        fn ktcall(dfd: i32, filename: *u8, flags: i32, mode: u16) -> i32 {
            if (filename[0] == 47) {
                slashes += 1
            }
            return 0
        }

        @retprobe("sys_openat")
        fn ktcalled(dfd: i32, filename: *u8, flags: i32, mode: u16, ret: i64) -> i32 {
            if (ret == -2) {
                results += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(ktcall), "sys_openat", 0) != 0 || attach(load(ktcalled), "", 0) != 0) {
                return 1
            }
            var turns: u32 = 0
            while (turns < 3000 && (slashes == 0 || results == 0)) {
                sleep(1)
                turns += 1
            }
            print("slashes {} results {}", slashes, results)
            if (slashes == 0 || results == 0) {
                return 2
            }
            return 0
        }
    "#;
    let opener = Opener::start();
    let ran = run("call", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_probe_at_an_offset() {
    if !here_or_inside("kprobes", has_kprobes()) {
        return;
    }
    let script = r#"
        var reads: u64 = 0
        var asked: u64 = 0
        var stacks: u64 = 0

        @probe("vfs_read+0")
        fn ktoffset(file: *file, buf: *u8, count: size_t) -> i32 {
            reads += 1
            if (file->f_inode->i_mode != 0) {
                asked += count
            }
            return 0
        }

        @probe("vfs_read+0x0")
        fn ktregs(ctx: *pt_regs) -> i32 {
            if (ctx->sp != 0 && ctx->ip != 0) {
                stacks += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(ktoffset), "", 0) != 0 || attach(load(ktregs), "vfs_read+0", 0) != 0) {
                return 1
            }
            var turns: u32 = 0
            while (turns < 3000 && (asked == 0 || stacks == 0)) {
                sleep(1)
                turns += 1
            }
            print("reads {} asked {} stacks {}", reads, asked, stacks)
            if (asked == 0 || stacks == 0) {
                return 2
            }
            return 0
        }
    "#;
    let opener = Opener::start();
    let ran = run("offset", script);
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

#[test]
fn traced_hook_denies() {
    if !here_or_inside("trampolines for lsm", has_trampolines()) {
        return;
    }
    // Denies one file to everybody: an empty one of this test, known by its owner.
    let script = r#"
        var denied: u64 = 0
        var seen: u64 = 0

        @lsm("file_open")
        fn kthook(file: *file, ret: i32) -> i32 {
            if (ret != 0) {
                return ret
            }
            seen += 1
            if (file->f_inode->i_uid.val == 54321) {
                denied += 1
                return -13
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(kthook), "file_open", 0) != 0) {
                return 1
            }
            print("ready")
            var turns: u32 = 0
            while (turns < 3000 && (denied == 0 || seen <= denied)) {
                sleep(1)
                turns += 1
            }
            print("seen {} denied {}", seen, denied)
            if (denied == 0 || seen <= denied) {
                return 2
            }
            return 0
        }
    "#;
    let folder = Folder::new();
    let file = folder.write("owned", "");
    std::os::unix::fs::chown(&file, Some(54321), None).expect("root");
    let (stop, path) = (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), file.clone());
    let seen = stop.clone();
    let reader = std::thread::spawn(move || {
        let mut refused = false;
        while !seen.load(std::sync::atomic::Ordering::Relaxed) {
            refused |= fs::read(&path).is_err_and(|error| error.raw_os_error() == Some(13));
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        refused
    });
    // Other files can be opened all the time.
    let opener = Opener::start();
    let ran = run("hook", script);
    drop(opener);
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let refused = reader.join().expect("it only reads");
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(refused, "the file could always be read");
    assert!(fs::read(&file).is_ok(), "the hook is gone with the host");
}

#[test]
fn traced_function_of_a_program() {
    // The C library of this test, wherever it lies.
    let maps = fs::read_to_string("/proc/self/maps").expect("proc is mounted");
    let library = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let library =
        library.into_iter().find(|path| path.contains("libc.so")).expect("this test uses the C library");
    let script = r#"
        var calls: u64 = 0
        var slashes: u64 = 0
        var results: u64 = 0

        @uprobe("LIBRARY:open64")
        fn ktuser(path: *u8, flags: i32) -> i32 {
            calls += 1
            if (path[0] == 47) {
                slashes += 1
            }
            return 0
        }

        @uretprobe("LIBRARY:open64")
        fn ktuserret(ret: i32) -> i32 {
            if (ret == -1 || ret >= 0) {
                results += 1
            }
            return 0
        }

        fn main() -> i32 {
            if (attach(load(ktuser), "", 0) != 0 || attach(load(ktuserret), "", 0) != 0) {
                return 1
            }
            var turns: u32 = 0
            while (turns < 3000 && (slashes == 0 || results == 0)) {
                sleep(1)
                turns += 1
            }
            print("calls {} slashes {} results {}", calls, slashes, results)
            if (slashes == 0 || results == 0) {
                return 2
            }
            return 0
        }
    "#;
    let opener = Opener::start();
    let ran = run("user", &script.replace("LIBRARY", library));
    drop(opener);
    assert_eq!(ran.code, 0, "{ran:#?}");
}

/// `@kfunc` and `@private` functions are subprograms of the object.
#[test]
fn traced_lf_081_kfunc_runs_as_a_part_of_the_object() {
    let script = r#"
        var total: u64 = 0

        @private
        fn twice(n: u64) -> u64 {
            return n * 2
        }

        @kfunc
        fn ktkfunc(n: u64) -> u64 {
            return twice(n) + 1
        }

        @raw_tracepoint("sched_switch")
        fn ktcaller(preempt: bool) -> i32 {
            total = ktkfunc(20)
            return 0
        }

        fn main() -> i32 {
            if (attach(load(ktcaller), "", 0) != 0) {
                return 1
            }
            waited(100)
            if (total != 41) {
                return 2
            }
            return 0
        }
    "#;
    let ran = run("kfunc", &format!("{script}{WAIT}"));
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

/// What observes at a function of the kernel, where that can be.
const PROBES: &str = r#"
    @probe("vfs_read")
    fn ktkill_entry(file: *file) -> i32 { hits += 1 return 0 }

    @probe("vfs_read+0")
    fn ktkill_offset(file: *file) -> i32 { hits += 1 return 0 }

    @lsm("file_open")
    fn ktkill_hook(file: *file, ret: i32) -> i32 { hits += 1 return ret }
"#;

#[test]
fn traced_nothing_is_left_after_sigkill() {
    use nix::sys::signal::{Signal, kill};
    let names = if has_trampolines() { &["ktkill_entry", "ktkill_offset", "ktkill_hook"][..] } else { &[] };
    let attaches: String = names
        .iter()
        .map(|name| format!("if (attach(load({name}), \"\", 0) != 0) {{ return 1 }}\n"))
        .collect();
    let probes = if names.is_empty() { "" } else { PROBES };
    let script = format!(
        r#"
        var hits: u64 = 0

        {probes}

        @raw_tracepoint("sched_switch")
        fn ktkill_raw(preempt: bool) -> i32 {{ hits += 1 return 0 }}

        @tracepoint("sched/sched_switch")
        fn ktkill_record(ctx: *trace_event_raw_sched_switch) -> i32 {{ hits += 1 return 0 }}

        @syscall_enter("read")
        fn ktkill_call(fd: u32) -> i32 {{ hits += 1 return 0 }}

        @uprobe("/bin/true:+0x40")
        fn ktkill_user(a: i32) -> i32 {{ hits += 1 return 0 }}

        fn main() -> i32 {{
            {attaches}
            if (attach(load(ktkill_raw), "", 0) != 0 || attach(load(ktkill_record), "", 0) != 0) {{ return 1 }}
            if (attach(load(ktkill_call), "", 0) != 0) {{ return 1 }}
            attach(load(ktkill_user), "", 0)
            print("ready")
            sleep(60000)
            return 0
        }}
    "#
    );
    let folder = Folder::new();
    let source = folder.write("killed.ks", script);
    let plugin = folder.path("killed.wasm");
    let built = finish(command("ks").arg("build").arg(source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let start = || {
        let mut host = host();
        host.arg(&plugin).stdout(std::process::Stdio::piped()).spawn().expect("ks-host starts")
    };
    let ready = |child: &mut std::process::Child| {
        use std::io::{BufRead, BufReader};
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("text");
        line
    };
    let end = |mut child: std::process::Child| {
        kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGKILL).expect("the child is ours");
        child.wait().expect("the child is ours");
        wait_until_gone("ktkill");
    };
    let began = std::time::Instant::now();
    let mut child = start();
    assert_eq!(ready(&mut child), "ready\n");
    let whole = began.elapsed();
    end(child);
    // At other moments: the fractions spread over the time that attaching takes.
    for round in 1..10u32 {
        let child = start();
        std::thread::sleep(whole * (round * 7 % 10) / 10);
        end(child);
    }
}
