//! What the checker learns of a kernel: from the running one, from small BTF written here, and without any.

mod built;
mod bundled;
mod command;
mod init;
mod lazy;
mod running;
