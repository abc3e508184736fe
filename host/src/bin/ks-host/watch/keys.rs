//! What keys do.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::content::Content;
use super::screen::{Action, Screen};

/// The keys, for the help and the last line.
pub(super) const HELP: [(&str, &str); 10] = [
    ("q", "quit"),
    ("space", "pause"),
    ("s S", "sort by the next, the previous column"),
    ("o", "the plugin's own order"),
    ("r", "reverse"),
    ("/", "filter; esc ends it"),
    ("f", "flame graph of all stacks of the chosen key"),
    ("tab", "next table"),
    ("up down pgup pgdn home end", "choose a row"),
    ("?", "this help"),
];

/// Upper limit of the filter in characters.
const MAX_FILTER: usize = 64;

/// Takes an event, given what is shown.
pub(super) fn take(screen: &mut Screen, event: &Event, content: &Content) -> Action {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => press(screen, key, content),
        _ => Action::Stay,
    }
}

fn press(screen: &mut Screen, key: &KeyEvent, content: &Content) -> Action {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return if key.code == KeyCode::Char('c') { Action::Stop } else { Action::Stay };
    }
    if screen.is_editing {
        edit(screen, key.code);
        return Action::Stay;
    }
    screen.shows_help = key.code == KeyCode::Char('?') && !screen.shows_help;
    match key.code {
        KeyCode::Char('q') => return Action::Stop,
        KeyCode::Char(' ' | 'p') => screen.is_paused = !screen.is_paused,
        KeyCode::Char('f') => screen.shows_flame_graph = !screen.shows_flame_graph,
        KeyCode::Char('/') => {
            screen.filter.clear();
            screen.is_editing = true;
        }
        KeyCode::Esc => screen.filter.clear(),
        KeyCode::Tab | KeyCode::BackTab => {
            screen.next_tab(content, key.code == KeyCode::BackTab);
        }
        code => act_on_table(screen, code, content),
    }
    Action::Stay
}

fn edit(screen: &mut Screen, code: KeyCode) {
    match code {
        KeyCode::Enter => screen.is_editing = false,
        KeyCode::Esc => {
            screen.is_editing = false;
            screen.filter.clear();
        }
        KeyCode::Backspace => {
            screen.filter.pop();
        }
        KeyCode::Char(letter) if screen.filter.chars().count() < MAX_FILTER => screen.filter.push(letter),
        _ => {}
    }
}

fn act_on_table(screen: &mut Screen, code: KeyCode, content: &Content) {
    let page = isize::try_from(screen.page).unwrap_or(1);
    let rows = match code {
        KeyCode::Up | KeyCode::Char('k') => -1,
        KeyCode::Down | KeyCode::Char('j') => 1,
        KeyCode::PageUp => -page,
        KeyCode::PageDown => page,
        KeyCode::Home => isize::MIN,
        KeyCode::End => isize::MAX,
        _ => 0,
    };
    let Some(shown) = screen.table(content) else {
        // Up is back in time.
        let below = screen.lines_below.saturating_add_signed(rows.saturating_neg());
        screen.lines_below = below.min(content.lines().len().saturating_sub(1));
        return;
    };
    let table = &shown.table;
    if rows != 0 {
        return screen.move_by(shown, rows);
    }
    let columns = table.columns.len();
    let state = screen.state(table);
    match code {
        KeyCode::Char('s') if columns > 0 => {
            state.sorted = Some(state.sorted.map_or(0, |column| (column + 1) % columns));
        }
        KeyCode::Char('S') if columns > 0 => {
            state.sorted = Some(state.sorted.map_or(0, |column| column + columns - 1) % columns);
        }
        KeyCode::Char('o') => (state.sorted, state.is_reversed) = (None, false),
        KeyCode::Char('r') => state.is_reversed = !state.is_reversed,
        _ => {}
    }
}
