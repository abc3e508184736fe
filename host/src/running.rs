//! A running plugin with a channel of messages, for programs that cannot block until it ends.
//!
//! ```text
//! thread of the plugin -> lines -> channel -> Running::next
//!                      -> end   -^
//! Running::ask, drop -> StopHandle -> thread of the plugin
//! ```

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::options::RunOptions;
use crate::plugin::{Outcome, StopHandle, StopReason};
use crate::run::PreparedPlugin;

/// Limit on queued messages. A plugin that prints faster than its reader loses lines, so that it can always
/// be stopped, and cannot fill the host's memory.
pub const MAX_WAITING: usize = 4096;

/// Limit on the bytes of queued messages. Guards the host's memory: 4096 lines of 1 MiB would be 4 GiB.
pub const MAX_WAITING_BYTES: usize = 64 << 20;

/// Limit on the bytes of a line; longer lines are split. Guards the host's memory: lines of the contract have
/// up to 1 MiB.
const MAX_LINE_BYTES: usize = 1 << 20;

/// A message of a running plugin.
#[derive(Debug)]
pub enum Message {
    /// A line of its standard output, without the line feed.
    Line(Vec<u8>),
    /// A line of its standard error, without the line feed.
    Warning(Vec<u8>),
    /// It has ended, and all that it attached is detached. This is the last message.
    Ended(Outcome),
}

/// A plugin that runs on a thread of its own. Dropping it asks the plugin to stop, and waits for its end.
#[derive(Debug)]
#[must_use = "dropping it stops the plugin"]
pub struct Running {
    messages: Receiver<Message>,
    /// Bytes of queued messages.
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
    stop: StopHandle,
    thread: Option<JoinHandle<Outcome>>,
}

impl PreparedPlugin {
    /// Starts the plugin like [`PreparedPlugin::run`], and returns at once. Its output goes to
    /// [`Running::next`]: [`RunOptions::stdout`] and [`RunOptions::stderr`] are replaced.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(self: &Arc<Self>, options: RunOptions) -> io::Result<Running> {
        let (sender, messages) = sync_channel(MAX_WAITING);
        let (waiting, lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
        let sink = |message: fn(Vec<u8>) -> Message| {
            let (sender, waiting, lost) = (sender.clone(), Arc::clone(&waiting), Arc::clone(&lost));
            Box::new(Lines { sender, message, line: Vec::new(), waiting, lost })
        };
        let options = RunOptions { stdout: sink(Message::Line), stderr: sink(Message::Warning), ..options };
        let (stop, prepared) = (options.stop.clone(), Arc::clone(self));
        // `run` starts the plugin's own thread; this one watches it.
        let thread = std::thread::Builder::new()
            .name(format!("watch {}", options.name))
            .spawn(move || prepared.run(options))?;
        Ok(Running { messages, waiting, lost, stop, thread: Some(thread) })
    }
}

impl Running {
    /// Returns the next message, and waits up to `timeout` for it. None after the timeout, and after
    /// [`Message::Ended`] was returned.
    pub fn next(&mut self, timeout: Duration) -> Option<Message> {
        match self.messages.recv_timeout(timeout) {
            Ok(message) => {
                if let Message::Line(line) | Message::Warning(line) = &message {
                    self.waiting.fetch_sub(line.len(), Ordering::Relaxed);
                }
                Some(message)
            }
            Err(RecvTimeoutError::Timeout) => None,
            // The sender is gone, so the plugin has ended.
            Err(RecvTimeoutError::Disconnected) => self.end().map(Message::Ended),
        }
    }

    /// Number of lines lost because [`MAX_WAITING`] messages, or [`MAX_WAITING_BYTES`] of them, were queued.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Asks the plugin to stop. It continues for at most [`RunOptions::grace`].
    pub fn ask(&self) {
        self.stop.ask(StopReason::Asked);
    }

    /// Waits for the end; unread lines are dropped. None if [`Message::Ended`] was returned already.
    pub fn wait(mut self) -> Option<Outcome> {
        self.end()
    }

    fn end(&mut self) -> Option<Outcome> {
        let thread = self.thread.take()?;
        Some(thread.join().unwrap_or_else(|_| Outcome::Failed("the thread that watched it panicked".into())))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask();
        self.end();
    }
}

/// Splits written bytes into messages, one for each line.
struct Lines {
    sender: SyncSender<Message>,
    message: fn(Vec<u8>) -> Message,
    line: Vec<u8>,
    waiting: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

impl Lines {
    fn send(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let bytes = line.len();
        // Counted before sending: the receiver subtracts the bytes.
        let before = self.waiting.fetch_add(bytes, Ordering::Relaxed);
        let sent = if before.saturating_add(bytes) <= MAX_WAITING_BYTES {
            self.sender.try_send((self.message)(line))
        } else {
            Err(TrySendError::Full((self.message)(line)))
        };
        let Err(error) = sent else { return Ok(()) };
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        match error {
            TrySendError::Full(_) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            TrySendError::Disconnected(_) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            self.line.extend_from_slice(text);
            if ends || self.line.len() >= MAX_LINE_BYTES {
                self.send()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        if !self.line.is_empty() {
            // The receiver is gone, so the line is not needed.
            let _ = self.send();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(capacity: usize) -> (Lines, Receiver<Message>, Arc<AtomicU64>) {
        let (sender, messages) = sync_channel(capacity);
        let lost = Arc::new(AtomicU64::new(0));
        let waiting = Arc::default();
        let lines =
            Lines { sender, message: Message::Line, line: Vec::new(), waiting, lost: Arc::clone(&lost) };
        (lines, messages, lost)
    }

    #[test]
    fn a_line_is_a_message_however_it_is_written() {
        let (mut lines, messages, _) = lines(8);
        lines.write_all(b"one\ntw").expect("somebody listens");
        lines.write_all(b"o\n\nrest").expect("somebody listens");
        drop(lines);
        let texts: Vec<_> = messages
            .iter()
            .map(|message| match message {
                Message::Line(line) => String::from_utf8(line).expect("text"),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(texts, ["one", "two", "", "rest"]);
    }

    #[test]
    fn lines_that_nobody_takes_are_counted_and_those_for_nobody_refused() {
        let (mut lines, messages, lost) = lines(1);
        lines.write_all(b"one\ntwo\nthree\n").expect("it never waits");
        assert_eq!(lost.load(Ordering::Relaxed), 2);
        drop(messages);
        assert!(lines.write_all(b"four\n").is_err());
    }

    #[test]
    fn long_lines_that_nobody_takes_are_lost_sooner() {
        let (mut lines, messages, lost) = lines(MAX_WAITING);
        let line = [vec![b'x'; MAX_LINE_BYTES - 1], b"\n".to_vec()].concat();
        let fitting = MAX_WAITING_BYTES / (MAX_LINE_BYTES - 1);
        for _ in 0..fitting + 3 {
            lines.write_all(&line).expect("it never waits");
        }
        assert_eq!(lost.load(Ordering::Relaxed), 3);
        drop(lines);
        assert_eq!(messages.iter().count(), fitting);
    }
}
