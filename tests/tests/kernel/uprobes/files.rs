//! Files of observed programs, which their owner replaces, changes, or makes to harm the reader.

use std::fs;
use std::io::{BufRead as _, Read as _};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ks_host::perf::{Attachments, Catalog, ErrorKind, Options};
use ks_tests::{Folder, allowed, compile, finish, wait_until};
use nix::libc;
use nix::sys::stat::Mode;

use super::{LIMIT, Victim, addresses, is_probed, is_refused, program, refusal, run};

#[test]
fn root_a_file_that_replaces_the_one_that_was_read_is_not_probed() {
    let folder = Folder::new();
    let victim_file = program(&folder, "victim", &[]);
    // Its `main` begins at an offset inside an instruction of the victim.
    let inside = addresses(&victim_file)["immediate"];
    let decoy = folder.path("decoy");
    decoy_with_start_at(&folder, &decoy, inside);
    let path = folder.path("program");
    fs::copy(&decoy, &path).unwrap();
    let event = Catalog::default().uprobe(&format!("{}:work", path.display())).unwrap();
    let mut victim = Victim::start(&victim_file);
    victim.lines.read_line(&mut String::new()).expect("it runs");
    let other = folder.path("other");
    symlink(&victim_file, &other).unwrap();
    fs::rename(&other, &path).unwrap();
    let mut attachments = Attachments::new();
    let refused = attachments.open(&event, &Options::default(), None, None).unwrap_err();
    assert!(refused.to_string().contains("it was changed meanwhile"), "{refused}");
    assert_eq!(attachments.count(), 0);
    thread::sleep(Duration::from_millis(50));
    victim.assert_untouched();
}

/// Builds a program whose function `work` starts at an offset of the file.
fn decoy_with_start_at(folder: &Folder, built: &Path, offset: u64) {
    let source = format!(
        ".text\n.globl _start, work\n.type work, @function\n_start: .org {:#x}\nwork: ret\n.size work, \
         .-work\n",
        offset - 0x1000
    );
    let source = folder.write("decoy.s", source);
    run(Command::new("cc")
        .args(["-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-o"])
        .arg(built)
        .arg(source));
    assert_eq!(addresses(built)["work"] - 0x40_0000, offset, "the linker puts code there");
    // Reading a large file completely would leave time to replace it.
    fs::OpenOptions::new().write(true).open(built).unwrap().set_len(16 << 20).unwrap();
}

/// Files are replaced while one host call attaches a program repeatedly.
#[test]
fn root_an_attach_looks_at_the_file_that_it_probes() {
    let folder = Folder::new();
    let victim_file = program(&folder, "victim", &[]);
    let decoy = folder.path("decoy");
    decoy_with_start_at(&folder, &decoy, addresses(&victim_file)["immediate"]);
    let path = folder.path("program");
    symlink(&decoy, &path).unwrap();
    let script = format!(
        "@uprobe(\"{}:work\")\nfn hit(first: u64) -> i32 {{ return 0 }}\n\
         fn main() -> i32 {{\n var program = load(hit)\n var done: u64 = 0\n\
         for (i in 0..20) {{ if (attach(program, \"\", 0) == 0) {{ done = done + 1\n sleep(20)\n \
         detach(program) }} }}\n\
         print(\"{{}} times\", done)\n return 0 }}",
        path.display()
    );
    let file = folder.write("swapped.wasm", compile("swapped", &script).plugin);
    let victim = Victim::start(&victim_file);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut targets, other) = ([&victim_file, &decoy].into_iter().cycle(), folder.path("other"));
            while !is_over.load(Ordering::Relaxed) {
                symlink(targets.next().expect("it goes on"), &other).unwrap();
                fs::rename(&other, &path).unwrap();
                thread::sleep(Duration::from_micros(300));
            }
        });
        let outcome = finish(allowed().arg(file));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(outcome.code, 0, "{outcome:#?}");
    });
    victim.assert_untouched();
}

/// Opening a FIFO would unblock a process that waits for a reader.
#[test]
fn root_a_fifo_is_not_opened() {
    let folder = Folder::new();
    let fifo = folder.path("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let writer = {
        let fifo = fifo.clone();
        thread::spawn(move || fs::write(fifo, "line\n"))
    };
    thread::sleep(Duration::from_millis(50));
    is_refused(&fifo, "main", ErrorKind::Invalid, "it is a FIFO, not a regular file");
    let mut reader =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).expect("it is there");
    let mut text = Vec::new();
    wait_until(LIMIT, "the writer meets its reader", || {
        // EAGAIN as long as nothing is there.
        let _ = reader.read_to_end(&mut text);
        text == b"line\n"
    });
    writer.join().unwrap().expect("its line was read");
}

/// Reading such files has effects on hardware, or on data for another reader.
#[test]
fn root_files_of_the_kernel_itself_are_not_opened() {
    for file in ["/proc/self/maps", "/sys/devices/system/cpu/online", "/sys/kernel/btf/vmlinux"] {
        let file = Path::new(file);
        for attach_point in ["main", "+0x1000"] {
            is_refused(file, attach_point, ErrorKind::Invalid, "it is a file of the kernel itself");
        }
    }
    // A link there may point to a program.
    is_probed(Path::new("/proc/self/exe"), "main");
}

/// The kernel executes the bytes of the file at a probe, not the bytes that the loader relocated.
#[test]
fn root_code_that_the_loader_changes_is_not_probed() {
    let folder = Folder::new();
    let source = folder.write(
        "moved.s",
        ".text\n.globl moved\n.type moved, @function\nmoved: movabs $moved, %rax\n ret\n.size moved, \
         .-moved\n\
         .section .note.GNU-stack, \"\", @progbits\n",
    );
    let built = folder.path("moved.so");
    run(Command::new("cc").args(["-shared", "-nostdlib", "-Wl,-z,notext", "-o"]).arg(&built).arg(source));
    is_refused(&built, "moved", ErrorKind::Unsupported, "the loader changes its code");
}

/// Only pieces of a file are read: the memory for it does not grow with the file.
#[test]
fn root_a_large_file_takes_little_memory() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let large = fs::OpenOptions::new().write(true).open(&program).unwrap();
    large.set_len((1 << 30) - 4096).unwrap();
    let script = format!(
        "fn main() -> i32 {{ var counter = attach(perf_options {{ event: uprobe_event(\"{}:limit\"), cpu: \
         all }})\n\
         print(\"calls {{}}\", read(counter).raw)\n return 0 }}",
        program.display()
    );
    let file = folder.write("large.wasm", compile("large", &script).plugin);
    let outcome = finish(allowed().arg(file));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (0, "calls 0\n"), "{outcome:#?}");
    let most = outcome.most_memory_kib.expect("measured");
    // The measurement includes memory of this process, of which the command was a copy before its exec.
    assert!(most < 512 << 10, "{most} KiB: {outcome:#?}");
}

/// For any file contents there is an answer, and never an offset inside an instruction of an unchanged
/// function.
#[test]
fn root_changed_files_get_answers() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let good = fs::read(&program).unwrap();
    let limit = addresses(&program)["limit"];
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut rng = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let changed = folder.path("changed");
    for iteration in 0..ks_tests::number("KS_MUTANTS", 1500) {
        let mut bytes = good.clone();
        // Headers at the start, tables anywhere, section headers at the end.
        let (from, many) = [(0, 1024), (0, good.len()), (good.len() - 2048, 2048)][rng(3)];
        for _ in 0..=rng(8) {
            let at = from + rng(many);
            bytes[at] = [0, 0xff, 0x7f, 0x80, bytes[at] ^ 1 << rng(8)][rng(5)];
        }
        if rng(8) == 0 {
            bytes.truncate(rng(good.len()));
        }
        fs::write(&changed, bytes).unwrap();
        for attach_point in
            ["limit".to_owned(), "chosen".to_owned(), format!("+{limit:#x}"), "case_two".to_owned()]
        {
            if let Some((_, said)) = refusal(&changed, &attach_point) {
                assert!(said.contains("because: "), "{iteration}: {said}");
            }
        }
    }
}

/// The sizes and offsets that a file claims are not trusted.
#[test]
fn root_malformed_tables_are_refused_at_once() {
    let folder = Folder::new();
    let program = program(&folder, "program", &[]);
    let good = fs::read(&program).unwrap();
    let sections = u64::from_le_bytes(good[0x28..0x30].try_into().unwrap()) as usize;
    let rows = usize::from(u16::from_le_bytes(good[0x3c..0x3e].try_into().unwrap()));
    let is_symbols = |row: &usize| good[row + 4] == 2 || good[row + 4] == 11;
    let symbols: Vec<usize> = (0..rows).map(|row| sections + row * 64).filter(is_symbols).collect();
    let limit = addresses(&program)["limit"];
    for (bytes, kind, because) in [
        (1_u64 << 40, ErrorKind::Limit, "is larger than any"),
        (1 << 28, ErrorKind::Invalid, "behind its end"),
    ] {
        let mut changed = good.clone();
        for row in &symbols {
            changed[row + 0x20..row + 0x28].copy_from_slice(&bytes.to_le_bytes());
        }
        let file = folder.write("changed", changed);
        for attach_point in ["limit".to_owned(), format!("+{limit:#x}")] {
            is_refused(&file, &attach_point, kind, because);
        }
    }
    for (name, bytes) in [("text", &b"#!/bin/sh\n"[..]), ("short", &good[..40]), ("header", &good[..64])] {
        let file = folder.write(name, bytes);
        assert!(refusal(&file, "main").is_some() && refusal(&file, "+0x1000").is_some(), "{name}");
    }
}
