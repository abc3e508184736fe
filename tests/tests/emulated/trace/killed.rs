//! A host that is killed at any moment of its start leaves nothing attached.

use ks_tests::{Folder, command, finish, number, wait_until_gone};

use crate::trace::{has_trampolines, host};

/// Programs that observe a kernel function, where the kernel supports them.
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

        @uprobe("/proc/self/exe:main")
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
    // Kills at other moments: the fractions are spread over the time that attaching takes. `KS_MOMENTS`
    // overrides the number.
    for iteration in 1..=number("KS_MOMENTS", 4) as u32 {
        let child = start();
        std::thread::sleep(whole * (iteration * 7 % 10) / 10);
        end(child);
    }
}
