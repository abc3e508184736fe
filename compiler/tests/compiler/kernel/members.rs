//! Members of the kernel's structs: all numbers, enums and pointers in the arguments of its raw tracepoints
//! are read correctly, by programs that the running kernel accepts.

use std::sync::Arc;

use ks_compiler::kernel::{KernelVersion, Machine, compile};
use ks_compiler::kernel_types::{KernelType, KernelTypes, Member, Param, Pointee};
use ks_compiler::lex::Keyword;
use ks_compiler::object::btf::BtfKind;
use ks_compiler::pipeline::{self, Options};
use ks_compiler::split::split;
use ks_wit::section::Arch;

use ks_compiler_testing::loaded::Loaded;

/// The same architecture as in the other tests of this folder.
const HERE: Arch = Arch::X86_64;
/// Number of events in a script.
const AT_ONCE: usize = 24;
/// Limit on the members of an argument.
const MEMBERS: usize = 10;
/// Limit on the parameters of a program.
const PARAMS: usize = 6;

#[test]
fn root_members_of_all_raw_tracepoints_arguments_can_be_read() {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has types");
    let kernel = Arc::new(KernelTypes::from_btf(bytes).expect("BTF"));
    let btf = kernel.btf().expect("it was given");
    let events = btf.starting(BtfKind::Typedef, "btf_trace_").filter_map(|(_, name)| {
        let event = name.strip_prefix("btf_trace_")?;
        let params = kernel.raw_tracepoint(event).ok()?;
        (params.len() <= PARAMS).then(|| program(&kernel, event, &params)).flatten()
    });
    let programs: Vec<String> = events.collect();
    assert!(programs.len() > 100, "a kernel with {} events", programs.len());
    for some in programs.chunks(AT_ONCE) {
        load(&kernel, &format!("var sum: u64 = 0\n{}", some.concat()), HERE);
    }
}

/// A loop may be outlined to a function, which receives a pointer to an object as a number.
#[test]
fn root_members_can_be_read_before_within_and_after_loops() {
    let script = r#"
        var turns: u32 = 3
        var sum: u64 = 0
        var seen: hash<u32, u64>(64)

        @helper
        fn of(task: *task_struct) -> u32 {
            return task->pid as u32
        }

        @raw_tracepoint("sched_switch")
        fn switched(preempt: bool, prev: *task_struct, next: *task_struct) -> i32 {
            var first = prev->pid
            var leader = prev->group_leader
            for (turn in 0..turns) {
                sum += prev->start_time + (next->pid as u64)
                for (inner in 0..prev->prio as u32) {
                    if (leader->pid != first && inner > next->static_prio as u32) {
                        seen[of(next)] += prev->tgid as u64
                        continue
                    }
                    sum += leader as u64
                }
                if (next->comm[0] == 'k') {
                    return 0
                }
            }
            for (pid, count in seen) {
                sum += count * (prev->static_prio as u64) + (pid as u64)
            }
            sum += (prev->pid - first) as u64 + next->start_time
            if (next->group_leader == leader) {
                seen[of(prev)] = next->start_time
            }
            return 0
        }
    "#;
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has types");
    let kernel = Arc::new(KernelTypes::from_btf(bytes).expect("BTF"));
    load(&kernel, script, HERE);
    // Without iterators the loops become callbacks.
    load(&kernel, script, Machine { kernel: Some(KernelVersion::new(6, 1)), ..HERE.into() });
}

fn load(kernel: &Arc<KernelTypes>, script: &str, machine: impl Into<Machine>) {
    let options = Options { kernel: kernel.clone(), ..Options::new("members") };
    let checked = pipeline::parse("members.ks", script.as_bytes(), options).expect("it is short").check();
    let errors: Vec<_> = checked.diagnostics.iter().map(|one| one.message.clone()).collect();
    let hir = checked.hir.unwrap_or_else(|| panic!("{errors:?} in\n{script}"));
    let object = compile(&hir, &split(&hir), &checked.sources, machine);
    Loaded::load(object.unwrap_or_else(|errors| panic!("{errors:#?}\n{script}")).elf());
}

/// Generates a program that adds up members of all its arguments; none if no argument is a struct.
fn program(kernel: &KernelTypes, event: &str, params: &[Param]) -> Option<String> {
    let mut declared = Vec::new();
    let mut body = String::new();
    for (at, param) in params.iter().enumerate() {
        let ty = match &param.ty {
            // The type of a context, which raw tracepoints do not have.
            KernelType::Pointer(Pointee::Struct(name)) if name == "pt_regs" => return None,
            KernelType::Pointer(Pointee::Struct(name)) if kernel.has_structure(name) => {
                // A different part of the struct in each event.
                let members = readable(kernel, name);
                let from = event.len() * 7 % members.len().max(1);
                for member in members.iter().cycle().skip(from).take(MEMBERS.min(members.len())) {
                    body.push_str(&format!("    sum += (a{at}->{member} as u64) * 3\n"));
                }
                format!("*{name}")
            }
            KernelType::Pointer(_) => "*u8".to_owned(),
            KernelType::Bool => "bool".to_owned(),
            other => {
                let (bytes, signed) = other.scalar()?;
                format!("{}{}", if signed { 'i' } else { 'u' }, 8 * bytes)
            }
        };
        declared.push(format!("a{at}: {ty}"));
    }
    let params = declared.join(", ");
    let head = format!("@raw_tracepoint(\"{event}\")\nfn on_{event}({params}) -> i32 {{\n");
    (!body.is_empty()).then(|| format!("{head}{body}    return 0\n}}\n"))
}

/// Returns members that are a single number, and elements of arrays of numbers.
fn readable(kernel: &KernelTypes, structure: &str) -> Vec<String> {
    let found = kernel.structure(structure).expect("it was asked for");
    let members = found.members.iter().filter(|member| member.bitfield.is_none());
    let named = members.filter(|member| Keyword::ALL.iter().all(|keyword| keyword.text() != member.name));
    let part = |member: &Member| match &member.ty {
        KernelType::Array { element, len } if element.scalar().is_some() && *len > 0 => {
            Some(format!("{}[{}]", member.name, len - 1))
        }
        KernelType::Pointer(_) | KernelType::Bool => Some(member.name.clone()),
        ty => ty.scalar().map(|_| member.name.clone()),
    };
    named.filter_map(part).collect()
}
