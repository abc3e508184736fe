//! Config blocks. Each is a map of one entry, whose initial values are written before `main` runs: the
//! defaults, or the values set by the user who started the plugin.

use std::collections::BTreeSet;

use wasm_encoder::Instruction as I;

use super::abi::LIST_LEN;
use super::code::{WasmCode, mem};
use super::cx::Cx;
use super::maps::{self, Table};
use super::runtime::{Routine, reset_arena};
use crate::hir::ConfigId;
use crate::plugin::contract::import;

/// Writes the initial values of the blocks that either half uses.
pub fn write_defaults(cx: &mut Cx<'_>, code: &mut WasmCode, configs: &BTreeSet<ConfigId>) {
    for id in configs {
        let config = &cx.hir.configs[*id];
        let size = config.init.len() as u32;
        if size == 0 {
            continue;
        }
        let key = cx.module.statics.constant(&[0; 4]);
        let init = cx.module.statics.variable(&config.init, size.into(), 8);
        let name = cx.text(&config.name);
        let ask = cx.host(import::args::CONFIG);
        reset_arena(code);
        code.u32(name.address).u32(name.len).u32(init).u32(size).u32(cx.returned).call(ask);
        // A host that returns another length violates the contract.
        code.u32(cx.returned).op(I::I32Load(mem(LIST_LEN))).u32(size).op(I::I32Ne).if_();
        code.op(I::Unreachable).end();
        code.u32(init).u32(cx.returned).op(I::I32Load(mem(0))).u32(size);
        code.op(I::MemoryCopy { src_mem: 0, dst_mem: 0 });
        let location = cx.text(cx.line_prefix(config.span));
        let store = cx.routine(Routine::MapStore(Table::Config(*id)));
        let any = maps::update_mode(cx, "any");
        code.u32(key).u32(init).i32(any).u32(location.address).u32(location.len).call(store);
    }
}
