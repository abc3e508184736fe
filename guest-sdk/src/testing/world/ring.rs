//! `ring`: records from the test, encoded as the contract's batches.

use std::string::{String, ToString};
use std::vec::Vec;

use crate::bindings::kernelscript::host::types::Error;
use crate::plain::Plain;

use super::super::state::{State, missing, with};

#[derive(Debug)]
pub(crate) struct Ring {
    name: String,
}

impl Ring {
    pub(crate) fn open(name: &str) -> Result<Ring, Error> {
        with(|state| {
            state.permit(name)?;
            if state.rings.contains_key(name) {
                Ok(Ring { name: name.to_string() })
            } else {
                Err(missing("ring buffer", name, "ring(..)"))
            }
        })
    }

    /// Both kinds of rings are the same to a test.
    pub(crate) fn open_perf_event_array(name: &str, _bytes: u32) -> Result<Ring, Error> {
        Ring::open(name)
    }

    pub(crate) fn size(&self) -> u32 {
        with(|state| state.ring(&self.name).map_or(0, |ring| ring.bytes))
    }

    pub(crate) fn waiting(&self) -> u64 {
        with(|state| {
            let now = state.now;
            state.ring(&self.name).map_or(0, |ring| ring.waiting(now))
        })
    }

    pub(crate) fn lost(&self) -> Option<u64> {
        with(|state| state.ring(&self.name).map(|ring| ring.lost))
    }
}

/// The names of the rings of a poll.
#[derive(Debug)]
pub(crate) struct Batch {
    rings: Vec<String>,
}

pub(crate) fn poll(rings: &[&Ring], timeout: Option<u64>, most: u32) -> Result<(Batch, Vec<u8>), Error> {
    with(|state| {
        let first =
            rings.iter().filter_map(|ring| Some(state.rings.get(&ring.name)?.records.front()?.0)).min();
        let over = state.now.saturating_add(timeout.unwrap_or(u64::MAX));
        if first.is_some_and(|due| due <= state.now) {
        } else {
            // Nothing arrives before the timeout.
            state.wait(first.map_or(over, |due| due.min(over)))?
        }
        let names = rings.iter().map(|ring| ring.name.clone()).collect();
        Ok((Batch { rings: names }, entries(state, rings, most as usize)))
    })
}

fn entries(state: &mut State, rings: &[&Ring], most: usize) -> Vec<u8> {
    let now = state.now;
    let mut batch = Vec::new();
    for (position, ring) in (0_u32..).zip(rings) {
        let Some(ring) = state.ring(&ring.name) else { continue };
        while let Some((due, record)) = ring.records.front() {
            let room = record.len().next_multiple_of(8) + 8;
            if *due > now || batch.len() + room > most {
                break;
            }
            batch.extend(position.to_le_bytes());
            batch.extend((record.len() as u32).to_le_bytes());
            batch.extend(record);
            batch.resize(batch.len().next_multiple_of(8), 0);
            ring.records.pop_front();
        }
    }
    batch
}

impl Batch {
    pub(crate) fn put_back(&self, records: &[u8]) -> Result<(), Error> {
        let mut rest = records;
        let mut entries = Vec::new();
        while rest.len() >= 8 {
            let (position, len) = (u32::from_bytes(rest) as usize, u32::from_bytes(&rest[4..]) as usize);
            entries.push((position, rest[8..8 + len].to_vec()));
            rest = rest.get(8 + len.next_multiple_of(8)..).unwrap_or_default();
        }
        with(|state| {
            for (position, record) in entries.into_iter().rev() {
                if let Some(ring) = state.ring(&self.rings[position]) {
                    ring.records.push_front((0, record));
                }
            }
        });
        Ok(())
    }
}
