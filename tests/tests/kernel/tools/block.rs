//! Tools that show requests of block devices. The workload writes to a device of its own: on one that others use, too, the
//! kernel adds a block that lies beside theirs to their request.

use std::process::Command;

use ks_tests::{Folder, finish};

use super::{around, copy_of, histogram, rows};

/// Requests of the workload.
const REQUESTS: usize = 50;

/// A loop device; detached when dropped.
struct Device {
    path: String,
    _folder: Folder,
}

impl Device {
    fn new() -> Device {
        let folder = Folder::new();
        let file = folder.write("device", vec![0; 4096 * (REQUESTS + 1)]);
        let attached = finish(Command::new("losetup").args(["--find", "--show"]).arg(file));
        assert_eq!(attached.code, 0, "{attached:#?}");
        Device { path: attached.stdout.trim_end().to_owned(), _folder: folder }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // A test that fails keeps its reason.
        let _ = Command::new("losetup").args(["--detach", &self.path]).status();
    }
}

/// Runs a tool around a command that writes so many blocks of 4 KiB, each to the device. Returns the command's name.
fn around_writes(tool: &str) -> (String, ks_tests::Outcome) {
    let folder = Folder::new();
    let (name, path) = copy_of("/bin/dd", &folder);
    let device = Device::new();
    let file = format!("of={}", device.path);
    let count = format!("count={REQUESTS}");
    let exec = [&*path, "if=/dev/zero", &file, "bs=4k", "seek=1", &count, "oflag=direct", "status=none"];
    (name, around(tool, &[], &exec))
}

#[test]
fn root_biosnoop_shows_each_request() {
    let (name, ran) = around_writes("biosnoop");
    let found = rows(&ran, &format!("{name} "));
    let written: Vec<_> = found.iter().filter(|row| row[3] == "REQ_OP_WRITE" && row[5] == "4096").collect();
    assert_eq!(written.len(), REQUESTS, "{ran:#?}");
    assert!(written.iter().all(|row| row[7] != "0" && row[4] != "0"), "{ran:#?}");
}

#[test]
fn root_biotop_sums_requests() {
    let (name, ran) = around_writes("biotop");
    let found = rows(&ran, &format!(" {name} "));
    let row = found.iter().find(|row| row[3] == "W").unwrap_or_else(|| panic!("{ran:#?}"));
    assert_eq!(row[4..6], [REQUESTS.to_string(), (REQUESTS * 4096).to_string()], "{ran:#?}");
    assert!(row[6].parse::<u64>().is_ok_and(|us| us > 0), "{ran:#?}");
}

#[test]
fn root_bitesize_and_biolatency_count_requests() {
    let (name, ran) = around_writes("bitesize");
    let title = format!("bytes[{name}]");
    let lines: Vec<_> = ran.stdout.lines().skip_while(|line| !line.starts_with(&title)).collect();
    let of_4k = lines.iter().find(|line| line.trim_start().starts_with("4096 - 8191"));
    let count = of_4k.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()).unwrap_or(0);
    assert!((REQUESTS..REQUESTS + 5).contains(&count), "{ran:#?}");
    let (_, ran) = around_writes("biolatency");
    // Requests of others are among them.
    let (count, sum) = histogram(&ran, "us ");
    assert!(count >= REQUESTS as u64 && sum > 0, "{ran:#?}");
}
