//! What the processes of this program have in common: how a child begins and ends, and messages between them.

pub(crate) mod channel;
pub(crate) mod cpu;
pub(crate) mod limits;
mod process;
pub(crate) mod sys;
pub(crate) mod zygote;

pub(crate) use process::{Grandchild, Process};
