//! Draws the view: a line about the table, the table, what is known of the chosen row, and a line of keys.

use std::collections::VecDeque;

use ks_host::world::{ShownRow, ShownTable};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

use super::content::{Content, NumberedTable};
use super::flame;
use super::keys::HELP;
use super::screen::{Screen, TableState};

/// Space between two columns.
const GAP: &str = "  ";

/// Least lines of the table above a flame graph: the headings, the chosen row, and one more.
const TABLE_BESIDE_GRAPH: usize = 3;

/// Upper limit of the width of a column.
const MAX_COLUMN: usize = 48;

/// Bars of the last values of a row.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws what the plugin has shown.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &mut Screen, live: &Content) {
    let paused = screen.paused.take();
    let content = paused.as_ref().unwrap_or(live);
    let [top, middle, bottom] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    // Filtered and sorted once: for the number of rows, and for the rows.
    let rows = screen.table(content).map_or(Vec::new(), |shown| screen.rows(&shown.table));
    if screen.shows_help {
        put(frame, middle, HELP.iter().map(|(keys, act)| Line::raw(format!("{keys:>28}  {act}"))).collect());
    } else {
        match screen.table(content) {
            Some(shown) => draw_table(frame, middle, screen, shown, &rows),
            None => draw_lines(frame, middle, screen, content.lines()),
        }
    }
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let first = heading(screen, content, rows.len());
    put(frame, top, vec![Line::styled(first, bold)]);
    let last = if screen.is_editing {
        format!("filter: {}_", screen.filter)
    } else {
        let has_stacks = screen.table(content).is_some_and(|shown| flame::has_stacks(&shown.table));
        let flame = if has_stacks { "f flame graph  " } else { "" };
        format!("q quit  space pause  s sort  r reverse  / filter  {flame}tab table  ? keys")
    };
    put(frame, bottom, vec![Line::styled(last, Style::new().add_modifier(Modifier::DIM))]);
    screen.paused = paused;
}

fn put(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'_>>) {
    frame.render_widget(Paragraph::new(lines), area);
}

/// The first line: what is shown, and how.
fn heading(screen: &Screen, content: &Content, rows: usize) -> String {
    let mut parts = vec![screen.name.clone()];
    match screen.table(content) {
        Some(shown) => {
            let table = &shown.table;
            parts.push(table.title.clone());
            parts.push(if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") });
            if table.left_out > 0 {
                parts.push(format!("{} left out", table.left_out));
            }
        }
        None => parts.push(match content.lines().len() {
            1 => "1 line".to_owned(),
            lines => format!("{lines} lines"),
        }),
    }
    let (at, tabs) = screen.tabs(content);
    if tabs > 1 {
        parts.push(format!("{}/{tabs}", at + 1));
    }
    if !screen.filter.is_empty() && !screen.is_editing {
        parts.push(format!("filter: {}", screen.filter));
    }
    if screen.is_paused {
        parts.push("PAUSED".to_owned());
    }
    parts.retain(|part| !part.is_empty());
    parts.join(GAP)
}

fn draw_table(
    frame: &mut Frame<'_>,
    area: Rect,
    screen: &mut Screen,
    shown: &NumberedTable,
    rows: &[&ShownRow],
) {
    let table = &shown.table;
    let shows_flame_graph = screen.shows_flame_graph && flame::has_stacks(table);
    let state = screen.state(table);
    let chosen = state.position_in(shown, rows);
    let (width, whole) = (usize::from(area.width), usize::from(area.height));
    // A part of the height is the table's, if it has columns.
    let most = match table.columns.is_empty() {
        true => whole,
        false if shows_flame_graph => whole - (whole / 4).max(TABLE_BESIDE_GRAPH).min(whole),
        false => whole / 2,
    };
    let room = most.saturating_sub(1);
    let details = match rows.get(chosen) {
        None => Vec::new(),
        Some(row) if shows_flame_graph => flame::lines(shown, rows, row, state.sorted, width, room),
        Some(row) => details(state, shown, row, width).into_iter().map(Line::raw).collect(),
    };
    let below = details.len().min(room);
    let has_gap = below > 0 && !table.columns.is_empty();
    let height = whole.saturating_sub(below + usize::from(has_gap));
    let page = height.saturating_sub(1).max(1);
    if chosen < state.offset {
        state.offset = chosen;
    }
    if chosen >= state.offset + page {
        state.offset = chosen + 1 - page;
    }
    state.offset = state.offset.min(rows.len().saturating_sub(page));
    let offset = state.offset;
    let sorted = state.sorted.map(|column| (column, state.is_reversed));
    screen.page = page;
    let visible = &rows[offset..rows.len().min(offset + page)];
    if !table.columns.is_empty() {
        let lines = table_lines(table, visible, sorted, chosen - offset.min(chosen), width);
        put(frame, Rect { height: height as u16, ..area }, lines);
    }
    let at = Rect { y: area.y + (whole - below) as u16, height: below as u16, ..area };
    put(frame, at, details);
}

/// Returns what is known of a row, line by line: its histogram, its stack, or its last values as bars.
fn details(state: &mut TableState, shown: &NumberedTable, row: &ShownRow, width: usize) -> Vec<String> {
    match &row.histogram {
        Some(histogram) => histogram.to_string().lines().map(str::to_owned).collect(),
        None if !row.lines.is_empty() => row.lines.clone(),
        None => state
            .history_of(shown, row)
            .map_or(Vec::new(), |(heading, values)| vec![bars(heading, values, width)]),
    }
}

/// Returns the headings and the rows, aligned.
fn table_lines(
    table: &ShownTable,
    rows: &[&ShownRow],
    sorted: Option<(usize, bool)>,
    chosen: usize,
    width: usize,
) -> Vec<Line<'static>> {
    let headings: Vec<String> = table
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| match sorted {
            Some((sorted, is_reversed)) if sorted == at => {
                format!("{}{}", column.heading, if column.is_number == is_reversed { "▲" } else { "▼" })
            }
            _ => column.heading.clone(),
        })
        .collect();
    let of_column =
        |at: usize| rows.iter().filter_map(move |row| row.cells.get(at)).map(|cell| cell.text.as_str());
    let widths: Vec<usize> = headings
        .iter()
        .enumerate()
        .map(|(at, heading)| {
            of_column(at)
                .chain([heading.as_str()])
                .map(UnicodeWidthStr::width)
                .max()
                .unwrap_or(0)
                .min(MAX_COLUMN)
        })
        .collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for ((cell, width), column) in cells.zip(&widths).zip(&table.columns) {
            if !text.is_empty() {
                text.push_str(GAP);
            }
            pad(&mut text, cell, *width, column.is_number);
        }
        // The whole line of the chosen row is marked.
        text.extend(std::iter::repeat_n(' ', width.saturating_sub(text.width())));
        text
    };
    let underlined = Style::new().add_modifier(Modifier::UNDERLINED);
    let first = line(&mut headings.iter().map(String::as_str));
    let mut lines = vec![Line::styled(first, underlined)];
    lines.extend(rows.iter().enumerate().map(|(at, row)| {
        let text = line(&mut row.cells.iter().map(|cell| cell.text.as_str()));
        let style = if at == chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        Line::styled(text, style)
    }));
    lines
}

/// Appends a text, cut or filled to a width.
pub(super) fn pad(to: &mut String, text: &str, width: usize, is_number: bool) {
    let mut used = 0;
    let fitting: String = text
        .chars()
        .take_while(|letter| {
            used += letter.width().unwrap_or(0);
            used <= width
        })
        .collect();
    let blanks = std::iter::repeat_n(' ', width.saturating_sub(fitting.width()));
    if is_number {
        to.extend(blanks);
        to.push_str(&fitting);
    } else {
        to.push_str(&fitting);
        to.extend(blanks);
    }
}

/// Returns the last values of a row as bars, the newest to the right.
fn bars(heading: &str, values: &VecDeque<f64>, width: usize) -> String {
    let most = values.iter().copied().fold(0.0, f64::max);
    let begin = format!("{heading}, at most {most}: ");
    let room = width.saturating_sub(begin.width()).max(1);
    let bar = |value: &f64| {
        let part = if most > 0.0 { (value / most * 7.0).round() } else { 0.0 };
        BARS[(part.max(0.0) as usize).min(BARS.len() - 1)]
    };
    let shown = values.iter().skip(values.len().saturating_sub(room));
    begin.chars().chain(shown.map(bar)).collect()
}

fn draw_lines(frame: &mut Frame<'_>, area: Rect, screen: &mut Screen, lines: &VecDeque<String>) {
    let height = usize::from(area.height);
    screen.page = height.max(1);
    screen.lines_below = screen.lines_below.min(lines.len().saturating_sub(height));
    let end = lines.len() - screen.lines_below;
    let shown = lines.range(end.saturating_sub(height)..end);
    put(frame, area, shown.map(|line| Line::raw(line.clone())).collect());
}
