//! Reading of the groups at all locations as one counter: by the process that opened them, or by a worker that was given
//! their descriptors.

use std::collections::{BTreeMap, BTreeSet};

use super::super::attachments::AttachmentId;
use super::super::locations::CpuAndTask;
use super::super::readable::ReadableEvent;
use super::super::reading::{Entries, GroupEntry};
use super::super::scale::{Count, Tally};
use super::total::{GoneCpu, Total};

/// The group at one location.
pub(in super::super) trait LocatedGroup {
    /// Why it cannot be read.
    type Error;

    fn location(&self) -> &CpuAndTask;

    /// Returns the events that count here: the leader, then the members in the order in which they joined.
    fn events(&self) -> impl Iterator<Item = &ReadableEvent>;

    /// Reads the event of one attachment.
    fn read(&mut self, id: AttachmentId) -> Result<Count, Self::Error>;

    /// Reads the group and calls `report` with the location and each event, in the order of
    /// [`LocatedGroup::events`].
    fn read_all(&mut self, report: impl FnMut(&CpuAndTask, &ReadableEvent, Count))
    -> Result<(), Self::Error>;

    /// Reads the group and fills `entries` in the order of [`LocatedGroup::events`]. Returns the count of the event
    /// at index `own`.
    fn snapshot(&mut self, own: usize, entries: &mut Entries) -> Result<Count, Self::Error>;
}

/// The groups at all locations, and what was counted elsewhere or not at all.
pub(in super::super) struct Readout<'a, G, A> {
    /// The leader, then the members in the order in which they joined.
    pub(in super::super) attachments: &'a [A],
    pub(in super::super) groups: &'a mut [G],
    /// The counts from CPUs that went offline.
    pub(in super::super) gone: &'a BTreeMap<AttachmentId, Vec<GoneCpu>>,
    /// Attachments that some of the requested kinds of core do not count.
    pub(in super::super) lacking: &'a BTreeSet<AttachmentId>,
    /// Whether a requested CPU is not counted.
    pub(in super::super) misses_cpus: bool,
}

impl<G: LocatedGroup, A: AsRef<AttachmentId>> Readout<'_, G, A> {
    /// Reads one attachment at all locations.
    #[inline]
    pub(in super::super) fn read(self, id: AttachmentId) -> Result<Tally, G::Error> {
        let lacks = self.lacks(id);
        if let ([only], true) = (&mut *self.groups, self.gone.is_empty()) {
            return Ok(only.read(id)?.tally().lacking(lacks));
        }
        let mut total = Total::default();
        total.add_gone(self.gone.get(&id).map_or(&[], Vec::as_slice));
        for group in self.groups.iter_mut().rev() {
            if group.events().any(|event| event.id == id) {
                let count = group.read(id)?;
                total.add(group.location(), count.tally());
            }
        }
        Ok(total.sum().lacking(lacks))
    }

    /// Reads the whole group at all locations, with one system call at each. Calls `report` for each
    /// attachment with the kernel's id at the first location and the sum, in the order of the attachments.
    pub(in super::super) fn read_all(
        &mut self,
        mut report: impl FnMut(AttachmentId, u64, Tally),
    ) -> Result<(), G::Error> {
        let (lacking, misses) = (self.lacking, self.misses_cpus);
        if let Some(only) = self.only_group() {
            return only.read_all(|_, event, count| {
                let tally = count.tally().lacking(misses || lacking.contains(&event.id));
                report(event.id, event.kernel_id, tally);
            });
        }
        let mut totals: BTreeMap<AttachmentId, Total> = BTreeMap::new();
        for (id, gone) in self.gone {
            totals.entry(*id).or_default().add_gone(gone);
        }
        for group in self.groups.iter_mut().rev() {
            add_group(group, &mut totals)?;
        }
        for id in self.attachments.iter().map(AsRef::as_ref) {
            let sum = totals.get(id).map(Total::sum).unwrap_or_default();
            report(*id, kernel_id(self.groups, *id, None), sum.lacking(self.lacks(*id)));
        }
        Ok(())
    }

    /// Reads the whole group at all locations. Fills `entries` in the order of the attachments, and returns the
    /// index and the tally of `id`; none if it is none of them.
    #[inline]
    pub(in super::super) fn snapshot(
        mut self,
        id: AttachmentId,
        entries: &mut Entries,
    ) -> Result<Option<(usize, Tally)>, G::Error> {
        let Some(own) = self.attachments.iter().position(|attachment| *attachment.as_ref() == id) else {
            return Ok(None);
        };
        let lacks = self.lacks(id);
        if let Some(only) = self.only_group() {
            return Ok(Some((own, only.snapshot(own, entries)?.tally().lacking(lacks))));
        }
        let mut tallies = Vec::new();
        self.read_all(|id, kernel_id, tally| tallies.push((id, kernel_id, tally)))?;
        entries.clear();
        entries.extend(tallies.iter().map(|(id, kernel_id, tally)| GroupEntry::of(*id, *kernel_id, tally)));
        Ok(Some((own, tallies[own].2)))
    }

    /// As [`Readout::read_all`], for the locations on one CPU, including what was counted there before the CPU
    /// went offline. Returns false, without calling `report`, if `id` was never counted there.
    pub(in super::super) fn read_cpu(
        self,
        id: AttachmentId,
        cpu: i32,
        mut report: impl FnMut(AttachmentId, u64, Tally),
    ) -> Result<bool, G::Error> {
        let mut totals: BTreeMap<AttachmentId, Total> = BTreeMap::new();
        for (id, gone) in self.gone {
            let here: Vec<GoneCpu> = gone.iter().copied().filter(|gone| gone.cpu == cpu).collect();
            if !here.is_empty() {
                totals.entry(*id).or_default().add_gone(&here);
            }
        }
        let mut is_away = true;
        for group in self.groups.iter_mut().filter(|group| group.location().cpu == cpu) {
            is_away = false;
            add_group(group, &mut totals)?;
        }
        if !totals.contains_key(&id) {
            return Ok(false);
        }
        for id in self.attachments.iter().map(AsRef::as_ref) {
            // A member that this kind of core does not count has no value.
            let sum = totals.get(id).map_or_else(Tally::nothing, Total::sum);
            report(*id, kernel_id(self.groups, *id, Some(cpu)), sum.lacking(is_away));
        }
        Ok(true)
    }

    /// Whether a requested kind of core or CPU is not counted.
    #[inline]
    fn lacks(&self, id: AttachmentId) -> bool {
        self.misses_cpus || self.lacking.contains(&id)
    }

    /// Returns the group if there is only one and it counts every attachment: the sum is then its own count.
    #[inline]
    fn only_group(&mut self) -> Option<&mut G> {
        match &mut *self.groups {
            // A group contains the attachments that count there, in the order of the attachments.
            [only] if self.gone.is_empty() && only.events().count() == self.attachments.len() => Some(only),
            _ => None,
        }
    }
}

/// Reads a group and adds its counts.
fn add_group<G: LocatedGroup>(
    group: &mut G,
    totals: &mut BTreeMap<AttachmentId, Total>,
) -> Result<(), G::Error> {
    group.read_all(|location, event, count| {
        totals.entry(event.id).or_default().add(location, count.tally());
    })
}

/// Returns the kernel's id of an attachment at its first location, or at the first one on `cpu`; 0 if there is none.
pub(super) fn kernel_id<G: LocatedGroup>(groups: &[G], id: AttachmentId, cpu: Option<i32>) -> u64 {
    let there = groups.iter().filter(|group| cpu.is_none_or(|cpu| group.location().cpu == cpu));
    let mut events = there.flat_map(LocatedGroup::events);
    events.find(|event| event.id == id).map_or(0, |event| event.kernel_id)
}
