//! A second reader of attachments: reads as a worker does, and asks where a worker asks its broker.

use ks_host::perf::{AttachmentId, Attachments, Reading, SharedGroups, Snapshot};

/// What a worker has of these attachments.
#[derive(Default)]
pub struct Mirror {
    groups: SharedGroups,
    /// How often it asked.
    pub asked: u32,
}

impl Mirror {
    /// Shares the attachments.
    pub fn of(attachments: &mut Attachments) -> Mirror {
        attachments.share();
        Mirror::default()
    }

    /// Takes what has changed, as a worker does before each answer.
    pub fn update(&mut self, attachments: &mut Attachments) {
        for change in attachments.take_changes().expect("there is room for descriptors") {
            self.groups.take(change);
        }
    }

    /// Reads an attachment.
    pub fn read(&mut self, attachments: &mut Attachments, id: AttachmentId) -> Reading {
        self.groups.read(id).unwrap_or_else(|| {
            let reading = attachments.read(id).unwrap_or_else(|error| panic!("{error}"));
            self.ask(attachments);
            reading
        })
    }

    /// Reads several attachments.
    pub fn read_many(&mut self, attachments: &mut Attachments, ids: &[AttachmentId]) -> Vec<Reading> {
        self.groups.read_many(ids).unwrap_or_else(|| {
            let readings = attachments.read_many(ids).unwrap_or_else(|error| panic!("{error}"));
            self.ask(attachments);
            readings
        })
    }

    /// Reads a group.
    pub fn snapshot(&mut self, attachments: &mut Attachments, id: AttachmentId) -> Snapshot {
        self.groups.snapshot(id).unwrap_or_else(|| {
            let snapshot = attachments.snapshot(id).unwrap_or_else(|error| panic!("{error}"));
            self.ask(attachments);
            snapshot
        })
    }

    /// Reads a group on one CPU.
    pub fn snapshot_cpu(&mut self, attachments: &mut Attachments, id: AttachmentId, cpu: i32) -> Snapshot {
        self.groups.snapshot_cpu(id, cpu).unwrap_or_else(|| {
            let snapshot = attachments.snapshot_cpu(id, cpu).unwrap_or_else(|error| panic!("{error}"));
            self.ask(attachments);
            snapshot
        })
    }

    fn ask(&mut self, attachments: &mut Attachments) {
        self.asked += 1;
        self.update(attachments);
    }
}
