//! Productions of forms that are not compared between the halves: pointers, function values, packets, ring
//! buffers, configs.

use super::constants;
use super::exprs::MAX_DEPTH;
use super::kinds::Packet;
use super::scope::{Gen, Helper, Ring, Var};
use super::tree::Node;
use super::types::{Ty, U8, U32, U64};

impl Gen {
    /// Generates a config block, whose fields are like variables that nobody writes.
    pub fn config(&mut self) -> Node {
        let name = self.name("c");
        let mut fields = Vec::new();
        for index in 0..1 + self.rng.below(4) {
            let int = self.int_type();
            let (ty, text) = match self.rng.below(4) {
                0 => (Ty::Array(Box::new(Ty::Int(int)), 3), self.int_list(int, 3)),
                1 => (Ty::Bool, "true".to_owned()),
                _ => (Ty::Int(int), constants::literal(&mut self.rng, int).text),
            };
            fields.push(format!("f{index}: {} = {text}", ty.name()));
            self.globals.push(Var::read_only(format!("{name}.f{index}"), ty));
        }
        Node::stmt(&format!("config {name} {{ {} }}", fields.join(", ")), Vec::new()).of("config")
    }

    /// Generates a ring buffer.
    pub fn ring(&mut self) -> Option<Node> {
        if self.structs.is_empty() {
            return None;
        }
        let record = self.rng.below(self.structs.len());
        let name = self.name("r");
        let text = format!("var {name}: ringbuf<S{record}>(4096)");
        self.rings.push(Ring { name, record });
        Some(Node::stmt(&text, Vec::new()).of("ringbuf"))
    }
}

/// Generates a pointer: the address of an lvalue, a struct in the packet, a number, or a pointer plus an
/// offset.
pub fn pointer(generator: &mut Gen) -> Option<Node> {
    if !generator.kernel_only || generator.function.loops > 1 {
        return None;
    }
    let ty = match generator.rng.below(3) {
        0 => generator.scalar_type(),
        _ if generator.structs.is_empty() => return None,
        _ => Ty::Struct(generator.rng.below(generator.structs.len())),
    };
    let name = generator.name("q");
    let in_packet = generator.program.has_packet() && generator.function.has_context;
    let (mut writable, mut owns) = (true, false);
    let stmt = if in_packet && matches!(ty, Ty::Struct(_)) && generator.rng.one_in(2) {
        writable = generator.program.packet == Packet::Write;
        let start = generator.expr(&Ty::Int(U32));
        Node::stmt(&format!("var {name} = (ctx->data + $) as *{}", ty.name()), vec![start])
    } else if generator.rng.one_in(8) {
        writable = false;
        let number = generator.unknown(&Ty::Int(U64));
        Node::stmt(&format!("var {name} = $ as {BYTES} as *{}", ty.name()), vec![number])
    } else if let Some(from) = generator.any_pointer().filter(|_| generator.rng.one_in(3)) {
        // It points to the same object, which only one lvalue may own.
        (writable, owns) = (from.writable, from.owns);
        let by = generator.expr(&Ty::Int(U32));
        let text = format!("var {name} = (({} as *char) + $) as *{}", from.name, ty.name());
        Node::stmt(&text, vec![by])
    } else {
        let lvalue = generator.lvalue_to_write(&ty)?;
        Node::stmt(&format!("var {name} = &$"), vec![lvalue])
    };
    generator.function.pointers.push(Var { name, ty, writable, owns });
    Some(stmt)
}

/// Stores a pointer in memory: in a struct, which may be copied or have a pointer to it, in an array, or by
/// taking the pointer's address. The stored pointer is available to later statements.
pub fn held(generator: &mut Gen) -> Option<Node> {
    if !generator.kernel_only || generator.function.loops > 1 {
        return None;
    }
    let from = generator.any_pointer().filter(|from| !from.owns)?;
    // A pointer that is stored in memory already is not a plain identifier.
    let is_name = from.name.chars().all(char::is_alphanumeric);
    if !is_name || !generator.claim_bytes(24) {
        return None;
    }
    let (name, pointee) = (generator.name("h"), from.ty.name());
    let holder = format!("H{pointee}");
    let literal = format!("{holder} {{ n: 1, p: {}, o: null }}", from.name);
    let form = generator.rng.below(HELD.len());
    let (text, held) = match form {
        0 => (format!("var {name} = {literal}"), vec![format!("{name}.p"), format!("{name}.o")]),
        1 => {
            let copy = generator.name("h");
            let text = format!("var {name} = {literal}\nvar {copy} = {name}\n{copy}.n = 2");
            (text, vec![format!("{name}.p"), format!("{copy}.p")])
        }
        2 => {
            let to = generator.name("h");
            let text = format!("var {name} = {literal}\nvar {to} = &{name}");
            (text, vec![format!("{to}->p"), format!("{name}.o")])
        }
        3 => {
            let text = format!("var {name}: P{pointee}[2] = []\n{name}[cpu() % 2] = {}", from.name);
            (text, vec![format!("{name}[1]"), format!("{name}[cpu() % 2]")])
        }
        _ => (format!("var {name} = &{}", from.name), vec![format!("{name}[0]")]),
    };
    generator.holders.insert(pointee);
    for name in held {
        generator.function.pointers.push(Var { name, owns: false, ..from.clone() });
    }
    Some(Node::stmt(&text, Vec::new()).of(HELD[form]))
}

/// The memory in which [`held`] stores pointers.
pub const HELD: [&str; 5] = [
    "pointer in a struct",
    "pointer in a struct that is copied",
    "pointer in a struct that a pointer leads to",
    "pointer in an array",
    "address of a pointer",
];

/// The type to which pointers are cast if the result depends on addresses, and in no other case.
pub const BYTES: &str = "*u8";
/// The end of each read of text at any address.
pub const TEXT_END: &str = ", 24)";

impl Gen {
    fn any_pointer(&mut self) -> Option<Var> {
        let pointers = &self.function.pointers;
        (!pointers.is_empty()).then(|| self.rng.pick(pointers).clone())
    }
}

/// Assigns to a pointer an older pointer, whose pointee lives at least as long, or the address of an element. Not to one that
/// may be deleted (KS0613).
pub fn repointed(generator: &mut Gen) -> Option<Node> {
    let to = generator.function.pointers.last().filter(|to| !to.owns)?.clone();
    if generator.rng.one_in(2)
        && let Some(element) = generator.element(&to.ty)
    {
        return Some(Node::stmt(&format!("{} = &$", to.name), vec![element]));
    }
    let (_, older) = generator.function.pointers.split_last()?;
    let fits = |from: &&Var| to.ty == from.ty && to.writable == from.writable;
    let fitting: Vec<&Var> = older.iter().filter(fits).collect();
    if fitting.is_empty() {
        return None;
    }
    let from = generator.rng.pick(&fitting);
    Some(Node::stmt(&format!("{} = {}", to.name, from.name), Vec::new()))
}

/// Generates a number from a pointer's address. It is not the address itself, which may not be stored where
/// it outlives a local (KS0611).
pub fn address(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Int(U64) {
        return None;
    }
    let pointer = generator.any_pointer()?.name;
    Some(Node::expr(ty, &format!("(({pointer} as {BYTES} as u64) ^ 1)"), Vec::new()))
}

/// Generates a comparison of two pointers, or of one with null.
pub fn pointers_compared(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    if *ty != Ty::Bool {
        return None;
    }
    let (a, b) = (generator.any_pointer()?.name, generator.any_pointer()?.name);
    let text = match generator.rng.below(4) {
        0 => format!("({a} == null)"),
        1 => format!("({a} != null)"),
        2 => format!("(({a} as *char) == ({b} as *char))"),
        _ => {
            let op = *generator.rng.pick(&["<", "<=", ">", ">="]);
            format!("(({a} as {BYTES}) {op} ({b} as {BYTES}))")
        }
    };
    Some(Node::expr(ty, &text, Vec::new()))
}

/// Generates a read of a byte of the packet.
pub fn packet(generator: &mut Gen, ty: &Ty) -> Option<Node> {
    let function = &generator.function;
    let usable = function.has_context && generator.program.has_packet() && *ty == Ty::Int(U8);
    if !generator.kernel_only || !usable || function.depth >= MAX_DEPTH {
        return None;
    }
    let at = generator.expr(&Ty::Int(U32));
    Some(Node::expr(ty, "(*(ctx->data + $))", vec![at]))
}

/// Stores a function in a variable. The function calls no such variable itself: it would be a possible callee
/// of itself (KS0717).
pub fn function_value(generator: &mut Gen) -> Option<Node> {
    if !generator.kernel_only {
        return None;
    }
    let usable: Vec<&Helper> = generator.helpers.iter().filter(|one| one.is_value()).collect();
    if usable.is_empty() {
        return None;
    }
    let helper = (*generator.rng.pick(&usable)).clone();
    let name = generator.name("f");
    let text = format!("var {name}: {} = {}", helper.value_type(), helper.name);
    generator.function.values.push(Helper { name, calls_values: true, ..helper });
    Some(Node::stmt(&text, Vec::new()))
}

/// Generates the life of a ring buffer record, from its reservation to its submission.
pub fn record(generator: &mut Gen) -> Option<Node> {
    if generator.rings.is_empty() {
        return None;
    }
    let ring = generator.rings[generator.rng.below(generator.rings.len())].clone();
    let name = generator.name("e");
    let mut template = format!("var {name} = {}.reserve()", ring.name);
    let mut values = Vec::new();
    for (index, field) in generator.structs[ring.record].clone().iter().enumerate() {
        if field.is_scalar() || matches!(field, Ty::Str(_)) {
            template += &format!("\n{name}->f{index} = $");
            values.push(generator.fitting(field));
        }
    }
    let end = *generator.rng.pick(&["submit", "submit", "discard"]);
    template += &format!("\n{}.{end}({name})", ring.name);
    Some(Node::stmt(&template, values))
}
