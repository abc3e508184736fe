//! Signal handling. The first Ctrl-C or SIGTERM asks the plugins to stop, the second ends them and the
//! command, whatever its threads wait for; one that arrives right after the first is ignored. SIGHUP rereads
//! changed plugin files, unless it means that the terminal has gone.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::{Duration, Instant};

use ks_host::Writer;
use nix::sys::signal::{SigSet, Signal};

use crate::fleet::Fleet;
use crate::watch;

/// A signal that repeats within this time is the same request: timeout(1) sends one to its child and one to
/// the child's group, and a terminal sends Ctrl-C to the whole group while a parent forwards it.
const SAME: Duration = Duration::from_millis(200);

/// Time after the second request in which the plugins release what they hold and the command reports their
/// end. Then the process exits: the report may wait for a reader that never comes. What is attached is then
/// detached by the kernel, and by the process that removes filters of tc programs.
const END_AFTER: Duration = Duration::from_secs(1);

/// Blocks the signals in the calling thread, and so in all threads that it starts, and waits for them on a
/// thread of its own: no code runs in a signal handler. That thread never waits for output.
pub(crate) fn handle(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block()?;
    let terminals = terminals();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut reloader = None;
        let mut last: Option<(Signal, Instant)> = None;
        // The set holds valid signals only, so waiting does not fail.
        while let Ok(signal) = signals.wait() {
            // A shell forwards a hang-up as if somebody had sent it. It is recognised by a standard stream
            // that is no longer a terminal.
            if signal == Signal::SIGHUP && terminals == self::terminals() {
                reload(&mut reloader, &fleet);
            } else if last.is_none_or(|(before, at)| before != signal || at.elapsed() > SAME) {
                last = Some((signal, Instant::now()));
                stop(&fleet);
            }
        }
    })?;
    Ok(())
}

/// Asks the plugins to stop; if they were asked before, ends them and the process.
fn stop(fleet: &Fleet) {
    if fleet.stop() {
        std::thread::sleep(END_AFTER);
        watch::terminal::restore();
        std::process::exit(crate::ENDED.into());
    }
}

/// Returns what a key does that is for others a signal.
pub(crate) fn request(fleet: &Arc<Fleet>) -> watch::RequestStop {
    let fleet = Arc::clone(fleet);
    Arc::new(move || stop(&fleet))
}

/// Rereads changed files on a separate thread, which is started at the first request: most runs see none.
/// Compiling takes time, and Ctrl-C must not wait for it.
fn reload(reloader: &mut Option<SyncSender<()>>, fleet: &Arc<Fleet>) {
    if let Some(again) = reloader {
        // The channel is full if a request waits already; that one also covers this request.
        let _ = again.try_send(());
        return;
    }
    let (again, asked) = mpsc::sync_channel(1);
    let fleet = Arc::clone(fleet);
    // The channel is new and has room for one request.
    let _ = again.try_send(());
    let started = std::thread::Builder::new()
        .name("reload".into())
        .spawn(move || asked.iter().for_each(|()| fleet.reload()));
    match started {
        Ok(_) => *reloader = Some(again),
        Err(error) => {
            let message = format!(
                "ks-host: cannot start the thread that reads plugins again: {error}; they run on as they \
                 were\n"
            );
            Writer::stderr().write_at_once(message.as_bytes());
        }
    }
}

/// Returns for each standard stream whether it is a terminal that still exists.
fn terminals() -> [bool; 3] {
    [io::stdin().is_terminal(), io::stdout().is_terminal(), io::stderr().is_terminal()]
}
