//! Events that the kernel schedules together or not at all.

use core::marker::PhantomData;
use core::ops::Deref;

#[cfg(doc)]
use crate::error::ErrorKind;
use crate::error::Result;
use crate::event::Event;
use crate::options::PerfOptions;
use crate::perf::Attachment;
use crate::program::Program;
use crate::sys::perf;

/// A group of events, represented by its leader: reading it returns the leader's count.
///
/// Counts of a group cover the same time and may be compared. Members borrow the group, so that none is read
/// after its leader is gone. Dropping the group detaches all of it.
///
/// ```no_run
/// # fn main() -> ks_guest::Result<()> {
/// use ks_guest::{Event, Group, PerfOptions};
///
/// let mine = PerfOptions::new().own_thread();
/// let cycles = Group::open(&Event::named("cycles")?, &mine)?;
/// let instructions = cycles.join(&Event::named("instructions")?, &mine)?;
/// let (cycles, instructions) = (cycles.read()?.raw, instructions.read()?.raw);
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0505
/// # use ks_guest::{Event, Group, PerfOptions, Result};
/// # fn misuse(group: Group, event: Event, options: PerfOptions) -> Result<()> {
/// let member = group.join(&event, &options)?;
/// drop(group);
/// member.read()?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Group {
    leader: Attachment,
}

impl Group {
    /// Opens an event as the leader of a new group and starts counting.
    ///
    /// # Errors
    /// See [`Attachment::open`].
    pub fn open(event: &Event, options: &PerfOptions) -> Result<Group> {
        Ok(Group { leader: Attachment::open(event, options)? })
    }

    /// Like [`Group::open`], with a program that runs at every overflow of the leader.
    ///
    /// # Errors
    /// See [`Attachment::open`].
    pub fn open_with(event: &Event, options: &PerfOptions, program: &Program) -> Result<Group> {
        Ok(Group { leader: Attachment::open_with(event, options, program)? })
    }

    /// Opens an event as a member. The whole group restarts from zero, counts and times. The options must
    /// name the same tasks and CPUs as the leader's.
    ///
    /// # Errors
    /// See [`Attachment::open`]; [`Invalid`](ErrorKind::Invalid) if it does not fit the group, which is then
    /// unchanged.
    pub fn join(&self, event: &Event, options: &PerfOptions) -> Result<Member<'_>> {
        self.member(event, options, None)
    }

    /// Like [`Group::join`], with a program that runs at every overflow of the member.
    ///
    /// # Errors
    /// See [`Group::join`].
    pub fn join_with(&self, event: &Event, options: &PerfOptions, program: &Program) -> Result<Member<'_>> {
        self.member(event, options, Some(program))
    }

    fn member(&self, event: &Event, options: &PerfOptions, program: Option<&Program>) -> Result<Member<'_>> {
        let program = program.map(|program| &program.raw);
        let raw = perf::open(&event.raw, &options.raw, Some(&self.leader.raw), program)?;
        Ok(Member { attachment: Attachment::of(raw), leader: PhantomData })
    }

    /// Detaches the whole group immediately, like dropping it.
    pub fn detach(self) {
        self.leader.detach();
    }
}

impl Deref for Group {
    type Target = Attachment;

    fn deref(&self) -> &Attachment {
        &self.leader
    }
}

/// A member of a group. Dropping it detaches the member; the group continues counting.
#[derive(Debug)]
pub struct Member<'group> {
    attachment: Attachment,
    leader: PhantomData<&'group Group>,
}

impl Member<'_> {
    /// Removes this event from the group and closes it immediately, like dropping it.
    pub fn detach(self) {
        self.attachment.detach();
    }
}

impl Deref for Member<'_> {
    type Target = Attachment;

    fn deref(&self) -> &Attachment {
        &self.attachment
    }
}
