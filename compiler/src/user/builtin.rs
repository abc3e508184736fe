//! Builtins of the userspace half that a script's function calls.

use wasm_encoder::{Instruction as I, ValType};

use super::addr::Addr;
use super::cx::{KeptGlobal, Lower};
use super::expr::mistake;
use super::func::FnCx;
use super::perf::control::Control;
use super::perf::{self, push_handle};
use super::runtime::Routine;
use crate::builtins::perf::attachment as attachment_fields;
use crate::hir::{CounterId, Expr, FuncId, MapId, ReadForm, UserBuiltin};
use crate::plugin::contract::import;
use crate::source::Span;
use crate::types::IntType;

/// Exit code of a plugin whose program could not be loaded and whose script does not check the result.
const LOAD_FAILED: i32 = 1;

impl FnCx<'_, '_> {
    /// Pushes the result of a builtin whose result is a scalar or void.
    pub fn user_scalar(&mut self, builtin: &UserBuiltin, span: Span) -> Lower<()> {
        match builtin {
            UserBuiltin::Load { program, exit_on_failure } => {
                self.load_program(*program, span);
                if *exit_on_failure {
                    self.exit_unless_loaded(*program);
                }
            }
            UserBuiltin::Detach(attachment) => self.detach(attachment)?,
            UserBuiltin::DetachProgram(program) => self.detach_program(program)?,
            UserBuiltin::Enable(attachment) => self.control(Control::Enable, attachment, span)?,
            UserBuiltin::Disable(attachment) => self.control(Control::Disable, attachment, span)?,
            UserBuiltin::Reset(attachment) => self.control(Control::Reset, attachment, span)?,
            UserBuiltin::Id(attachment) => {
                let offset =
                    perf::field(self.cx, self.cx.hir.known.perf_attachment, attachment_fields::GENERATION);
                let addr = self.aggregate_addr(attachment)?;
                self.load(IntType { bits: 64, signed: false }, addr.plus(offset));
            }
            UserBuiltin::AttachTarget { program, target, flags } => {
                self.attach_target(program, target, flags, span)?;
            }
            UserBuiltin::Register(block) => self.register(*block, span),
            UserBuiltin::CpuCount => {
                let count = self.cx.host(import::system::CPU_COUNT);
                self.code.call(count);
            }
            UserBuiltin::PidOf(name) => self.pid_of(name)?,
            UserBuiltin::Exec(file) => self.exec(file, span),
            UserBuiltin::Test { program, input } => self.test_run(*program, input, span)?,
            UserBuiltin::Python { module, function, args } => {
                self.python((module, function), args, span)?;
            }
            UserBuiltin::Sleep(ms) => {
                let sleep = self.cx.routine(Routine::Sleep);
                self.scalar(ms)?;
                self.code.call(sleep);
            }
            UserBuiltin::TimeNs => {
                let now = self.cx.host(import::clock::NOW);
                self.code.call(now);
            }
            UserBuiltin::Stopping => {
                let stopping = self.cx.host(import::clock::STOPPING);
                self.code.call(stopping);
            }
            UserBuiltin::HasCommand => {
                let has_command = self.cx.host(import::args::HAS_COMMAND);
                self.code.call(has_command);
            }
            UserBuiltin::RestartCommand => {
                let restart = self.cx.host(import::args::RESTART_COMMAND);
                self.code.call(restart);
            }
            UserBuiltin::NextThread(operands) => self.next_thread(operands)?,
            UserBuiltin::NextBpfProgram(after) => self.next_bpf_program(after, span)?,
            UserBuiltin::Exit(exit_code) => {
                self.scalar(exit_code)?;
                self.exit();
            }
            UserBuiltin::Daemon => {
                let wait = self.cx.routine(Routine::Wait);
                self.code.call(wait).i32(0);
                self.exit();
            }
            UserBuiltin::PerCpu { map, key, cpu } => {
                let ty = self.cx.hir.maps[*map].value;
                let slot = self.slot(ty);
                self.per_cpu(*map, key, cpu, slot, span)?;
                self.load(self.int(ty), slot);
            }
            UserBuiltin::Clear(map) => {
                let clear = self.cx.routine(Routine::MapClear((*map).into()));
                self.push_line(span);
                self.code.call(clear).op(I::Drop);
            }
            UserBuiltin::CreateInner { map, key } => self.create_inner(*map, key, span)?,
            UserBuiltin::Settle(map) => self.settle(*map, span),
            UserBuiltin::Count(map) => {
                let count = self.cx.routine(Routine::MapCount((*map).into()));
                self.push_line(span);
                self.code.call(count);
            }
            UserBuiltin::OnEvent(ring, handler) => self.on_event(*ring, handler.0),
            UserBuiltin::Dispatch { rings, timeout_ms } => {
                self.dispatch(rings, timeout_ms.as_deref(), span)?;
            }
            UserBuiltin::Histogram { title, counts, linear } => {
                self.print_histogram(title, counts, linear.as_deref())?;
            }
            UserBuiltin::NewTable { title, columns } => self.new_table(title, columns),
            UserBuiltin::Redraw => {
                let redraw = self.cx.host(import::console::REDRAW);
                self.code.call(redraw);
            }
            UserBuiltin::MergeRows { table, keys } => self.merge_rows(table, *keys)?,
            UserBuiltin::SetHeading { table, column, heading } => {
                self.set_heading(table, *column, heading)?;
            }
            UserBuiltin::SetLines { table, column } => self.set_lines(table, *column)?,
            UserBuiltin::AppendRow { table, row } => self.append_row(table, row, span)?,
            UserBuiltin::WriteTable { table, sorted, top } => {
                self.write_table(table, *sorted, top.as_deref())?;
            }
            UserBuiltin::NewHistograms { name, scale } => self.new_histograms(name, *scale),
            UserBuiltin::AppendHistogram { histograms, key, below_zero, sum, counts } => {
                self.append_histogram(histograms, key, [below_zero, sum], counts, span)?;
            }
            UserBuiltin::WriteHistograms { histograms, top } => {
                self.write_histograms(histograms, top.as_deref())?;
            }
            UserBuiltin::Events(wildcard) => self.events(wildcard, span)?,
            UserBuiltin::ShowCounter(counter, attachment) => self.show_counter(*counter, attachment, span)?,
            UserBuiltin::CommOf(_)
            | UserBuiltin::BpfProgram(_)
            | UserBuiltin::Symbol { .. }
            | UserBuiltin::Attach { .. }
            | UserBuiltin::Read { .. }
            | UserBuiltin::ReadCpu(_) => {
                return Err(mistake(span, "a value in memory is wanted as a number"));
            }
            UserBuiltin::PrintKept => return Err(mistake(span, "a call of `print_kept` is left")),
            UserBuiltin::TakeMap(_) => return Err(mistake(span, "a call of `take` is left")),
            UserBuiltin::PrintMap { .. } => return Err(mistake(span, "a call of `print_map` is left")),
            UserBuiltin::ReadCounter(..) => return Err(mistake(span, "the read of a counter is left")),
        }
        Ok(())
    }

    /// Opens an event and puts the attachment at `to`.
    pub fn attach(
        &mut self,
        program: Option<&Expr>,
        options: &Expr,
        flags: Option<&Expr>,
        to: Addr,
        span: Span,
    ) -> Lower<()> {
        let attach = self.cx.routine(Routine::PerfAttach);
        let handle = self.temp(ValType::I32);
        match program {
            Some(program) => self.scalar(program)?,
            None => {
                self.code.i32(0);
            }
        }
        self.code.set(handle);
        let options = self.stable_addr(options, flags.map_or(&[], std::slice::from_ref))?;
        self.push_addr(to);
        self.push_addr(options);
        self.code.get(handle).i32(program.is_some().into());
        match flags {
            Some(flags) => self.scalar(flags)?,
            None => {
                self.code.i64(0);
            }
        }
        self.push_line(span);
        self.code.call(attach);
        Ok(())
    }

    /// Exposes an attachment to programs as this counter, if a program reads the counter.
    fn show_counter(&mut self, counter: CounterId, attachment: &Expr, span: Span) -> Lower<()> {
        if !self.cx.exposed_counters.contains(&counter) {
            return Ok(());
        }
        let publish = self.cx.routine(Routine::PerfPublish);
        let name = self.cx.text(&self.cx.hir.counters[counter].name);
        let attachment = self.aggregate_addr(attachment)?;
        self.push_addr(attachment);
        self.code.u32(name.address).u32(name.len);
        self.push_line(span);
        self.code.call(publish);
        Ok(())
    }

    /// Reads a counter and stores the result at `to`.
    pub fn read_counter(&mut self, attachment: &Expr, form: ReadForm, to: Addr, span: Span) -> Lower<()> {
        let read = self.cx.routine(match form {
            ReadForm::Scalar => Routine::PerfRead,
            ReadForm::Snapshot => Routine::PerfSnapshot,
        });
        let attachment = self.aggregate_addr(attachment)?;
        self.push_addr(to);
        self.push_addr(attachment);
        self.push_line(span);
        self.code.call(read);
        Ok(())
    }

    /// Lowers `read_cpu(attachment, cpu)` and stores the result at `to`.
    pub fn read_counter_on(&mut self, args: &[Expr; 2], to: Addr, span: Span) -> Lower<()> {
        let [attachment, cpu] = args;
        let read = self.cx.routine(Routine::PerfSnapshotCpu);
        let attachment = self.stable_addr(attachment, std::slice::from_ref(cpu))?;
        self.push_addr(to);
        self.push_addr(attachment);
        self.push_line(span);
        self.scalar(cpu)?;
        self.code.call(read);
        Ok(())
    }

    /// Lowers `events(wildcard)`: prints the events and pushes their number.
    fn events(&mut self, wildcard: &Expr, span: Span) -> Lower<()> {
        let list = self.cx.routine(Routine::PerfEvents);
        let size = self.cx.hir.types.size(wildcard.ty) as u32;
        let addr = self.aggregate_addr(wildcard)?;
        self.push_addr(addr);
        self.code.u32(size);
        self.push_line(span);
        self.code.call(list);
        Ok(())
    }

    /// Lowers `per_cpu(m, k, cpu)` and stores the CPU's value at `to`.
    pub fn per_cpu(&mut self, map: MapId, key: &Expr, cpu: &Expr, to: Addr, span: Span) -> Lower<()> {
        let key = self.key(map, key)?;
        let var = self.temp(ValType::I32);
        self.scalar(cpu)?;
        self.code.set(var);
        self.slot_of_cpu(map, key, var, to, span);
        self.code.op(I::Drop);
        Ok(())
    }

    /// Ends the plugin with the code on the stack, after running all deferred calls.
    fn exit(&mut self) {
        let exit = self.cx.host(import::args::EXIT);
        if self.cx.defers {
            let run = self.cx.routine(Routine::RunDeferred);
            self.code.i32(0).call(run);
        }
        self.code.i32(0xff).op(I::I32And).call(exit).op(I::Unreachable);
    }

    fn load_program(&mut self, program: FuncId, span: Span) {
        let load = self.cx.routine(Routine::Load(program));
        self.push_line(span);
        self.code.call(load);
    }

    /// Ends the plugin if the handle on the stack is null, and pushes the handle again.
    fn exit_unless_loaded(&mut self, program: FuncId) {
        self.code.op(I::I32Eqz).if_();
        self.code.i32(LOAD_FAILED);
        self.exit();
        self.code.end();
        let kept = self.cx.kept(KeptGlobal::Program(program), 0);
        self.code.get_global(kept);
    }

    fn detach(&mut self, attachment: &Expr) -> Lower<()> {
        let detach = self.cx.host(import::perf::ATTACHMENT_DETACH);
        let addr = self.aggregate_addr(attachment)?;
        let (base, handle) = (self.temp(ValType::I32), self.temp(ValType::I32));
        self.push_addr(addr);
        self.code.set(base);
        push_handle(self.cx, &mut self.code, base, handle);
        self.code.i32(0).op(I::I32GtS).if_();
        self.code.get(handle).call(detach).end();
        Ok(())
    }

    fn detach_program(&mut self, program: &Expr) -> Lower<()> {
        let detach = self.cx.host(import::bpf::PROGRAM_DETACH_ALL);
        let links = self.cx.routine(Routine::DropLinks);
        let handle = self.temp(ValType::I32);
        self.scalar(program)?;
        self.code.tee(handle).if_();
        self.code.get(handle).call(links).get(handle).call(detach).end();
        Ok(())
    }

    fn control(&mut self, control: Control, attachment: &Expr, span: Span) -> Lower<()> {
        let call = self.cx.routine(Routine::PerfControl(control));
        let addr = self.aggregate_addr(attachment)?;
        self.push_addr(addr);
        self.push_line(span);
        self.code.call(call);
        Ok(())
    }
}
