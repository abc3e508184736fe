//! Keys of samples: thread, CPU, control group, name and stack, and a range of instructions as a filter.
//! Every page fault is sampled, so every number is known. Needs root, and a C compiler.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use ks_tests::cgroup::Group;
use ks_tests::{Folder, Outcome, command, compile, finish};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Two threads, each on its own CPU where there are two, touch fresh pages in the functions `one` and `two`,
/// each in its own section. The program first prints the address of `one` and the ids of the threads, and
/// starts when its input ends.
const WORKER: &str = r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

extern char __start_ks_one[], __stop_ks_one[];
static long page;
static pthread_barrier_t barrier;

__attribute__((noinline, section("ks_one"))) void one(volatile char *at, long pages) {
    for (long i = 0; i < pages; i++) at[i * page] = 1;
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline, section("ks_two"))) void two(volatile char *at, long pages) {
    for (long i = 0; i < pages; i++) at[i * page] = 2;
    __asm__ volatile("" ::: "memory");
}

struct thread { const char *name; int cpu; long in_one, in_two, tid; char *memory; };

static void *run(void *argument) {
    struct thread *self = argument;
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(self->cpu, &only);
    sched_setaffinity(0, sizeof only, &only);
    prctl(PR_SET_NAME, self->name);
    self->tid = gettid();
    long bytes = (self->in_one + self->in_two) * page;
    self->memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(self->memory, bytes, MADV_NOHUGEPAGE);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    one(self->memory, self->in_one);
    two(self->memory + self->in_one * page, self->in_two);
    return 0;
}

int main(void) {
    page = sysconf(_SC_PAGESIZE);
    cpu_set_t all;
    sched_getaffinity(0, sizeof all, &all);
    int low = 0, high = CPU_SETSIZE - 1;
    while (!CPU_ISSET(low, &all)) low++;
    while (!CPU_ISSET(high, &all)) high--;
    pthread_barrier_init(&barrier, 0, 3);
    struct thread threads[2] = {{"first", low, 3000, 500}, {"second", high, 700, 2000}};
    pthread_t handles[2];
    for (int i = 0; i < 2; i++) pthread_create(&handles[i], 0, run, &threads[i]);
    pthread_barrier_wait(&barrier);
    printf("%d %lu %lu %ld %d %ld %d\n", getpid(), (unsigned long)__start_ks_one, (unsigned long)__stop_ks_one,
           threads[0].tid, low, threads[1].tid, high);
    fflush(stdout);
    while (getchar() != EOF);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 2; i++) pthread_join(handles[i], 0);
    return 0;
}
"#;

/// The worker, which waits for its start. It is killed when dropped.
struct Worker {
    child: Child,
    input: Option<ChildStdin>,
    pid: u64,
    /// Start (inclusive) and end (exclusive) of `one`.
    range: [u64; 2],
    /// Thread id and CPU of each thread.
    threads: [[u64; 2]; 2],
}

impl Worker {
    fn start(folder: &Folder) -> Worker {
        let source = folder.write("worker.c", WORKER);
        let built: PathBuf = folder.path("worker");
        let outcome = finish(Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&built).arg(source));
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        let child = Command::new(built).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("it was just built");
        let input = child.stdin.take();
        let line = line(&mut BufReader::new(child.stdout.take().expect("it is piped")));
        let numbers: Vec<u64> = line.split(' ').map(|field| field.parse().expect("a number")).collect();
        let [pid, first, end, one, low, two, high] = numbers[..] else { panic!("{line}") };
        Worker { child, input, pid, range: [first, end], threads: [[one, low], [two, high]] }
    }

    /// Starts the work and waits for its end.
    fn work(&mut self) {
        drop(self.input.take());
        assert!(self.child.wait().expect("it is ours").success());
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may already have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(from: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    from.read_line(&mut line).expect("it is a pipe");
    line.trim_end().to_owned()
}

/// Runs a script. The worker works after the script's line `attached`; then the script is asked to stop.
fn sampled(script: &str, arguments: &[String], worker: &mut Worker) -> Outcome {
    let folder = Folder::new();
    let file = folder.write("sampled.wasm", compile("sampled", script).plugin);
    let mut host = command("ks-host");
    host.args(["--no-cache", "--timeout", "60"]).arg(file).arg("--").args(arguments);
    let child = host.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.expect("ks-host is built");
    let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
    assert_eq!(line(&mut output), "attached");
    worker.work();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("it is ours");
    let lines: Vec<String> = output.lines().map(|line| line.expect("text")).collect();
    let ended = child.wait_with_output().expect("it is ours");
    Outcome::of(ended.status, lines.join("\n"), &ended.stderr)
}

const KEYS: &str = include_str!("scripts/sample_keys_keys.ks");

#[test]
fn root_samples_have_keys_and_lie_in_a_range() {
    let (folder, group) = (Folder::new(), Group::new());
    let mut worker = Worker::start(&folder);
    group.add(worker.child.id());
    let [first, end] = worker.range;
    let arguments =
        [format!("--pid={}", worker.pid), format!("--first={first}"), format!("--last={}", end - 1)];
    let outcome = sampled(KEYS, &arguments, &mut worker);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    // Every fault is a sample, and only the function's own samples are in its range.
    for (name, [tid, cpu], in_one, in_two) in
        [("first", worker.threads[0], 3000, 500), ("second", worker.threads[1], 700, 2000)]
    {
        let task = [group.id(), worker.pid, tid, cpu].map(u64::cast_signed);
        assert_eq!(
            outcome.numbers(&format!("inside.{name}")),
            [&task[..], &[in_one]].concat(),
            "{outcome:#?}"
        );
        let [others @ .., elsewhere] = &outcome.numbers(&format!("outside.{name}"))[..] else { panic!() };
        assert_eq!(others, task, "{outcome:#?}");
        // The thread's own stack and the C library.
        assert!((in_two..in_two + 50).contains(elsewhere), "{outcome:#?}");
        assert_eq!(outcome.numbers(&format!("place.{name}")), [tid.cast_signed(), 1, in_one], "{outcome:#?}");
    }
    assert_eq!(outcome.numbers("kinds"), [2, 2], "{outcome:#?}");
}

const COLLIDING: &str = include_str!("scripts/sample_keys_colliding.ks");

#[test]
fn root_every_sample_whose_stack_is_lost_is_reported() {
    let folder = Folder::new();
    let mut worker = Worker::start(&folder);
    let arguments = [format!("--pid={}", worker.pid)];
    let outcome = sampled(COLLIDING, &arguments, &mut worker);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    let [samples, kept, refused] = outcome.numbers("samples")[..] else { panic!("{outcome:#?}") };
    assert!(samples >= 6200 && kept > 0 && refused > 0, "{outcome:#?}");
    assert_eq!(kept + refused, samples, "{outcome:#?}");
    let expected = format!("map `stacks`: {refused} stacks were lost, because they collided with others");
    assert!(outcome.stderr.contains(&expected), "{outcome:#?}");
}
