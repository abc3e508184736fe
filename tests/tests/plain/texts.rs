//! Texts of a plugin file, of a recording and of a script, in every command that shows them: none controls a
//! terminal, none looks like a line of somebody else, and each is cut.

use std::path::{Path, PathBuf};

use ks_host::text::{MOST_MESSAGE_BYTES, acts};
use ks_tests::plugins::{component, with_section};
use ks_tests::{Folder, Outcome, command, finish};
use ks_wit::section::{self, Arch, BpfRecord};
use serde_json::{Value, json};

/// Characters that control a terminal or reorder text, and lines that imitate other writers.
const HOSTILE: &str =
    "a\u{1b}[2J\u{9b}31m\u{7}\r\u{202e}\u{2028}\u{200b}\u{85}\nks-host: forged\n  do: forged\u{7f}";

/// The same for what a plugin says at run time: a message of several lines may have indented ones.
const SPOKEN: &str =
    "a\u{1b}[2J\u{9b}31m\u{7}\r\u{202e}\u{2028}\u{200b}\u{85}\nks-host: forged\nbeside.wasm: forged\u{7f}";

/// Bytes of the longest text: as a record may have them.
const LONG_BYTES: usize = 60 << 20;

/// A component that traps with this text as its reason, and writes it wherever a plugin writes.
fn plugin(text: &str) -> Vec<u8> {
    let escaped: String = text.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    let (at, len) = ("(i32.const 2048)", format!("(i32.const {})", text.len()));
    component(&format!(
        r#"(data (i32.const 2048) "{escaped}")
        (func (export "run") (result i32)
          (call $print {at} {len} (i32.const 0) (i32.const 0))
          (call $warn {at} {len})
          (call $abort {at} {len})
          (i32.const 0))"#
    ))
}

fn record(section: &'static str, bytes: &[u8], file: Vec<u8>) -> Vec<u8> {
    let mut data = Vec::new();
    section::push_record(&mut data, bytes);
    with_section(file, section, &data)
}

/// A manifest that has the text wherever a manifest has one.
fn manifest(text: &str) -> Value {
    let stack = json!({ "name": text, "offset": 0, "bytes": 4, "holds": "kernel_stack", "map": text });
    let map = |name: &str| {
        json!({
            "name": name, "kind": text, "key": text, "value": text, "max_entries": 1, "key_parts": [stack],
        })
    };
    json!({
        "format": 1, "compiler": text, "project": text, "source": { "file": text, "sha256": text },
        "programs": [{ "name": text, "kind": text }],
        "struct_ops": [{ "name": text, "struct": text, "methods": [text] }],
        "maps": [map(text), map("second")],
        "globals": [{ "name": text, "type": text }],
        "events": [{ "event": text, "pid": 0, "cpu": -1, "program": text, "line": 1 }],
        "tests": [{ "name": text, "line": 1 }],
        "configs": [{ "name": text, "fields": [{ "name": text, "type": text, "offset": 0, "docs": text }] },
            { "name": "b", "fields": [{ "name": text, "type": text, "offset": 0 },
                { "name": "f", "type": text, "offset": 0 }] }],
    })
}

/// Plugin files with the text in one place, or in several of a kind, by name of the place.
fn files(text: &str) -> Vec<(&'static str, Vec<u8>)> {
    let run = || plugin("words");
    let manifested = |manifest: &Value| record(section::MANIFEST, manifest.to_string().as_bytes(), run());
    let mut unknown = manifest("m");
    unknown["maps"][0]["key_parts"][0]["holds"] = text.into();
    let mut wrong = manifest("m");
    wrong["maps"][0]["max_entries"] = text.into();
    let signature = |identity: &str, digest: &str| {
        let signature = json!({ "identity": identity, "key": text, "digest": digest, "signature": text });
        record(section::SIGNATURE, signature.to_string().as_bytes(), run())
    };
    let object = |name: &str, arch: Option<u8>| {
        let mut bytes = BpfRecord { name: name.into(), arch: Arch::Any, elf: vec![1, 2, 3] }.to_bytes();
        bytes[0] = arch.unwrap_or(bytes[0]);
        bytes
    };
    let two = record(section::BPF, &object(text, None), run());
    vec![
        ("manifest", manifested(&manifest(text))),
        ("variant", manifested(&unknown)),
        ("value", manifested(&wrong)),
        (
            "member of a signature",
            record(section::SIGNATURE, json!({ text: 1 }).to_string().as_bytes(), run()),
        ),
        ("identity", signature(text, "")),
        ("digest", signature("somebody", text)),
        ("object", record(section::BPF, &object(text, None), run())),
        ("two objects", record(section::BPF, &object("b", None), two)),
        ("architecture", record(section::BPF, &object(text, Some(77)), run())),
        ("line table", record(section::LINES, text.as_bytes(), run())),
    ]
}

/// The commands that show something of a plugin file.
fn commands(file: &Path, folder: &Folder) -> Vec<Vec<PathBuf>> {
    let cache = folder.path("cache");
    let key = format!("somebody={}", "5d".repeat(32));
    let lines: [&[&str]; 13] = [
        &["run"],
        &["run", "--json"],
        &["run", "--stacks", "tree"],
        &["run", "--config", "b.g=1"],
        &["run", "--config", "b.f=1"],
        &["-v", "run"],
        &["check"],
        &["check", "--json"],
        &["verify", "--signer", &key],
        &["test"],
        &["inspect"],
        &["inspect", "--json"],
        &["inspect", "--policy"],
    ];
    let mut commands: Vec<Vec<PathBuf>> =
        lines.iter().map(|line| line.iter().map(PathBuf::from).chain([file.to_owned()]).collect()).collect();
    commands.push(vec!["precompile".into(), "--cache".into(), cache, file.to_owned()]);
    let recording = folder.write("recording", "{}\n");
    commands.push(vec!["replay".into(), file.to_owned(), recording]);
    commands
}

#[track_caller]
fn assert_acts_not(text: &str, what: &str) {
    let found = text.chars().find(|letter| *letter != '\n' && acts(*letter));
    assert!(found.is_none(), "{what}: {found:?} in {text}");
}

#[track_caller]
fn assert_harmless(outcome: &Outcome, what: &str) {
    for text in [&outcome.stdout, &outcome.stderr] {
        assert_acts_not(text, what);
        let forged = text.lines().find(|line| {
            let line = line.trim_start();
            line.starts_with("ks-host: forged") || line.starts_with("do: forged")
        });
        assert!(forged.is_none(), "{what}: {outcome:#?}");
    }
    assert!(outcome.signal.is_none(), "{what}: {outcome:#?}");
}

#[test]
fn no_text_of_a_file_acts_on_a_terminal_or_forges_a_line() {
    let folder = Folder::new();
    for (part, bytes) in files(HOSTILE) {
        let file = folder.write("hostile.wasm", bytes);
        for arguments in commands(&file, &folder) {
            assert_harmless(&finish(command("ks-host").args(&arguments)), &format!("{part}: {arguments:?}"));
        }
    }
}

#[test]
fn a_text_of_sixty_megabytes_is_cut() {
    let folder = Folder::new();
    let long = |letter: char| letter.to_string().repeat(LONG_BYTES / letter.len_utf8());
    let mut project = manifest("m");
    project["project"] = long('p').into();
    let identity = json!({ "identity": long('i'), "key": "", "digest": "", "signature": "" });
    let object = BpfRecord { name: long('o'), arch: Arch::Any, elf: vec![1] };
    for (part, bytes) in [
        ("project", record(section::MANIFEST, project.to_string().as_bytes(), plugin("words"))),
        ("identity", record(section::SIGNATURE, identity.to_string().as_bytes(), plugin("words"))),
        (
            "member",
            record(section::SIGNATURE, json!({ long('s'): 1 }).to_string().as_bytes(), plugin("words")),
        ),
        ("object", record(section::BPF, &object.to_bytes(), plugin("words"))),
    ] {
        let file = folder.write("long.wasm", bytes);
        // JSON is for tools, which get the whole value.
        let is_json = |arguments: &Vec<PathBuf>| arguments.contains(&"--json".into());
        for arguments in commands(&file, &folder).into_iter().filter(|arguments| !is_json(arguments)) {
            let outcome = finish(command("ks-host").args(&arguments));
            let bytes = outcome.stdout.len() + outcome.stderr.len();
            assert!(bytes < MOST_MESSAGE_BYTES, "{part}: {arguments:?} wrote {bytes} bytes");
        }
    }
}

#[test]
fn what_a_plugin_says_acts_on_no_terminal() {
    let folder = Folder::new();
    let file = folder.write("hostile.wasm", plugin(SPOKEN));
    // A single plugin prints its own lines as they are.
    for options in [&["run"][..], &["run", "--json"], &["-v", "run"]] {
        let outcome = finish(command("ks-host").args(options).arg(&file));
        assert_acts_not(&outcome.stdout, &format!("{options:?}"));
        assert_harmless(&Outcome { stdout: String::new(), ..outcome }, &format!("{options:?}"));
    }
    let beside = folder.write("beside.wasm", plugin(SPOKEN));
    let outcome = finish(command("ks-host").arg(&file).arg(beside));
    assert_harmless(&outcome, "two");
    let is_named = |line: &str| line.starts_with("hostile.wasm: ") || line.starts_with("beside.wasm: ");
    assert!(outcome.stdout.lines().chain(outcome.stderr.lines()).all(is_named), "{outcome:#?}");
}

#[test]
fn a_file_name_acts_on_no_terminal() {
    let folder = Folder::new();
    let name = format!("{}.wasm", HOSTILE.replace('/', "_"));
    let good = folder.write(&name, plugin("words"));
    let missing = folder.path("missing\u{1b}[2J\nks-host: forged.wasm");
    let broken = folder.write(&format!("broken{name}"), "no component");
    for file in [good, missing, broken] {
        for arguments in commands(&file, &folder) {
            assert_harmless(&finish(command("ks-host").args(&arguments)), &format!("{arguments:?}"));
        }
        for name in ["ks", "ks-host"] {
            assert_harmless(&finish(command(name).arg("check").arg("good.wasm").args([&file, &file])), name);
            assert_harmless(&finish(command(name).arg(format!("--{}", file.display()))), name);
        }
    }
}

#[test]
fn a_recording_acts_on_no_terminal() {
    let folder = Folder::new();
    let file = folder.write("good.wasm", plugin("words"));
    let recorded = folder.path("recording");
    finish(command("ks-host").arg("--record").arg(&recorded).arg(&file));
    let whole = std::fs::read_to_string(&recorded).expect("it was recorded");
    let text = Value::from(HOSTILE).to_string();
    let (head, rest) = whole.split_once('\n').expect("a header");
    for changed in [
        format!("{{{text}:1}}\n"),
        whole.replace("console", &text[1..text.len() - 1]),
        format!("{head}\n{{{text}:{text}}}\n{rest}"),
        whole.replace("\"words\"", &text),
        format!("{head}\n{}\n{rest}", json!({ "call": "console.print", "args": [], "trap": HOSTILE })),
        format!("{head}\n{HOSTILE}\n{rest}"),
    ] {
        let recording = folder.write("changed", changed);
        assert_harmless(&finish(command("ks-host").arg("replay").arg(&file).arg(recording)), "replay");
    }
    // Text of several lines, as the host writes a usage: its lines are indented.
    let spoken = format!("{head}\n{}\n{rest}", json!({ "host": "stderr", "text": SPOKEN }));
    let outcome = finish(command("ks-host").arg("replay").arg(&file).arg(folder.write("changed", spoken)));
    assert_harmless(&Outcome { stderr: outcome.stderr.replace("\n  ", ""), ..outcome }, "replay");
}

/// The compiler shows names and lines of a script.
#[test]
fn a_script_acts_on_no_terminal() {
    let folder = Folder::new();
    let scripts = [
        format!("fn main() -> i32 {{\n    return missing // {}\n}}\n", HOSTILE.replace(['\n', '\r'], " ")),
        format!("fn main() -> i32 {{\n    print({HOSTILE:?})\n    return \"{HOSTILE}\"\n}}\n"),
        format!(
            "import a from \"{}.ks\"\nfn main() -> i32 {{ return 0 }}\n",
            HOSTILE.replace(['\n', '\r'], " ")
        ),
        format!("fn {HOSTILE}() -> i32 {{ return 0 }}\n"),
    ];
    for script in scripts {
        let file = folder.write("hostile.ks", script);
        for arguments in [
            &["ks", "check"][..],
            &["ks", "check", "--format", "concise"],
            &["ks", "check", "--json"],
            &["ks", "build"],
            &["ks", "fmt", "--check"],
            &["ks-host", "run"],
            &["ks-host", "inspect"],
        ] {
            let outcome =
                finish(command(arguments[0]).args(&arguments[1..]).arg(&file).current_dir(folder.path("")));
            assert_harmless(&outcome, &format!("{arguments:?}"));
        }
    }
}

/// The names of tests come from the running plugin, and a project's name from the manifest.
#[test]
fn the_names_of_tests_act_on_no_terminal() {
    let folder = Folder::new();
    let script =
        "@test\nfn passes() -> i32 {\n    return 0\n}\n@test\nfn fails_now() -> i32 {\n    return 3\n}\n";
    let source = folder.write("tested.ks", script);
    let plugin = folder.path("tested.wasm");
    let built = finish(command("ks").args(["build", "--test"]).arg(&source).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    // Names of the same length, so that the file stays well-formed.
    let bytes = std::fs::read(&plugin).expect("it was built");
    let text = String::from_utf8_lossy(&bytes).contains("fails_now");
    assert!(text, "the name is in the file");
    let hostile = "a\u{1b}[m\u{7}\nks-"; // As long as `fails_now`.
    assert_eq!(hostile.len(), "fails_now".len());
    let mut changed = bytes;
    while let Some(at) = changed.windows(9).position(|name| name == b"fails_now") {
        changed[at..at + 9].copy_from_slice(hostile.as_bytes());
    }
    let file = folder.write("changed.wasm", changed);
    for options in [&["test"][..], &["test", "--json"]] {
        let outcome = finish(command("ks-host").args(options).arg(&file));
        assert_harmless(&outcome, &format!("{options:?}"));
    }
    let outcome = finish(command("ks-host").arg("test").arg(&file).arg("nothing\u{1b}[2J"));
    assert_harmless(&outcome, "filter");
}
