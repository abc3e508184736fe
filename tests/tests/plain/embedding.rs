//! `ks_host` as a library: in a program of its own, the example `web`, and in this one.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use ks_host::Host;
use ks_host::plugin::Plugin;
use ks_host::worker::WorkerProgram;
use ks_tests::{Folder, binary, compile, wait_until};

/// A script that prints at once, and once more when it is asked to stop.
const SCRIPT: &str = include_str!("scripts/embedding.ks");

fn request(address: &str, line: &str) -> String {
    let mut connection = TcpStream::connect(address).expect("the service listens");
    write!(connection, "{line} HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn a_web_service_runs_a_plugin_and_ends_with_it() {
    let folder = Folder::new();
    let plugin = folder.write("loop.wasm", compile("loop", SCRIPT).plugin);
    let mut web = Command::new(binary("examples/web"));
    web.arg(plugin).arg("127.0.0.1:0").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut web = web.spawn().expect("the example starts");
    let mut first = String::new();
    BufReader::new(web.stdout.take().expect("it is piped"))
        .read_line(&mut first)
        .expect("it tells its address");
    let address = first.trim().trim_start_matches("http://").trim_end_matches('/');

    // The first line appears when the plugin has printed it.
    let printed = || request(address, "GET /").ends_with("\r\n\r\nup\n");
    wait_until(Duration::from_secs(60), "the plugin prints its line", printed);
    assert!(request(address, "GET /nothing").starts_with("HTTP/1.1 404"));
    assert!(request(address, "POST /stop").starts_with("HTTP/1.1 202"));
    assert_eq!(web.wait().expect("it ends").code(), Some(7));
}

#[test]
fn a_program_of_workers_that_does_not_start_says_why() {
    let folder = Folder::new();
    let no_program = folder.write("text", "no program");
    let missing = folder.path("missing");
    let plugin = Plugin::from_bytes(compile("loop", SCRIPT).plugin).expect("a plugin");
    for (path, reason) in [(missing, "os error 2"), (no_program, "os error 13")] {
        let host = Host::of_workers(WorkerProgram::of(&path));
        let error = host.prepare(&plugin).err().expect("no worker").to_string();
        assert!(error.contains(reason), "{error}");
        assert!(error.contains(path.to_str().expect("a path")), "{error}");
    }
}
