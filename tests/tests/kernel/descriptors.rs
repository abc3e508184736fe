//! A plugin leaves no descriptors when it has ended. The test has a process of its own, because it lists all
//! descriptors of the process. It needs root.

use std::fs::File;
use std::io::Write;

use ks_host::plugin::Outcome;
use ks_tests::plugins::{OWN_EVENT, component, elf, run_with, with_object};
use ks_tests::{Folder, binary, compile, finish};

/// Returns the kernel objects of this process: perf events, programs, maps, links and BTF are anonymous
/// inodes.
fn held() -> Vec<String> {
    std::fs::read_dir("/proc/self/fd")
        .expect("proc is mounted")
        .flatten()
        .filter_map(|fd| std::fs::read_link(fd.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| ["perf_event", "bpf", "btf"].iter().any(|kind| target.contains(kind)))
        .filter(|target| target.starts_with("anon_inode:"))
        .collect()
}

#[test]
fn root_however_a_plugin_ends_nothing_of_it_is_left() {
    ks_tests::alone!();
    let guest = |end: &str| {
        let body = format!(
            r#"{OWN_EVENT}
            (data (i32.const 16) "count")
            (func (export "run") (result i32)
              (call $load (i32.const 16) (i32.const 5) (i32.const 1024))
              (drop (call $own_page_faults (i32.const 1) (call $ok)))
              (drop (call $own_page_faults (i32.const 0) (i32.const 0)))
              {end})"#
        );
        with_object(component(&body), elf::counting("perf_event"))
    };
    for (end, expected) in [
        ("(i32.const 0)", Some(Outcome::Returned(0))),
        ("(call $exit (i32.const 3)) (unreachable)", Some(Outcome::Exited(3))),
        ("(unreachable)", None),
    ] {
        let ran = run_with(guest(end), |_| {});
        match expected {
            Some(expected) => assert_eq!(ran.outcome, expected),
            None => assert!(matches!(ran.outcome, Outcome::Trapped(_)), "{:?}", ran.outcome),
        }
        assert_eq!(held(), Vec::<String>::new(), "after {end}");
    }
    // A guest that never returns is ended while it holds all of them.
    let ran = run_with(guest("(loop $again (br $again)) (unreachable)"), |options| {
        options.timeout = Some(std::time::Duration::from_millis(100));
        options.grace = std::time::Duration::from_millis(100);
    });
    assert_eq!(ran.outcome, Outcome::TimedOut);
    assert_eq!(held(), Vec::<String>::new());
}

/// Standard output of a plugin, and other files, which are closed with the first line.
struct Closing(Vec<File>);

impl Write for Closing {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.clear();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The thread of a plugin may not replace outputs: neither may libbpf, which replaces descriptors of its own, be given the
/// number of one that was closed.
#[test]
fn root_an_object_is_loaded_after_outputs_were_closed() {
    let script = "var hits : u64 = 0\n\
        @perf_event\n\
        fn count(ctx: *bpf_perf_event_data) -> i32 {\n    hits += 1\n    return 0\n}\n\
        fn main() -> i32 {\n    print(\"closes them\")\n    \
        var program = load(count)\n    \
        var options = perf_options { event: page_faults, pid: 0, cpu: -1, period: 1000000 }\n    \
        attach(program, options, 0)\n    return 7\n}\n";
    let ran = run_with(compile("closes", script).plugin, |options| {
        let output = |_| File::options().write(true).open("/dev/null").expect("it is there");
        options.stdout = Box::new(Closing((0..200).map(output).collect()));
    });
    assert_eq!(ran.outcome, Outcome::Returned(7), "{}", ran.stderr);
}

/// Opens as many events as it may, and one after it was told that another plugin has done so.
const GREEDY: &str = include_str!("scripts/descriptors_greedy.ks");

#[test]
fn root_a_plugin_leaves_descriptors_to_the_others() {
    let folder = Folder::new();
    let file = folder.write("greedy.wasm", compile("greedy", GREEDY).plugin);
    let other = folder.write("other.wasm", compile("other", GREEDY).plugin);
    // Each plugin has half of what the host does not need for itself.
    let line = format!(
        "ulimit -n 464; {} --timeout 60 {} {} 2>&1",
        binary("ks-host").display(),
        file.display(),
        other.display()
    );
    let outcome = finish(std::process::Command::new("sh").args(["-c", &line]));
    let number = |line: &str| line.rsplit_once("opened ")?.1.parse::<u64>().ok();
    let opened: Vec<u64> = outcome.stdout.lines().filter_map(number).collect();
    assert_eq!(opened.len(), 2, "{outcome:#?}");
    assert!(opened.iter().all(|events| (40..=66).contains(events)), "{outcome:#?}");
    let limited = "the limit `descriptors` of the plugin is 200";
    assert_eq!(outcome.stdout.matches(limited).count(), 2, "{outcome:#?}");
}
