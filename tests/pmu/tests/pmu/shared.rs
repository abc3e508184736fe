//! Counters of one thread that another one opens: as `ks-host` does for a plugin's process.

use std::sync::mpsc;
use std::thread;

use ks_host::perf::{AttachmentId, Attachments, Change, Reading, SharedGroups, Snapshot};
use nix::unistd::gettid;

use super::{GroupReader, check_calls, check_readings, open_group};

/// What the thread that reads gets from the one that has opened the events: the leader and the member, and what has
/// changed.
type Passed = ([AttachmentId; 2], Vec<Change>);

/// The thread that reads. `next` has the group opened, and then reset.
struct Reader<N> {
    groups: SharedGroups,
    next: N,
}

impl<N: FnMut() -> Passed> Reader<N> {
    /// Takes what the other thread passes on next.
    fn take(&mut self) -> [AttachmentId; 2] {
        let (ids, changes) = (self.next)();
        changes.into_iter().for_each(|change| self.groups.take(change));
        ids
    }
}

impl<N: FnMut() -> Passed> GroupReader for Reader<N> {
    fn reset(&mut self, _: AttachmentId) -> u64 {
        self.take();
        0
    }

    fn snapshot(&mut self, id: AttachmentId) -> Snapshot {
        self.groups.snapshot(id).unwrap()
    }

    fn read(&mut self, id: AttachmentId) -> Reading {
        self.groups.read(id).unwrap()
    }
}

/// Opens a group for another thread, which reads it.
fn check_readings_of_another() -> u64 {
    let (ask, asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let reader = thread::spawn(move || {
        let next = || {
            ask.send(gettid().as_raw()).unwrap();
            answers.recv().unwrap()
        };
        let mut reader = Reader { groups: SharedGroups::default(), next };
        let group = reader.take();
        check_readings(&mut reader, group)
    });
    let mut attachments = Attachments::new();
    attachments.share();
    attachments.set_own_task(asked.recv().unwrap());
    let group = open_group(&mut attachments);
    answer.send((group, attachments.take_changes().unwrap())).unwrap();
    asked.recv().unwrap();
    attachments.reset(group[0]).unwrap();
    answer.send((group, attachments.take_changes().unwrap())).unwrap();
    reader.join().unwrap()
}

#[test]
fn counters_that_another_opened_are_read_without_the_kernel_where_it_allows_it() {
    check_calls(check_readings_of_another, || ());
}
