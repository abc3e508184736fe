//! A plugin in a process of its own, which has nothing but a socket.
//!
//! ```text
//! the broker: policy, object, events, links, output            a worker for each run
//!   WorkerProgram: a process that waits -- Start, the code in memory --> child: drops its rights, loads, links
//!        <- Ready: what it imports ---------------/
//!   serve (the plugin's thread) -- Enter --------> the instance: run, a test
//!        <- Call: a function's number and arguments
//!        -- PassedOn: events and maps that it may use itself
//!        -- Answer, or the trap that ends it ---->
//!        <- Tell: a call without an answer
//!        <- Ended: the outcome
//! ```
//!
//! Every call of the plugin is a message, or uses a descriptor that the broker has passed on (`world::direct`), and the
//! broker answers it as it would answer the plugin in its own process: a worker that was taken over can ask for nothing
//! that the plugin could not ask for. The broker loads no compiled code and maps no memory of a plugin. Messages are made
//! from the contract (`world::wire`), and whatever a worker sends, or does not, the broker goes on looking after what the
//! plugin has attached (`patience`).
//!
//! The broker interrupts a computing worker by a signal; a worker has one thread and no timer.

mod child;
mod confine;
mod hostile;
mod patience;
mod process;
mod protocol;
mod serve;
mod sys;

pub use child::{confine_like_a_worker, serve_if_asked, serve_taken_over_if_asked};
pub use hostile::HostileBroker;
pub use process::WorkerProgram;
pub(crate) use process::{NoWorker, PluginCode, Worker, interrupt};
pub(crate) use protocol::{Export, ExportCall};
pub(crate) use serve::{RemoteMemory, Served, Serving, serve};
