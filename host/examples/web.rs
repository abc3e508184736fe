//! A small web service that runs a plugin: `web PLUGIN [ADDRESS]`, by default on 127.0.0.1:8080.
//!
//! `GET /` answers with the plugin's last lines, `POST /stop` asks it to stop; the service ends when the
//! plugin has ended. The plugin may observe, and nothing else. Connections are served sequentially: the
//! example is about the plugin.

use std::collections::VecDeque;
use std::error::Error;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ks_host::plugin::Plugin;
use ks_host::policy::Policy;
use ks_host::{Host, Message, RunOptions, Running};

/// Number of the plugin's last lines that are shown.
const KEPT: usize = 20;

/// Longest head of a request in bytes.
const MAX_HEAD_BYTES: u64 = 8 << 10;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: web PLUGIN [ADDRESS]")?;
    let listener = TcpListener::bind(arguments.next().as_deref().unwrap_or("127.0.0.1:8080"))?;

    let host = Host::new()?;
    let plugin = Arc::new(host.prepare(&Plugin::from_file(file.as_ref())?)?);
    let options = RunOptions { policy: Policy::observing(), ..RunOptions::new(file) };
    let mut running = plugin.start(options)?;

    println!("http://{}/", listener.local_addr()?);
    listener.set_nonblocking(true)?;
    let mut lines = VecDeque::new();
    loop {
        match running.next(Duration::from_millis(20)) {
            Some(Message::Line(line)) => {
                if lines.len() == KEPT {
                    lines.pop_front();
                }
                lines.push_back(String::from_utf8_lossy(&line).into_owned());
            }
            Some(Message::Warning(line)) => eprintln!("{}", String::from_utf8_lossy(&line)),
            Some(Message::Ended(outcome)) => return Ok(ExitCode::from(outcome.exit_code())),
            None => {}
        }
        while let Ok((connection, _)) = listener.accept() {
            // A client that disconnects early does not matter.
            let _ = answer(connection, &lines, &running);
        }
    }
}

/// Reads one request and answers it.
fn answer(mut connection: TcpStream, lines: &VecDeque<String>, running: &Running) -> std::io::Result<()> {
    connection.set_nonblocking(false)?;
    connection.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut head = String::new();
    let mut reader = BufReader::new((&connection).take(MAX_HEAD_BYTES));
    reader.read_line(&mut head)?;
    let mut line = String::new();
    while reader.read_line(&mut line)? > 2 {
        line.clear();
    }
    let (status, body) = match head.split_whitespace().take(2).collect::<Vec<_>>()[..] {
        ["GET", "/"] => ("200 OK", lines.iter().map(|line| format!("{line}\n")).collect()),
        ["POST", "/stop"] => {
            running.ask();
            ("202 Accepted", String::from("stopping\n"))
        }
        _ => ("404 Not Found", String::from("GET / or POST /stop\n")),
    };
    let length = body.len();
    write!(
        connection,
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}
