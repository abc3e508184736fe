//! Parsing the result of a group read.
//!
//! With `PERF_FORMAT_GROUP | ID | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING` it consists of 64-bit words:
//!
//! ```text
//! number of events, time enabled, time running, (count, id) of the leader, (count, id) of a member ...
//! ```
//!
//! The result is the same for every descriptor of the group: leader first, with the leader's times, even if a
//! member is read. So entries are found by id, never by position.
//!
//! Source: `enum perf_event_read_format` in `include/uapi/linux/perf_event.h`; `perf_read_group` in
//! `kernel/events/core.c`, v6.18.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;

use super::scale::Times;
use super::sys;

/// Number of words before the first entry.
const HEAD: usize = 3;
/// Number of words of an entry: count and id.
const ENTRY: usize = 2;

/// The reason why a group could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadFailure {
    Errno(Errno),
    /// The read returned no bytes: the event is in error state.
    EndOfFile,
    /// The length disagrees with the number of entries.
    Malformed,
}

/// Buffer for the result, kept between reads so that a read allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Buffer(Vec<u64>);

impl Buffer {
    /// Reads the group that `event` belongs to. `live` is the number of its events: the kernel refuses a
    /// buffer that is too small for all of them (ENOSPC).
    #[inline]
    pub(super) fn read(
        &mut self,
        event: BorrowedFd<'_>,
        live: usize,
    ) -> Result<GroupCounts<'_>, ReadFailure> {
        let words = HEAD + ENTRY * live;
        if self.0.len() != words {
            self.0.resize(words, 0);
        }
        let length = sys::read(event, &mut self.0).map_err(ReadFailure::Errno)?;
        if length == 0 {
            return Err(ReadFailure::EndOfFile);
        }
        self.0.get(..length / size_of::<u64>()).and_then(parse).ok_or(ReadFailure::Malformed)
    }
}

/// The counts of a group at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct GroupCounts<'a> {
    /// The leader's times since it was opened, in nanoseconds.
    pub(super) times: Times,
    entries: &'a [[u64; ENTRY]],
}

impl GroupCounts<'_> {
    /// Returns count and id of all events, the leader's first.
    #[inline]
    pub(super) fn entries(&self) -> &[[u64; ENTRY]] {
        self.entries
    }

    /// Returns the count of the event with this kernel id since it was opened or reset.
    pub(super) fn count(&self, kernel_id: u64) -> Option<u64> {
        self.entries.iter().find(|[_, id]| *id == kernel_id).map(|[count, _]| *count)
    }

    /// As [`GroupCounts::count`], for an event that was the `index`th to join, the leader being 0. Its entry
    /// usually has the same index, which avoids a search.
    #[inline]
    pub(super) fn count_at(&self, index: usize, kernel_id: u64) -> Option<u64> {
        match self.entries.get(index) {
            Some([count, id]) if *id == kernel_id => Some(*count),
            _ => self.count(kernel_id),
        }
    }
}

/// Parses a result. None if its length disagrees with its number of entries.
#[inline]
pub(super) fn parse(words: &[u64]) -> Option<GroupCounts<'_>> {
    let (&[number, enabled, running], entries) = words.split_first_chunk::<HEAD>()?;
    let (entries, rest) = entries.as_chunks::<ENTRY>();
    let agrees = rest.is_empty() && usize::try_from(number) == Ok(entries.len());
    (number > 0 && agrees).then_some(GroupCounts { times: Times { enabled, running }, entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_by_its_id() {
        let counts = parse(&[2, 30, 20, 7, 101, 9, 105]).unwrap();
        assert_eq!(counts.times, Times { enabled: 30, running: 20 });
        assert_eq!(counts.count(105), Some(9));
        assert_eq!(counts.count(101), Some(7));
        assert_eq!(counts.count(7), None, "a count is not an id");
        for index in 0..3 {
            assert_eq!(counts.count_at(index, 105), Some(9), "looked for at {index}");
            assert_eq!(counts.count_at(index, 7), None, "looked for at {index}");
        }
    }

    #[test]
    fn a_length_that_disagrees_with_the_number_is_refused() {
        assert!(parse(&[]).is_none());
        assert!(parse(&[1, 30]).is_none());
        assert!(parse(&[0, 30, 20]).is_none());
        assert!(parse(&[2, 30, 20, 7, 101]).is_none());
        assert!(parse(&[1, 30, 20, 7, 101, 9, 105]).is_none());
        assert!(parse(&[u64::MAX, 30, 20, 7, 101]).is_none());
    }
}
