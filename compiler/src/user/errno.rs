//! The errno that a script receives for a failure of the host.

use wasm_encoder::{Instruction as I, ValType};

use super::code::{Var, WasmCode, mem};
use super::cx::Cx;

/// The errno of each error kind without a number of its own: the nearest of
/// `include/uapi/asm-generic/errno-base.h` and `errno.h`.
const OF_KIND: &[(&str, i32)] = &[
    ("not-permitted", EPERM),
    ("not-found", 2),
    ("invalid", EINVAL),
    ("busy", 16),
    ("limit", 28),
    ("stale", 9),
    ("unsupported", 95),
    ("interrupted", 4),
    ("denied-by-policy", EPERM),
];
const EPERM: i32 = 1;
/// The errno of a kind that is not in the list.
const EIO: i32 = 5;
/// The errno of a request that can never succeed.
pub const EINVAL: i32 = 22;

/// Emits the body of [`super::runtime::Routine::Errno`].
pub fn of_error(cx: &Cx<'_>, code: &mut WasmCode) {
    let error = cx.abi.named("types", "error");
    let (errno, kind) = (error.field("errno"), error.field("kind"));
    code.get(Var(0)).op(I::I32Load8U(mem(errno.offset))).if_();
    code.get(Var(0)).ops_of([I::I32Load(mem(errno.some().offset)), I::Return]).end();
    let found = code.local(ValType::I32);
    code.i32(EIO).set(found);
    for (name, number) in OF_KIND {
        code.i32(*number).get(found);
        code.get(Var(0)).op(I::I32Load8U(mem(kind.offset))).u32(kind.case(name).0);
        code.ops_of([I::I32Eq, I::Select]).set(found);
    }
    code.get(found);
}
