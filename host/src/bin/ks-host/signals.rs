//! Ctrl-C and SIGTERM: the first asks the plugins to stop, the second ends them, but for one right behind the first. SIGHUP: changed plugin files are read
//! again, unless the terminal has gone.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};

use crate::fleet::Fleet;
use crate::output::say;

/// A signal that comes again within this time is the same wish: timeout(1) sends one to its child and one to the child's
/// group, and a terminal sends Ctrl-C to all of the group while a parent passes it on.
const SAME: Duration = Duration::from_millis(200);

/// Blocks the signals in the calling thread, and so in all that it starts, and waits for them on a thread of its own:
/// no code runs in a signal handler.
pub(crate) fn handle(fleet: Arc<Fleet>) -> anyhow::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block()?;
    let terminals = terminals();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut reloader = None;
        let mut last: Option<(Signal, Instant)> = None;
        // The set holds valid signals only, so waiting does not fail.
        while let Ok(signal) = signals.wait() {
            // A shell passes a hang-up on as if somebody had sent it: what tells is that a terminal is none any more.
            if signal == Signal::SIGHUP && terminals == self::terminals() {
                reload(&mut reloader, &fleet);
            } else if last.is_none_or(|(before, at)| before != signal || at.elapsed() > SAME) {
                last = Some((signal, Instant::now()));
                fleet.stop();
            }
        }
    })?;
    Ok(())
}

/// Has changed files read again by a thread that is started for the first of such wishes: most runs see none. Compiling
/// takes its time, and Ctrl-C must not wait for it.
fn reload(reloader: &mut Option<SyncSender<()>>, fleet: &Arc<Fleet>) {
    if let Some(again) = reloader {
        // It is full if one waits already, which is enough for all that come meanwhile.
        let _ = again.try_send(());
        return;
    }
    let (again, asked) = mpsc::sync_channel(1);
    let fleet = Arc::clone(fleet);
    // There is room for one: nobody else has sent any.
    let _ = again.try_send(());
    let started = std::thread::Builder::new()
        .name("reload".into())
        .spawn(move || asked.iter().for_each(|()| fleet.reload()));
    match started {
        Ok(_) => *reloader = Some(again),
        Err(error) => {
            say(format_args!(
                "ks-host: cannot start the thread that reads plugins again: {error}; they run on as they were"
            ));
        }
    }
}

/// Which of the standard files are a terminal that is still there.
fn terminals() -> [bool; 3] {
    [io::stdin().is_terminal(), io::stdout().is_terminal(), io::stderr().is_terminal()]
}
