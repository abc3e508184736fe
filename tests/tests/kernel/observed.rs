//! Hostile observed processes: their mappings, the perf maps and debug files that they write, and their
//! names. All of them belong to another user without rights. Needs root, a C compiler and an assembler.

use std::ffi::CString;
use std::fs;
use std::io::{BufRead as _, BufReader, BufWriter, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ks_tests::{Folder, Outcome, command, finish, repository, run_script, wait_until};
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The id of a user that owns nothing.
const NOBODY: u32 = 65534;

/// Limit of the resident memory of the host and its naming process, in KiB, for any input.
const MOST_KIB: i64 = 1300 << 10;

/// Endless loops in named functions.
const LOOP: &str = "
volatile unsigned long x;
__attribute__((noinline)) void hot(void) { for (int i = 0; i < 1000000; i++) x++; }
int main(void) { for (;;) hot(); }
";

/// A just-in-time compiler's perf map, as an attacker would write it.
const JIT: &str = include_str!("observed/jit.c");

fn build(command: &mut Command) {
    let outcome = finish(command);
    assert_eq!(outcome.code, 0, "{outcome:#?}");
}

/// Compiles a C program.
fn c_program(folder: &Folder, name: &str, text: &str, flags: &[&str]) -> PathBuf {
    let source = folder.write(&format!("{name}.c"), text);
    let built = folder.path(name);
    build(
        Command::new("cc")
            .args(["-O1", "-fno-omit-frame-pointer"])
            .args(flags)
            .arg("-o")
            .arg(&built)
            .arg(source),
    );
    built
}

/// Assembles a program without libraries.
fn assembled(folder: &Folder, name: &str, text: &str) -> PathBuf {
    let source = folder.write(&format!("{name}.s"), text);
    let built = folder.path(name);
    build(Command::new("cc").args(["-nostdlib", "-static", "-o"]).arg(&built).arg(source));
    built
}

/// A process of another user, killed when dropped, with the files that it left in /tmp.
struct Victim(Child);

impl Victim {
    fn start(program: &Path, arguments: &[&str]) -> Victim {
        let mut command = Command::new(program);
        command.args(arguments).uid(NOBODY).gid(NOBODY).process_group(0);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
        Victim(child.expect("it was just built"))
    }

    /// Starts a program and waits until it prints that its setup is done.
    fn ready(program: &Path, arguments: &[&str]) -> Victim {
        let mut command = Command::new(program);
        command.args(arguments).uid(NOBODY).gid(NOBODY).process_group(0).stdout(Stdio::piped());
        let mut child = command.stdin(Stdio::null()).spawn().expect("it was just built");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        let victim = Victim(child);
        assert_eq!(line, "ready\n");
        victim
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let id = self.0.id();
        // The process and its children; it may already have ended.
        let _ = nix::sys::signal::killpg(Pid::from_raw(id as i32), Signal::SIGKILL);
        let _ = self.0.wait();
        let _ = fs::remove_file(format!("/tmp/perf-{id}.map"));
    }
}

/// Returns the profiler for one process.
fn profiler(stacks: &str, pid: u32) -> Command {
    let mut host = command("ks-host");
    host.args(["--no-cache", "--stacks", stacks]).arg(repository().join("examples/perf/profile.ks"));
    host.args(["--", &format!("--pid={pid}"), "--seconds=1"]);
    host
}

/// Profiles a process. Whatever the process does, the run completes in bounded memory, and its output cannot
/// control a terminal.
fn profile(stacks: &str, victim: &Victim) -> Outcome {
    let outcome = finish(&mut profiler(stacks, victim.id()));
    assert_eq!((outcome.code, outcome.signal), (0, None), "{outcome:#?}");
    assert!(outcome.most_memory_kib.is_some_and(|most| most < MOST_KIB), "{:?}", outcome.most_memory_kib);
    let letters = outcome.stdout.chars().chain(outcome.stderr.chars());
    assert!(letters.filter(|letter| *letter != '\n').all(|letter| !letter.is_control()), "{outcome:#?}");
    assert!(outcome.stderr.lines().all(|line| line.len() < 1200), "{outcome:#?}");
    outcome
}

/// Returns the messages about the process. Other processes may map more than is recorded, and stacks may
/// collide.
fn unexpected_lines(outcome: &Outcome) -> Vec<&str> {
    let may_be = ["mappings of ", "collided with others", "was throttled", "deeper than the kernel keeps"];
    outcome.stderr.lines().filter(|line| !may_be.iter().any(|text| line.contains(text))).collect()
}

/// An ELF file whose bytes a test changes.
struct Elf {
    bytes: Vec<u8>,
}

impl Elf {
    fn read(path: &Path) -> Elf {
        Elf { bytes: fs::read(path).expect("it was just built") }
    }

    fn number(&self, at: usize, len: usize) -> u64 {
        let mut value = [0; 8];
        value[..len].copy_from_slice(&self.bytes[at..at + len]);
        u64::from_le_bytes(value)
    }

    fn put(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// Returns the offset of a section's header.
    fn header(&self, name: &str) -> usize {
        let table = self.number(0x28, 8) as usize;
        let count = self.number(0x3c, 2) as usize;
        let names = table + self.number(0x3e, 2) as usize * 64;
        let names = self.number(names + 24, 8) as usize;
        let is_it = |header: &usize| {
            let at = names + self.number(*header, 4) as usize;
            self.bytes[at..].starts_with(&[name.as_bytes(), b"\0"].concat())
        };
        (0..count).map(|index| table + index * 64).find(is_it).unwrap_or_else(|| panic!("no section {name}"))
    }

    fn write(&self, folder: &Folder, name: &str) -> PathBuf {
        let path = folder.write(name, &self.bytes);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        path
    }
}

/// F1: a compressed section that claims nearly 2^63 bytes.
#[test]
fn root_a_section_that_lies_about_its_size_costs_the_lines_only() {
    let folder = Folder::new();
    let built = c_program(&folder, "zlib", LOOP, &["-g", "-gz=zlib"]);
    for (name, size) in [("huge", 0x7fff_ffff_ffff_ffff_u64), ("large", 1 << 40), ("some", 1 << 28)] {
        let mut elf = Elf::read(&built);
        let section = elf.number(elf.header(".debug_info") + 24, 8) as usize;
        elf.put(section + 8, size);
        let victim = Victim::start(&elf.write(&folder, name), &[]);
        let outcome = profile("folded", &victim);
        assert!(outcome.stdout.contains(";hot "), "{name}: {outcome:#?}");
    }
}

/// Parts of hand-written debug information.
#[derive(Default)]
struct Dwarf {
    /// Number of inlined functions inside each other.
    nest: usize,
    /// Number of functions that share a list of ranges.
    functions: usize,
    /// Number of ranges in that list.
    ranges: usize,
    /// Whether a line belongs to a source file that does not exist.
    bad_file: bool,
}

/// Returns an endless loop with this debug information.
fn with_dwarf(Dwarf { nest, functions, ranges, bad_file }: Dwarf) -> String {
    let many = ".uleb128 4\n.long .Lranges\n".repeat(functions);
    let bad = if bad_file { ".byte 4; .uleb128 1000\n" } else { "" };
    format!(
        r#".text
.globl _start
.type _start,@function
_start: inc %rax
 inc %rbx
 jmp _start
.size _start, .-_start
.Lend: nop
.section .debug_abbrev,"",@progbits
.uleb128 1; .uleb128 0x11; .byte 1; .uleb128 0x11,0x01, 0x12,0x06, 0x10,0x17, 0x1b,0x08, 0x03,0x08, 0,0
.uleb128 2; .uleb128 0x2e; .byte 1; .uleb128 0x03,0x08, 0x11,0x01, 0x12,0x06, 0,0
.uleb128 3; .uleb128 0x1d; .byte 1; .uleb128 0,0
.uleb128 4; .uleb128 0x2e; .byte 0; .uleb128 0x55,0x17, 0,0
.byte 0
.section .debug_info,"",@progbits
.long .Lie-.Lis
.Lis: .value 4
.long .debug_abbrev
.byte 8
.uleb128 1
.quad _start
.long .Lend-_start
.long .Lline
.asciz "/d"
.asciz "f.c"
.uleb128 2
.asciz "_start"
.quad _start
.long .Lend-_start
.fill {nest},1,3
.fill {nest},1,0
.byte 0
{many}.byte 0
.Lie:
.section .debug_ranges,"",@progbits
.Lranges:
.rept {ranges}
.quad 0,1
.endr
.quad 0,0
.section .debug_line,"",@progbits
.Lline: .long .Lle-.Lls
.Lls: .value 4
.long .Lhe-.Lhs
.Lhs: .byte 1,1,1,-5,14,13
.byte 0,1,1,1,1,0,0,0,1,0,0,1
.byte 0
.asciz "f.c"
.uleb128 0,0,0
.byte 0
.Lhe:
.byte 0; .uleb128 9; .byte 2; .quad _start
{bad}.byte 1
.byte 2; .uleb128 16
.byte 0,1,1
.Lle:
"#
    )
}

/// F5 to F7: debug information that crashes a reader, or never ends.
#[test]
fn root_bad_debug_information_costs_the_lines_only() {
    let folder = Folder::new();
    let cases = [
        ("file", with_dwarf(Dwarf { bad_file: true, ..Dwarf::default() })),
        ("nested", with_dwarf(Dwarf { nest: 200_000, ..Dwarf::default() })),
        ("ranges", with_dwarf(Dwarf { functions: 20_000, ranges: 20_000, ..Dwarf::default() })),
    ];
    for (name, text) in cases {
        let victim = Victim::start(&assembled(&folder, name, &text), &[]);
        let outcome = profile("folded", &victim);
        assert!(outcome.stdout.contains("_start"), "{name}: {outcome:#?}");
        assert!(unexpected_lines(&outcome).len() <= 1, "{name}: {outcome:#?}");
    }
}

/// F15: each level of the name doubles the length of its demangled form.
#[test]
fn root_a_name_that_demangles_exponentially_is_printed_as_it_is() {
    let folder = Folder::new();
    let digits = |number: u32| char::from_digit(number, 36).expect("small").to_ascii_uppercase();
    let parts: String = (0..24).map(|level| format!("S_IS{0}_S{0}_E", digits(level))).collect();
    let name = format!("_Z1f1AIiE{parts}");
    // A path of many addresses.
    let text = format!(
        ".text\n.globl _start\n.globl {name}\n.type {name},@function\n_start:\n{name}: .fill 20000,1,0x90\n \
         jmp _start\n\
         .size {name}, .-_start\n"
    );
    let built = assembled(&folder, "mangled", &text);
    build(Command::new("strip").args(["-N", "_start"]).arg(&built));
    let victim = Victim::start(&built, &[]);
    let outcome = profile("folded", &victim);
    assert!(outcome.stdout.contains(&name) && outcome.stdout.len() < 1 << 20, "{outcome:#?}");
    // The same for a plugin that resolves names while it runs, on a thread that may not open other users'
    // files.
    let start = Elf::read(&built).number(0x18, 8);
    let arguments = ["--kernel=1".into(), format!("--task={}", victim.id()), format!("--own={start:#x}")];
    let outcome = run_script("symbols", include_str!("scripts/symbols.ks"), &arguments);
    // The script keeps the first 127 bytes of a text.
    let printed = outcome.row("task")[1];
    assert!(outcome.code == 0 && printed.len() > 100 && name.starts_with(printed), "{outcome:#?}");
}

/// F17 and F18: a program's link to its debug file reaches no other file, and waits for nothing.
#[test]
fn root_a_debug_link_is_a_plain_name_in_a_folder_of_root() {
    let folder = Folder::new();
    let built = c_program(&folder, "plain", LOOP, &["-Wl,--build-id=none"]);
    let fifo = folder.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o666)).expect("it is ours");
    let sparse = folder.path("sparse");
    fs::copy(&built, &sparse).expect("there is room");
    let grown = fs::OpenOptions::new().write(true).open(&sparse).and_then(|file| file.set_len(40 << 30));
    grown.expect("it is sparse");
    let links = [
        fifo.display().to_string(),
        format!("../../../../../../..{}", fifo.display()),
        "fifo".into(),
        "sparse".into(),
        sparse.display().to_string(),
    ];
    for (index, link) in links.iter().enumerate() {
        let mut section = link.clone().into_bytes();
        section.resize(section.len() / 4 * 4 + 8, 0);
        let section = folder.write("link", section);
        let linked = folder.path(format!("linked{index}"));
        let add = format!(".gnu_debuglink={}", section.display());
        build(Command::new("objcopy").args(["--add-section", &add]).arg(&built).arg(&linked));
        let outcome = profile("folded", &Victim::start(&linked, &[]));
        assert!(
            outcome.stdout.contains(";hot ") && unexpected_lines(&outcome).is_empty(),
            "{link}: {outcome:#?}"
        );
    }
}

/// F19: a symbol table in the hole of a sparse file.
#[test]
fn root_a_sparse_symbol_table_is_not_read() {
    let folder = Folder::new();
    let built = c_program(&folder, "symbols", LOOP, &[]);
    for (name, symbols) in [("many", 400_000_000_u64), ("some", 40_000_000)] {
        let mut elf = Elf::read(&built);
        let header = elf.header(".symtab");
        let start = (elf.bytes.len() as u64).next_multiple_of(4096);
        elf.put(header + 24, start);
        elf.put(header + 32, symbols * 24);
        let path = elf.write(&folder, name);
        let grown = fs::OpenOptions::new().write(true).open(&path);
        grown.and_then(|file| file.set_len(start + symbols * 24)).expect("it is sparse");
        let outcome = profile("folded", &Victim::start(&path, &[]));
        assert!(outcome.stdout.contains(&format!("{name}+0x")), "{name}: {outcome:#?}");
    }
}

/// Ten million functions have names, including the function that is called last.
#[test]
fn root_a_program_of_many_symbols_has_names() {
    let folder = Folder::new();
    let built = c_program(&folder, "few", LOOP, &[]);
    let mut elf = Elf::read(&built);
    let header = elf.header(".symtab");
    let (from, size) = (elf.number(header + 24, 8) as usize, elf.number(header + 32, 8) as usize);
    let table = elf.bytes[from..from + size].to_vec();
    let number = 10_000_000_u64;
    let start = elf.bytes.len() as u64;
    elf.put(header + 24, start);
    elf.put(header + 32, table.len() as u64 + number * 24);
    let path = elf.write(&folder, "many");
    let mut file = BufWriter::new(fs::OpenOptions::new().append(true).open(&path).expect("it is ours"));
    file.write_all(&table).expect("there is room");
    for number in 0..number {
        // A symbol of one byte at another address, with any name.
        let mut symbol = [0; 24];
        (symbol[0], symbol[4], symbol[6], symbol[16]) = (1, 2, 1, 1);
        symbol[8..16].copy_from_slice(&(0x10_0000_0000 + number * 2).to_le_bytes());
        file.write_all(&symbol).expect("there is room");
    }
    drop(file);
    let victim = Victim::start(&path, &[]);
    let mut outcome = profile("folded", &victim);
    // Concurrent tests may slow the reading beyond the naming process's time limit.
    for _ in 0..2 {
        if !outcome.stderr.contains("the naming process took longer than 10 s") {
            break;
        }
        outcome = profile("folded", &victim);
    }
    assert!(outcome.stdout.contains(";hot ") && unexpected_lines(&outcome).is_empty(), "{outcome:#?}");
}

/// A setting of the kernel that is raised for a test, and has its former value afterwards.
struct Raised {
    path: &'static str,
    before: String,
}

impl Raised {
    fn to(path: &'static str, least: u64) -> Raised {
        let before = fs::read_to_string(path).expect("the kernel has the setting");
        if before.trim().parse::<u64>().expect("a number") < least {
            fs::write(path, least.to_string()).expect("root may raise it");
        }
        Raised { path, before }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        fs::write(self.path, &self.before).expect("root may lower it");
    }
}

/// One after the other: the end of so many threads keeps a CPU for a while.
#[test]
fn root_a_process_of_many_mappings_or_threads_has_names() {
    let _mappings = Raised::to("/proc/sys/vm/max_map_count", 110_000);
    let _threads = Raised::to("/proc/sys/kernel/threads-max", 200_000);
    let _numbers = Raised::to("/proc/sys/kernel/pid_max", 200_000);
    let folder = Folder::new();
    let built = c_program(&folder, "many", include_str!("observed/many.c"), &[]);
    let has_names = |victim: &Victim| {
        let outcome = profile("folded", victim);
        assert!(outcome.stdout.contains(";hot ") && unexpected_lines(&outcome).is_empty(), "{outcome:#?}");
    };
    has_names(&Victim::ready(&built, &["mappings", "100000"]));
    let victim = Victim::ready(&built, &["threads", "65000"]);
    has_names(&victim);
    // An event for each of its threads is above what a plugin may have open, and that is said before any is.
    let follows = format!(
        "fn main() -> i32 {{\n    var all = attach(perf_options {{ event: page_faults, pid: {}, follow: true }})\n    \
         print(\"{{}}\", all == null)\n    return 0\n}}\n",
        victim.id()
    );
    let script = folder.write("follows.ks", &follows);
    let mut host = command("ks-host");
    let outcome = finish(host.args(["--no-cache", "--limit", "descriptors=60000"]).arg(script));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "true\n"), "{outcome:#?}");
    assert!(outcome.stderr.contains("the limit `descriptors` of the plugin is "), "{outcome:#?}");
    let listed = finish(command("ks-host").arg("ps"));
    assert_eq!(listed.code, 0, "{listed:#?}");
}

/// Starts a program that runs generated code and writes a perf map of this kind for it.
fn jit(folder: &Folder, arguments: &[&str]) -> Victim {
    let built = folder.path("jit");
    if !built.exists() {
        c_program(folder, "jit", JIT, &[]);
    }
    Victim::ready(&built, arguments)
}

#[test]
fn root_a_perf_map_names_generated_code() {
    let folder = Folder::new();
    let outcome = profile("folded", &jit(&folder, &["name", "made up"]));
    assert!(outcome.stdout.contains(";made up ") && unexpected_lines(&outcome).is_empty(), "{outcome:#?}");
    // The same in shared memory, whose path is not a file (F20).
    let outcome = profile("folded", &jit(&folder, &["shared", "in shared memory"]));
    assert!(outcome.stdout.contains(";in shared memory "), "{outcome:#?}");
    assert!(outcome.stdout.contains("main"), "the rest of the process has its names: {outcome:#?}");
}

/// F2, F16 and the cases of the review: files that are not a perf map of the process, or are replaced.
#[test]
fn root_foreign_perf_maps_are_not_read() {
    let folder = Folder::new();
    // A list of functions that root wrote for another purpose.
    let secret = folder.write("secret", "0 ffffffffffffffff secret\n");
    let secret = secret.display().to_string();
    for arguments in
        [&["fifo"][..], &["sparse"], &["link", &secret], &["hardlink", &secret], &["socket"], &["device"]]
    {
        let victim = jit(&folder, arguments);
        let outcome = profile("folded", &victim);
        assert!(outcome.stdout.contains("[unknown]"), "{arguments:?}: {outcome:#?}");
        let all = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!all.contains("secret\n") && !all.contains("secret 1"), "{arguments:?}: {outcome:#?}");
        assert!(unexpected_lines(&outcome).len() <= 1, "{arguments:?}: {outcome:#?}");
    }
}

/// F2 to F4: truncated, changed and touched while it is read.
#[test]
fn root_a_perf_map_that_changes_costs_names_only() {
    let folder = Folder::new();
    for arguments in [["truncated", "1000000"], ["changed", "1000000"], ["touched", "1000000"]] {
        let outcome = profile("folded", &jit(&folder, &arguments));
        assert!(outcome.most_memory_kib.is_some_and(|most| most < 400 << 10), "{arguments:?}: {outcome:#?}");
    }
}

/// F10 to F12: names that control a terminal, break a picture, imitate others, or are endless.
#[test]
fn root_names_of_a_process_can_be_printed() {
    let folder = Folder::new();
    let name = "e\u{1b}]0;owned\u{7}\u{1b}[2Jx\u{202e}\u{2028}\u{ffff}\u{85}";
    let outcome = profile("folded", &jit(&folder, &["name", name]));
    assert!(
        outcome.stdout.contains("e\\u{1b}]0:owned\\u{7}\\u{1b}[2Jx\\u{202e}\\u{2028}\\u{ffff}\\u{85}"),
        "{outcome:#?}"
    );
    let picture = profile("flame", &jit(&folder, &["name", name]));
    assert!(picture.stdout.contains("\\u{ffff}") && !picture.stdout.contains('\u{ffff}'), "{picture:#?}");
    let outcome = profile("folded", &jit(&folder, &["name", "do_syscall_64_[k]"]));
    assert!(outcome.stdout.contains(";do_syscall_64_\\[k] "), "{outcome:#?}");
    // A malformed line with terminal control characters is not printed.
    let outcome = profile("folded", &jit(&folder, &["line", "zz\u{1b}[2J"]));
    assert!(unexpected_lines(&outcome).is_empty() && outcome.stdout.contains("[unknown]"), "{outcome:#?}");
    // A name of a megabyte in each of 127 stack frames.
    let deep = profile("folded", &jit(&folder, &["deep", "1000000"]));
    assert!(deep.stdout.lines().any(|line| line.contains("JJJJ")), "no names");
    assert!(deep.stdout.lines().all(|line| line.len() < 64 << 10), "a line is too long");
}

/// F8: a deleted file, and a FIFO under its name.
#[test]
fn root_a_fifo_instead_of_a_file_is_not_opened() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let library = c_program(
        &folder,
        "code.so",
        "void code(long n) { while (n--) __asm__ volatile(\"\"); }",
        &["-shared", "-fPIC"],
    );
    let nm = finish(Command::new("nm").arg("-D").arg(&library));
    let code = nm.stdout.lines().find(|line| line.ends_with(" T code")).expect("it is exported");
    let offset = format!("0x{}", &code[..16]);
    let built = c_program(&folder, "swaps", include_str!("observed/swaps.c"), &[]);
    let library = library.display().to_string();
    for how in ["ends", "stays"] {
        let copy = format!("{library}.{how}");
        fs::copy(&library, &copy).expect("there is room");
        let victim = Victim::start(&built, &[&copy, how, &offset]);
        let outcome = finish(profiler("folded", victim.id()).arg("--seconds=3"));
        assert_eq!((outcome.code, outcome.signal), (0, None), "{how}: {outcome:#?}");
        assert!(outcome.stdout.contains(&format!("code.so.{how}")), "{how}: {outcome:#?}");
    }
}

/// Returns a file that can be read as soon as somebody opens the file at this path.
#[expect(unsafe_code, reason = "inotify(7)")]
fn opened_from_now(path: &str) -> fs::File {
    let path = CString::new(path).expect("no zero in it");
    // SAFETY: no pointers.
    let watch = Errno::result(unsafe { libc::inotify_init1(libc::IN_NONBLOCK) }).expect("the kernel has it");
    // SAFETY: the kernel has just created this descriptor; nothing else knows it yet.
    let watch = unsafe { OwnedFd::from_raw_fd(watch) };
    // SAFETY: the path ends with a zero and lives until the call returns.
    let added = unsafe { libc::inotify_add_watch(watch.as_raw_fd(), path.as_ptr(), libc::IN_OPEN) };
    Errno::result(added).expect("the file is there");
    watch.into()
}

/// A file of the kernel itself, bound over the name of the code in namespaces of the process: opening such files
/// has effects, and the process may not open all of them.
#[test]
fn root_a_file_of_the_kernel_instead_of_a_file_is_not_opened() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let code = "void code(long n) { while (n--) __asm__ volatile(\"\"); }";
    let library = c_program(&folder, "code.so", code, &["-shared", "-fPIC"]);
    let nm = finish(Command::new("nm").arg("-D").arg(&library));
    let code = nm.stdout.lines().find(|line| line.ends_with(" T code")).expect("it is exported");
    let offset = format!("0x{}", &code[..16]);
    let built = c_program(&folder, "swaps", include_str!("observed/swaps.c"), &[]);
    // Regular files for fstat(2), which nothing else opens meanwhile, other hosts neither.
    for file in ["/sys/kernel/fscaps", "/proc/sys/kernel/ostype"] {
        let mut opened = opened_from_now(file);
        let victim = Victim::start(&built, &[&library.display().to_string(), "binds", &offset, file]);
        let outcome = finish(profiler("folded", victim.id()).arg("--seconds=3"));
        assert_eq!((outcome.code, outcome.signal), (0, None), "{file}: {outcome:#?}");
        assert!(outcome.stdout.contains("code.so"), "{file}: {outcome:#?}");
        let read = opened.read(&mut [0; 64]);
        assert_eq!(read.expect_err("nobody opens it").kind(), ErrorKind::WouldBlock, "{file}");
    }
}

/// F9: an unobserved process with many mappings of a long path, and its children.
#[test]
fn root_mappings_of_others_take_bounded_memory() {
    let folder = Folder::new();
    fs::set_permissions(folder.path(""), fs::Permissions::from_mode(0o777)).expect("it is ours");
    let spins = c_program(&folder, "spins", LOOP, &[]);
    let forks = c_program(&folder, "forks", include_str!("observed/forks.c"), &[]);
    let deep = folder.path("").display().to_string();
    let others: Vec<Victim> = (0..6).map(|_| Victim::ready(&forks, &[&deep, "20000"])).collect();
    let victim = Victim::start(&spins, &[]);
    let outcome = profile("folded", &victim);
    assert!(outcome.stdout.contains(";hot "), "{outcome:#?}");
    assert!(outcome.most_memory_kib.is_some_and(|most| most < 400 << 10), "{:?}", outcome.most_memory_kib);
    drop(others);
}

/// Starts a process whose functions take long to name.
fn slow(folder: &Folder) -> Victim {
    let dwarf = Dwarf { functions: 20_000, ranges: 20_000, ..Dwarf::default() };
    Victim::start(&assembled(folder, "slow", &with_dwarf(dwarf)), &[])
}

/// Waits until a host has started its naming process; returns that process's id.
fn naming_process_of(host: &mut Child) -> u32 {
    let id = host.id();
    let mut found = None;
    wait_until(Duration::from_secs(20), "it names", || {
        assert!(host.try_wait().expect("it is ours").is_none(), "it has ended");
        found = children(id).into_iter().find(|child| is_naming(*child));
        found.is_some()
    });
    found.expect("it was found")
}

/// The second signal ends the command while it names functions, which can take as long as the observed
/// process wants.
#[test]
fn root_the_second_signal_ends_the_naming() {
    let folder = Folder::new();
    let victim = slow(&folder);
    let mut host = profiler("folded", victim.id());
    let mut host = host.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("ks-host starts");
    let child = naming_process_of(&mut host);
    let id = Pid::from_raw(host.id() as i32);
    let mut status = None;
    wait_until(Duration::from_secs(5), "it ends", || {
        // The kernel merges two equal signals while the first is pending.
        kill(id, Signal::SIGTERM).expect("it is ours");
        status = host.try_wait().expect("it is ours");
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(130));
    wait_until(Duration::from_secs(5), "the naming process ends with it", || !is_naming(child));
}

/// Returns the child processes of a process.
fn children(pid: u32) -> Vec<u32> {
    let own = format!("PPid:\t{pid}\n");
    let listed = fs::read_dir("/proc").expect("procfs is mounted").flatten();
    let all = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    all.filter(|one| fs::read_to_string(format!("/proc/{one}/status")).is_ok_and(|text| text.contains(&own)))
        .collect()
}

/// Returns whether a process is a naming process.
fn is_naming(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"--ks-host-naming-process\0"))
}

/// The naming process has no rights when it reads files of others.
#[test]
fn root_the_naming_process_has_no_rights() {
    let folder = Folder::new();
    let victim = slow(&folder);
    let mut host = profiler("folded", victim.id()).stdout(Stdio::null()).spawn().expect("ks-host starts");
    let child = naming_process_of(&mut host);
    let mut status = String::new();
    wait_until(Duration::from_secs(5), "it confines itself", || {
        status = fs::read_to_string(format!("/proc/{child}/status")).expect("it is there");
        status.contains("Seccomp:\t2")
    });
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(line), "{status}");
    }
    let limits = fs::read_to_string(format!("/proc/{child}/limits")).expect("it is there");
    assert!(
        limits.lines().any(|line| line.starts_with("Max data size") && line.contains("1073741824")),
        "{limits}"
    );
    assert!(host.wait().expect("it is ours").success());
}

/// F13: the host does not write through links that the owner of a folder has planted there.
#[test]
fn root_output_files_follow_no_links_and_are_for_this_user() {
    let folder = Folder::new();
    let victim = Victim::start(&c_program(&folder, "spins", LOOP, &[]), &[]);
    let planted = folder.write("planted", "before");
    for form in ["folded", "flame", "pprof", "tree"] {
        let link = folder.path(format!("link.{form}"));
        std::os::unix::fs::symlink(&planted, &link).expect("it is ours");
        let outcome = finish(&mut profiler(&format!("{form}={}", link.display()), victim.id()));
        assert_eq!(outcome.code, 125, "{outcome:#?}");
        assert!(
            outcome.stderr.contains("link") && outcome.stderr.contains("name another file"),
            "{outcome:#?}"
        );
        let file = folder.path(format!("new.{form}"));
        let outcome = finish(&mut profiler(&format!("{form}={}", file.display()), victim.id()));
        assert_eq!(outcome.code, 0, "{outcome:#?}");
        let mode = fs::metadata(&file).expect("it was written").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{form}");
    }
    for option in ["--audit", "--record"] {
        let link = folder.path(format!("link{option}"));
        std::os::unix::fs::symlink(&planted, &link).expect("it is ours");
        let script = repository().join("examples/perf/group.ks");
        let outcome = finish(command("ks-host").arg(option).arg(&link).arg(script));
        assert_eq!(outcome.code, 125, "{outcome:#?}");
        assert!(outcome.stderr.contains("it is a link"), "{outcome:#?}");
    }
    assert_eq!(fs::read_to_string(&planted).expect("it is ours"), "before");
}

/// F21: a thread may set any name for itself.
#[test]
fn root_ps_shows_no_process_that_only_calls_itself_a_plugin() {
    let folder = Folder::new();
    let text = "#include <sys/prctl.h>\n#include <stdio.h>\n#include <unistd.h>\n\
                int main(void) { prctl(PR_SET_NAME, \"ks:evil\\033[31m\"); puts(\"ready\"); \
                fflush(stdout); pause(); }";
    let victim = Victim::ready(&c_program(&folder, "named", text, &[]), &[]);
    let outcome = finish(command("ks-host").args(["ps", "--seconds", "0.01"]));
    let own = format!("process {}", victim.id());
    assert!(
        outcome.code == 0 && !outcome.stdout.contains("evil") && !outcome.stdout.contains(&own),
        "{outcome:#?}"
    );
}
