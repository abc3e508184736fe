//! Hand-built models of BPF objects.

use ks_compiler::bpf::{Insn, Operand, Reg};
use ks_compiler::object::model::{
    Body, Callee, Helper, Instruction, Map, MapShape, Pinning, PlainInsn, Program, Section, Side,
};
use ks_compiler::object::table::{MapKind, program_row};
use ks_compiler::object::{Name, Object};
use ks_host::policy::{Admitted, ObjectSet, PluginObject, Policy, Request};
use ks_wit::section::Arch;

/// Returns a valid name; panics for any other text.
pub fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

/// Returns an object with a program `one` of this section, which calls these helpers and returns 0.
pub fn program(section: &str, helpers: &[u32]) -> Object {
    let (autoload, kind) = match section.strip_prefix('?') {
        Some(kind) => (false, kind),
        None => (true, section),
    };
    let (kind, target) = program_row(kind).unwrap_or_else(|| panic!("no kind of section: {section}"));
    let call = |number: &u32| Instruction::Call(Callee::Helper(Helper::new(*number).expect("a helper")));
    let plain = |insn| Instruction::Plain(PlainInsn::new(insn).expect("neither a call nor a wide load"));
    let mut code: Vec<Instruction> = helpers.iter().map(call).collect();
    code.extend([plain(Insn::mov(Reg::R0, Operand::Imm(0))), plain(Insn::Exit)]);
    let section = Section { kind, target, autoload };
    let program = Program { name: name("one"), section, body: Body { code, ..Body::default() } };
    Object { programs: vec![program], ..Object::default() }
}

/// Returns a map with keys of 4 bytes if its kind has keys. For a ring buffer, `entries` is a size in bytes.
pub fn map(text: &str, kind: MapKind, value: u32, entries: u32) -> Map {
    let is_ring = kind.is_ring();
    let shape = MapShape {
        kind,
        key: if is_ring { Side::Nothing } else { Side::Bytes(4) },
        value: if is_ring { Side::Nothing } else { Side::Bytes(value) },
        entries,
        flags: 0,
        numa_node: None,
        bloom_hashes: None,
    };
    Map { name: name(text), shape, pinning: Pinning::None, inner: None, slots: Default::default() }
}

/// Returns the permission request of a plugin with this object, named `test`.
pub fn request(model: Object, imports: &[&str]) -> Request {
    let object = PluginObject::new("test", Arch::Any, model).expect("a sound object");
    let objects = ObjectSet::new(vec![object], Some(0)).expect("one object");
    let imports: Vec<String> =
        imports.iter().map(|import| format!("kernelscript:host/{import}@0.2.0")).collect();
    Request::new(objects, &imports)
}

/// Returns whether a policy admits a plugin with this object on a machine with one CPU.
pub fn judged(policy: &Policy, model: &Object) -> Result<Option<Admitted>, String> {
    policy.admit(request(model.clone(), &["perf"]), 1)
}
