//! Lowers `path`: the names of a file's directories, from the file up to the root of its mounts.
//!
//! Source: fs/d_path.c, `__prepend_path`, v6.18. The kernel's own helper, `bpf_d_path`, may be called by few programs.

use std::sync::Arc;

use super::super::mir::builder::Variable;
use super::super::mir::core::{CoreComposite, CoreField, CoreQuestion, CoreStep, CoreType};
use super::super::mir::{BinaryOp, Block, Condition, Count, Helper, Op, Type, Value};
use super::kernel_memory::Source;
use super::loops::{Iteration, IterationSource};
use super::memory::{Addr, Base};
use super::text::Unread;
use super::{Lower, Lowerer};
use crate::hir::Expr;

/// Maximum number of directories and mounts.
const MAX_STEPS: u64 = 64;
/// Maximum length of a name. Source: include/uapi/linux/limits.h, `NAME_MAX`.
const MAX_NAME: u64 = 255;
/// Bytes before the text: a name that the text has no space for begins there.
const BEFORE: u64 = MAX_NAME + 1;
/// Bytes behind the text, which is as long as a name at most: one that begins anywhere in it has space.
const BEHIND: u64 = MAX_NAME + 1;

/// A search for the root.
struct Search {
    dentry: Variable,
    mount: Variable,
    /// Where the path begins in the buffer.
    start: Variable,
    buffer: Value,
    /// Bytes of the text.
    size: u64,
    next: Block,
    done: Block,
}

impl Lowerer<'_> {
    /// Writes the path of a `struct path`. Returns whether there is one: of a `struct path` that cannot be read the text
    /// is empty, which is counted unless the script asks.
    pub(super) fn path_into(&mut self, path: &Expr, to: Addr, expr: &Expr, unread: Unread) -> Lower<Value> {
        let size = self.size(expr.ty, expr.span)?;
        let path = self.word(path)?;
        let file = self.kernel_word(path, "path", &["dentry"]);
        let [absent, there, join] = std::array::from_fn(|_| self.builder.block());
        let is_read = self.builder.param(join, Type::I32);
        let [no, yes] = [0, 1].map(|answer| self.builder.constant(Type::I32, answer));
        let is_there = self.builder.compare_const(Condition::Ne, file, 0);
        self.builder.branch(is_there, there, absent);
        self.builder.switch_to_sealed(absent);
        self.zero(to, size);
        if let Unread::Counted = unread {
            self.count_one(Count::Unread);
        }
        self.builder.jump_with(join, no);
        self.builder.switch_to_sealed(there);
        self.names_into((path, file), to, size);
        self.builder.jump_with(join, yes);
        self.builder.switch_to_sealed(join);
        Ok(is_read)
    }

    /// Writes the names of a path: each before those that are there already. A path that is too long begins with `..`.
    fn names_into(&mut self, (path, file): (Value, Value), to: Addr, size: u32) {
        let room = size + (BEFORE + BEHIND) as u32;
        let slot = Addr::of(Base::Slot(self.builder.slot(room)));
        self.zero(slot, room);
        let buffer = self.pointer(slot);
        let [dentry, mount, start] = std::array::from_fn(|_| self.builder.variable(Type::I64));
        let vfsmount = self.kernel_word(path, "path", &["mnt"]);
        let offset = Op::Core(part("mount", &["mnt"]), CoreQuestion::Offset);
        let offset = self.builder.value(Type::I64, offset);
        let file_mount = self.builder.binary(BinaryOp::Sub, vfsmount, offset);
        let end = self.builder.constant(Type::I64, BEFORE + u64::from(size) - 1);
        for (variable, value) in [(dentry, file), (mount, file_mount), (start, end)] {
            self.builder.set(variable, value);
        }
        let steps = self.builder.constant(Type::I32, MAX_STEPS);
        let iteration = self.enter_iterator_with(IterationSource::Numbers(steps), vec![dentry, mount, start]);
        let Iteration { header: next, leave: done, .. } = iteration;
        let search = Search { dentry, mount, start, buffer, size: size.into(), next, done };
        self.path_step(&search);
        self.builder.switch_to_sealed(iteration.ended);
        self.write_before(&search, b"..");
        self.builder.jump(done);
        self.leave_iterator(&iteration);
        self.copy_path(&search, to);
    }

    /// Writes a name before what is there, or goes from the root of a mount to where it is mounted.
    fn path_step(&mut self, search: &Search) {
        let dentry = self.builder.get(search.dentry);
        let mount = self.builder.get(search.mount);
        let root = self.kernel_word(mount, "mount", &["mnt", "mnt_root"]);
        let [crossing, inside] = std::array::from_fn(|_| self.builder.block());
        let is_root = self.builder.compare(Condition::Eq, dentry, root);
        self.builder.branch(is_root, crossing, inside);
        self.builder.switch_to_sealed(crossing);
        let parent = self.kernel_word(mount, "mount", &["mnt_parent"]);
        let point = self.kernel_word(mount, "mount", &["mnt_mountpoint"]);
        self.builder.set(search.dentry, point);
        self.builder.set(search.mount, parent);
        let is_last = self.builder.compare(Condition::Eq, parent, mount);
        let top = self.builder.block();
        self.builder.branch(is_last, top, search.next);
        self.builder.switch_to_sealed(top);
        let start = self.builder.get(search.start);
        let is_empty = self.builder.compare_const(Condition::Eq, start, BEFORE + search.size - 1);
        self.require(is_empty, search.done);
        self.write_before(search, b"/");
        self.builder.jump(search.done);
        self.builder.switch_to_sealed(inside);
        let parent = self.kernel_word(dentry, "dentry", &["d_parent"]);
        self.builder.set(search.dentry, parent);
        self.write_name(search, dentry);
        // A file of no directory, such as a pipe or a socket: its name is no path.
        let is_top = self.builder.compare(Condition::Eq, parent, dentry);
        let top = self.builder.block();
        self.builder.branch(is_top, top, search.next);
        self.builder.switch_to_sealed(top);
        let start = self.builder.get(search.start);
        let start = self.builder.binary_const(BinaryOp::Add, start, 1);
        self.builder.set(search.start, start);
        self.builder.jump(search.done);
    }

    /// Writes text before what is there, unless that is too long already.
    fn write_before(&mut self, search: &Search, text: &[u8]) {
        let end = self.builder.get(search.start);
        let end = self.builder.binary_const(BinaryOp::Sub, end, BEFORE);
        let end = self.below(end, search.size, search.done);
        let start = self.builder.binary_const(BinaryOp::Add, end, BEFORE - text.len() as u64);
        self.builder.set(search.start, start);
        let at = self.address_plus(search.buffer, start);
        self.store_bytes(Addr::of(Base::Pointer(at)), text);
    }

    fn write_name(&mut self, search: &Search, dentry: Value) {
        let name = self.kernel_word(dentry, "dentry", &["d_name", "name"]);
        let length = self.kernel_word(dentry, "dentry", &["d_name", "len"]);
        let length = self.builder.binary_const(BinaryOp::And, length, u64::from(u32::MAX));
        let length = self.below(length, MAX_NAME + 1, search.done);
        let end = self.builder.get(search.start);
        let end = self.builder.binary_const(BinaryOp::Sub, end, BEFORE);
        let end = self.below(end, search.size, search.done);
        let slash = self.builder.binary_const(BinaryOp::Add, end, BEFORE - 1);
        let slash = self.builder.binary(BinaryOp::Sub, slash, length);
        self.builder.set(search.start, slash);
        let at = self.address_plus(search.buffer, slash);
        self.store_bytes(Addr::of(Base::Pointer(at)), b"/");
        let first = Addr::of(Base::Pointer(at)).plus(1);
        self.probe(Helper::ProbeReadKernel, first, length, name);
    }

    /// Copies the path from where it begins in the buffer.
    fn copy_path(&mut self, search: &Search, to: Addr) {
        self.zero(to, search.size as u32);
        let [cut, copied] = std::array::from_fn(|_| self.builder.block());
        let from = self.builder.param(copied, Type::I64);
        let start = self.builder.get(search.start);
        let begins = self.builder.binary_const(BinaryOp::Sub, start, BEFORE);
        let begins = self.below(begins, search.size, cut);
        self.builder.jump_with(copied, begins);
        self.builder.switch_to_sealed(cut);
        let at = self.builder.constant(Type::I64, BEFORE);
        let at = self.address_plus(search.buffer, at);
        self.store_bytes(Addr::of(Base::Pointer(at)), b"..");
        let zero = self.builder.constant(Type::I64, 0);
        self.builder.jump_with(copied, zero);
        self.builder.switch_to_sealed(copied);
        let from = self.builder.binary_const(BinaryOp::Add, from, BEFORE);
        let from = self.address_plus(search.buffer, from);
        let from = self.builder.value(Type::I64, Op::Address(from));
        let bytes = self.builder.constant(Type::I64, search.size - 1);
        self.probe(Helper::ProbeReadKernel, to, bytes, from);
    }

    /// A word of a kernel struct at an address.
    fn kernel_word(&mut self, address: Value, structure: &str, members: &[&str]) -> Value {
        let offset = Op::Core(part(structure, members), CoreQuestion::Offset);
        let offset = self.builder.value(Type::I64, offset);
        let address = self.builder.binary(BinaryOp::Add, address, offset);
        self.read_word(address, Source::Kernel)
    }
}

/// A member of one of the structs that a path consists of.
fn part(structure: &str, members: &[&str]) -> Arc<CoreField> {
    let composite = |name: &str| CoreComposite { name: name.to_owned(), is_union: false, is_typedef: false };
    let ty = |member: &str| match member {
        "d_name" => CoreType::Composite(composite("qstr")),
        "mnt" if structure == "mount" => CoreType::Composite(composite("vfsmount")),
        "len" => CoreType::Int { bytes: 4, signed: false },
        _ => CoreType::Pointer,
    };
    let steps = members.iter().map(|member| CoreStep::Member((*member).to_owned(), ty(member))).collect();
    Arc::new(CoreField { root: composite(structure), steps })
}
