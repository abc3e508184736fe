//! The plugin of `tests/tests/toolchains/guest_std.rs`: the behaviour of Rust's standard library on top of
//! WASI.

use std::collections::HashMap;
use std::fs::File;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use ks_guest::{Attachment, Event, PerfOptions};

#[ks_guest::main]
fn main() -> Result<i32, Box<dyn std::error::Error>> {
    if std::env::args().any(|argument| argument == "exit") {
        std::process::exit(1);
    }
    println!("arguments {:?}", std::env::args().skip(1).collect::<Vec<_>>());
    std::io::stdout().write_all(b"bytes\n")?;
    eprintln!("to standard error");

    let start = Instant::now();
    std::thread::sleep(Duration::from_millis(20));
    println!("slept {}", start.elapsed() >= Duration::from_millis(20));
    println!("dated {}", SystemTime::now() > SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000));
    // The keys of a `RandomState` are random numbers.
    println!("random {:x}", RandomState::new().hash_one(7));
    let counts: HashMap<&str, u32> = [("one", 1), ("two", 2)].into();
    println!("map {}", counts["two"]);

    let faults = Attachment::open(&Event::named("page_faults")?, &PerfOptions::new().own_thread())?;
    println!("counted {}", faults.read()?.raw < u64::MAX);

    println!("file {:?}", File::open("/etc/passwd").map_err(|error| error.kind()).map(drop));
    println!("write {:?}", File::create("left").map_err(|error| error.kind()).map(drop));
    println!("list {:?}", std::fs::read_dir("/").map_err(|error| error.kind()).map(drop));
    println!("connect {:?}", TcpStream::connect("127.0.0.1:80").map_err(|error| error.kind()).map(drop));
    println!("listen {:?}", TcpListener::bind("127.0.0.1:0").map_err(|error| error.kind()).map(drop));
    println!("variables {} {:?}", std::env::vars().count(), std::env::var("HOME"));
    let mut input = Vec::new();
    println!("input {:?} {input:?}", std::io::stdin().read_to_end(&mut input).map_err(|error| error.kind()));
    println!(
        "process {:?}",
        std::process::Command::new("true").status().map_err(|error| error.kind()).map(drop)
    );
    println!("thread {:?}", std::thread::Builder::new().spawn(|| ()).map_err(|error| error.kind()).map(drop));
    Ok(0)
}
