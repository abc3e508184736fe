//! Walks through maps, before and after they become calls of a helper: in the order of the keys, each entry that is there
//! when its turn comes.

use super::memory::{Datum, Pointer};
use super::{Machine, Stuck, fault};
use ks_compiler::hir::{FuncId, MapId};
use ks_compiler::kernel::mir::{MapSymbol, Walk};

/// A walk that is under way.
pub(super) struct Walking {
    map: MapId,
    /// The key of the last entry.
    last: Option<Vec<u8>>,
    /// Where it is in memory.
    key: Option<Pointer>,
}

impl Machine<'_> {
    /// The entry whose key comes behind another, with its key.
    fn entry_behind(&self, map: MapId, last: Option<&[u8]>) -> Option<(Vec<u8>, Pointer)> {
        let mut entries = self.entries.iter().filter(|((one, _), _)| *one == map);
        let found = entries.find(|((_, key), _)| last.is_none_or(|last| key.as_slice() > last));
        found.map(|((_, key), entry)| (key.clone(), *entry))
    }

    pub(super) fn walk(&mut self, walk: Walk, args: &[Datum]) -> Result<Option<Datum>, Stuck> {
        let Some(Datum::Pointer(place)) = args.first() else { return fault("no walk") };
        match (walk, &args[1..]) {
            (Walk::New, [Datum::Map(MapSymbol::Map(map))]) => {
                self.walks.insert(*place, Walking { map: *map, last: None, key: None });
                Ok(Some(Datum::Bits(0)))
            }
            (Walk::Next, []) => {
                let Some(under_way) = self.walks.get(place) else {
                    return fault("a walk that was not started");
                };
                let map = under_way.map;
                let Some((key, entry)) = self.entry_behind(map, under_way.last.as_deref()) else {
                    return Ok(Some(Datum::Bits(0)));
                };
                let at = self.memory.place(&key);
                self.walks.insert(*place, Walking { map, last: Some(key), key: Some(at) });
                Ok(Some(Datum::Pointer(entry)))
            }
            (Walk::Key, []) => match self.walks.get(place).and_then(|under_way| under_way.key) {
                Some(key) => Ok(Some(Datum::Pointer(key))),
                None => fault("the key of a walk that has not come to an entry"),
            },
            (Walk::End, []) => match self.walks.remove(place) {
                Some(_) => Ok(None),
                None => fault("a walk that was not started is ended"),
            },
            _ => fault(format!("{} with {args:?}", walk.name())),
        }
    }

    /// Calls a function for each entry until it gives 1.
    pub(super) fn visit(&mut self, map: MapId, function: FuncId, captured: Datum) -> Result<Datum, Stuck> {
        let (mut last, mut visited) = (None, 0);
        while let Some((key, entry)) = self.entry_behind(map, last.as_deref()) {
            let at = self.memory.place(&key);
            visited += 1;
            let args =
                vec![Datum::Map(MapSymbol::Map(map)), Datum::Pointer(at), Datum::Pointer(entry), captured];
            match self.function(function, args)? {
                Datum::Bits(0) => {}
                Datum::Bits(1) => break,
                other => return fault(format!("a callback gives {other:?}")),
            }
            last = Some(key);
        }
        Ok(Datum::Bits(visited))
    }
}
