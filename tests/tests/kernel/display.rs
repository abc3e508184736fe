//! Texts that the host makes: addresses of networks, names of numbers and functions, times of day, in both
//! halves, compared with what other programs say. These tests need root.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ks_tests::watched::Running;
use ks_tests::{Folder, Outcome, allowed, compile, finish, run_script};

const NO_ARGUMENTS: &[&str] = &[];

/// Prints the texts of Python, all names of an errno, for the lines of raw addresses in a file, and of all numbers.
const PYTHON: &str = r#"
import errno, signal, socket, sys
four, six, hardware = {}, {}, {}
for line in open(sys.argv[2]):
    kind, at, value = line.split()
    {'raw': four, 'six': six, 'hardware': hardware}[kind].setdefault(int(at), []).append(value)
for at in sorted(four):
    print('address', at, socket.inet_ntop(socket.AF_INET, bytes.fromhex(four[at][0])),
          socket.inet_ntop(socket.AF_INET6, bytes.fromhex(''.join(six[at]))), ':'.join(hardware[at]))
calls = {}
for line in open(sys.argv[1]):
    name, number = line.split()
    calls[int(number)] = name
def of_errno(number):
    names = [name for name in dir(errno) if getattr(errno, name) == number]
    return '|'.join(names) or str(number)
def of_signal(number):
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
for number in range(600):
    print('names', number, calls.get(number, number), of_errno(number), of_signal(number))
"#;

/// Writes the system calls of the C library's headers, a name and a number in each line.
fn calls(folder: &Folder) -> std::path::PathBuf {
    let header = finish(Command::new("sh").args(["-c", "echo '#include <asm/unistd.h>' | cc -E -dM -"]));
    let line = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some(format!("{name} {}\n", number.trim().parse::<u32>().ok()?))
    };
    let lines: String = header.stdout.lines().filter_map(line).collect();
    assert!(lines.lines().count() > 250, "{header:#?}");
    folder.write("calls", lines)
}

/// Returns the lines of the states of a connection, by the system's header, and of the kinds of process ids.
fn states() -> [String; 12] {
    let header = finish(Command::new("sh").args(["-c", "echo '#include <netinet/tcp.h>' | cc -E -"]));
    let states = header.stdout.split_once("TCP_ESTABLISHED = 1,").expect("the header has them").1;
    let states: Vec<&str> = states.split_once('}').expect("C").0.split(',').map(str::trim).collect();
    // Source: include/linux/pid_types.h, v6.18.
    let kinds = ["PIDTYPE_TGID", "PIDTYPE_PGID", "PIDTYPE_SID", "PIDTYPE_MAX"];
    std::array::from_fn(|at| {
        let number = (at + 1) * (at + 1);
        let state = match number {
            1 => "TCP_ESTABLISHED".to_owned(),
            4 | 9 => states[number - 2].to_owned(),
            _ => number.to_string(),
        };
        let kind = kinds.get(at).map_or_else(|| (at + 1).to_string(), |kind| (*kind).to_owned());
        format!("state {state} {kind}")
    })
}

/// Returns the lines after the line `start`, up to the line `end`.
fn between<'o>(outcome: &'o Outcome, start: &str, end: &str) -> Vec<&'o str> {
    let lines = outcome.stdout.lines().skip_while(|line| *line != start).skip(1);
    lines.take_while(|line| *line != end).collect()
}

#[test]
fn root_addresses_and_names_are_those_of_python_in_both_halves() {
    let folder = Folder::new();
    let outcome = run_script("texts", include_str!("scripts/display_texts.ks"), NO_ARGUMENTS);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let kernel = between(&outcome, "kernel", "userspace");
    let userspace = between(&outcome, "userspace", "");
    assert_eq!(kernel, userspace);
    assert_eq!(kernel.len(), 64 + 600 + 12 + 4);

    let raw = outcome.stdout.lines().take_while(|line| *line != "kernel").collect::<Vec<_>>().join("\n");
    let input = folder.write("raw", raw);
    let python = finish(Command::new("python3").args(["-c", PYTHON]).arg(calls(&folder)).arg(input));
    assert_eq!((python.code, python.stderr.as_str()), (0, ""), "{python:#?}");
    for (own, other) in kernel.iter().zip(python.stdout.lines()) {
        let [own, other] = [*own, other].map(|line| line.split(' ').collect::<Vec<_>>());
        for (at, (own, other)) in own.iter().zip(&other).enumerate() {
            // The headers and Python may be older than the tables. Python knows neither errnos that the kernel keeps
            // to itself nor, but the first and the last, signals for applications.
            let may_be_unknown = match (at, other.parse::<u32>()) {
                (2, Ok(number)) => {
                    own.parse::<u32>().is_err() && (335..=336).contains(&number) || number > 400
                }
                (3, Ok(number)) => number >= 133,
                (4, Ok(number)) => (35..=63).contains(&number),
                _ => (*own, *other) == ("SIGRTMIN+30", "SIGRTMAX"),
            };
            assert!(other.split('|').any(|other| own == &other) || may_be_unknown, "{own} is not {other}");
        }
    }
    assert_eq!(kernel[64 + 600 + 1..][..12], states());
    assert_eq!(kernel[64 + 21].rsplit(' ').next(), Some("CAP_SYS_ADMIN"));
    assert_eq!(kernel[64 + 600..][..1], ["others ENOENT 192.168.1.7 2001:db8::1"]);
    assert_eq!(
        kernel[64 + 600 + 1 + 12..],
        [
            "units 1023 B 1.5 KiB 20.0 ms",
            &format!(
                "padded |0.0.0.0         |           EPERM|{}|",
                &kernel[0].rsplit(' ').next().expect("a word")[..4]
            ),
            "deferred EPERM 192.168.1.7",
        ]
    );
}

#[test]
fn root_times_of_day_are_those_of_date_in_both_halves() {
    let folder = Folder::new();
    let file = folder.write("times.wasm", compile("times", include_str!("scripts/display_times.ks")).plugin);
    for zone in ["UTC", "Asia/Kolkata", "America/St_Johns", "EST5"] {
        let outcome = finish(allowed().env("TZ", zone).arg(&file));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
        let clock = |id| Duration::from(nix::time::clock_gettime(id).expect("it is there"));
        let offset = clock(nix::time::ClockId::CLOCK_REALTIME) - clock(nix::time::ClockId::CLOCK_MONOTONIC);
        for half in ["kernel", "userspace"] {
            let row = outcome.row(half);
            let time = Duration::from_nanos(row[1].parse().expect("a number")) + offset;
            // The clocks are read one after the other.
            let near = [time - Duration::from_millis(50), time + Duration::from_millis(50)].map(|time| {
                let at = format!("@{}", time.as_secs());
                let date =
                    finish(Command::new("date").env("TZ", zone).args(["-d", &at, "+%Y-%m-%d %H:%M:%S %z"]));
                date.stdout.trim_end().to_owned()
            });
            assert!(near.contains(&row[2..].join(" ")), "{row:?} is not in {near:?}");
        }
        let digits = outcome.row("digits");
        assert!(digits[1].len() == 6 && digits[2].len() == 9 && digits[3] == "%", "{digits:?}");
    }
}

/// Writes the address of a function of its own to no file, which fails, and ends.
const CALLER: &str = "#include <stdlib.h>\n#include <unistd.h>\n\
    __attribute__((noinline)) int wanted(int n) { return n + 1; }\n\
    int main(int argc, char **argv) { return write(-1, (char *)wanted + 2, atol(argv[1])) == wanted(-2) ? 0 : 1; }\n";

fn kallsyms(name: &str) -> u64 {
    let listed = std::fs::read_to_string("/proc/kallsyms").expect("procfs is mounted");
    let row = listed
        .lines()
        .find(|line| line.split_whitespace().nth(2) == Some(name))
        .expect("every kernel has it");
    u64::from_str_radix(row.split_whitespace().next().expect("an address"), 16).expect("a number")
}

fn built(folder: &Folder) -> std::path::PathBuf {
    let source = folder.write("caller.c", CALLER);
    let program = Path::new(&source).with_extension("");
    let outcome = finish(Command::new("cc").arg("-O1").arg("-o").arg(&program).arg(&source));
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    program
}

/// Names functions of the kernel and of a program that a command runs twice, one after the other, while the plugin waits
/// for calls with this count and the next one.
fn functions_named(mut host: Command, address: u64, count: u32) -> Outcome {
    let folder = Folder::new();
    let caller = built(&folder);
    let script = include_str!("scripts/display_functions.ks");
    let arguments = [format!("--kernel={address:#x}"), format!("--count={count}")];
    host.args(["--timeout", "60"]);
    let running = Running::begin(host, "functions", script, &arguments, "ready");
    for count in [count, count + 1] {
        assert!(Command::new(&caller).arg(count.to_string()).status().expect("it starts").success());
    }
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    outcome
}

#[test]
fn root_functions_have_names_also_of_processes_that_have_ended() {
    let outcome = functions_named(allowed(), kallsyms("schedule") + 5, 987_654);
    assert_eq!(outcome.stderr, "", "{outcome:#?}");
    let mut lines: Vec<&str> = outcome.stdout.lines().skip(1).collect();
    lines.sort();
    let none = "none 0x1000 0x1000";
    let named = ["ended kernel wanted", "ended userspace wanted", "kernel schedule", none, none];
    assert_eq!(lines, [&named[..], &["offset schedule+0x5", "userspace schedule"]].concat());
}

/// What the policy denies has no name, and one line says so.
#[test]
fn root_functions_have_names_only_if_the_policy_allows_it() {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", "[allow]\nimport = [\"*\"]\ntracepoint = [\"*\"]\n");
    let address = kallsyms("schedule");
    let mut host = ks_tests::command("ks-host");
    host.arg("--policy").arg(policy);
    let outcome = functions_named(host, address, 987_664);
    assert!(outcome.stderr.contains("symbols"), "{outcome:#?}");
    assert_eq!(outcome.row("kernel")[1], format!("{address:#x}"));
    assert!(outcome.row("ended")[2].starts_with("0x"), "{outcome:#?}");
}

#[test]
fn root_the_kernel_half_prints_any_number_of_values() {
    let outcome = run_script("many", include_str!("scripts/display_many.ks"), NO_ARGUMENTS);
    let expected: Vec<String> = (0..40).map(|at| (1001 * at).to_string()).collect();
    assert_eq!((outcome.code, outcome.stdout.trim_end()), (0, expected.join(" ").as_str()), "{outcome:#?}");
}

#[test]
fn root_the_values_of_a_print_in_the_kernel_half_have_64_kib_at_most() {
    let script = |bytes: usize| {
        format!(
            "var text : u8[{bytes}]\nvar is_done : u32 = 0\nvar memory : u8[131072]\n@perf_event\nfn \
             watch(ctx: *bpf_perf_event_data) -> i32 {{\n    if (is_done == 0) {{\n        is_done = 1\n        \
             print(\"%s\", text)\n    }}\n    return 0\n}}\nfn main() -> i32 {{\n    for (i in 0..{bytes}) {{\n        \
             text[i] = 120\n    }}\n    attach(load(watch), perf_options {{ event: page_faults, pid: 0, cpu: \
             -1, period: 1 }}, 0)\n    memory[8192] = 1\n    memory[81920] = 1\n    return 0\n}}\n"
        )
    };
    let longest = (64 << 10) - 16;
    let outcome = run_script("longest", &script(longest), NO_ARGUMENTS);
    assert_eq!((outcome.code, outcome.stdout.trim_end().len()), (0, longest), "{}", outcome.stderr);
    let Err(error) = ks_tests::try_compile("longer", &script(longest + 1)) else { panic!("it is too long") };
    assert!(error.contains("KS0425") && error.contains("the limit is 65528"), "{error}");
}

/// Addresses that the kernel's tracepoint has as arrays, of connections that the test makes.
#[test]
fn root_addresses_of_connections_are_those_that_were_connected() {
    let running = Running::start("connections", include_str!("scripts/display_connections.ks"), NO_ARGUMENTS);
    let connect = |address: &str| {
        let listener = std::net::TcpListener::bind((address, 0)).ok()?;
        let port = listener.local_addr().expect("it is bound").port();
        std::net::TcpStream::connect((address, port)).expect("somebody listens");
        Some(format!("{address} {port}"))
    };
    // A machine may be without IPv6.
    let connected: Vec<String> = ["127.0.0.1", "127.8.9.10", "::1"].into_iter().filter_map(connect).collect();
    // Records are taken as they come; the machine may be busy.
    std::thread::sleep(Duration::from_secs(1));
    let outcome = running.stop();
    assert!(outcome.code == 0 && connected.len() >= 2, "{outcome:#?}");
    for one in connected {
        assert!(outcome.stdout.lines().any(|line| line == one), "{one}: {outcome:#?}");
    }
}

/// Names that only the kernel half prints are no import.
#[test]
fn root_the_written_policy_has_the_names_that_the_kernel_half_prints() {
    let folder = Folder::new();
    let script = "@raw_tracepoint(\"sys_enter\")\nfn seen(regs: *pt_regs, id: i64) -> i32 {\n    print(\"%s\", \
                  ksym(regs->ip))\n    return 0\n}\nfn main() -> i32 {\n    attach(load(seen), \"\", 0)\n    \
                  return 0\n}\n";
    let named = folder.write("named.wasm", compile("named", script).plugin);
    let unnamed = script.replace("ksym(regs->ip)", "errno_name(id)");
    let unnamed = folder.write("unnamed.wasm", compile("unnamed", &unnamed).plugin);
    let [named, unnamed] = [named, unnamed]
        .map(|plugin| finish(ks_tests::command("ks-host").args(["inspect", "--policy"]).arg(plugin)).stdout);
    assert!(named.contains("symbols = [\"*\"]") && !unnamed.contains("symbols"), "{named}\n{unnamed}");
}
