//! Map iteration, before and after it is lowered to a helper call: in the order of keys, each entry that
//! exists when the iteration reaches it.

use super::memory::{Datum, Pointer};
use super::{InterpError, Machine, fault};
use ks_compiler::hir::{FuncId, MapId};
use ks_compiler::kernel::mir::{MapIter, MapSymbol};

/// A running map iteration.
pub(super) struct ActiveMapIter {
    map: MapId,
    /// Key of the last visited entry; none before the first.
    last: Option<Vec<u8>>,
    /// Address of that key in memory.
    key: Option<Pointer>,
}

impl Machine<'_> {
    /// Returns the entry with the next greater key, and that key.
    fn next_entry(&self, map: MapId, last: Option<&[u8]>) -> Option<(Vec<u8>, Pointer)> {
        let mut entries = self.entries.iter().filter(|((one, _), _)| *one == map);
        let found = entries.find(|((_, key), _)| last.is_none_or(|last| key.as_slice() > last));
        found.map(|((_, key), entry)| (key.clone(), *entry))
    }

    pub(super) fn map_iter(
        &mut self,
        iter_op: MapIter,
        args: &[Datum],
    ) -> Result<Option<Datum>, InterpError> {
        let Some(Datum::Pointer(iterator)) = args.first() else { return fault("no walk") };
        match (iter_op, &args[1..]) {
            (MapIter::New, [Datum::Map(MapSymbol::Map(map))]) => {
                self.map_iters.insert(*iterator, ActiveMapIter { map: *map, last: None, key: None });
                Ok(Some(Datum::Bits(0)))
            }
            (MapIter::Next, []) => {
                let Some(active) = self.map_iters.get(iterator) else {
                    return fault("a walk that was not started");
                };
                let map = active.map;
                let Some((key, entry)) = self.next_entry(map, active.last.as_deref()) else {
                    return Ok(Some(Datum::Bits(0)));
                };
                let at = self.memory.alloc_with(&key);
                self.map_iters.insert(*iterator, ActiveMapIter { map, last: Some(key), key: Some(at) });
                Ok(Some(Datum::Pointer(entry)))
            }
            (MapIter::Key, []) => match self.map_iters.get(iterator).and_then(|active| active.key) {
                Some(key) => Ok(Some(Datum::Pointer(key))),
                None => fault("the key of a walk that has not come to an entry"),
            },
            (MapIter::End, []) => match self.map_iters.remove(iterator) {
                Some(_) => Ok(None),
                None => fault("a walk that was not started is ended"),
            },
            _ => fault(format!("{} with {args:?}", iter_op.name())),
        }
    }

    /// Calls a function for each entry until it returns 1.
    pub(super) fn visit(
        &mut self,
        map: MapId,
        function: FuncId,
        captured: Datum,
    ) -> Result<Datum, InterpError> {
        let (mut last, mut visited) = (None, 0);
        while let Some((key, entry)) = self.next_entry(map, last.as_deref()) {
            let at = self.memory.alloc_with(&key);
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
