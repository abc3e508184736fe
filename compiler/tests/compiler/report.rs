//! Output format of `ks check` and `ks build`.

use std::path::PathBuf;
use std::process::{Command, Output};

/// A script in a temporary folder, which is removed at the end.
struct Script {
    folder: PathBuf,
}

impl Script {
    fn new(name: &str, text: &[u8]) -> Script {
        let folder =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        std::fs::write(folder.join("main.ks"), text).expect("a script can be written");
        Script { folder }
    }

    fn ks(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_ks"))
            .args(args)
            .arg("main.ks")
            .current_dir(&self.folder)
            .env_remove("NO_COLOR")
            .output()
            .expect("ks runs")
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        // A folder that is left in the temporary directory does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("ks writes text")
}

const WRONG: &[u8] = b"fn main() -> i32 {\n    return bot\n}\n";

#[test]
fn json_is_one_object_per_line_on_standard_output() {
    let script = Script::new("json", WRONG);
    for command in ["check", "build"] {
        let output = script.ks(&[command, "--format", "json"]);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stderr.is_empty());
        let lines: Vec<serde_json::Value> =
            text(&output.stdout).lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 1);
        let range_fields =
            ["start", "end", "line", "column", "end_line", "end_column"].map(|name| lines[0][name].as_u64());
        assert_eq!(range_fields, [30, 33, 2, 12, 2, 15].map(Some));
        assert_eq!((&lines[0]["code"], &lines[0]["file"]), (&"KS0301".into(), &"main.ks".into()));
        assert_eq!(script.ks(&[command, "--json"]).stdout, output.stdout);
    }
}

#[test]
fn concise_is_one_line_each() {
    let output = Script::new("concise", WRONG).ks(&["check", "--format", "concise"]);
    let printed = text(&output.stderr);
    assert_eq!(printed.lines().count(), 2, "{printed}");
    assert!(printed.starts_with("main.ks:2:12: error[KS0301]: no name `bot` here\n"), "{printed}");
    assert!(printed.ends_with("ks: 1 error, 0 warnings\n"), "{printed}");
}

#[test]
fn colours_only_where_wanted() {
    let script = Script::new("colours", WRONG);
    for (args, coloured) in [
        (&["check"] as &[&str], false),
        (&["check", "--color", "auto"], false),
        (&["check", "--color", "never"], false),
        (&["check", "--color", "always"], true),
    ] {
        assert_eq!(script.ks(args).stderr.contains(&0x1b), coloured, "{args:?}");
    }
}

#[test]
fn errors_beyond_a_hundred_are_counted() {
    let body: String = (0..130).map(|number| format!("    missing_{number} = 1\n")).collect();
    let script = Script::new("many", format!("fn main() -> i32 {{\n{body}    return 0\n}}\n").as_bytes());
    let printed = text(&script.ks(&["check", "--format", "concise"]).stderr);
    assert_eq!(printed.lines().count(), 101, "{printed}");
    assert!(printed.ends_with("ks: 130 errors, 0 warnings (30 more errors not shown)\n"), "{printed}");
    let json = text(&script.ks(&["check", "--json"]).stdout);
    assert_eq!(json.lines().count(), 101);
    assert_eq!(json.lines().last(), Some(r#"{"omitted_errors":30,"omitted_warnings":0}"#));
}

#[test]
fn odd_texts_are_rendered() {
    for (name, bytes) in
        [("empty", b"" as &[u8]), ("bytes", b"\xff\xfe\t\x00"), ("tabs", b"fn\tmain(\t)\t{\tx\t}")]
    {
        for format in ["human", "concise", "json"] {
            let output = Script::new(&format!("{name}-{format}"), bytes).ks(&["check", "--format", format]);
            assert_eq!(output.status.code(), Some(1), "{name} as {format}");
            assert!(output.stdout.len() + output.stderr.len() > 0, "{name} as {format}");
        }
    }
}
