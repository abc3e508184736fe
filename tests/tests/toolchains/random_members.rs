//! Random members of the running kernel's structs: a script, and a C program that clang builds from the same types
//! (libbpf's `btf_dump`), read them of the same task in the same event and must agree.
//!
//! A member is a path from a `task_struct` through pointers, structs, unions, arrays and bit-fields. Clang takes
//! offsets from its own layout of the types, not from relocations. The C program runs before and after the script's;
//! a member that changed in between is not compared. `cargo test` tries some members with a fixed seed; `make
//! random-members MEMBERS=10000` reads more, and `SEED=7` begins elsewhere.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use ks_compiler::kernel_types::{KernelType, KernelTypes, Member, Pointee};
use ks_compiler_testing::script::rng::Rng;
use ks_tests::{Folder, finish, number, try_compile};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ObjectBuilder, ProgramMut};
use libbpf_sys::{
    __va_list_tag, btf__free, btf__load_vmlinux_btf, btf__type_cnt, btf_dump__dump_type, btf_dump__free,
    btf_dump__new,
};
use nix::libc;

/// Members of a plain test run.
const MEMBERS: u64 = 200;
/// Members that one program reads.
const AT_ONCE: u64 = 40;
/// Maximum number of members on a path.
const MAX_DEPTH: usize = 9;
/// Members that the helpers which read memory change while they read. Source: mm/maccess.c,
/// `copy_from_kernel_nofault`, v6.18.
const CHANGED_BY_READING: [&str; 1] = ["pagefault_disabled"];
/// The struct at the start of each path.
const ROOT: &str = "task_struct";
/// Names of pointers in C that a path has at most.
const C_PROLOGUE: &str = r#"
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
static char whole[1 << 16] __attribute__((aligned(8)));
#define read_bytes(to, bytes, from) do { \
    if ((long)(from) < 0) bpf_probe_read_kernel(to, bytes, (const void *)(from)); \
    else bpf_probe_read_user(to, bytes, (const void *)(from)); \
} while (0)
"#;

/// A path in both languages, and the kinds of members on it.
#[derive(Default)]
struct MemberPath {
    script: String,
    /// Statements that follow pointers to the last one, `p`.
    pointers: String,
    /// What follows the last pointer.
    tail: String,
    is_bitfield: bool,
    kinds: Vec<&'static str>,
}

struct Paths<'a> {
    types: &'a KernelTypes,
    rng: Rng,
}

impl Paths<'_> {
    /// Draws a path that ends at a number or a pointer; none if it ends elsewhere.
    fn path(&mut self) -> Option<MemberPath> {
        let mut path = MemberPath { script: "task".into(), ..MemberPath::default() };
        let mut owner = ROOT.to_owned();
        let mut joint = "->";
        for depth in 0..MAX_DEPTH {
            let structure = self.types.structure(&owner)?;
            if structure.is_union {
                path.kinds.push("union");
            }
            if structure.members.is_empty() {
                return None;
            }
            let member: &Member = self.rng.pick(&structure.members);
            if CHANGED_BY_READING.contains(&member.name.as_str()) {
                return None;
            }
            write!(path.script, "{joint}{}", member.name).expect("a string grows");
            write!(path.tail, "{}{}", if path.tail.is_empty() { "" } else { "." }, member.name)
                .expect("a string grows");
            if member.bitfield.is_some() {
                path.is_bitfield = true;
                path.kinds.push("bit-field");
                return member.ty.scalar().map(|_| path);
            }
            let mut ty = member.ty.clone();
            while let KernelType::Array { element, len } = ty {
                self.element(&mut path, len);
                ty = *element;
            }
            match ty {
                KernelType::Int { bytes: 1 | 2 | 4 | 8, .. } | KernelType::Bool | KernelType::Enum { .. } => {
                    path.kinds.push("number");
                    return Some(path);
                }
                KernelType::Struct { name, .. } | KernelType::Union { name, .. } => {
                    path.kinds.push(if name.contains('.') { "without a name" } else { "struct" });
                    (owner, joint) = (name, ".");
                }
                KernelType::Pointer(Pointee::Struct(name))
                    if depth + 2 < MAX_DEPTH && self.types.has_structure(&name) && !self.rng.one_in(4) =>
                {
                    path.kinds.push("pointer followed");
                    let tail = std::mem::take(&mut path.tail);
                    let word = if self.types.is_union(&name) { "union" } else { "struct" };
                    let word = if self.types.is_typedef(&name) { "" } else { word };
                    let next = format!("p{}", depth + 1);
                    let last = path.last_pointer().to_owned();
                    writeln!(
                        path.pointers,
                        "{word} {name} *{next} = 0; if ({last}) read_bytes(&{next}, 8, &{last}->{tail});"
                    )
                    .expect("a string grows");
                    (owner, joint) = (name, "->");
                }
                KernelType::Pointer(_) => {
                    path.kinds.push("pointer");
                    return Some(path);
                }
                _ => return None,
            }
        }
        None
    }

    /// Adds an index, as a constant or as a variable of that value.
    fn element(&mut self, path: &mut MemberPath, len: u32) {
        let at = self.rng.below(if len == 0 { 2 } else { len as usize });
        write!(path.tail, "[{at}]").expect("a string grows");
        if self.rng.one_in(3) {
            write!(path.script, "[zero + {at}]").expect("a string grows");
        } else {
            write!(path.script, "[{at}]").expect("a string grows");
        }
        path.kinds.push(if len == 0 { "flexible array" } else { "array" });
    }
}

impl MemberPath {
    fn last_pointer(&self) -> &str {
        let last = self.pointers.lines().last().and_then(|line| line.split_once('*'));
        last.map_or("p0", |(_, rest)| rest.split(' ').next().unwrap_or("p0"))
    }

    /// The length of what follows the struct that the last pointer's struct contains; none if it contains none.
    fn embedded(&self) -> Option<usize> {
        let arrow = self.script.rfind("->")?;
        let dot = self.script[arrow..].find('.')?;
        Some(self.script.len() - arrow - dot)
    }

    /// A function of C that returns the value.
    fn function(&self, number: usize) -> String {
        let (last, tail) = (self.last_pointer(), &self.tail);
        let read = if self.is_bitfield {
            // Its struct as a whole: clang extracts the bits.
            let (owner, member) = tail.rsplit_once('.').unwrap_or(("", tail));
            let owner = if owner.is_empty() { format!("*{last}") } else { format!("{last}->{owner}") };
            format!(
                "typeof({owner}) *t = (void *)whole; read_bytes(whole, sizeof(*t), &{owner}); v = \
                 (u64)t->{member};"
            )
        } else {
            // Not into a variable of its type, which may be constant: clang would not read it again.
            format!(
                "u64 bits = 0; read_bytes(&bits, sizeof({last}->{tail}), &{last}->{tail}); v = \
                 (u64)(typeof({last}->{tail}))bits;"
            )
        };
        format!(
            "static __noinline u64 member{number}(struct {ROOT} *p0) {{\nu64 v = 0;\n{}if ({last}) {{ {read} \
             }}\nreturn v;\n}}\n",
            self.pointers
        )
    }
}

fn c_program(paths: &[MemberPath], pid: u32) -> String {
    let mut text = C_PROLOGUE.to_owned();
    let n = paths.len();
    writeln!(
        text,
        "struct {{ __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, {n}); __type(key, u32); __type(value, \
         u64); }} seen SEC(\".maps\");"
    )
    .expect("a string grows");
    for (at, path) in paths.iter().enumerate() {
        text += &path.function(at);
    }
    text += &format!(
        "SEC(\"raw_tracepoint/sched_process_exec\") int watch(struct bpf_raw_tracepoint_args *ctx) {{\nstruct {ROOT} \
         *task = (void *)ctx->args[0];\nu32 pid = 0, key; u64 v;\nbpf_probe_read_kernel(&pid, 4, &task->tgid);\nif \
         (pid != {pid}) return 0;\n"
    );
    for at in 0..n {
        writeln!(text, "key = {at}; v = member{at}(task); bpf_map_update_elem(&seen, &key, &v, 0);")
            .expect("a string grows");
    }
    text + "return 0;\n}\nchar _license[] SEC(\"license\") = \"GPL\";\n"
}

/// The script; half of its members are read of the parameter itself, the others of a variable that may be another.
fn script(paths: &[MemberPath], pid: u32) -> String {
    let mut text = format!(
        "var seen : array<u32, u64>({})\nvar zero : u32 = 0\n@raw_tracepoint(\"sched_process_exec\")\nfn watch(given: \
         *task_struct, old_pid: i32, bprm: *linux_binprm) -> i32 {{\nif (given->tgid as u32 != {pid}) {{ return 0 \
         }}\nvar other = given\nif (zero == 1) {{ other = given->real_parent }}\n",
        paths.len()
    );
    for (at, path) in paths.iter().enumerate() {
        let start = if at % 2 == 0 { "given" } else { "other" };
        let whole = format!("{start}{}", path.script.trim_start_matches("task"));
        match path.embedded() {
            // As a member of a copy of the struct that contains it.
            Some(len) if at % 3 == 0 && !path.kinds.contains(&"flexible array") => {
                let (copied, rest) = whole.split_at(whole.len() - len);
                writeln!(text, "var copy{at} = {copied}\nseen[{at}] = copy{at}{rest} as u64")
            }
            _ => writeln!(text, "seen[{at}] = {whole} as u64"),
        }
        .expect("a string grows");
    }
    text + "return 0\n}\nfn main() -> i32 {\nreturn 0\n}\n"
}

unsafe extern "C" {
    /// Of the C library. Its result is not used.
    fn vfprintf(file: *mut c_void, format: *const c_char, arguments: *mut __va_list_tag);
}

/// Writes the types of the running kernel as C, by the libbpf of this build: Debian's bpftool lays some bit-fields
/// out elsewhere.
#[expect(unsafe_code, reason = "libbpf-rs has no interface for it")]
fn write_types(folder: &Folder) {
    let path = CString::new(folder.path("vmlinux.h").to_str().expect("text")).expect("no zero byte");
    // SAFETY: the file is open and the types are loaded until all of them are written; libbpf gives the file back
    // to `vfprintf` as its first argument.
    unsafe {
        let file = libc::fopen(path.as_ptr(), c"w".as_ptr());
        let types = btf__load_vmlinux_btf();
        assert!(!file.is_null() && !types.is_null(), "types cannot be written");
        let dump = btf_dump__new(types, Some(vfprintf), file.cast(), std::ptr::null());
        assert!(!dump.is_null(), "libbpf cannot write types");
        for id in 1..btf__type_cnt(types) {
            assert_eq!(btf_dump__dump_type(dump, id), 0, "type {id}");
        }
        btf_dump__free(dump);
        btf__free(types);
        libc::fclose(file);
    }
}

fn clang(folder: &Folder, text: &str) -> PathBuf {
    let source = folder.write("members.c", text);
    let object = folder.path("members.o");
    let built = finish(
        Command::new("clang")
            .args(["-O2", "-g", "-target", "bpf", "-D__TARGET_ARCH_x86", "-w", "-I"])
            .arg(folder.path(""))
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&object),
    );
    assert_eq!(built.code, 0, "{}\n{text}", built.stderr);
    object
}

struct Attached {
    object: Object,
    _link: Link,
}

fn attach(open: libbpf_rs::OpenObject, what: &str) -> Attached {
    let object = open.load().unwrap_or_else(|error| panic!("{what}: {error}"));
    let program: ProgramMut<'_> = object.progs_mut().next().expect("it has a program");
    let link = program.attach().unwrap_or_else(|error| panic!("{what}: {error}"));
    Attached { object, _link: link }
}

impl Attached {
    fn values(&self, len: usize) -> Vec<u64> {
        let map = self.object.maps().find(|map| map.name() == "seen").expect("it has a map");
        let value = |key: usize| {
            let key = u32::try_from(key).expect("few").to_ne_bytes();
            let bytes = map.lookup(&key, MapFlags::ANY).expect("readable").expect("present");
            u64::from_ne_bytes(bytes.try_into().expect("8 bytes"))
        };
        (0..len).map(value).collect()
    }
}

/// A process that starts another program when its input ends.
struct Starter(std::process::Child);

impl Starter {
    fn new() -> Starter {
        let script = "read line; exec true";
        let child = Command::new("sh").args(["-c", script]).stdin(std::process::Stdio::piped()).spawn();
        Starter(child.expect("sh is there"))
    }

    fn go(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("it is ours");
    }
}

#[test]
fn root_random_members_have_the_values_that_c_reads() {
    let btf = std::fs::read(Path::new("/sys/kernel/btf/vmlinux")).expect("the kernel has BTF");
    let types = KernelTypes::from_btf(btf).expect("it is BTF");
    let folder = Folder::new();
    write_types(&folder);
    let (members, seed) = (number("KS_RANDOM_MEMBERS", MEMBERS), number("KS_RANDOM_SEED", 1));
    let mut drawn = Paths { types: &types, rng: Rng::new(seed) };
    let (mut compared, mut changed, mut nonzero) = (0u64, 0u64, 0u64);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    while compared + changed < members {
        let paths: Vec<_> =
            std::iter::repeat_with(|| drawn.path()).flatten().take(AT_ONCE as usize).collect();
        let starter = Starter::new();
        let text = script(&paths, starter.0.id());
        let built = try_compile("members", &text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
        let c = clang(&folder, &c_program(&paths, starter.0.id()));
        let open = || ObjectBuilder::default().open_file(&c).expect("libbpf opens it");
        let before = attach(open(), "C");
        let ours = ObjectBuilder::default().open_memory(built.objects[0].1.elf()).expect("libbpf opens it");
        let ours = attach(ours, &text);
        let after = attach(open(), "C");
        starter.go();
        let [before, ours, after] = [&before, &ours, &after].map(|one| one.values(paths.len()));
        for (at, path) in paths.iter().enumerate() {
            if before[at] != after[at] {
                changed += 1;
                continue;
            }
            assert_eq!(
                ours[at],
                before[at],
                "seed {seed}: {} is {:#x}, C reads {:#x}\n{}",
                path.script,
                ours[at],
                before[at],
                path.function(at)
            );
            compared += 1;
            nonzero += u64::from(ours[at] != 0);
            path.kinds.iter().for_each(|kind| *kinds.entry(kind).or_default() += 1);
        }
    }
    println!(
        "{compared} members compared, {nonzero} of them not 0, {changed} changed meanwhile; on the paths: {kinds:?}"
    );
    assert!(changed * 4 < members && nonzero * 8 > members, "{changed} changed, {nonzero} not 0");
    for kind in ["union", "bit-field", "array", "struct", "without a name", "pointer followed", "pointer"] {
        assert!(kinds.contains_key(kind), "no {kind}: {kinds:?}");
    }
}
