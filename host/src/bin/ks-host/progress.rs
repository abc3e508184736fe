//! Progress messages on the terminal for work that takes more than a second.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use crate::output::printable;

/// Does the work. After one second the terminal shows `what` and the elapsed seconds, until the work is done.
/// Nothing is written if standard error is not a terminal.
pub(crate) fn during<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !io::stderr().is_terminal() {
        return work();
    }
    let (done, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || show(what, &ended));
        let result = work();
        drop(done);
        result
    })
}

fn show(what: &str, ended: &Receiver<()>) {
    let began = Instant::now();
    let mut is_drawn = false;
    while ended.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        // A terminal that has gone is no reason to stop the work.
        let _ = write!(io::stderr(), "\r\x1b[Kks-host: {}: {} s", printable(what), began.elapsed().as_secs());
        is_drawn = true;
    }
    if is_drawn {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
}
