//! Every example compiles to the same bytes twice, bpftool, libbpf and the kernel accept its object, and it
//! prints the documented output. These tests need root.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use ks_compiler::kernel::Cpu;
use ks_compiler::pipeline::Target;
use ks_host::bpf::Needs;
use ks_host::explain::check::oldest;
use ks_host::policy::PluginObject;
use ks_tests::{Folder, Outcome, command, compile, finish, repository, try_compile_for};
use ks_wit::section::BpfRecord;
use object::{Object as _, ObjectSection as _};

fn examples() -> Vec<PathBuf> {
    let files = ["perf", "net", "trace", "state", "testing"].into_iter().flat_map(|topic| {
        std::fs::read_dir(repository().join("examples").join(topic)).expect("the examples are there")
    });
    let mut found: Vec<PathBuf> = files
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "ks"))
        .collect();
    found.sort();
    assert!(found.len() >= 3, "{found:?}");
    found
}

fn example(name: &str) -> PathBuf {
    repository().join("examples/perf").join(name)
}

/// Builds with `ks` and runs with `ks-host`, as a user would.
fn build_and_run(name: &str) -> Outcome {
    let folder = Folder::new();
    let plugin = folder.path(name).with_extension("wasm");
    let built = finish(command("ks").arg("build").arg(example(name)).arg("-o").arg(&plugin));
    assert_eq!((built.code, built.stderr.as_str(), built.stdout.as_str()), (0, "", ""), "{built:#?}");
    finish(command("ks-host").arg(&plugin))
}

#[test]
fn two_builds_give_the_same_bytes() {
    for path in examples() {
        let text = std::fs::read_to_string(&path).expect("readable");
        assert!(compile("twice", &text).plugin == compile("twice", &text).plugin, "{}", path.display());
    }
}

/// Returns the objects of a script that is built without flags.
fn built_by_default(script: &str) -> Vec<BpfRecord> {
    compile("oldest", script).records()
}

/// Returns the oldest kernel that can load one of the objects of a script, as `ks-host check` and `inspect`
/// report it.
fn oldest_kernel(records: &[BpfRecord]) -> Option<String> {
    let needs = records.iter().map(|record| Needs::of(&PluginObject::read(record).expect("a sound object")));
    needs.map(|needs| oldest(&needs)).min().map(|oldest| oldest.to_string())
}

/// Number of the kind of attributes of declarations.
const DECL_TAG: u32 = 17;

/// Kinds of BTF records that are newer than 5.15, and the replacements by libbpf on kernels without them.
///
/// Source: include/uapi/linux/btf.h of v5.15 to v6.12; `bpf_object__sanitize_btf` of libbpf v1.7.
const YOUNGER_KINDS: [(u32, &str); 3] = [
    (DECL_TAG, "DECL_TAG (5.16; an integer takes its place)"),
    (18, "TYPE_TAG (5.17; `const` takes its place)"),
    (19, "ENUM64 (6.0; a union takes its place)"),
];

/// Returns the kinds of records in the BTF of an object.
fn type_kinds(elf: &[u8]) -> BTreeSet<u32> {
    let file = object::File::parse(elf).expect("an ELF file");
    let types = file.section_by_name(".BTF").expect("objects have types").data().expect("inside the file");
    let u32_at = |at: usize| u32::from_le_bytes(types[at..at + 4].try_into().expect("a word"));
    let (mut at, end) = (24, 24 + u32_at(12) as usize);
    let mut kinds = BTreeSet::new();
    while at < end {
        let (kind, len) = (u32_at(at + 4) >> 24 & 0x1f, u32_at(at + 4) as usize & 0xffff);
        kinds.insert(kind);
        // Source: Documentation/bpf/btf.rst, v6.12.
        at += 12
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * len,
                6 | 13 => 8 * len,
                _ => 0,
            };
    }
    assert_eq!(at, end, "the records end where the types do");
    kinds
}

#[test]
fn default_builds_need_at_most_linux_5_15() {
    for path in examples() {
        let text = std::fs::read_to_string(&path).expect("readable");
        let expected = match path.file_name().and_then(|name| name.to_str()) {
            Some("congestion.ks") => "Linux 6.4 for struct_ops/init",
            Some("kinds.ks") => "Linux 5.16 for seen",
            _ => "Linux 5.15",
        };
        let records = built_by_default(&text);
        if let Some(oldest) = oldest_kernel(&records) {
            assert_eq!(oldest, expected, "{}", path.display());
        }
        for record in &records {
            let kinds = type_kinds(&record.elf);
            // How a program reads a function's arguments is for the host; libbpf replaces the attribute for older
            // kernels (`bpf_object__sanitize_btf`, v1.7).
            let reads_arguments = path.ends_with("func_cost.ks");
            let is_younger = |kind: u32| kinds.contains(&kind) && !(reads_arguments && kind == DECL_TAG);
            let younger: Vec<_> = YOUNGER_KINDS.iter().filter(|(kind, _)| is_younger(*kind)).collect();
            assert!(younger.is_empty(), "{}: {younger:?}", path.display());
        }
    }
    let looping = include_str!("../emulated/scripts/called_loops_by_default.ks");
    assert_eq!(oldest_kernel(&built_by_default(looping)).as_deref(), Some("Linux 5.17 for bpf_loop"));
}

#[test]
fn instructions_count_for_the_oldest_kernel() {
    let script = "var out: i32\n@xdp fn watch(ctx: *xdp_md) -> xdp_action {\n\
                  var queue: i32 = ctx->rx_queue_index as i32\nout = queue / 7\nreturn XDP_PASS\n}\n\
                  fn main() -> i32 { return 0 }\n";
    let oldest = |cpu| {
        let target = Target { cpu, ..Target::default() };
        let built =
            try_compile_for("instructions", script, target).unwrap_or_else(|errors| panic!("{errors}"));
        oldest_kernel(&built.records())
    };
    assert_eq!(oldest(Cpu::V3).as_deref(), Some("Linux 5.15"));
    assert_eq!(oldest(Cpu::V4).as_deref(), Some("Linux 6.6 for instructions of version 4"));
}

fn bpftool(arguments: &[&str]) -> Outcome {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    finish(Command::new("bpftool").env("PATH", path).args(arguments))
}

#[test]
fn root_objects_are_taken_unchanged_by_bpftool_libbpf_and_the_kernel() {
    let mut objects = 0;
    for path in examples() {
        let text = std::fs::read_to_string(&path).expect("readable");
        if !text.lines().any(|line| line.starts_with('@')) {
            continue;
        }
        let folder = Folder::new();
        let elf = folder.path("example.o");
        let emit = format!("elf={}", elf.display());
        let built = finish(
            command("ks").arg("build").arg(&path).args(["--emit", &emit, "-o"]).arg(folder.path("p.wasm")),
        );
        assert_eq!(built.code, 0, "{built:#?}");
        let dump = bpftool(&["btf", "dump", "file", elf.to_str().expect("plain")]);
        assert_eq!((dump.code, dump.stderr.as_str()), (0, ""), "{dump:#?}");
        let has_data = ["DATASEC '.bss'", "DATASEC '.maps'"].iter().any(|one| dump.stdout.contains(one));
        assert!(has_data, "{dump:#?}");
        let object = libbpf_rs::ObjectBuilder::default().open_file(&elf).expect("libbpf opens it");
        let loaded = object.load().expect("the kernel's verifier accepts it");
        assert!(loaded.progs().count() >= 1);
        objects += 1;
    }
    assert!(objects >= 1, "no example has a kernel half");
}

#[test]
fn root_page_faults_counts_its_own_faults_twice() {
    let outcome = build_and_run("page_faults.ks");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let numbers = outcome.numbers("page_faults");
    let [period, count, _, handler] = numbers[..] else { panic!("{outcome:#?}") };
    assert_eq!(period, 1);
    assert!(count >= 1023, "1024 pages were touched: {outcome:#?}");
    assert_eq!(count, handler, "the program ran at every fault");
}

#[test]
fn root_group_prints_each_member_next_to_the_snapshot() {
    let outcome = build_and_run("group.ks");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let mut counts = Vec::new();
    for event in ["page_faults", "context_switches", "task_clock", "cpu_migrations"] {
        let numbers = outcome.numbers(event);
        assert_eq!(numbers[0], numbers[1], "own count and entry: {outcome:#?}");
        counts.push(numbers[0]);
    }
    assert!(counts[0] >= 511 && (5..500).contains(&counts[1]) && counts[2] > 100_000, "{outcome:#?}");
}

fn has_pmu() -> bool {
    ["cpu", "armv8_pmuv3", "cpu_core"]
        .iter()
        .any(|name| std::path::Path::new("/sys/bus/event_source/devices").join(name).exists())
}

/// On a machine with a PMU both are counted; elsewhere one line gives the reason and an alternative event.
#[test]
fn root_cache_events_are_counted_or_what_to_count_instead_is_said() {
    for (name, event) in [("cache_misses.ks", "cache_misses"), ("llcstat.ks", "cache_references")] {
        let outcome = build_and_run(name);
        if has_pmu() {
            assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
            assert!(outcome.stdout.lines().count() > 1, "{outcome:#?}");
        } else {
            assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""), "{outcome:#?}");
            assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:#?}");
            let said = outcome.stderr.contains(&format!("`{event}`"));
            assert!(said && outcome.stderr.contains("`page_faults`"), "{outcome:#?}");
        }
    }
}

/// The same script with events that every machine counts: the table lists processes that switch and fault,
/// with sums.
#[test]
fn root_llcstat_shows_processes() {
    let script = std::fs::read_to_string(example("llcstat.ks")).expect("readable");
    let script = script.replace("event: cache_references", "event: context_switches");
    let script =
        script.replace("event: cache_misses", "event: page_faults").replace("period: 100", "period: 1");
    let outcome = ks_tests::run_script::<&str>("llcstat", &script, &[]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let rows: Vec<Vec<&str>> =
        outcome.stdout.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let own =
        rows.iter().find(|row| row.get(1) == Some(&"ks-host")).unwrap_or_else(|| panic!("{outcome:#?}"));
    assert!(own[2].parse::<u64>().is_ok_and(|count| count >= 100), "a sample stands for 100: {own:?}");
    assert!(own.len() == 6 && own[5] == "%", "{own:?}");
}

/// Every user may count user code of an own thread; one line names the rights that anything more would need.
#[test]
fn root_without_rights_the_faults_of_user_code_are_counted() {
    let folder = Folder::new();
    let plugin = folder.path("page_faults.wasm");
    let built = finish(command("ks").arg("build").arg(example("page_faults.ks")).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    // The user `nobody` may have no access to the build folder.
    let host = folder.path("ks-host");
    ks_tests::copy_program(ks_tests::binary("ks-host"), &host);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
    let outcome = finish(command.arg(&host).arg(&plugin));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.numbers("page_faults")[1] >= 1023, "{outcome:#?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:#?}");
    assert!(outcome.stderr.contains("CAP_BPF"), "{outcome:#?}");
}
