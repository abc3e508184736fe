//! Config blocks: each lies in a map of one entry, whose defaults are written before `main` runs.

use std::collections::BTreeSet;

use super::code::Code;
use super::cx::Cx;
use super::maps::{self, Table};
use super::runtime::Routine;
use crate::hir::ConfigId;

/// Writes the defaults of the blocks that either half uses.
pub fn write_defaults(cx: &mut Cx<'_>, code: &mut Code, configs: &BTreeSet<ConfigId>) {
    for id in configs {
        let config = &cx.hir.configs[*id];
        let key = cx.module.statics.constant(&[0; 4]);
        let init = cx.module.statics.constant(&config.init);
        let place = cx.text(cx.line_prefix(config.span));
        let store = cx.routine(Routine::MapStore(Table::Config(*id)));
        let any = maps::update_mode(cx, "any");
        code.u32(key).u32(init).i32(any).u32(place.address).u32(place.len).call(store);
    }
}
