//! Output files of `ks`, and files that it must not overwrite.

use std::os::unix::fs::FileTypeExt;

use ks_compiler::init::KINDS;
use ks_tests::{Folder, command, finish, repository};

const SCRIPT: &str = "fn main() -> i32 {\n    return 0\n}\n";

#[test]
fn a_script_is_never_its_own_output() {
    let folder = Folder::new();
    let script = folder.write("script.ks", SCRIPT);
    let built = finish(command("ks").arg("build").arg(&script).arg("-o").arg(&script));
    assert_eq!(built.code, 1, "{built:#?}");
    assert!(built.stderr.contains("is the script itself"), "{built:#?}");
    assert_eq!(std::fs::read_to_string(&script).expect("the script is still there"), SCRIPT);
}

#[test]
fn a_pipe_as_output_stays_a_pipe() {
    let folder = Folder::new();
    let script = folder.write("script.ks", SCRIPT);
    let pipe = folder.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("the folder is ours");
    // Opening for both directions does not block; the kernel keeps the bytes.
    let _held = std::fs::OpenOptions::new().read(true).write(true).open(&pipe).expect("the pipe opens");
    let built = finish(command("ks").arg("build").arg(&script).arg("-o").arg(&pipe));
    assert_eq!(built.code, 0, "{built:#?}");
    let kind = std::fs::symlink_metadata(&pipe).expect("the pipe is still there").file_type();
    assert!(kind.is_fifo(), "{kind:?}");
}

#[test]
fn a_script_is_compiled_and_run_in_one_step() {
    let folder = Folder::new();
    folder.write("sums.ks", "fn sum(a: u32, b: u32) -> u32 {\n    return a + b\n}\n");
    let script = folder.write(
        "adds.ks",
        "import sums from \"sums.ks\"\n\nfn main() -> i32 {\n    var n = sums.sum(20, 3)\n    \
         print(\"the sum is %u\", n)\n    return 3\n}\n",
    );
    let ran = finish(command("ks-host").arg(&script));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (3, "the sum is 23\n", ""), "{ran:#?}");
    let inspected = finish(command("ks-host").args(["inspect", "--json"]).arg(&script));
    let inspected: serde_json::Value = serde_json::from_str(&inspected.stdout).expect("JSON");
    assert_eq!(inspected["manifests"][0]["source"]["file"], "adds.ks", "{inspected:#}");
}

#[test]
fn a_script_with_errors_is_not_run() {
    let folder = Folder::new();
    let script =
        folder.write("wrong.ks", "fn main() -> i32 {\n    print(\"started\")\n    return nothing\n}\n");
    let ran = finish(command("ks-host").arg(&script));
    assert_eq!((ran.code, ran.stdout.as_str()), (127, ""), "{ran:#?}");
    let position = format!("{}:3:12", script.display());
    assert!(ran.stderr.contains(&position) && ran.stderr.contains("error[KS"), "{ran:#?}");
    let missing = finish(command("ks-host").arg(folder.path("missing.ks")));
    assert_eq!(missing.code, 127, "{missing:#?}");
    assert!(missing.stderr.contains("cannot read") && missing.stderr.contains("missing.ks"), "{missing:#?}");
}

#[test]
fn ks_build_refuses_instruction_sets_that_the_target_kernel_lacks() {
    let folder = Folder::new();
    let script = folder.write("one.ks", SCRIPT);
    let build = |arguments: &[&str]| {
        let output = folder.path("one.wasm");
        finish(command("ks").arg("build").arg(&script).arg("-o").arg(output).args(arguments))
    };
    let refused = build(&["--cpu", "v4", "--target-kernel", "6.1"]);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("--cpu v4 needs Linux 6.6"), "{}", refused.stderr);
    let too_old = build(&["--target-kernel", "5.14"]);
    let why = "objects are made for Linux 5.15 and newer, and for 5.14-rhel9";
    assert!(too_old.stderr.contains(why), "{}", too_old.stderr);
    for arguments in [
        ["--cpu", "v3", "--target-kernel", "5.14-rhel9"],
        ["--cpu", "v4", "--target-kernel", "6.6"],
        ["--cpu", "v1", "--target-kernel", "5.15"],
        ["--cpu", "v3", "--target-kernel", "6.2"],
    ] {
        let built = build(&arguments);
        assert_eq!(built.code, 0, "{}", built.stderr);
    }
}

#[test]
fn lf_126_scripts_of_ks_init_compile_unchanged() {
    let help = finish(command("ks").args(["init", "--help"])).stdout;
    for kind in KINDS {
        assert!(help.contains(&format!("\n  {} ", kind.form)), "{help}");
    }
    for kind in KINDS.iter().flat_map(|kind| kind.examples) {
        let folder = Folder::new();
        let started = finish(command("ks").current_dir(folder.path("")).args(["init", kind, "fresh"]));
        assert_eq!(started.code, 0, "{kind}: {started:#?}");
        let script = folder.path("fresh/fresh.ks");
        let built = finish(command("ks").arg("build").arg(&script).arg("-o").arg(folder.path("fresh.wasm")));
        assert_eq!(built.code, 0, "{kind}: {built:#?}");
    }
}

/// An error about a size, a time, the name of a command or of a class names the correct form.
#[test]
fn misspelled_arguments_get_suggestions() {
    let folder = Folder::new();
    let script = folder.write("script.ks", SCRIPT);
    let ran = |arguments: &[&str]| finish(command("ks-host").args(arguments).arg(&script));
    for arguments in [
        &["--timeout", "2m"][..],
        &["--timeout", "300ms"],
        &["--limit", "map_bytes=1M"],
        &["--limit", "run_ms=10s"],
    ] {
        assert_eq!(ran(arguments).code, 0, "{arguments:?}: {:#?}", ran(arguments));
    }
    for (arguments, wanted) in [
        (&["--timeout", "soon"][..], "300ms"),
        (&["--limit", "map_bytes=1X"], "64K, 16M, 1G"),
        (&["--allow", "xpd=eth0"], "did you mean `xdp`?"),
        (&["--limit", "map_byte=1"], "did you mean `map_bytes`?"),
        (&["ispect"], "did you mean the command `ks-host inspect`?"),
    ] {
        let outcome = ran(arguments);
        assert!(outcome.code != 0 && outcome.stderr.contains(wanted), "{arguments:?}: {outcome:#?}");
    }
    let file = folder
        .write("policy.toml", "[allow]\nimport = [\"*\"]\n[limits]\nmap_bytes = \"16M\"\nrun_ms = \"2m\"\n");
    let with = finish(command("ks-host").arg("--policy").args([&file, &script]));
    assert_eq!((with.code, with.stderr.as_str()), (0, ""), "{with:#?}");
}

#[test]
fn several_scripts_are_checked_and_each_is_reported() {
    let folder = Folder::new();
    let good = folder.write("good.ks", SCRIPT);
    let wrong = folder.write("wrong.ks", "fn main() -> i32 {\n    return nothing\n}\n");
    let other = folder.write("other.ks", "fn main() -> i32 {\n    return something\n}\n");
    let sound = finish(command("ks").arg("check").args([&good, &good]));
    assert_eq!((sound.code, sound.stderr.as_str()), (0, ""), "{sound:#?}");
    let missing = folder.path("missing.ks");
    let checked = finish(command("ks").arg("check").args([&wrong, &missing, &good, &other]));
    assert_eq!(checked.code, 1, "{checked:#?}");
    for named in [&wrong, &missing, &other] {
        assert!(checked.stderr.contains(&named.display().to_string()), "{named:?}: {checked:#?}");
    }
}

#[test]
fn a_plugin_goes_to_standard_output_and_never_under_a_misleading_name() {
    let folder = Folder::new();
    folder.write("script.ks", SCRIPT);
    let build = |arguments: &[&str]| {
        let mut ks = command("ks");
        ks.current_dir(folder.path(""))
            .args(["build", "script.ks"])
            .args(arguments)
            .output()
            .expect("ks starts")
    };
    let piped = build(&["-o", "-"]);
    assert!(piped.status.success() && piped.stdout.starts_with(b"\0asm"), "{piped:?}");
    let elf = build(&["--emit", "bpf", "-o", "x.o"]);
    let said = String::from_utf8_lossy(&elf.stderr);
    assert!(!elf.status.success() && said.contains("--emit elf=x.o"), "{said}");
    let both = build(&["--emit", "hir", "-o", "-"]);
    let said = String::from_utf8_lossy(&both.stderr);
    assert!(!both.status.success() && said.contains("--emit hir=FILE"), "{said}");
    assert_eq!(std::fs::read_dir(folder.path("")).expect("it is there").count(), 1, "nothing was written");
}

/// The output of a command of `--exec` and that of the plugin are kept apart, and the command's exit code is
/// not lost.
#[test]
fn the_observed_command_keeps_its_output_and_its_exit_code() {
    let folder = Folder::new();
    let script = folder.write("waits.ks", include_str!("scripts/commands_waits.ks"));
    let report = folder.path("report");
    let exec = |options: &[&str], line: &str| {
        let mut host = command("ks-host");
        host.args(options).arg("--output").args([&report, &script]).args(["--exec", "sh", "-c", line]);
        finish(&mut host)
    };
    let well = exec(&["--json"], "echo from the command");
    assert_eq!((well.code, well.stdout.as_str(), well.stderr.as_str()), (0, "from the command\n", ""));
    let lines = std::fs::read_to_string(&report).expect("it was written");
    let line: serde_json::Value = serde_json::from_str(lines.trim_end()).expect("one line of JSON");
    assert_eq!(line["line"], "the command has ended", "{line}");

    let fails = exec(&[], "exit 7");
    assert_eq!(
        (fails.code, fails.stderr.as_str()),
        (0, "ks-host: `sh` ended with exit code 7\n"),
        "{fails:#?}"
    );
    assert_eq!(exec(&["--exec-code"], "exit 7").code, 7);
    let killed = exec(&["--exec-code"], "kill -9 $$");
    assert_eq!(killed.code, 137, "{killed:#?}");
    assert!(killed.stderr.contains("was ended by the signal SIGKILL"), "{killed:#?}");
}

#[test]
fn with_json_every_line_of_the_host_is_an_object() {
    let folder = Folder::new();
    let script = folder.write("waits.ks", include_str!("scripts/commands_waits.ks"));
    let script = script.to_str().expect("text");
    let text = folder.write("text.wasm", "no plugin");
    let wrong = folder.write("wrong.ks", "fn main() -> i32 { return x }\n");
    let policy = folder.write("policy.toml", "[allow]\nevnt = []\n");
    let [text, wrong, policy] = [&text, &wrong, &policy].map(|file| file.to_str().expect("text"));
    let cases: [(&[&str], &str, &str); 6] = [
        (&[script, "--exec", "sh", "-c", "exit 7"], "warning", "`sh` ended with exit code 7"),
        (&[text], "error", "is not a plugin"),
        (&[wrong], "error", "KS0301"),
        (&["--policy", policy, script], "error", "evnt"),
        (&["--record", "-", script], "error", "name a file"),
        (&["--timeout", "1", script, "--exec", "sleep", "5"], "error", "stopped after the time limit"),
    ];
    for (arguments, kind, expected) in cases {
        let ran = finish(command("ks-host").arg("--json").args(arguments));
        let object = |line: &str| serde_json::from_str::<serde_json::Value>(line);
        let lines: Vec<_> = ran.stderr.lines().map(|line| object(line).expect(line)).collect();
        let is_it =
            |line: &serde_json::Value| line[kind].as_str().is_some_and(|text| text.contains(expected));
        assert!(lines.iter().any(is_it), "{arguments:?}: {ran:#?}");
    }
}

/// A dash is standard output, or refused: never the name of a file.
#[test]
fn a_dash_is_standard_output() {
    let folder = Folder::new();
    folder.write("script.ks", SCRIPT);
    let plugin = folder.path("script.wasm");
    // A plugin that shares memory already, which `ks share` returns as it is.
    let script = repository().join("examples/trace/switches.ks");
    let built = finish(command("ks").arg("build").arg(script).arg("-o").arg(&plugin));
    assert_eq!(built.code, 0, "{built:#?}");
    let before = std::fs::read(&plugin).expect("it was built");
    let within = |program: &str, arguments: &[&str]| {
        let mut command = command(program);
        finish(command.args(arguments).current_dir(folder.path("")))
    };
    let shared = within("ks", &["share", "script.wasm", "-o", "-"]);
    assert_eq!((shared.code, shared.stdout.is_empty()), (0, false), "{shared:#?}");
    let signing = ["sign", "script.wasm", "--key", "key.pem", "--new-key", "--as", "me", "-o", "-"];
    let signed = within("ks-host", &signing);
    assert!(signed.code == 0 && signed.stderr.contains("signed by me"), "{signed:#?}");
    assert!(signed.stdout.len() > before.len() / 2, "{signed:#?}");
    let printed = within("ks-host", &["--output", "-", "--timeout", "1", "script.wasm"]);
    assert!(!printed.stderr.contains("--output"), "{printed:#?}");
    for option in ["--record", "--audit"] {
        let refused = within("ks-host", &[option, "-", "script.wasm"]);
        assert!(refused.code != 0 && refused.stderr.contains("name a file"), "{option}: {refused:#?}");
    }
    assert_eq!(std::fs::read(&plugin).expect("it is there"), before, "nothing was written there");
    assert!(!folder.path("-").exists());
    for stage in ["hir", "ast", "tokens"] {
        let name = format!("plugin.{stage}");
        let misnamed = within("ks", &["build", "script.ks", "--emit", stage, "-o", &name]);
        assert!(
            misnamed.code != 0 && misnamed.stderr.contains("is the name of something else"),
            "{misnamed:#?}"
        );
    }
}

#[test]
fn spellings_of_0_1_1_work_and_say_what_to_write_now() {
    let folder = Folder::new();
    let script = folder.write("script.ks", SCRIPT);
    let out = folder.path("out");
    let built = finish(command("ks").arg("compile").arg(&script).arg("-o").arg(&out).arg("--no-makefile"));
    assert_eq!(built.code, 0, "{built:#?}");
    assert!(out.join("script.wasm").is_file(), "{built:#?}");
    for expected in
        ["`ks compile`", "write `ks build`", "`--no-makefile`", "`-o FOLDER`", "write `-o FILE.wasm`"]
    {
        assert!(built.stderr.contains(expected), "{expected}: {built:#?}");
    }
    let plugin = folder.path("named.wasm");
    let built = finish(command("ks").args(["compile", "--verbose"]).arg(&script).arg("-o").arg(&plugin));
    assert!(built.code == 0 && plugin.is_file() && !built.stderr.contains("-o FOLDER"), "{built:#?}");
    let btf = "/sys/kernel/btf/vmlinux";
    let checked = finish(command("ks").arg("check").arg(&script).args(["--btf-vmlinux-path", btf]));
    assert!(checked.code == 0 && checked.stderr.contains("write `--btf FILE`"), "{checked:#?}");
    let built = finish(command("ks").arg("build").arg(&script).arg("-o").arg(&plugin));
    assert_eq!((built.code, built.stderr.as_str()), (0, ""), "{built:#?}");
}

#[test]
fn a_check_refuses_what_a_target_refuses() {
    let folder = Folder::new();
    let script = folder.write("script.ks", SCRIPT);
    for command_ in ["check", "build"] {
        let refused =
            finish(command("ks").arg(command_).arg(&script).args(["--cpu", "v4", "--target-kernel", "6.1"]));
        assert!(refused.code == 1 && refused.stderr.contains("--cpu v4 needs Linux 6.6"), "{refused:#?}");
    }
}

#[test]
fn a_script_without_main_says_that_nothing_runs() {
    let folder = Folder::new();
    let script = folder
        .write("programs.ks", "@perf_event\nfn watch(ctx: *bpf_perf_event_data) -> i32 {\n    return 0\n}\n");
    let plugin = folder.path("programs.wasm");
    let built = finish(command("ks").arg("build").arg(&script).arg("-o").arg(&plugin));
    assert_eq!((built.code, built.stderr.as_str()), (0, ""), "{built:#?}");
    for file in [script, plugin] {
        let ran = finish(command("ks-host").arg(&file));
        assert_eq!((ran.code, ran.stdout.as_str()), (0, ""), "{ran:#?}");
        assert!(
            ran.stderr.contains("the script has no `main`, so nothing is loaded or attached"),
            "{ran:#?}"
        );
    }
}

/// They are read until they are too long, and not until the memory of the machine ends.
#[test]
fn files_without_an_end_are_refused() {
    let folder = Folder::new();
    let script = folder.write("one.ks", "fn main() -> i32 {\n    return 0\n}\n");
    let script = script.to_str().expect("text");
    let lines: [(&str, &[&str]); 6] = [
        ("ks", &["fmt", "/dev/full"]),
        ("ks", &["check", "/dev/zero"]),
        ("ks", &["build", "/dev/zero"]),
        ("ks", &["share", "/dev/zero"]),
        ("ks-host", &["--policy", "/dev/zero", script]),
        ("ks-host", &["--event-table", "/dev/zero", script]),
    ];
    for (name, arguments) in lines {
        let outcome = finish(command(name).args(arguments));
        assert!(
            outcome.code != 0 && outcome.stderr.contains("it has more than"),
            "{arguments:?}: {outcome:#?}"
        );
    }
}
