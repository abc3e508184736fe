//! `--stacks`: counts of programs by stack, in every output form. Needs root, and a C compiler for programs
//! of known shape.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ks_tests::{Folder, Outcome, command, finish, finish_within, repository};

/// Three parts that take 6, 3 and 1 tenths of the CPU time, in slices of 10 ms; the last in the kernel. The
/// argument is the total time in milliseconds.
const SHAPE: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;
static int zero;
static char buffer[1 << 16];

static unsigned long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000ul + t.tv_nsec;
}

static unsigned long until;

__attribute__((always_inline)) static inline void step(void) {
    for (int i = 0; i < 20000; i++) sink += i;
}

__attribute__((noinline)) void spin(void) {
    while (now() < until) step();
}

__attribute__((noinline)) void heavy(void) { until += 6000000; spin(); sink++; }
__attribute__((noinline)) void light(void) { until += 3000000; spin(); sink++; }
/* read(2) of the C library has no frame of its own: the function that calls it is missing in stacks. */
__attribute__((noinline)) void reads(void) {
    for (int i = 0; i < 10; i++) sink += read(zero, buffer, sizeof buffer);
}

__attribute__((noinline)) void reading(void) {
    until += 1000000;
    while (now() < until) reads();
    sink++;
}

int main(int count, char **words) {
    unsigned long turns = strtoul(words[1], 0, 10) / 10;
    zero = open("/dev/zero", O_RDONLY);
    until = now();
    while (turns--) { heavy(); light(); reading(); }
    return 0;
}
"#;

/// Compiles a C program with frame pointers.
fn program(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let source = folder.write(&format!("{name}.c"), text);
    let built = folder.path(name);
    let flags = [
        "-O1",
        "-g",
        "-fno-omit-frame-pointer",
        "-mno-omit-leaf-frame-pointer",
        "-fno-optimize-sibling-calls",
        "-Wl,--build-id=0x1234567890abcdef",
    ];
    let outcome = finish(Command::new("cc").args(flags).arg("-o").arg(&built).arg(source));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    built
}

fn example(name: &str) -> PathBuf {
    repository().join("examples").join(name)
}

/// Runs the profiler with these arguments of `ks-host` and of the script.
fn profile(stacks: &str, arguments: &[&str], exec: &[&str]) -> Outcome {
    let mut host = command("ks-host");
    host.args(["--no-cache", "--stacks", stacks]).arg(example("perf/profile.ks"));
    if !arguments.is_empty() {
        host.arg("--").args(arguments);
    }
    if !exec.is_empty() {
        host.arg("--exec").args(exec);
    }
    finish(&mut host)
}

/// Returns whether there are only messages that may appear on any machine: that some stacks collided (of a
/// hundred in a map of 16384 two may), and that the kernel throttled the event, as it does where an interrupt
/// comes too late.
fn is_quiet(outcome: &Outcome) -> bool {
    let may_be = ["because they collided with others", "was throttled"];
    outcome.stderr.lines().all(|line| may_be.iter().any(|text| line.contains(text)))
}

/// Parses folded lines into frames and weight.
fn lines(folded: &str) -> Vec<(Vec<&str>, u64)> {
    fn line(line: &str) -> (Vec<&str>, u64) {
        let (frames, weight) = line.rsplit_once(' ').expect("a weight stands behind the frames");
        (frames.split(';').collect(), weight.parse().expect("it is a number"))
    }
    folded.lines().map(line).collect()
}

/// Returns the weight of all lines that contain a frame.
fn weight(lines: &[(Vec<&str>, u64)], frame: &str) -> u64 {
    lines.iter().filter(|(frames, _)| frames.contains(&frame)).map(|(_, weight)| weight).sum()
}

/// A process that is killed when dropped.
struct Running(Child);

impl Running {
    fn start(program: &Path, arguments: &[&str]) -> Running {
        let child = Command::new(program).args(arguments).stdin(Stdio::null()).spawn();
        Running(child.expect("it was just built"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn root_a_running_process_is_profiled_with_its_callers() {
    let folder = Folder::new();
    let running = Running::start(&program(&folder, "lives", SHAPE), &["60000"]);
    let pid = format!("--pid={}", running.0.id());
    let outcome = profile("folded", &[&pid, "--freq=999", "--seconds=1"], &[]);
    assert!(outcome.code == 0 && is_quiet(&outcome), "{outcome:#?}");
    let lines = lines(&outcome.stdout);
    let all: u64 = lines.iter().map(|(_, weight)| weight).sum();
    assert!(all > 100 && weight(&lines, "lives") == all, "{outcome:#?}");
    let [heavy, light, reading] = ["heavy", "light", "reading"].map(|name| weight(&lines, name));
    assert!(heavy > light && light > reading && reading > 0, "{outcome:#?}");
    let kernel = lines.iter().filter(|(frames, _)| {
        let index = frames.iter().position(|frame| *frame == "reading");
        index.is_some_and(|index| frames[index..].iter().any(|frame| frame.ends_with("_[k]")))
    });
    assert!(kernel.count() > 0, "{outcome:#?}");
}

#[test]
fn root_unprintable_stack_maps_are_refused_before_the_run() {
    let script = example("perf/page_faults.ks");
    let outcome = finish(command("ks-host").args(["--stacks", "tree"]).arg(&script));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""), "{outcome:#?}");
    assert!(outcome.stderr.contains("counts nothing by stacks"), "{outcome:#?}");
    let script = example("perf/profile.ks");
    let outcome = finish(command("ks-host").args(["--stacks", "tree", "--stacks-of", "sean"]).arg(&script));
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    assert!(outcome.stderr.contains("`seen` only"), "{outcome:#?}");
    let outcome = finish(command("ks-host").args(["--stacks", "tree", "--json"]).arg(&script));
    assert_eq!(outcome.code, 125, "{outcome:#?}");
    assert!(outcome.stderr.contains("--stacks tree=FILE"), "{outcome:#?}");
}

/// Returns the folded lines of a decoded pprof file: the command, and the functions from the outermost on.
fn folded_of_pprof(file: &Path) -> BTreeMap<String, u64> {
    let mut bytes = Vec::new();
    let compressed = fs::File::open(file).expect("it was written");
    flate2::read::GzDecoder::new(compressed).read_to_end(&mut bytes).expect("it is compressed");
    let proto = repository().join("tests/proto");
    let mut protoc = Command::new("protoc")
        .arg(format!("--proto_path={}", proto.display()))
        .args(["--decode=perftools.profiles.Profile", "profile.proto"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("`scripts/packages protoc` installs it");
    let mut input = protoc.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = protoc.wait_with_output().expect("it is ours");
    writer.join().expect("no panic").expect("protoc reads");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    Decoded::of(&text).folded()
}

/// A message as protoc prints it: names with numbers, texts, and messages.
#[derive(Default)]
struct Decoded<'a> {
    values: Vec<(&'a str, &'a str)>,
    messages: Vec<(&'a str, Decoded<'a>)>,
}

impl<'a> Decoded<'a> {
    fn of(text: &'a str) -> Decoded<'a> {
        let mut open = vec![("", Decoded::default())];
        for line in text.lines().map(str::trim) {
            if let Some(name) = line.strip_suffix(" {") {
                open.push((name, Decoded::default()));
            } else if line == "}" {
                let (name, message) = open.pop().expect("it was opened");
                open.last_mut().expect("the outermost").1.messages.push((name, message));
            } else if let Some(value) = line.split_once(": ") {
                open.last_mut().expect("the outermost").1.values.push(value);
            }
        }
        open.pop().expect("the outermost").1
    }

    fn all(&self, name: &'a str) -> impl Iterator<Item = &Decoded<'a>> {
        self.messages.iter().filter(move |(one, _)| *one == name).map(|(_, message)| message)
    }

    fn values(&self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.values.iter().filter(move |(one, _)| *one == name).map(|(_, value)| *value)
    }

    /// Returns a number; 0 if it is missing, as in all of proto3.
    fn number(&self, name: &'a str) -> usize {
        self.values(name).next().map_or(0, |value| value.parse().expect("it is a number"))
    }

    fn folded(&self) -> BTreeMap<String, u64> {
        let texts: Vec<&str> = self.values("string_table").map(|text| text.trim_matches('"')).collect();
        let by_id = |name| self.all(name).map(|one| (one.number("id"), one)).collect::<BTreeMap<_, _>>();
        let (locations, functions) = (by_id("location"), by_id("function"));
        let mut folded = BTreeMap::new();
        for sample in self.all("sample") {
            let labels = sample.all("label").map(|label| (texts[label.number("key")], label));
            let command =
                labels.filter(|(key, _)| *key == "command").map(|(_, label)| texts[label.number("str")]);
            let mut frames: Vec<&str> = command.collect();
            let ids: Vec<usize> =
                sample.values("location_id").map(|id| id.parse().expect("a number")).collect();
            for id in ids.into_iter().rev() {
                let lines: Vec<&Decoded<'_>> = locations[&id].all("line").collect();
                let function =
                    |line: &&Decoded<'_>| texts[functions[&line.number("function_id")].number("name")];
                frames.extend(lines.iter().rev().map(function));
            }
            *folded.entry(frames.join(";")).or_default() += sample.number("value") as u64;
        }
        folded
    }
}

/// Returns folded lines without the marks, which pprof expresses differently.
fn unmarked(folded: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for (frames, weight) in lines(folded) {
        let frames: Vec<&str> =
            frames.iter().map(|frame| frame.trim_end_matches("_[k]").trim_end_matches("_[i]")).collect();
        *found.entry(frames.join(";")).or_default() += weight;
    }
    found
}

/// The program has already ended when its functions are named.
#[test]
fn root_a_command_of_known_shape_is_found_in_every_form() {
    let folder = Folder::new();
    // Concurrent tests must not have tasks of this name.
    let name = format!("shape{}", std::process::id());
    let shape = program(&folder, &name, SHAPE);
    let [folded, flame, pprof] = ["folded", "flame", "pprof"].map(|form| folder.path(form));
    let mut host = command("ks-host");
    host.arg("--no-cache");
    for (form, file) in [("folded", &folded), ("flame", &flame), ("pprof", &pprof)] {
        host.arg("--stacks").arg(format!("{form}={}", file.display()));
    }
    host.args(["--stacks", "tree"]).arg(example("perf/profile.ks"));
    host.args(["--", "--freq=1999", &format!("--command={name}")]).arg("--exec").arg(&shape).arg("3000");
    let outcome = finish_within(&mut host, Duration::from_secs(180));
    assert!(outcome.code == 0 && is_quiet(&outcome), "{outcome:#?}");

    let text = fs::read_to_string(&folded).expect("it was written");
    let lines = lines(&text);
    let all: u64 = lines.iter().map(|(_, weight)| weight).sum();
    println!("{all} samples");
    assert!(all >= 4000, "{outcome:#?}");
    // The kernel keeps one stack for each hash: where a stack that was seen often has the hash of
    // another one, its samples are marked as lost, and no function has them.
    let lost = weight(&lines, "[stack lost]") * 1000 / all;
    assert!(lost <= 150, "{lost} of 1000 are lost\n{text}");
    for (name, expected) in [("heavy", 600), ("light", 300), ("reading", 100)] {
        let share = weight(&lines, name) * 1000 / all;
        println!("{name}: {share} of 1000, {lost} are lost");
        assert!((expected - 30..=expected + 30 + lost).contains(&(share + lost)), "{name}: {share}\n{text}");
    }
    let reads = lines.iter().filter(|(frames, _)| frames.contains(&"reading"));
    assert!(reads.flat_map(|(frames, _)| frames).any(|frame| frame.ends_with("_[k]")), "{text}");
    assert!(weight(&lines, "step_[i]") > all / 2, "{text}");

    let row = outcome.row(&all.to_string());
    assert_eq!((row[1], row.last()), ("100.0", Some(&name.as_str())), "{outcome:#?}");
    let picture = fs::read_to_string(&flame).expect("it was written");
    assert!(picture.contains("<svg") && picture.contains("<title>heavy ("));
    assert_eq!(folded_of_pprof(&pprof), unmarked(&text));
}

#[test]
fn root_of_a_file_that_is_gone_the_build_id_and_offset_are_printed() {
    let folder = Folder::new();
    let gone = program(&folder, "gone", SHAPE);
    let run = format!("{0} 400; rm {0}", gone.display());
    let outcome = profile("folded", &["--freq=999", "--command=gone"], &["sh", "-c", &run]);
    assert!(outcome.code == 0 && is_quiet(&outcome), "{outcome:#?}");
    assert!(outcome.stdout.contains(";gone[1234567890abcdef]+0x"), "{outcome:#?}");
}

#[test]
fn root_stacks_that_collide_are_counted_and_keep_their_weight() {
    let script = fs::read_to_string(example("perf/profile.ks")).expect("it is there");
    let script = script.replace("stack_trace(16384)", "stack_trace(1)");
    let folder = Folder::new();
    let shape = program(&folder, "collides", SHAPE);
    let file = folder.write("small.ks", script);
    let mut host = command("ks-host");
    host.args(["--no-cache", "--stacks", "folded"]).arg(file).args([
        "--",
        "--freq=999",
        "--command=collides",
    ]);
    let outcome = finish(host.arg("--exec").arg(shape).arg("500"));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.stderr.contains("map `stacks`") && outcome.stderr.contains("collided"), "{outcome:#?}");
    let lines = lines(&outcome.stdout);
    let all: u64 = lines.iter().map(|(_, weight)| weight).sum();
    // A sample has a stack of the program and one of the kernel. Which has the only slot is left to chance.
    let lost_of = |frames: &[&str]| frames.iter().filter(|frame| **frame == "[stack lost]").count() as u64;
    let lost: u64 = lines.iter().map(|(frames, weight)| lost_of(frames) * weight).sum();
    assert!(all > 300 && lost > 0, "{outcome:#?}");
    assert_eq!(lost, outcome.number_before(" stacks were lost"), "{outcome:#?}");
}

/// A program that generates code, writes its name to a perf map, and runs it: for a number of iterations, or
/// forever.
#[cfg(target_arch = "x86_64")]
const MAKER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **words) {
    /* mov ecx, 100000000; dec ecx; jnz back; ret */
    static const unsigned char loop[] = {0xb9, 0x00, 0xe1, 0xf5, 0x05, 0xff, 0xc9, 0x75, 0xfc, 0xc3};
    void *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, loop, sizeof loop);
    char name[64];
    snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(name, "w");
    fprintf(map, "%lx %lx made_at_run_time\n", (unsigned long)code, (unsigned long)sizeof loop);
    fclose(map);
    int turns = count > 1 ? atoi(words[1]) : -1;
    while (turns--) ((void (*)(void))code)();
    return 0;
}
"#;

/// Generated code has the name that its own process wrote, and not one that another process wrote.
#[cfg(target_arch = "x86_64")]
#[test]
fn root_code_generated_at_run_time_has_the_name_that_its_process_wrote_down() {
    let folder = Folder::new();
    let running = Running::start(&program(&folder, "maker", MAKER), &[]);
    let map = PathBuf::from(format!("/tmp/perf-{}.map", running.0.id()));
    let pid = format!("--pid={}", running.0.id());
    let run_profile = || profile("folded", &[&pid, "--freq=499", "--seconds=1"], &[]);
    let own = run_profile();
    std::os::unix::fs::chown(&map, Some(65534), None).expect("root may do that");
    let foreign = run_profile();
    fs::remove_file(&map).expect("it is there");
    assert!(own.stdout.contains(";made_at_run_time "), "{own:#?}");
    assert!(foreign.code == 0 && !foreign.stdout.contains("made_at_run_time"), "{foreign:#?}");
}

/// The observed command has already ended when its functions are named: its perf map still exists.
#[cfg(target_arch = "x86_64")]
#[test]
fn root_code_generated_at_run_time_has_its_name_when_its_process_has_ended() {
    let folder = Folder::new();
    let maker = program(&folder, "ended", MAKER);
    let pid = folder.path("pid");
    let profiled = |chown: &str| {
        let run = format!("{0} 10 & echo $! > {1}; wait $!; {chown}", maker.display(), pid.display());
        let outcome = profile("folded", &["--freq=499", "--command=ended"], &["sh", "-c", &run]);
        let map = format!("/tmp/perf-{}.map", fs::read_to_string(&pid).expect("it ran").trim());
        fs::remove_file(map).expect("it was written");
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        outcome.stdout
    };
    let own = profiled("true");
    assert!(own.contains(";made_at_run_time ") && !own.contains("[unknown] "), "{own}");
    let of_others = profiled("chown 65534 /tmp/perf-$!.map");
    assert!(!of_others.contains("made_at_run_time"), "{of_others}");
}

/// Code that the kernel maps into every process.
#[test]
fn root_code_of_the_kernel_in_a_process_has_its_name_when_the_process_has_ended() {
    const CLOCKS: &str = r#"
#include <time.h>

int main(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do clock_gettime(CLOCK_MONOTONIC, &now); while (now.tv_sec - begin.tv_sec < 2);
    return 0;
}
"#;
    let folder = Folder::new();
    let clocks = program(&folder, "clocks", CLOCKS);
    let outcome = profile(
        "folded",
        &["--freq=499", "--command=clocks"],
        &[clocks.to_str().expect("the folder of a test has a plain path")],
    );
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    assert!(outcome.stdout.contains("vdso_clock_gettime"), "{outcome:#?}");
    let lines = lines(&outcome.stdout);
    let all: u64 = lines.iter().map(|(_, weight)| weight).sum();
    assert!(weight(&lines, "[unknown]") * 10 < all, "{outcome:#?}");
}

/// Tasks that run next to a command of `--exec` do not count for it.
#[test]
fn root_a_command_is_profiled_with_what_it_starts_and_nothing_else() {
    let folder = Folder::new();
    let (inside, outside) = (program(&folder, "inside", SHAPE), program(&folder, "outside", SHAPE));
    let mut outside_process = Command::new(outside).arg("60000").spawn().expect("it was just built");
    let line = format!("{} 700 & {} 700; wait", inside.display(), inside.display());
    let outcome = profile("folded", &[], &["sh", "-c", &line]);
    outside_process.kill().expect("it is ours");
    outside_process.wait().expect("it is ours");
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let lines = lines(&outcome.stdout);
    let of = |task: &str| -> u64 {
        let of_task = lines.iter().filter(|(frames, _)| frames.first() == Some(&task));
        of_task.map(|(_, weight)| weight).sum()
    };
    assert!(of("inside") > 50, "{outcome:#?}");
    let others: Vec<_> = lines.iter().filter(|(frames, _)| !["inside", "sh"].contains(&frames[0])).collect();
    assert!(others.is_empty(), "{others:?}");
}
