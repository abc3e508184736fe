//! Loads and attaches the object of a file with libbpf, prints a line, and does nothing else: the lower bound of the bench
//! `startup`. It is a program of its own, so that nothing else has to be loaded.

use std::os::fd::IntoRawFd as _;

use anyhow::{Context as _, Result};
use ks_benches::baseline::perf::page_faults;
use libbpf_rs::ObjectBuilder;

fn main() -> Result<()> {
    let object = std::env::args_os().nth(1).context("it takes the file of an object")?;
    let object = ObjectBuilder::default().open_file(object)?.load()?;
    let program = object.progs_mut().next().context("the object has a program")?;
    let _link = program.attach_perf_event(page_faults()?.into_raw_fd())?;
    println!("attached");
    Ok(())
}
