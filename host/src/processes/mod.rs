//! What the processes of this program have in common: how a child begins, and messages between them.

pub(crate) mod channel;
pub(crate) mod sys;
