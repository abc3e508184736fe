//! The terminal: taken for a view, and restored however that ends.

use std::io::{self, Stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

/// A terminal that can be drawn on.
pub(super) type Screen = Terminal<CrosstermBackend<Stdout>>;

/// Whether a view has the terminal.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the terminal: no echo, no lines, no signals of keys, and a screen of its own.
///
/// # Errors
/// Those of the terminal; it is then as it was.
pub(super) fn enter() -> io::Result<Screen> {
    static RESTORES_AFTER_PANICS: Once = Once::new();
    RESTORES_AFTER_PANICS.call_once(|| {
        let report = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            report(panic);
        }));
    });
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::SeqCst);
    let screen = execute!(io::stdout(), EnterAlternateScreen, Hide)
        .and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
    screen.inspect_err(|_| restore())
}

/// Restores the terminal, if a view has it.
pub(crate) fn restore() {
    if IS_TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that is gone cannot be restored.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}
