//! The checker's view of a kernel: from the running one, from small generated BTF, and without any.

mod built;
mod bundled;
mod command;
mod facts;
mod init;
mod lazy;
mod running;
