//! Tools that show requests of block devices.

use ks_tests::Folder;

use super::{around, copy_of, histogram, rows};

/// Blocks that the workload writes.
const REQUESTS: usize = 50;
/// Blocks that the kernel may add to requests of other programs, which write beside them at the same time.
const MERGED: usize = 5;

/// Whether it is the number of requests of the workload.
fn are_all(requests: usize) -> bool {
    (REQUESTS - MERGED..=REQUESTS).contains(&requests)
}

/// Runs a tool around a command that writes so many blocks of 4 KiB, each to the device. Returns the command's name.
fn around_writes(tool: &str) -> (String, ks_tests::Outcome) {
    let folder = Folder::new();
    let (name, path) = copy_of("/bin/dd", &folder);
    let file = format!("of={}", folder.path("written").display());
    let count = format!("count={REQUESTS}");
    let exec = [&*path, "if=/dev/zero", &file, "bs=4k", &count, "oflag=direct", "status=none"];
    (name, around(tool, &[], &exec))
}

#[test]
fn root_biosnoop_shows_each_request() {
    let (name, ran) = around_writes("biosnoop");
    let found = rows(&ran, &format!("{name} "));
    let written: Vec<_> = found.iter().filter(|row| row[3] == "REQ_OP_WRITE" && row[5] == "4096").collect();
    assert!(are_all(written.len()), "{ran:#?}");
    assert!(written.iter().all(|row| row[7] != "0" && row[4] != "0"), "{ran:#?}");
}

#[test]
fn root_biotop_sums_requests() {
    let (name, ran) = around_writes("biotop");
    let found = rows(&ran, &format!(" {name} "));
    let row = found.iter().find(|row| row[3] == "W").unwrap_or_else(|| panic!("{ran:#?}"));
    let [requests, bytes] = [row[4], row[5]].map(|number| number.parse::<usize>().expect("a number"));
    assert!(are_all(requests) && bytes >= requests * 4096, "{ran:#?}");
    assert!(row[6].parse::<u64>().is_ok_and(|us| us > 0), "{ran:#?}");
}

#[test]
fn root_bitesize_and_biolatency_count_requests() {
    let (name, ran) = around_writes("bitesize");
    let title = format!("bytes[{name}]");
    let lines: Vec<_> = ran.stdout.lines().skip_while(|line| !line.starts_with(&title)).collect();
    let of_4k = lines.iter().find(|line| line.trim_start().starts_with("4096 - 8191"));
    let count = of_4k.and_then(|line| line.split_whitespace().nth(3)?.parse().ok()).unwrap_or(0);
    assert!((REQUESTS - MERGED..REQUESTS + 5).contains(&count), "{ran:#?}");
    let (_, ran) = around_writes("biolatency");
    // Requests of others are among them.
    let (count, sum) = histogram(&ran, "us ");
    assert!(count >= (REQUESTS - MERGED) as u64 && sum > 0, "{ran:#?}");
}
