//! Dead store elimination for records of rings, which nobody sees before they are submitted.
//!
//! Missing compared with the standard algorithm: only stores that later ones of the same block replace.

use super::alias_analysis::{AliasAnalysis, MemoryLocation, Root};
use super::changes::Changes;
use crate::index::IndexVec;
use crate::kernel::mir::flow::Flow;
use crate::kernel::mir::{Block, Callee, Helper, MirFunction, Op, Value};

/// Runs the pass on one function.
pub fn run(function: &mut MirFunction, flow: &Flow) -> Changes {
    let is_reserve = |op: &Op| matches!(op, Op::Call { callee: Callee::Helper(Helper::RingReserve), .. });
    if !function.insts().any(|inst| is_reserve(&inst.op)) {
        return Changes::NONE;
    }
    let useless = {
        let definitions = function.definitions();
        let aliases = AliasAnalysis::new(function, &flow.order);
        let stores = Stores { function, aliases, definitions };
        flow.order.iter().flat_map(|block| stores.replaced(*block)).collect::<Vec<_>>()
    };
    // From the last to the first of each block, so that positions stay valid.
    for (block, at) in &useless {
        function.blocks[*block].insts.remove(*at);
    }
    (Changes::MEMORY | Changes::GONE).when(!useless.is_empty())
}

struct Stores<'a> {
    function: &'a MirFunction,
    aliases: AliasAnalysis<'a>,
    definitions: IndexVec<Value, Option<&'a Op>>,
}

impl Stores<'_> {
    /// The stores of a block that later ones replace before anybody reads them, the last first.
    fn replaced(&self, block: Block) -> Vec<(Block, usize)> {
        let (mut replaced, mut later) = (Vec::new(), Vec::<MemoryLocation>::new());
        for (at, inst) in self.function.blocks[block].insts.iter().enumerate().rev() {
            match &inst.op {
                store @ Op::Store { .. } => {
                    let Some(location) = self.aliases.accessed(store) else { continue };
                    if !location.exact || !self.is_record(location.root) {
                        continue;
                    }
                    if is_covered(location, &later) {
                        replaced.push((block, at));
                    } else {
                        later.push(location);
                    }
                }
                Op::Call { callee: Callee::Helper(helper), args } if !helper.calls_back() => {
                    let read: Vec<_> = self.aliases.arguments(args).collect();
                    later.retain(|one| !read.iter().any(|read| self.aliases.overlap(*one, *read)));
                }
                Op::Call { .. } => later.clear(),
                other => {
                    if let Some(read) = self.aliases.accessed(other) {
                        later.retain(|one| !self.aliases.overlap(*one, read));
                    }
                }
            }
        }
        replaced
    }

    fn is_record(&self, root: Root) -> bool {
        let Root::Pointer(pointer) = root else { return false };
        let reserved = match self.definitions[pointer] {
            Some(Op::NonNull(reserved)) => *reserved,
            _ => pointer,
        };
        let definition = self.definitions[reserved];
        matches!(definition, Some(Op::Call { callee: Callee::Helper(Helper::RingReserve), .. }))
    }
}

/// Whether others together have every byte of a location.
fn is_covered(location: MemoryLocation, others: &[MemoryLocation]) -> bool {
    let has =
        |byte: i64| others.iter().any(|one| one.root == location.root && one.start <= byte && byte < one.end);
    (location.start..location.end).all(has)
}
