//! The language server as an editor uses it: the command `ks lsp`, over its pipes.

mod client;
mod completion;
mod conversation;
mod diagnostics;
mod grammar;
mod hover;
mod latency;
mod navigation;
mod robust;
mod tables;
