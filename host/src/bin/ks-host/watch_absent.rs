//! `--watch` of a ks-host that was built without the feature `watch`: it is refused.

use std::io;
use std::sync::Arc;

use anyhow::bail;
use ks_host::world::View;

/// Asks the plugins to stop, and later ends them.
pub(crate) type RequestStop = Arc<dyn Fn() + Send + Sync>;

/// Never made.
#[derive(Clone)]
pub(crate) enum WatchRequest {}

impl WatchRequest {
    /// Refuses.
    pub(crate) fn new(_: RequestStop) -> anyhow::Result<WatchRequest> {
        bail!("--watch: this ks-host was built without it (the feature `watch`)")
    }

    pub(crate) fn begin(&self, _: &str) -> anyhow::Result<Watch> {
        match *self {}
    }
}

/// Never made.
pub(crate) enum Watch {}

impl Watch {
    pub(crate) fn view(&self) -> Arc<dyn View> {
        match *self {}
    }

    pub(crate) fn output(&self) -> Box<dyn io::Write + Send> {
        match *self {}
    }

    pub(crate) fn messages(&self) -> Box<dyn io::Write + Send> {
        match *self {}
    }

    pub(crate) fn end(self) {
        match self {}
    }
}

pub(crate) mod terminal {
    //! No view has the terminal.

    /// Does nothing.
    pub(crate) fn restore() {}
}
