//! WASI imports of a plugin that its standard library causes: served in part, otherwise refused by an error
//! of their own type.

use std::time::{Duration, Instant};

use ks_tests::{Outcome, run_plugin};

/// Returns a component around a core module, with the interfaces of the module's imports.
fn component(body: &str) -> Vec<u8> {
    let text = format!(
        r#"(component
  (import "wasi:random/random@0.2.6" (instance $random
    (export "get-random-u64" (func (result u64)))
    (export "get-random-bytes" (func (param "len" u64) (result (list u8))))))
  (import "wasi:io/poll@0.2.6" (instance $poll
    (export "pollable" (type $pollable (sub resource)))
    (export "[method]pollable.block" (func (param "self" (borrow $pollable))))))
  (alias export $poll "pollable" (type $pollable))
  (import "wasi:clocks/monotonic-clock@0.2.6" (instance $clock
    (alias outer 1 $pollable (type $outer))
    (export "pollable" (type $pollable (eq $outer)))
    (export "now" (func (result u64)))
    (export "subscribe-duration" (func (param "when" u64) (result (own $pollable))))))
  (import "wasi:io/error@0.2.6" (instance $error (export "error" (type (sub resource)))))
  (alias export $error "error" (type $error))
  (import "wasi:io/streams@0.2.6" (instance $streams
    (alias outer 1 $error (type $outer))
    (export "error" (type $error (eq $outer)))
    (type $failure (variant (case "last-operation-failed" (own $error)) (case "closed")))
    (export "stream-error" (type $stream-error (eq $failure)))
    (export "output-stream" (type $output (sub resource)))
    (export "input-stream" (type $input (sub resource)))
    (export "[method]output-stream.blocking-write-and-flush"
      (func (param "self" (borrow $output)) (param "contents" (list u8)) (result (result (error $stream-error)))))
    (export "[method]input-stream.blocking-skip"
      (func (param "self" (borrow $input)) (param "len" u64) (result (result u64 (error $stream-error)))))))
  (alias export $streams "output-stream" (type $output))
  (alias export $streams "input-stream" (type $input))
  (import "wasi:cli/stdout@0.2.6" (instance $stdout
    (alias outer 1 $output (type $outer))
    (export "output-stream" (type $output (eq $outer)))
    (export "get-stdout" (func (result (own $output))))))
  (import "wasi:cli/stderr@0.2.6" (instance $stderr
    (alias outer 1 $output (type $outer))
    (export "output-stream" (type $output (eq $outer)))
    (export "get-stderr" (func (result (own $output))))))
  (import "wasi:cli/stdin@0.2.6" (instance $stdin
    (alias outer 1 $input (type $outer))
    (export "input-stream" (type $input (eq $outer)))
    (export "get-stdin" (func (result (own $input))))))
  (import "wasi:cli/environment@0.2.6" (instance $environment
    (export "get-environment" (func (result (list (tuple string string)))))
    (export "get-arguments" (func (result (list string))))))
  (import "wasi:cli/exit@0.2.6" (instance $exit (export "exit" (func (param "status" (result))))))
  (import "wasi:sockets/tcp-create-socket@0.2.6" (instance $tcp
    (type $codes (enum "unknown" "access-denied" "not-supported"))
    (export "error-code" (type $code (eq $codes)))
    (type $families (enum "ipv4" "ipv6"))
    (export "ip-address-family" (type $family (eq $families)))
    (export "tcp-socket" (type $socket (sub resource)))
    (export "create-tcp-socket"
      (func (param "address-family" $family) (result (result (own $socket) (error $code)))))))
  (import "wasi:filesystem/preopens@0.2.6" (instance $preopens
    (export "descriptor" (type $descriptor (sub resource)))
    (export "get-directories" (func (result (list (tuple (own $descriptor) string)))))))
  (import "wasi:http/proxy@0.2.6" (instance $http (export "port" (func (result u32)))))

  (core module $memory
    (memory (export "memory") 4)
    (global $heap (mut i32) (i32.const 65536))
    (func (export "realloc") (param i32 i32 i32 i32) (result i32)
      (global.get $heap)
      (global.set $heap (i32.add (global.get $heap) (i32.and (i32.add (local.get 3) (i32.const 7)) (i32.const -8))))))
  (core instance $memory (instantiate $memory))
  (alias core export $memory "memory" (core memory $mem))
  (alias core export $memory "realloc" (core func $realloc))
  (core func $u64 (canon lower (func $random "get-random-u64")))
  (core func $bytes (canon lower (func $random "get-random-bytes") (memory $mem) (realloc $realloc)))
  (core func $block (canon lower (func $poll "[method]pollable.block")))
  (core func $now (canon lower (func $clock "now")))
  (core func $after (canon lower (func $clock "subscribe-duration")))
  (core func $write
    (canon lower (func $streams "[method]output-stream.blocking-write-and-flush") (memory $mem)))
  (core func $skip (canon lower (func $streams "[method]input-stream.blocking-skip") (memory $mem)))
  (core func $stdout (canon lower (func $stdout "get-stdout")))
  (core func $stderr (canon lower (func $stderr "get-stderr")))
  (core func $stdin (canon lower (func $stdin "get-stdin")))
  (core func $environment
    (canon lower (func $environment "get-environment") (memory $mem) (realloc $realloc)))
  (core func $arguments (canon lower (func $environment "get-arguments") (memory $mem) (realloc $realloc)))
  (core func $exit (canon lower (func $exit "exit")))
  (core func $socket (canon lower (func $tcp "create-tcp-socket") (memory $mem)))
  (core func $directories
    (canon lower (func $preopens "get-directories") (memory $mem) (realloc $realloc)))
  (core func $port (canon lower (func $http "port")))
  (core instance $imports
    (export "memory" (memory $mem)) (export "u64" (func $u64)) (export "bytes" (func $bytes))
    (export "block" (func $block)) (export "now" (func $now)) (export "after" (func $after))
    (export "write" (func $write)) (export "skip" (func $skip)) (export "stdout" (func $stdout)) (export "stderr" (func $stderr))
    (export "stdin" (func $stdin)) (export "environment" (func $environment))
    (export "arguments" (func $arguments)) (export "exit" (func $exit)) (export "socket" (func $socket))
    (export "directories" (func $directories)) (export "port" (func $port)))
  (core module $plugin
    (import "wasi" "memory" (memory 4))
    (import "wasi" "u64" (func $u64 (result i64)))
    (import "wasi" "bytes" (func $bytes (param i64 i32)))
    (import "wasi" "block" (func $block (param i32)))
    (import "wasi" "now" (func $now (result i64)))
    (import "wasi" "after" (func $after (param i64) (result i32)))
    (import "wasi" "write" (func $write (param i32 i32 i32 i32)))
    (import "wasi" "skip" (func $skip (param i32 i64 i32)))
    (import "wasi" "stdout" (func $stdout (result i32)))
    (import "wasi" "stderr" (func $stderr (result i32)))
    (import "wasi" "stdin" (func $stdin (result i32)))
    (import "wasi" "environment" (func $environment (param i32)))
    (import "wasi" "arguments" (func $arguments (param i32)))
    (import "wasi" "exit" (func $exit (param i32)))
    (import "wasi" "socket" (func $socket (param i32 i32)))
    (import "wasi" "directories" (func $directories (param i32)))
    (import "wasi" "port" (func $port (result i32)))
    (data (i32.const 1024) "hello\n")
    (data (i32.const 2048) "ks-host: forged\n\1b[2Jgood.wasm: forged\nthe rest")
    (func $code (result i32) {body})
    (func (export "run") (result i32) (local $code i32)
      (local.set $code (call $code))
      (i32.store8 (i32.const 1016) (i32.ne (local.get $code) (i32.const 0)))
      (i32.store8 (i32.const 1017) (local.get $code))
      (i32.const 1016)))
  (core instance $plugin (instantiate $plugin (with "wasi" (instance $imports))))
  (func (export "run") (result (result (error u8))) (canon lift (core func $plugin "run") (memory $mem))))"#
    );
    wat::parse_str(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn run(body: &str) -> Outcome {
    run_plugin("wasi", &component(body), &["one", "two"])
}

/// The functions write results of 8 bytes at address 0.
const RESULT: &str = "(i32.load (i32.const 0))";
const LEN: &str = "(i32.load (i32.const 4))";

#[test]
fn random_numbers_differ_and_have_a_limit() {
    let outcome = run("(i64.eq (call $u64) (call $u64))");
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let outcome = run(&format!("(call $bytes (i64.const 40) (i32.const 0)) {LEN}"));
    assert_eq!(outcome.code, 40, "{outcome:#?}");
    let outcome = run("(call $bytes (i64.const 0x7fffffffffffffff) (i32.const 0)) (i32.const 0)");
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    assert!(outcome.stderr.contains("a plugin gets at most 65536"), "{outcome:#?}");
}

#[test]
fn standard_output_is_printed() {
    let outcome = run(
        "(call $write (call $stdout) (i32.const 1024) (i32.const 6) (i32.const 0)) (i32.load8_u (i32.const \
         0))",
    );
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "hello\n"), "{outcome:#?}");
}

/// Standard error is a stream of the plugin: no line of it is mixed with another's, it has a limit, and an
/// unterminated line is printed at the end.
#[test]
fn standard_error_is_attributed_and_limited() {
    let outcome = run(
        "(call $write (call $stderr) (i32.const 2048) (i32.const 46) (i32.const 0)) (i32.load8_u (i32.const \
         0))",
    );
    let lines = "wasi.wasm: ks-host: forged\nwasi.wasm: \\u{1b}[2Jgood.wasm: forged\nwasi.wasm: the rest\n";
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, lines), "{outcome:#?}");
    let file = component(
        "(local $stream i32) (local $n i32) (local.set $stream (call $stderr))
         (loop $again
           (call $write (local.get $stream) (i32.const 1024) (i32.const 6) (i32.const 0))
           (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 10000))))
         (i32.const 0)",
    );
    let folder = ks_tests::Folder::new();
    let mut host = ks_tests::command("ks-host");
    let host = host.args(["--limit", "print_bytes_per_second=1000"]).arg(folder.write("wasi.wasm", file));
    let outcome = ks_tests::finish(host);
    let written = outcome.stderr.matches("wasi.wasm: hello").count();
    assert!((50..5000).contains(&written), "{written}");
    assert_eq!(outcome.stderr.matches("--limit print_bytes_per_second=").count(), 1);
}

/// Where output lines have a format, text without a line end is not buffered forever; the rest is printed at
/// the end.
#[test]
fn standard_output_without_a_line_end_comes_in_pieces() {
    let file = component(
        "(local $stream i32) (local $n i32) (local.set $stream (call $stdout))
         (loop $again
           (call $write (local.get $stream) (i32.const 4096) (i32.const 61440) (i32.const 0))
           (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 20))))
         (i32.const 0)",
    );
    let folder = ks_tests::Folder::new();
    let mut host = ks_tests::command("ks-host");
    let outcome = ks_tests::finish(host.arg("--json").arg(folder.write("wasi.wasm", file)));
    assert_eq!((outcome.code, outcome.stderr.as_str(), outcome.stdout.lines().count()), (0, "", 2));
}

#[test]
fn a_timer_waits_by_the_clock() {
    let body = "(local $start i64) (local.set $start (call $now)) \
                (call $block (call $after (i64.const 50000000))) \
                (i64.lt_u (i64.sub (call $now) (local.get $start)) (i64.const 50000000))";
    assert_eq!(run(body).code, 0);
    // The sleep ends early when the plugin is asked to stop.
    let start = Instant::now();
    let file = component("(call $block (call $after (i64.const 600000000000))) (i32.const 3)");
    let folder = ks_tests::Folder::new();
    let mut host = ks_tests::command("ks-host");
    let outcome = ks_tests::finish(host.args(["--timeout", "1"]).arg(folder.write("wait.wasm", file)));
    assert_eq!(outcome.code, 124, "{outcome:#?}");
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn files_network_environment_and_input_are_refused_in_their_types() {
    // No folders and no environment variables; the arguments are the plugin's.
    assert_eq!(run(&format!("(call $directories (i32.const 0)) {LEN}")).code, 0);
    assert_eq!(run(&format!("(call $environment (i32.const 0)) {LEN}")).code, 0);
    assert_eq!(run(&format!("(call $arguments (i32.const 0)) {LEN}")).code, 3);
    // A socket: an error with the second code, `access-denied`.
    let outcome = run(&format!(
        "(call $socket (i32.const 0) (i32.const 0)) (i32.and {RESULT} (i32.const 1)) drop {LEN}"
    ));
    assert_eq!(outcome.code, 1, "{outcome:#?}");
    assert!(outcome.stderr.contains("plugins have no `wasi:sockets/tcp-create-socket"), "{outcome:#?}");
    // Standard input: a stream at its end, `closed`.
    let outcome = run("(call $skip (call $stdin) (i64.const 1) (i32.const 0)) (i32.load8_u (i32.const 8))");
    assert_eq!(outcome.code, 1, "{outcome:#?}");
}

#[test]
fn the_end_of_a_program_is_the_end_of_the_plugin() {
    assert_eq!(run("(call $exit (i32.const 1)) (i32.const 9)").code, 1);
    assert_eq!(run("(call $exit (i32.const 0)) (i32.const 9)").code, 0);
}

/// A function whose type cannot express a refusal, and which no standard library calls.
#[test]
fn functions_that_cannot_fail_end_the_plugin_with_a_reason() {
    let outcome = run("(call $port)");
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    assert!(outcome.stderr.contains("plugins have no `wasi:http/proxy.port`"), "{outcome:#?}");
}
