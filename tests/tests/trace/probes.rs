//! Functions of the kernel, hooks, and functions of programs: where the kernel lets a program stand.

use std::fs;

use ks_tests::Folder;
use ks_tests::emulated::here_or_inside;

use crate::{Opener, WAIT, has_kprobes, has_trampolines, run};

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
