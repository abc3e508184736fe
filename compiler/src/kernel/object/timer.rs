//! Timers: run a function of the script periodically.
//!
//! ```text
//! NAME          the program that the host runs once: arms the timer of the map `__timer_NAME`
//!               (ks_wit::object::timer_map)
//! NAME_turn     the timer callback: arms the timer again, then calls the body
//! NAME_body     the script's function
//! ```
//!
//! The map's value is the timer and the time of the next expiry. That time advances by whole periods whenever
//! the callback runs. So expiries do not drift, and expiries that the kernel missed are skipped. Kernels
//! before 6.4 take no absolute times, so the timer is started with the remaining time.

use ks_wit::object;

use super::super::mir;
use super::super::section;
use super::maps::ARRAY;
use super::{Assembly, line};
use crate::bpf::{
    AluOp, Assembler, FunctionRef, Imm64, Insn, InsnIndex, JmpOp, LabelError, MapRef, Reg, Size, Symbol,
    Width, helper_number,
};
use crate::hir::{FuncId, Target};
use crate::object::btf::{FuncLinkage, IntEncoding, Member, TypeId};
use crate::object::build::{CodeSection, FunctionBody, FunctionDecl, MapDef, MapSide, Pinning};
use crate::source::SourceMap;

/// Bytes of the kernel's timer; the time of the next expiry follows it. Source: include/uapi/linux/bpf.h,
/// `struct bpf_timer`, v6.12.
const TIMER_BYTES: u32 = 16;
/// Offset of the time of the next expiry in the map's value.
const DUE: i16 = TIMER_BYTES as i16;
const VALUE_BYTES: u32 = TIMER_BYTES + 8;
/// The clock that `bpf_ktime_get_ns` reads, too. Source: include/uapi/linux/time.h, v6.12.
const CLOCK_MONOTONIC: i32 = 1;
/// ENOENT of include/uapi/asm-generic/errno-base.h.
const ENOENT: i32 = 2;

/// The map and functions of a timer, except for the body.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timer {
    map: MapRef,
    entry: FunctionRef,
    tick: FunctionRef,
    nanoseconds: u64,
}

impl Assembly<'_> {
    /// Declares the map and functions of a program's timer; returns whether the program has one.
    pub(super) fn declare_timer(&mut self, declared: &mir::MirFunction) -> bool {
        let function = &self.hir.functions[declared.id];
        let Target::Period { nanoseconds } = function.target else { return false };
        let name = function.name.clone();
        let section = section::of(function, self.arch);
        let map = self.add_timer_map(&name);
        let btf = self.builder.btf();
        let (any, result) = (btf.ptr(TypeId::VOID), btf.int("i32", 4, IntEncoding::Signed));
        let entered = btf.func_proto(result, &[("ctx", any)]);
        let called = btf.func_proto(result, &[("map", any), ("key", any), ("value", any)]);
        let program = CodeSection::Program(section);
        let parts = [
            (name.clone(), program, FuncLinkage::Global, entered),
            (self.unused_name(&format!("{name}_turn")), CodeSection::Text, FuncLinkage::Static, called),
            (self.unused_name(&format!("{name}_body")), CodeSection::Text, FuncLinkage::Static, entered),
        ];
        let [entry, tick, body] = parts.map(|(name, section, linkage, proto)| {
            self.builder.declare_function(FunctionDecl { name, section, linkage, proto })
        });
        self.symbols.insert(declared.id, name);
        self.functions.insert(declared.id, body);
        self.timers.insert(declared.id, Timer { map, entry, tick, nanoseconds });
        true
    }

    fn add_timer_map(&mut self, program: &str) -> MapRef {
        let btf = self.builder.btf();
        let [key, due] =
            [("u32", 4), ("u64", 8)].map(|(name, bytes)| btf.int(name, bytes, IntEncoding::Unsigned));
        let timer = btf.structure("bpf_timer", TIMER_BYTES, &[]);
        let members = [Member::at("timer", timer, 0), Member::at("due", due, TIMER_BYTES)];
        let value = btf.structure("__timer", VALUE_BYTES, &members);
        self.builder.add_map(MapDef {
            name: object::timer_map(program),
            map_type: ARRAY,
            key: MapSide::Type(key),
            value: MapSide::Type(value),
            max_entries: 1,
            flags: 0,
            numa_node: None,
            pinning: Pinning::None,
            programs: Vec::new(),
            inner: None,
        })
    }

    /// Adds the bodies of the functions around a timer's body.
    ///
    /// # Errors
    /// A wrong use of a label, which is a bug of this module.
    pub(super) fn define_timer(
        &mut self,
        id: FuncId,
        body: FunctionRef,
        sources: &SourceMap,
    ) -> Result<(), LabelError> {
        let Some(timer) = self.timers.get(&id).copied() else { return Ok(()) };
        let span = self.hir.functions[id].span;
        for (function, code) in [(timer.entry, entry(timer)?), (timer.tick, tick(timer, body)?)] {
            self.code.push((
                self.builder.symbol_name(Symbol::Function(function)).unwrap_or_default(),
                code.clone(),
            ));
            let lines = vec![line(sources, InsnIndex(0), span)];
            self.builder.define_function(function, FunctionBody { code, lines, relos: Vec::new() });
        }
        Ok(())
    }
}

/// The instructions that arm the timer. They return 0, or the kernel's error.
fn entry(timer: Timer) -> Result<Vec<Insn>, LabelError> {
    let mut asm = Assembler::new();
    let (found, done) = (asm.label(), asm.label());
    asm.push(Insn::store(Size::W, Reg::R10, -4, 0));
    asm.push(Insn::mov(Reg::R2, Reg::R10));
    asm.push(Insn::alu(AluOp::Add, Reg::R2, -4));
    asm.push(Insn::load_imm64(Reg::R1, Imm64::Map(timer.map)));
    call(&mut asm, "bpf_map_lookup_elem");
    asm.jump_if(JmpOp::Ne, Width::W64, Reg::R0, 0, found);
    asm.push(Insn::mov(Reg::R0, -ENOENT));
    asm.push(Insn::Exit);
    asm.bind(found);
    asm.push(Insn::mov(Reg::R6, Reg::R0));
    asm.push(Insn::mov(Reg::R1, Reg::R6));
    asm.push(Insn::load_imm64(Reg::R2, Imm64::Map(timer.map)));
    asm.push(Insn::mov(Reg::R3, CLOCK_MONOTONIC));
    call(&mut asm, "bpf_timer_init");
    asm.jump_if(JmpOp::Ne, Width::W64, Reg::R0, 0, done);
    asm.push(Insn::mov(Reg::R1, Reg::R6));
    asm.push(Insn::load_imm64(Reg::R2, Imm64::Function(timer.tick)));
    call(&mut asm, "bpf_timer_set_callback");
    asm.jump_if(JmpOp::Ne, Width::W64, Reg::R0, 0, done);
    call(&mut asm, "bpf_ktime_get_ns");
    asm.push(Insn::load_imm64(Reg::R2, Imm64::Value(timer.nanoseconds)));
    asm.push(Insn::alu(AluOp::Add, Reg::R0, Reg::R2));
    asm.push(Insn::store(Size::DW, Reg::R6, DUE, Reg::R0));
    start(&mut asm);
    asm.bind(done);
    asm.push(Insn::Exit);
    asm.finish()
}

/// The instructions that arm the timer again and call the body.
fn tick(timer: Timer, body: FunctionRef) -> Result<Vec<Insn>, LabelError> {
    let mut asm = Assembler::new();
    let is_late = asm.label();
    let (now, due) = (Reg::R7, Reg::R8);
    asm.push(Insn::mov(Reg::R6, Reg::R3));
    call(&mut asm, "bpf_ktime_get_ns");
    asm.push(Insn::mov(now, Reg::R0));
    asm.push(Insn::load(Size::DW, due, Reg::R6, DUE));
    // The number of expiries that were missed, without this one.
    asm.push(Insn::mov(Reg::R1, now));
    asm.push(Insn::alu(AluOp::Sub, Reg::R1, due));
    asm.jump_if(JmpOp::Sge, Width::W64, Reg::R1, 0, is_late);
    asm.push(Insn::mov(Reg::R1, 0));
    asm.bind(is_late);
    asm.push(Insn::load_imm64(Reg::R2, Imm64::Value(timer.nanoseconds)));
    asm.push(Insn::alu(AluOp::Div, Reg::R1, Reg::R2));
    asm.push(Insn::alu(AluOp::Add, Reg::R1, 1));
    asm.push(Insn::alu(AluOp::Mul, Reg::R1, Reg::R2));
    asm.push(Insn::alu(AluOp::Add, due, Reg::R1));
    asm.push(Insn::store(Size::DW, Reg::R6, DUE, due));
    asm.push(Insn::mov(Reg::R2, due));
    asm.push(Insn::alu(AluOp::Sub, Reg::R2, now));
    start(&mut asm);
    asm.push(Insn::call_function(body));
    asm.push(Insn::mov(Reg::R0, 0));
    asm.push(Insn::Exit);
    asm.finish()
}

/// Starts the timer in R6; it expires after the number of nanoseconds in R2.
fn start(asm: &mut Assembler) {
    asm.push(Insn::mov(Reg::R1, Reg::R6));
    asm.push(Insn::mov(Reg::R3, 0));
    call(asm, "bpf_timer_start");
}

fn call(asm: &mut Assembler, helper: &str) {
    let number = helper_number(helper).unwrap_or_else(|| unreachable!("`{helper}` is a helper"));
    asm.push(Insn::call_helper(number));
}
