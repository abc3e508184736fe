//! Group reads whose entries are not in the order in which the events joined.

use std::fs::File;

use super::super::read::parse;
use super::*;

/// Returns an event with this kernel id. Its descriptor is not a perf event.
fn event(kernel_id: u64) -> ReadableEvent {
    ReadableEvent::new(AttachmentId::of(kernel_id), kernel_id, File::open("/dev/null").unwrap().into())
}

/// Returns ids and counts of a snapshot of leader 101 with members 102 and 103.
fn read_counts(answer: &[u64]) -> Result<Vec<(u64, u64)>, ReadFailure> {
    let members = [event(102), event(103)];
    let mut entries = Entries::new();
    fill(&mut entries, &event(101), &members, &parse(answer).unwrap())?;
    Ok(entries.iter().map(|entry| (entry.kernel_id, entry.raw)).collect())
}

#[test]
fn entries_have_the_counts_of_their_ids_in_whatever_order() {
    let right = Ok(vec![(101, 1), (102, 2), (103, 3)]);
    assert_eq!(read_counts(&[3, 9, 9, 1, 101, 2, 102, 3, 103]), right);
    assert_eq!(read_counts(&[3, 9, 9, 1, 101, 3, 103, 2, 102]), right, "members change places");
    assert_eq!(read_counts(&[3, 9, 9, 2, 102, 1, 101, 3, 103]), right, "the leader is not the first");
    assert_eq!(read_counts(&[4, 9, 9, 1, 101, 7, 107, 2, 102, 3, 103]), right, "one more than there are");
    assert_eq!(read_counts(&[4, 9, 9, 1, 101, 2, 102, 3, 103, 7, 107]), right, "one more at the end");
}

#[test]
fn an_answer_that_lacks_one_gives_no_entries() {
    for answer in
        [&[2, 9, 9, 1, 101, 2, 102][..], &[2, 9, 9, 2, 102, 3, 103], &[3, 9, 9, 1, 101, 2, 102, 3, 107]]
    {
        assert!(read_counts(answer) == Err(ReadFailure::Malformed), "{answer:?}");
    }
}

#[test]
fn the_memory_of_entries_serves_the_next() {
    let mut first = Entries::new();
    first.extend((0..64).map(|id| GroupEntry {
        id: AttachmentId::of(id),
        kernel_id: id,
        raw: 0,
        scaled: None,
    }));
    let address = first.as_ptr();
    drop(first);
    let mut second = Entries::new();
    assert!(second.is_empty());
    second.push(GroupEntry { id: AttachmentId::of(1), kernel_id: 1, raw: 0, scaled: None });
    assert_eq!(second.as_ptr(), address);
}
