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
