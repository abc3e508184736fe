//! Text form of MIR, for `--emit mir` and for tests.

use std::fmt::{self, Display, Formatter, Write};

use super::core::{CoreField, CoreStep};
use super::{
    BlockData, Callee, Count, Inst, Lost, MapSymbol, MirFunction, Op, Origin, Program, Target, Terminator,
    Type, Value,
};
use crate::hir::Hir;
use crate::index::Id;

/// All functions of a program, with the names of maps, globals and functions.
pub fn program(program: &Program, hir: &Hir) -> String {
    let functions: Vec<_> = program.functions.iter().map(|one| function(one, hir)).collect();
    functions.join("\n")
}

/// The text form of one function.
pub fn function(function: &MirFunction, hir: &Hir) -> String {
    let mut out = String::new();
    let kind = if function.is_program { "program" } else { "helper" };
    let _ = writeln!(out, "{kind} {} -> {} {{", function.name, function.ret);
    for (slot, data) in function.slots.iter_enumerated() {
        let _ = writeln!(out, "  s{}: {} bytes at {}", slot.index(), data.size, data.position);
    }
    for block in function.reverse_postorder() {
        let params: Vec<_> = function.blocks[block]
            .params
            .iter()
            .map(|value| format!("{}: {}", Name(*value), function.values[*value]))
            .collect();
        let _ = writeln!(out, "b{}({}):", block.index(), params.join(", "));
        body(&mut out, function, &function.blocks[block], hir);
    }
    out.push_str("}\n");
    out
}

fn body(out: &mut String, function: &MirFunction, block: &BlockData, hir: &Hir) {
    for Inst { result, op, .. } in &block.insts {
        let op = op_text(op, hir);
        let _ = match result {
            Some(value) => writeln!(out, "  {}: {} = {op}", Name(*value), function.values[*value]),
            None => writeln!(out, "  {op}"),
        };
    }
    let _ = match &block.term {
        Terminator::Jump(target) => writeln!(out, "  jump {target}"),
        Terminator::Branch { cond, then, otherwise } => {
            writeln!(out, "  if {} then {then} else {otherwise}", Name(*cond))
        }
        Terminator::Return(value) => writeln!(out, "  return {}", Name(*value)),
    };
}

struct Name(Value);

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0.index())
    }
}

fn names(values: &[Value]) -> String {
    let names: Vec<_> = values.iter().map(|value| Name(*value).to_string()).collect();
    names.join(", ")
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "b{}({})", self.block.index(), names(&self.args))
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Type::I32 => "i32",
            Type::I64 => "i64",
            Type::Ptr(origin) => match origin {
                Origin::Stack => "stack",
                Origin::Global => "global",
                Origin::Entry => "entry",
                Origin::EntryOrNull => "entry?",
                Origin::Memory => "memory",
                Origin::MemoryOrNull => "memory?",
                Origin::Map => "map",
                Origin::Function => "function",
                Origin::Context => "context",
                Origin::IterCounterOrNull => "iter_counter?",
                Origin::IterCounter => "iter_counter",
                Origin::Packet => "packet?",
                Origin::PacketEnd => "packet_end",
                Origin::InPacket => "packet",
                Origin::Object => "object",
                Origin::ObjectOrNull => "object?",
            },
        })
    }
}

fn op_text(op: &Op, hir: &Hir) -> String {
    match op {
        Op::Const(bits) => format!("const {bits:#x}"),
        Op::Binary(op, a, b) => format!("{} {}, {}", format!("{op:?}").to_lowercase(), Name(*a), Name(*b)),
        Op::Compare(condition, a, b) => {
            format!("compare {} {}, {}", format!("{condition:?}").to_lowercase(), Name(*a), Name(*b))
        }
        Op::IsNull(value) => format!("is_null {}", Name(*value)),
        Op::Narrow { value, bits, signed } => {
            format!("narrow {}{bits} {}", if *signed { 's' } else { 'u' }, Name(*value))
        }
        Op::SwapBytes { value, bits } => format!("swap_bytes{bits} {}", Name(*value)),
        Op::SignExtend(value) => format!("sign_extend {}", Name(*value)),
        Op::ZeroExtend(value) => format!("zero_extend {}", Name(*value)),
        Op::Truncate(value) => format!("truncate {}", Name(*value)),
        Op::Below { value, bound } => format!("below {bound} {}", Name(*value)),
        Op::NonNull(value) => format!("non_null {}", Name(*value)),
        Op::Within { pointer, bytes, end } => {
            format!("within {} + {bytes}, {}", Name(*pointer), Name(*end))
        }
        Op::InPacket { pointer, bytes } => format!("in_packet {bytes} {}", Name(*pointer)),
        Op::PacketEdge { context, offset, generation } => {
            let generation = if *generation == 0 { String::new() } else { format!(" of {generation}") };
            format!("packet_edge {} + {offset}{generation}", Name(*context))
        }
        Op::Opaque { value, zero } => format!("opaque {}, {}", Name(*value), Name(*zero)),
        Op::StackAddr { slot, offset } => format!("stack_addr s{} + {offset}", slot.index()),
        Op::GlobalAddr { global, offset } => {
            format!("global_addr {} + {offset}", hir.globals[*global].name)
        }
        Op::MapAddr(map) => match map {
            MapSymbol::Map(map) => format!("map_addr {}", hir.maps[*map].name),
            MapSymbol::Config(config) => format!("config_addr {}", hir.configs[*config].name),
            MapSymbol::Ring(ring) => format!("ring_addr {}", hir.rings[*ring].name),
            MapSymbol::Counter(counter) => format!("counter_addr {}", hir.counters[*counter].name),
            MapSymbol::Prints => "prints_addr".into(),
            MapSymbol::Scratch => "scratch_map".into(),
            MapSymbol::Programs(first) => format!("program_array {}", hir.functions[*first].name),
        },
        Op::FunctionAddr(id) => format!("function_addr {}", callee_name(Callee::Function(*id), hir)),
        Op::KernelAddr(id) => format!("kernel_addr {}", hir.kernel_variables[*id].name),
        Op::CountAddr(count) => match count {
            Count::Faults(program) => format!("fault_count {}", hir.functions[*program].name),
            Count::CutList(span) => format!("cut_count of the list at byte {}", span.start),
            Count::CutLoop(span) => format!("cut_count of the loop at byte {}", span.start),
            Count::Lost(Lost::Record(ring)) => format!("lost_addr {}", hir.rings[*ring].name),
            Count::Lost(Lost::Update(map)) => format!("lost_addr {}", hir.maps[*map].name),
            Count::Unread => "unread_addr".into(),
            Count::Unraised => "unraised_addr".into(),
            Count::Lost(Lost::Print) => "lost_addr of prints".into(),
            Count::PidNamespace => "pid_namespace".into(),
        },
        Op::Address(pointer) => format!("address {}", Name(*pointer)),
        Op::PtrDiff(a, b) => format!("ptr_diff {}, {}", Name(*a), Name(*b)),
        Op::PtrAdd(base, offset) => format!("ptr_add {}, {}", Name(*base), Name(*offset)),
        Op::Core(field, question) => format!("core {question:?} {}", core_name(field)),
        Op::LoadField { size, base, field } => {
            format!("load{} {} + {}", size.bytes(), Name(*base), core_name(field))
        }
        Op::Load { size, base, offset } => format!("load{} {} + {offset}", size.bytes(), Name(*base)),
        Op::Store { size, base, offset, value } => {
            format!("store{} {} + {offset}, {}", size.bytes(), Name(*base), Name(*value))
        }
        Op::AtomicExchange { base, offset, value } => {
            format!("atomic_exchange {} + {offset}, {}", Name(*base), Name(*value))
        }
        Op::AtomicAdd { size, base, offset, value } => {
            format!("atomic_add{} {} + {offset}, {}", size.bytes(), Name(*base), Name(*value))
        }
        Op::Call { callee, args } => format!("call {}({})", callee_name(*callee, hir), names(args)),
    }
}

fn callee_name(callee: Callee, hir: &Hir) -> String {
    match callee {
        Callee::Helper(helper) => helper.name().into(),
        Callee::Kfunc(kfunc) => kfunc.name().into(),
        Callee::MapIter(map_iter) => map_iter.name().into(),
        Callee::TaskId(id) => id.name().into(),
        Callee::External(id) => hir.externs[id].name.clone(),
        Callee::Function(id) => match hir.functions.get(id) {
            Some(function) => function.name.clone(),
            None => format!("loop_body_{}", id.index() - hir.functions.len()),
        },
    }
}

/// The access path of a part, such as `task_struct.comm[0]`.
fn core_name(field: &CoreField) -> String {
    let steps = field.steps.iter().map(|step| match step {
        CoreStep::Member(name, _) => format!(".{name}"),
        CoreStep::Element(index) => format!("[{index}]"),
        CoreStep::Enumerator { name, .. } => format!(".{name}"),
    });
    std::iter::once(field.root.name.clone()).chain(steps).collect()
}
