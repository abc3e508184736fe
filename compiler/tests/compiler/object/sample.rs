//! Handwritten objects, one for each task of a loader.

use ks_compiler::bpf::{
    AluOp, Assembler, AtomicOp, Imm64, Insn, InsnIndex, JmpOp, Reg, Size, Width, helper_number,
};
use ks_compiler::object::btf::{
    BtfBuilder, CoreRelo, CoreReloKind, FuncLinkage, IntEncoding, Line, Member, TypeId,
};
use ks_compiler::object::build::{
    CodeSection, DataSection, FunctionBody, FunctionDecl, GlobalDef, MapDef, MapSide, ObjectBuilder, Pinning,
};
use ks_compiler::object::model::Presence;

const BPF_MAP_TYPE_HASH: u32 = 1;

fn u64_type(btf: &mut BtfBuilder) -> TypeId {
    let long = btf.int("unsigned long long", 8, IntEncoding::Unsigned);
    btf.typedef("u64", long)
}

fn int_type(btf: &mut BtfBuilder) -> TypeId {
    btf.int("int", 4, IntEncoding::Signed)
}

fn helper(name: &str) -> Insn {
    Insn::call_helper(helper_number(name).expect("a helper of the kernel"))
}

/// `int NAME(struct bpf_perf_event_data *ctx)` in section `perf_event`.
fn perf_program(object: &mut ObjectBuilder, name: &str) -> ks_compiler::bpf::FunctionRef {
    let btf = object.btf();
    let u64_type = u64_type(btf);
    let members = [Member::at("sample_period", u64_type, 168), Member::at("addr", u64_type, 176)];
    let context = btf.structure("bpf_perf_event_data", 184, &members);
    let (context, int) = (btf.ptr(context), int_type(btf));
    let proto = btf.func_proto(int, &[("ctx", context)]);
    object.declare_function(FunctionDecl {
        name: name.to_owned(),
        section: CodeSection::Program("perf_event".to_owned()),
        linkage: FuncLinkage::Global,
        proto,
    })
}

fn line(at: InsnIndex, line: u32, column: u32, text: &str) -> Line {
    Line { at, file: "sample.ks".to_owned(), line, column, text: text.to_owned() }
}

/// A global counter with an atomic add, a lookup in a hash map, a static function, and a loop over
/// `bpf_iter_num`.
pub fn everything() -> Vec<u8> {
    let mut object = ObjectBuilder::new();
    let btf = object.btf();
    let u64_type = u64_type(btf);
    let int = int_type(btf);
    let iter = btf.structure("bpf_iter_num", 8, &[Member::at("__opaque", u64_type, 0)]);
    let iter = btf.ptr(iter);
    let int_ptr = btf.ptr(int);
    let new_proto = btf.func_proto(int, &[("it", iter), ("start", int), ("end", int)]);
    let next_proto = btf.func_proto(int_ptr, &[("it", iter)]);
    let destroy_proto = btf.func_proto(TypeId::VOID, &[("it", iter)]);
    let twice_proto = btf.func_proto(u64_type, &[("value", u64_type)]);

    let global = |name: &str, section, ty, bytes, initial: &[u8]| GlobalDef {
        name: name.to_owned(),
        section,
        ty,
        bytes,
        align: bytes,
        initial: initial.to_vec(),
    };
    let total = object.add_global(global("total", DataSection::Bss, u64_type, 8, &[]));
    let limit = object.add_global(global("limit", DataSection::Rodata, u64_type, 8, &[3]));
    let calls = object.add_global(global("calls", DataSection::Data, int, 4, &[1, 0, 0, 0]));
    let counts = object.add_map(MapDef {
        name: "counts".to_owned(),
        map_type: BPF_MAP_TYPE_HASH,
        key: MapSide::Type(u64_type),
        value: MapSide::Type(u64_type),
        max_entries: 16,
        flags: 0,
        numa_node: None,
        pinning: Pinning::None,
        programs: Vec::new(),
        inner: None,
    });
    let new = object.add_kfunc("bpf_iter_num_new", new_proto, Presence::Required);
    let next = object.add_kfunc("bpf_iter_num_next", next_proto, Presence::Required);
    let destroy = object.add_kfunc("bpf_iter_num_destroy", destroy_proto, Presence::Required);
    let program = perf_program(&mut object, "count_faults");
    let twice = object.declare_function(FunctionDecl {
        name: "twice".to_owned(),
        section: CodeSection::Text,
        linkage: FuncLinkage::Static,
        proto: twice_proto,
    });

    let mut asm = Assembler::new();
    let mut lines = vec![line(asm.next_index(), 2, 5, "var period = ctx->sample_period")];
    asm.push(Insn::load(Size::DW, Reg::R6, Reg::R1, 168));
    lines.push(line(asm.next_index(), 3, 5, "total += 1"));
    asm.push(Insn::load_imm64(Reg::R2, Imm64::Global { global: total, offset: 0 }));
    asm.push(Insn::mov(Reg::R1, 1));
    asm.push(Insn::atomic(AtomicOp::Add, Width::W64, Reg::R2, 0, Reg::R1));
    lines.push(line(asm.next_index(), 4, 5, "var entry = counts[period]"));
    asm.push(Insn::store(Size::DW, Reg::R10, -8, Reg::R6));
    asm.push(Insn::load_imm64(Reg::R1, Imm64::Map(counts)));
    asm.push(Insn::mov(Reg::R2, Reg::R10));
    asm.push(Insn::alu(AluOp::Add, Reg::R2, -8));
    asm.push(helper("bpf_map_lookup_elem"));
    let absent = asm.label();
    asm.jump_if(JmpOp::Eq, Width::W64, Reg::R0, 0, absent);
    asm.push(Insn::mov(Reg::R7, Reg::R0));
    asm.push(Insn::load(Size::DW, Reg::R1, Reg::R7, 0));
    asm.push(Insn::call_function(twice));
    asm.push(Insn::store(Size::DW, Reg::R7, 0, Reg::R0));
    asm.bind(absent);
    lines.push(line(asm.next_index(), 5, 5, "for (i in 0..limit) { calls += 1 }"));
    asm.push(Insn::load_imm64(Reg::R3, Imm64::Global { global: limit, offset: 0 }));
    asm.push(Insn::load(Size::DW, Reg::R3, Reg::R3, 0));
    asm.push(Insn::mov32(Reg::R2, 0));
    asm.push(Insn::mov(Reg::R1, Reg::R10));
    asm.push(Insn::alu(AluOp::Add, Reg::R1, -16));
    asm.push(Insn::call_kfunc(new));
    let (top, done) = (asm.label(), asm.label());
    asm.bind(top);
    asm.push(Insn::mov(Reg::R1, Reg::R10));
    asm.push(Insn::alu(AluOp::Add, Reg::R1, -16));
    asm.push(Insn::call_kfunc(next));
    asm.jump_if(JmpOp::Eq, Width::W64, Reg::R0, 0, done);
    asm.push(Insn::load_imm64(Reg::R1, Imm64::Global { global: calls, offset: 0 }));
    asm.push(Insn::mov32(Reg::R2, 1));
    asm.push(Insn::atomic(AtomicOp::FetchAdd, Width::W32, Reg::R1, 0, Reg::R2));
    asm.jump(top);
    asm.bind(done);
    asm.push(Insn::mov(Reg::R1, Reg::R10));
    asm.push(Insn::alu(AluOp::Add, Reg::R1, -16));
    asm.push(Insn::call_kfunc(destroy));
    lines.push(line(asm.next_index(), 6, 5, "return 0"));
    asm.push(Insn::mov32(Reg::R0, 0));
    asm.push(Insn::Exit);
    let code = asm.finish().expect("every label is bound");
    object.define_function(program, FunctionBody { code, lines, relos: Vec::new() });

    let code = vec![Insn::mov(Reg::R0, Reg::R1), Insn::alu(AluOp::Add, Reg::R0, Reg::R1), Insn::Exit];
    let lines = vec![line(InsnIndex(0), 9, 1, "return value + value")];
    object.define_function(twice, FunctionBody { code, lines, relos: Vec::new() });
    object.finish().expect("the object is well-formed")
}

/// Adds the offset of `task_struct.tgid` to a pointer; our `task_struct` has the member at another offset.
pub fn core_relocation() -> Vec<u8> {
    let mut object = ObjectBuilder::new();
    let btf = object.btf();
    let int = int_type(btf);
    let members = [Member::at("pid", int, 0), Member::at("tgid", int, 4)];
    let task = btf.structure("task_struct", 8, &members);
    let program = perf_program(&mut object, "reads_task");
    let code = vec![
        Insn::mov(Reg::R1, 0),
        Insn::alu(AluOp::Add, Reg::R1, 4),
        Insn::mov(Reg::R2, 1),
        Insn::mov32(Reg::R0, 0),
        Insn::Exit,
    ];
    let relo = |at, kind| CoreRelo { at: InsnIndex(at), root: task, path: vec![0, 1], kind };
    let relos = vec![relo(1, CoreReloKind::FieldByteOffset), relo(2, CoreReloKind::FieldExists)];
    object.define_function(program, FunctionBody { code, lines: Vec::new(), relos });
    object.finish().expect("the object is well-formed")
}

/// `bpf_loop(3, callback, NULL, 0)`, where the callback is the second function of `.text`.
pub fn callback() -> Vec<u8> {
    let mut object = ObjectBuilder::new();
    let btf = object.btf();
    let (int, u64_type) = (int_type(btf), u64_type(btf));
    let context = btf.ptr(TypeId::VOID);
    let proto = btf.func_proto(int, &[("index", u64_type), ("context", context)]);
    let program = perf_program(&mut object, "loops");
    let decl = |name: &str| FunctionDecl {
        name: name.to_owned(),
        section: CodeSection::Text,
        linkage: FuncLinkage::Static,
        proto,
    };
    let first = object.declare_function(decl("first"));
    let callback_id = object.declare_function(decl("turn"));
    let body = |code| FunctionBody { code, ..FunctionBody::default() };
    object.define_function(
        program,
        body(vec![
            Insn::mov32(Reg::R1, 3),
            Insn::load_imm64(Reg::R2, Imm64::Function(callback_id)),
            Insn::mov(Reg::R3, 0),
            Insn::mov(Reg::R4, 0),
            helper("bpf_loop"),
            Insn::mov(Reg::R1, 7),
            Insn::mov(Reg::R2, 0),
            Insn::call_function(first),
            Insn::mov32(Reg::R0, 0),
            Insn::Exit,
        ]),
    );
    object.define_function(first, body(vec![Insn::mov32(Reg::R0, 1), Insn::Exit]));
    object.define_function(callback_id, body(vec![Insn::mov32(Reg::R0, 0), Insn::Exit]));
    object.finish().expect("the object is well-formed")
}

/// Calls a kernel function that does not exist, in code that the verifier proves unreachable.
pub fn missing_kfunc(presence: Presence) -> Vec<u8> {
    let mut object = ObjectBuilder::new();
    let btf = object.btf();
    let int = int_type(btf);
    let proto = btf.func_proto(int, &[]);
    let missing = object.add_kfunc("ks_no_such_kfunc", proto, presence);
    let program = perf_program(&mut object, "calls_missing");
    let code = vec![
        Insn::mov(Reg::R0, 0),
        Insn::JumpIf { op: JmpOp::Eq, width: Width::W64, dst: Reg::R0, src: 0.into(), target: InsnIndex(4) },
        Insn::call_kfunc(missing),
        Insn::mov(Reg::R0, 0),
        Insn::Exit,
    ];
    object.define_function(program, FunctionBody { code, ..FunctionBody::default() });
    object.finish().expect("the object is well-formed")
}
