//! `--watch`: what a plugin keeps, as a table on the terminal.
//!
//! ```text
//! the plugin's thread -- View, lines --> Content <-- the thread `screen`: Screen (keys), draw --> the terminal
//!                                                      \-- a request to stop --> Fleet
//! ```
//!
//! All text comes from outside. It was made visible before it came here, and is cut to the width of the terminal. The terminal
//! is restored however the view ends: by [`Watch::end`], by a panic, and before the process exits (`terminal`).

mod content;
mod draw;
mod flame;
mod keys;
mod screen;
pub(crate) mod terminal;

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use ks_host::Writer;
use ks_host::world::View;
use ratatui::crossterm::event::{self, Event};

use content::Shared;
use screen::{Action, Screen};

/// How long the view waits for a key before it looks for new content.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long the end of the view waits for a terminal that takes nothing.
const END_WITHIN: Duration = Duration::from_secs(1);

/// Asks the plugins to stop, and later ends them.
pub(crate) type RequestStop = Arc<dyn Fn() + Send + Sync>;

/// A view that was asked for, before its plugin runs.
#[derive(Clone)]
pub(crate) struct WatchRequest {
    stop: RequestStop,
}

impl WatchRequest {
    /// Checks that there is a terminal.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn new(stop: RequestStop) -> anyhow::Result<WatchRequest> {
        ensure!(
            io::stdin().is_terminal() && io::stdout().is_terminal(),
            "--watch draws on a terminal and takes keys from it, and standard input or output is none\n  do: leave it out; \
             `--json` is for other programs"
        );
        Ok(WatchRequest { stop })
    }

    /// Takes the terminal, until the value is ended.
    ///
    /// # Errors
    /// The terminal refuses.
    pub(crate) fn begin(&self, name: &str) -> anyhow::Result<Watch> {
        let shared = Arc::new(Shared::default());
        let is_over = Arc::new(AtomicBool::new(false));
        let terminal = terminal::enter().context("--watch: the terminal cannot be used")?;
        let (ends, ended) = mpsc::channel();
        let viewer = Viewer {
            terminal,
            screen: Screen::new(name),
            shared: Arc::clone(&shared),
            is_over: Arc::clone(&is_over),
            stop: Arc::clone(&self.stop),
            _ends: ends,
        };
        let started = std::thread::Builder::new().name("screen".into()).spawn(move || viewer.run());
        if let Err(error) = started {
            terminal::restore();
            return Err(error).context("--watch: no thread for the terminal");
        }
        Ok(Watch { shared, is_over, ended })
    }
}

/// A view that has the terminal.
pub(crate) struct Watch {
    shared: Arc<Shared>,
    is_over: Arc<AtomicBool>,
    ended: Receiver<()>,
}

impl Watch {
    /// What takes the plugin's tables.
    pub(crate) fn view(&self) -> Arc<dyn View> {
        Arc::clone(&self.shared) as Arc<dyn View>
    }

    /// What takes the lines of its standard output.
    pub(crate) fn output(&self) -> Box<dyn io::Write + Send> {
        Box::new(content::Lines::printed(&self.shared))
    }

    /// What takes the lines of its standard error.
    pub(crate) fn messages(&self) -> Box<dyn io::Write + Send> {
        Box::new(content::Lines::said(&self.shared))
    }

    /// Restores the terminal, and writes what was shown last as text: tables to standard output, messages to
    /// standard error.
    pub(crate) fn end(self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread has dropped its end of the channel when it is done.
        let waited = self.ended.recv_timeout(END_WITHIN);
        debug_assert_ne!(waited, Ok(()));
        if waited == Err(RecvTimeoutError::Timeout) {
            terminal::restore();
        }
        let content = self.shared.lock();
        let tables: String = content.tables().map(|table| table.plain.as_str()).collect();
        // Nobody is left to whom a failure could be reported.
        let _ = Writer::stdout().write_all(tables.as_bytes());
        for message in content.messages() {
            let _ = Writer::stderr().write_all(format!("{message}\n").as_bytes());
        }
    }
}

/// The thread that has the terminal.
struct Viewer {
    terminal: terminal::Screen,
    screen: Screen,
    shared: Arc<Shared>,
    is_over: Arc<AtomicBool>,
    stop: RequestStop,
    _ends: mpsc::Sender<()>,
}

impl Viewer {
    fn run(mut self) {
        let mut drawn = None;
        while !self.is_over.load(Ordering::Relaxed) {
            let version = self.shared.lock().version();
            let is_drawn = if drawn == Some(version) { Ok(()) } else { self.draw() };
            drawn = Some(version);
            match is_drawn.and_then(|()| self.next_event()) {
                Ok(None) => {}
                Ok(Some(event)) => {
                    drawn = None;
                    let action = {
                        let content = self.shared.lock();
                        self.screen.take(&event, &content)
                    };
                    if action == Action::Stop {
                        (self.stop)();
                    }
                }
                // The terminal is gone.
                Err(_) => {
                    (self.stop)();
                    break;
                }
            }
        }
        terminal::restore();
    }

    /// Waits for a key or a change of the terminal's size.
    fn next_event(&self) -> io::Result<Option<Event>> {
        // A terminal that was closed has no keys, and says so in no other way.
        if !io::stdin().is_terminal() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if event::poll(LOOK_EVERY)? { event::read().map(Some) } else { Ok(None) }
    }

    fn draw(&mut self) -> io::Result<()> {
        let (screen, shared) = (&mut self.screen, &self.shared);
        // The content is locked while it is drawn into memory, not while the terminal is written to.
        self.terminal.draw(|frame| {
            let content = shared.lock();
            draw::draw(frame, screen, &content);
        })?;
        Ok(())
    }
}
