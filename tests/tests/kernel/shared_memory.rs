//! Variables and arrays of the BPF object in the plugin's memory: the same results as by host calls, and
//! safe. These tests need root.

use ks_compiler::plugin;
use ks_compiler::plugin::share::{self, ShareError};
use ks_host::plugin::Plugin;
use ks_tests::{Folder, Outcome, allowed, compile, component, finish, run_plugin, wait_until_gone};

/// Runs a script with and without shared memory. Both must end in the same way with the same output.
fn run_with_and_without_sharing(project: &str, script: &str) -> Outcome {
    let built = compile(project, script);
    assert!(Plugin::from_bytes(built.plugin.clone()).expect("a plugin").shared_bytes().is_some());
    let folder = Folder::new();
    let file = folder.write(&format!("{project}.wasm"), &built.plugin);
    let shared = finish(allowed().arg(&file));
    let called = finish(allowed().arg("--no-shared-memory").arg(&file));
    let says = |outcome: &Outcome| (outcome.code, outcome.stdout.clone(), outcome.stderr.clone());
    assert_eq!(says(&shared), says(&called));
    shared
}

/// Every width and sign, parts of aggregates with constant and other indices, arrays and config blocks.
const EVERYTHING: &str = include_str!("scripts/shared_memory_everything.ks");

#[test]
fn root_shared_memory_behaves_like_host_calls() {
    let outcome = run_with_and_without_sharing("shared_everything", EVERYTHING);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let first = |what: &str| *lines.iter().find(|line| line.starts_with(what)).expect("a line");
    assert_eq!(first("before")[7..], first("loaded")[7..]);
    assert_eq!(
        first("changed"),
        "changed 251 -99 65001 -29999 4000000001 -1999999999 15000000000000000001 -1999999999"
    );
    assert_eq!(
        first("written"),
        "written 5 -128 65001 -30000 3705032706 -1999999999 15000000000000000001 -1"
    );
    let tail = &lines[lines.len() - 9..];
    let expected = [
        "written 5 -128 65001 -30000 3705032706 -1999999999 15000000000000000001 -1",
        "0 1 -8 1099511627776 1",
        "0 1099511627776 77 0",
        "0 42 60000 1",
        "renamed 1099511627776 91 200 -2",
        "200 -15 1",
        "-301 91 42",
        "absent 0 0",
    ];
    assert_eq!(tail[1..], expected, "{outcome:#?}");
}

/// A loop without a call in it ends when the kernel half changes the variable that it waits for.
#[test]
fn root_a_loop_sees_what_the_kernel_half_writes() {
    let outcome = run_with_and_without_sharing(
        "shared_wait",
        include_str!("scripts/shared_memory_a_loop_sees_what_the_kernel_half_writes.ks"),
    );
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "1\n"), "{outcome:#?}");
}

/// A variable that is too large for the plugin's memory, constants, and maps of kinds that cannot be mapped.
#[test]
fn root_unshareable_maps_are_accessed_by_host_calls() {
    let outcome = run_with_and_without_sharing(
        "shared_not",
        include_str!("scripts/shared_memory_unshareable_maps_are_accessed_by_host_calls.ks"),
    );
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "3 4 4 4\n"), "{outcome:#?}");
}

/// A module with a shared memory of two pages; `{extra}` may make it invalid.
const MODULE: &str = r#"(module
  (import "kernelscript:host/globals@0.2.0" "[static]variable.open" (func $open (param i32 i32 i32)))
  (import "kernelscript:host/globals@0.2.0" "[method]variable.share" (func $share (param i32 i32)))
  (import "kernelscript:host/globals@0.2.0" "[resource-drop]variable" (func $drop (param i32)))
  (import "kernelscript:host/bpf@0.2.0" "[static]program.load" (func $load (param i32 i32 i32)))
  (memory (export "memory") 2)
  (memory $shared 2 2)
  (global $free (mut i32) (i32.const 65536))
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    (global.get $free)
    (global.set $free (i32.add (global.get $free) (local.get 3))))
  (data (i32.const 16) "word")
  (data (i32.const 32) "prog")
  (data (i32.const 48) "fixed")
  ;; Where the variable of this name is, once the program is loaded; -1 if nowhere.
  (func $place (param $name i32) (param $len i32) (result i32) (local $handle i32)
    (call $load (i32.const 32) (i32.const 4) (i32.const 1024))
    (call $open (local.get $name) (local.get $len) (i32.const 1024))
    (local.set $handle (i32.load (i32.const 1028)))
    (call $share (local.get $handle) (i32.const 1024))
    (call $drop (local.get $handle))
    (if (i32.eqz (i32.load8_u (i32.const 1024))) (then (return (i32.const -1))))
    (i32.load (i32.const 1028)))
  (func (export "run") (result i32) {run})
  {extra}
  {mark})"#;

const MARK: &str = r#"(@custom "kernelscript:shared-memory" "\04\00\00\00\01\00\00\00")"#;

fn text(run: &str, extra: &str, mark: &str) -> String {
    MODULE.replace("{run}", run).replace("{extra}", extra).replace("{mark}", mark)
}

fn raw(project: &str, run: &str) -> Vec<u8> {
    let script = r#"
        var word : u64 = 5
        var fixed : u64 = 6
        @xdp fn prog(ctx: *xdp_md) -> xdp_action {
            word += fixed
            return XDP_PASS
        }
    "#;
    let built = compile(project, script);
    component(project, &text(run, "", MARK), &built.records()).expect("the module fits the world")
}

/// An unsound module is refused before anything runs.
#[test]
fn a_memory_that_could_be_reached_otherwise_is_not_shared() {
    let zero = "(i32.const 0)";
    let cases = [
        (r#"(export "other" (memory $shared))"#, MARK, "exports it"),
        ("(data (memory $shared) (i32.const 0) \"x\")", MARK, "data segment"),
        ("(memory 2 2)", MARK, "same limits"),
        ("", &MARK.replace("\\01", "\\00"), "not fixed"),
        ("", &MARK.replace("\\01", "\\07"), "does not define it"),
        ("", &MARK.replace("\\04\\00\\00\\00\\01", "\\05\\00\\00\\00\\01\\00"), "four bytes"),
        ("", &format!("{MARK} {MARK}"), "twice"),
        ("(func (memory.fill $shared (i32.const 0) (i32.const 1) (i32.const 2)))", MARK, "load or a store"),
        ("(func (memory.copy $shared 0 (i32.const 0) (i32.const 1) (i32.const 2)))", MARK, "load or a store"),
        ("(func (memory.copy 0 $shared (i32.const 0) (i32.const 1) (i32.const 2)))", MARK, "load or a store"),
        (
            "(func (memory.init $shared $text (i32.const 0) (i32.const 0) (i32.const 2))) (data $text \
             \"abc\")",
            MARK,
            "load or a store",
        ),
    ];
    for (extra, mark, reason) in cases {
        let plugin = component("spoilt", &text(zero, extra, mark), &[]).expect("the module fits the world");
        let error = Plugin::from_bytes(plugin).expect_err(extra).to_string();
        assert!(error.contains(reason), "{extra} {mark}: {error}");
    }
    let sound = component("sound", &text(zero, "", MARK), &[]).expect("the module fits the world");
    assert_eq!(Plugin::from_bytes(sound).expect("a plugin").shared_bytes(), Some(2 << 16));
    let plain = component("plain", &text(zero, "", ""), &[]).expect("the module fits the world");
    assert_eq!(Plugin::from_bytes(plain).expect("a plugin").shared_bytes(), None);
}

/// The address stays valid after the handle is dropped; the section is mapped once; nothing outside of it is
/// accessible.
#[test]
fn root_an_address_is_that_of_the_variable_until_the_plugin_ends() {
    let run = r#"(local $word i32)
      (local.set $word (call $place (i32.const 16) (i32.const 4)))
      (if (i32.ne (local.get $word) (call $place (i32.const 16) (i32.const 4))) (then (return (i32.const 90))))
      (if (i32.lt_u (local.get $word) (i32.const 65536)) (then (return (i32.const 91))))
      (i64.atomic.store $shared (local.get $word) (i64.const 40))
      (if (i64.ne (i64.atomic.load $shared (call $place (i32.const 48) (i32.const 5))) (i64.const 6))
        (then (return (i32.const 92))))
      (i32.wrap_i64 (i64.load $shared (local.get $word)))"#;
    let outcome = run_plugin("shared_place", &raw("shared_place", run), &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (40, ""), "{outcome:#?}");
    wait_until_gone("shared_place");
}

/// The memory cannot grow, and an access beyond it traps, also in the space that is reserved after a mapped
/// page.
#[test]
fn root_an_access_outside_traps_the_plugin() {
    let outside = "(i32.atomic.load $shared (i32.const 131072))";
    let unaligned = "(i32.atomic.load $shared (i32.const 65537))";
    for (name, run, reason) in
        [("shared_behind", outside, "out of bounds"), ("shared_crooked", unaligned, "unaligned")]
    {
        let outcome = run_plugin(name, &raw(name, run), &[] as &[&str]);
        assert!(outcome.code == 125 && outcome.stderr.contains(reason), "{outcome:#?}");
    }
    let outcome =
        run_plugin("shared_grow", &raw("shared_grow", "(memory.grow $shared (i32.const 1))"), &[] as &[&str]);
    assert_eq!(outcome.code, 255, "{outcome:#?}");
}

/// The host interprets every address as one of the plugin's own memory, even if it is the address of a shared
/// variable. It writes its answers there.
#[test]
fn root_results_and_texts_never_go_to_shared_pages() {
    // The result's address is that of the variable: in the plugin's own memory it is out of bounds.
    let run = r#"(call $share (i32.const 1) (i32.add (call $place (i32.const 16) (i32.const 4)) (i32.const 131072)))
      (i32.const 0)"#;
    let outcome = run_plugin("shared_result", &raw("shared_result", run), &[] as &[&str]);
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    // A text with the address of the variable is read from the plugin's own memory, which has no such name
    // there.
    let run = r#"(call $open (call $place (i32.const 16) (i32.const 4)) (i32.const 4) (i32.const 1024))
      (i32.load8_u (i32.const 1024))"#;
    let outcome = run_plugin("shared_text", &raw("shared_text", run), &[] as &[&str]);
    assert_eq!(outcome.code, 1, "{outcome:#?}");
}

/// `share` returns no address.
#[test]
fn root_no_shared_memory_disables_sharing() {
    let run = "(i32.eq (call $place (i32.const 16) (i32.const 4)) (i32.const -1))";
    let folder = Folder::new();
    let file = folder.write("shared_off.wasm", raw("shared_off", run));
    let outcome = finish(allowed().arg("--no-shared-memory").arg(&file));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (1, ""), "{outcome:#?}");
}

/// The access functions that a compiler with a single memory emits for `ks share`. The last is called
/// indirectly.
const ACCESSES: &str = r#"
  (func $load_64 (export "kernelscript:shared/load-64") (param i32) (result i64) unreachable)
  (func $store_64 (export "kernelscript:shared/store-64") (param i32 i64) unreachable)
  (func $load_8 (export "kernelscript:shared/load-8") (param i32) (result i32) unreachable)
  (type $load (func (param i32) (result i32)))
  (table 1 1 funcref)
  (elem (i32.const 0) $load_8)"#;

/// Returns a module with one memory, with access functions and code that may make it invalid.
fn unshared(project: &str, run: &str, extra: &str) -> Vec<u8> {
    let script = r#"
        var word : u64 = 5
        var fixed : u64 = 6
        @xdp fn prog(ctx: *xdp_md) -> xdp_action {
            word += fixed
            return XDP_PASS
        }
    "#;
    let text = text(run, extra, "").replace("(memory $shared 2 2)", "");
    component(project, &text, &compile(project, script).records()).expect("the module fits the world")
}

/// Only loads and stores reach the memory that `ks share` adds, as in a plugin compiled from a script.
#[test]
fn root_a_memory_that_was_added_is_shared_as_any() {
    let address_call = "(call $place (i32.const 16) (i32.const 4))";
    let sound = format!(
        "(call $store_64 {address_call} (i64.const 40))
         (if (i64.ne (call $load_64 (call $place (i32.const 48) (i32.const 5))) (i64.const 6)) (then \
         (return (i32.const 92))))
         (i32.add (i32.wrap_i64 (call $load_64 {address_call})) (call_indirect (type $load) {address_call} \
         (i32.const 0)))"
    );
    let cases = [
        ("added_sound", sound.as_str(), 80, ""),
        // Beyond the end, and next to a variable.
        ("added_behind", "(i32.wrap_i64 (call $load_64 (i32.const 131072)))", 125, "out of bounds"),
        ("added_crooked", "(i32.wrap_i64 (call $load_64 (i32.const 65537)))", 125, "unaligned"),
        // The host interprets the address in the plugin's own memory, which is not that large, or has no such
        // name there.
        (
            "added_result",
            "(call $share (i32.const 1) (i32.add (call $place (i32.const 16) (i32.const 4)) (i32.const \
             131072)))
             (i32.const 0)",
            125,
            "",
        ),
        (
            "added_text",
            "(call $open (call $place (i32.const 16) (i32.const 4)) (i32.const 4) (i32.const 1024))
             (i32.load8_u (i32.const 1024))",
            1,
            "",
        ),
        ("added_memories", "(memory.size 1) (memory.grow 1 (i32.const 1)) i32.add", 1, ""),
    ];
    for (name, run, code, reason) in cases {
        // Another memory of the same size is not mistaken for the added one.
        let extra = if name == "added_memories" { "(memory 2 2)" } else { "" };
        let plugin = unshared(name, run, &format!("{extra} {ACCESSES}"));
        let shared = share::share(&plugin, 1 << 16).expect("it asks for it");
        let bytes = Plugin::from_bytes(shared.clone()).expect("a plugin").shared_bytes();
        assert_eq!(bytes, Some(if extra.is_empty() { 2 << 16 } else { 3 << 16 }), "{name}");
        let outcome = run_plugin(name, &shared, &[] as &[&str]);
        assert!(outcome.code == code && outcome.stderr.contains(reason), "{name}: {outcome:#?}");
    }
}

/// Exports that are not access functions are not taken for some.
#[test]
fn components_that_cannot_share_memory_are_refused() {
    let export = |name: &str, rest: &str| format!("(func (export \"kernelscript:shared/{name}\") {rest})");
    let cases = [
        (String::new(), "no core module of it exports"),
        (export("load-128", ""), "not an access that this version knows"),
        (export("load-64", "(param i32) (result i32) unreachable"), "another type"),
        (export("store-8", "(param i32 i64)"), "another type"),
        ("(export \"kernelscript:shared/load-8\" (func $drop))".to_owned(), "is an import"),
        ("(export \"kernelscript:shared/load-8\" (memory 0))".to_owned(), "not an access"),
        (
            format!("{ACCESSES} (export \"kernelscript:shared/load-16\" (func $load_8))"),
            "two accesses are one function",
        ),
    ];
    for (extra, reason) in cases {
        let plugin = unshared("refused", "(i32.const 0)", &extra);
        let error = share::share(&plugin, 1 << 16).expect_err(&extra).to_string();
        assert!(error.contains(reason), "{extra}: {error}");
    }
    let plugin = unshared("once", "(i32.const 0)", ACCESSES);
    assert!(share::asks(&plugin).expect("a component"));
    assert!(matches!(share::share(&plugin, 0), Err(ShareError::Size)));
    assert!(matches!(share::share(&plugin, 3 << 30), Err(ShareError::Size)));
    let shared = share::share(&plugin, 1 << 16).expect("it asks for it");
    assert!(!share::asks(&shared).expect("a component"));
    assert!(matches!(share::share(&shared, 1 << 16), Err(ShareError::Shared)));
    let built = compile("once", "fn main() -> i32 {\n    return 0\n}\n");
    let into = plugin::assemble_around(plugin, &[], &built.manifest).expect("a component");
    assert!(Plugin::from_bytes(into).expect("a plugin").shared_bytes().is_some());
    assert!(matches!(share::share(b"\0asm\x01\0\0\0", 1 << 16), Err(ShareError::NotAComponent)));
}
