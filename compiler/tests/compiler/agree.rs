//! Random scripts in both halves: the interpreters of the kernel half's code and of the core module must
//! leave the same values in the script's variables.
//!
//! `KS_RANDOM_SCRIPTS=20000` runs that many.

use std::fmt::Write;

use ks_compiler::hir::Hir;
use ks_compiler::index::Id;
use ks_compiler::kernel::lower_watched;
use ks_compiler::kernel::mir::{Helper, Program};
use ks_compiler::split::split;
use ks_compiler::types::{TypeId, TypeKind};
use ks_compiler::{diag::Severity, pipeline};
use ks_compiler_testing::interp::{self, Answers, Environment};
use ks_compiler_testing::script::{self, Halves};
use ks_wit::section::Arch;

use ks_compiler_testing::machine::{Value, run_for};

/// Number of scripts of a plain test run.
const SCRIPTS: u64 = 60;
/// Limit on the iterations of a loop and on the steps of a run in the kernel half's interpreter.
const MAX_ITERATIONS: i32 = 300;
const FUEL: u64 = 300_000;
/// Limit on the instructions of a run in the userspace half's interpreter.
const USER_FUEL: u64 = 1_000_000;

/// Fixed results of the kernel half's builtins; functions of the same names return them in the userspace
/// half.
struct Fixed;

const BUILTINS: &str = "fn cpu() -> u32 { return 0 }\nfn pid() -> u32 { return 7 }\n\
                        fn tid() -> u32 { return 8 }\n\
                        fn uid() -> u32 { return 9 }\nfn gid() -> u32 { return 10 }\n\
                        fn cgroup_id() -> u64 { return 5 }\n\
                        fn time_ns() -> u64 { return 123456789 }\n\
                        fn comm() -> str(16) { return \"walnut\" }\n";

impl Answers for Fixed {
    fn number(&mut self, helper: Helper) -> u64 {
        match helper {
            Helper::GetSmpProcessorId => 0,
            Helper::GetCurrentPidTgid => 7 << 32 | 8,
            Helper::GetCurrentUidGid => 10 << 32 | 9,
            Helper::GetCurrentCgroupId => 5,
            _ => 123_456_789,
        }
    }

    fn bytes(&mut self, _helper: Helper, len: usize) -> Vec<u8> {
        let mut bytes = b"walnut".to_vec();
        bytes.resize(len, 0);
        bytes
    }
}

/// A printable part of a variable: its lvalue in the script, its position, and its type.
struct Leaf {
    name: String,
    global: usize,
    offset: usize,
    ty: TypeId,
}

fn leaves(hir: &Hir) -> Vec<Leaf> {
    let mut found = Vec::new();
    for (id, global) in hir.globals.iter_enumerated() {
        let whole = Leaf { name: global.name.clone(), global: id.index(), offset: 0, ty: global.ty };
        parts(hir, whole, &mut found);
    }
    found
}

fn parts(hir: &Hir, leaf: Leaf, found: &mut Vec<Leaf>) {
    let types = &hir.types;
    match types.kind(leaf.ty) {
        TypeKind::Struct(id) => {
            for (position, field) in types.struct_def(*id).fields.iter().enumerate() {
                let offset = leaf.offset + types.field_offset(*id, position) as usize;
                let name = format!("{}.{}", leaf.name, field.name);
                parts(hir, Leaf { name, offset, ty: field.ty, ..leaf }, found);
            }
        }
        TypeKind::Array(element, len) => {
            for index in 0..*len {
                let offset = leaf.offset + (types.size(*element) * index) as usize;
                parts(
                    hir,
                    Leaf { name: format!("{}[{index}]", leaf.name), offset, ty: *element, ..leaf },
                    found,
                );
            }
        }
        _ => found.push(leaf),
    }
}

/// Returns the typed tree of a script; none if it uses a feature of only one half.
fn checked(script: &str) -> Option<(Hir, ks_compiler::source::SourceMap)> {
    let checked = pipeline::parse("random.ks", script.as_bytes(), pipeline::Options::new("random"))
        .expect("scripts are short")
        .check();
    let wrong = checked.diagnostics.iter().any(|one| one.severity == Severity::Error);
    if wrong { None } else { checked.hir.map(|hir| (hir, checked.sources)) }
}

/// Runs the kernel half; returns its result and variables.
fn kernel(hir: &Hir) -> Option<interp::Outcome> {
    let mut program: Option<Program> = None;
    let keep = &mut |_: &'static str, stage: &Program| {
        program.get_or_insert_with(|| stage.clone());
    };
    lower_watched(hir, &split(hir), Arch::X86_64, keep).ok()?;
    let program = program?;
    let watch = program.functions.iter().find(|one| one.is_program)?;
    interp::run(&program, watch.id, &[None], &Environment::of(hir, MAX_ITERATIONS), &mut Fixed, FUEL).ok()
}

fn for_userspace(hir: &Hir, script: &str, leaves: &[Leaf]) -> String {
    let script = script
        .replace("@helper ", "")
        .replace("@perf_event fn watch(ctx: *bpf_perf_event_data)", "fn watch()")
        .replace("local var", "var");
    let mut main = String::from(
        "fn main() -> i32 {\n    var result_of_watch = watch()\n    print(\"{}\", result_of_watch)\n",
    );
    for leaf in leaves {
        // An enum's default text is its name.
        let conversion = if matches!(hir.types.kind(leaf.ty), TypeKind::Enum(_)) { "%u" } else { "{}" };
        writeln!(main, "    print(\"{conversion}\", {})", leaf.name).expect("a string grows");
    }
    format!("{BUILTINS}{script}\n{main}    return 0\n}}\n")
}

/// Decodes a value from the kernel half's memory.
fn expected_value(hir: &Hir, leaf: &Leaf, globals: &[Vec<u8>]) -> Value {
    let bytes = &globals[leaf.global][leaf.offset..][..hir.types.size(leaf.ty) as usize];
    if let TypeKind::Str(_) = hir.types.kind(leaf.ty) {
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        return Value::Text(String::from_utf8_lossy(&bytes[..len]).into_owned());
    }
    let bits = bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    Value::Number("", bits)
}

fn same(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(_, found), Value::Number(_, expected)) => found == expected,
        _ => found == expected,
    }
}

/// Compares the halves; returns the differences, or none if they cannot be compared.
fn compare(script: &str) -> Option<Vec<String>> {
    let (hir, _) = checked(script)?;
    let expected = kernel(&hir)?;
    let leaves = leaves(&hir);
    let text = for_userspace(&hir, script, &leaves);
    let (user_hir, sources) = checked(&text)?;
    let core = ks_compiler::user::compile(&user_hir, &split(&user_hir), &sources);
    let outcome = run_for(&core.expect("the back end knows all that is generated"), &user_hir, USER_FUEL);
    // None for an index out of range, or a loop that the kernel half cuts.
    outcome.code?;
    let printed: Vec<_> = outcome.printed.iter().rev().take(leaves.len()).rev().collect();
    let values = leaves.iter().map(|leaf| expected_value(&hir, leaf, &expected.globals));
    let unequal = leaves.iter().zip(values).zip(printed).filter(|((_, value), line)| !same(&line[0], value));
    Some(
        unequal
            .map(|((leaf, value), line)| {
                format!("{}: {:?}, in the kernel half {value:?}", leaf.name, line[0])
            })
            .collect(),
    )
}

#[test]
fn random_scripts_do_the_same_in_both_halves() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let count = number("KS_RANDOM_SCRIPTS").unwrap_or(SCRIPTS);
    let start = number("KS_RANDOM_SEED").unwrap_or(0);
    let (mut compared, mut failures) = (0, Vec::new());
    for seed in start..start + count {
        let script = script::items::script(seed, Halves::Both).text();
        let Some(wrong) = compare(&script) else { continue };
        compared += 1;
        failures.extend(wrong.into_iter().map(|what| format!("seed {seed}: {what}")));
    }
    println!("{compared} of {count} scripts compared");
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(compared * 4 > count, "{compared} of {count} scripts compared");
}

/// A helper returns two ids in one number; the random scripts need not use both.
#[test]
fn each_builtin_returns_its_own_half_of_the_ids() {
    let script = "var own_pid: u32 = 0\nvar own_tid: u32 = 0\nvar own_uid: u32 = 0\nvar own_gid: u32 = 0\n\
                  @perf_event fn watch(ctx: *bpf_perf_event_data) -> i32 {\n    own_pid = pid()\n    \
                  own_tid = tid()\n    own_uid = uid()\n    own_gid = gid()\n    return 0\n}\n";
    assert_eq!(compare(script), Some(Vec::new()));
}
