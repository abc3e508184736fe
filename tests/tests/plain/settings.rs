//! User settings of a plugin: config blocks and the arguments of `main`.

use ks_tests::{Folder, Outcome, command, compile, finish, run_script};

/// The kernel half copies the fields that it sees at each page fault; userspace sets a field before and after
/// `load`.
const LIMITS: &str = include_str!("scripts/settings_limits.ks");

fn run(settings: &[&str], arguments: &[&str]) -> Outcome {
    let folder = Folder::new();
    let plugin = folder.write("limits.wasm", compile("limits", LIMITS).plugin);
    let mut host = command("ks-host");
    settings.iter().for_each(|setting| {
        host.arg("--config").arg(setting);
    });
    finish(host.arg(plugin).arg("--").args(arguments))
}

#[test]
fn root_lf_104_a_config_has_its_first_values_before_the_kernel_half_reads_them() {
    let outcome = run(&[], &[]);
    assert_eq!(outcome.stdout, "0\n100 1 80 -7\n105 1 8080 -7\n", "{}", outcome.stderr);
    let outcome = run(&[], &["--change"]);
    assert_eq!(outcome.stdout, "0\n1 1 80 -7\n6 1 8080 -7\n", "{}", outcome.stderr);
}

#[test]
fn root_a_person_sets_what_both_halves_read() {
    let settings =
        ["limits.burst=7", "limits.strict=no", "limits.ports=1,2", "idle.spare=0xffffffffffffffff"];
    let outcome = run(&settings, &[]);
    let expected = "18446744073709551615\n7 0 2 -7\n12 0 8080 -7\n";
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), (expected, ""));
}

#[test]
fn a_setting_that_names_nothing_or_does_not_fit_starts_nothing() {
    for (setting, reason) in [
        (
            "limits.brust=7",
            "`limits.brust=7`: there is no field of `limits` named `brust`; did you mean `burst`?",
        ),
        ("limit.burst=7", "there is no config block named `limit`; did you mean `limits`?"),
        ("limits.burst=many", "`many` is not a number"),
        ("limits.burst", "is not of the form `block.field=value`"),
    ] {
        let outcome = run(&[setting], &[]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (125, ""));
        assert!(outcome.stderr.contains(reason), "{}", outcome.stderr);
    }
}

/// Returns a plugin that prints its name and then its field.
fn small(project: &str, block: &str) -> Vec<u8> {
    let script = format!(
        "config {block} {{ burst: u32 = 1 }}\nfn main() -> i32 {{\n    print(\"{project} %u\", \
         {block}.burst)\n    \
         return 0\n}}\n"
    );
    compile(project, &script).plugin
}

#[test]
fn root_settings_of_several_plugins_are_for_those_that_have_the_field() {
    let folder = Folder::new();
    let files = [("a", "limits"), ("b", "limits"), ("c", "other")]
        .map(|(name, block)| folder.write(&format!("{name}.wasm"), small(name, block)));
    let run = |settings: &[&str]| {
        let mut host = command("ks-host");
        settings.iter().for_each(|setting| {
            host.arg("--config").arg(setting);
        });
        let mut outcome = finish(host.args(&files));
        let mut lines: Vec<_> = outcome.stdout.lines().map(str::to_owned).collect();
        lines.sort();
        outcome.stdout = lines.join(", ");
        outcome
    };
    let all = run(&["limits.burst=7", "other.burst=8"]);
    assert_eq!((all.code, all.stdout.as_str()), (0, "a.wasm: a 7, b.wasm: b 7, c.wasm: c 8"), "{all:#?}");
    let one = run(&["limits.burst=7", "b.wasm:limits.burst=9"]);
    assert_eq!((one.code, one.stdout.as_str()), (0, "a.wasm: a 7, b.wasm: b 9, c.wasm: c 1"), "{one:#?}");
    for (setting, reason) in [
        ("limits.brust=7", "none of the plugins has this field: `a.wasm`, `b.wasm`, `c.wasm`"),
        ("d.wasm:limits.burst=7", "there is no plugin `d.wasm`; there is `a.wasm`, `b.wasm`, `c.wasm`"),
    ] {
        let refused = run(&[setting]);
        assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{refused:#?}");
        assert!(refused.stderr.contains(reason), "{refused:#?}");
    }
    // The plugin with the field reports the invalid value, and the others run.
    let wrong = run(&["other.burst=many"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (125, "a.wasm: a 1, b.wasm: b 1"), "{wrong:#?}");
    assert!(
        wrong.stderr.contains("c.wasm: --config: `other.burst=many`: `many` is not a number"),
        "{wrong:#?}"
    );
}

const OPTIONS: &str = include_str!("scripts/settings_options.ks");

fn options(arguments: &[&str]) -> Outcome {
    run_script("options", OPTIONS, arguments)
}

#[test]
fn lf_112_arguments_of_main() {
    let most = u64::MAX;
    for (arguments, expected) in [
        (&[][..], format!("10 lo 0 -4 0 {most}")),
        (&["--packet_limit=0x1F", "--interface", "eth0", "--quiet"], format!("31 eth0 1 -4 0 {most}")),
        (&["--packet-limit", "65535", "--quiet=no", "--offset=-0b11"], format!("65535 lo 0 -3 0 {most}")),
        (&["--letter=65", "--quiet", "on", "--all=0", "--interface="], "10  1 -4 65 0".to_owned()),
    ] {
        let outcome = options(arguments);
        assert_eq!(outcome.stdout, format!("{expected}\n"), "{arguments:?}: {}", outcome.stderr);
    }
    assert_eq!(options(&[]).code, 252);
}

#[test]
fn lf_112_help_comes_from_the_script() {
    for arguments in [&["--help"][..], &["-h"], &["--packet_limit=3", "--help", "--what"]] {
        let outcome = options(arguments);
        let expected = "usage: ks-host options.wasm -- [OPTIONS]\n\n  \
            --packet_limit  u16                      default 10                    How many packets are \
                        looked at.\n  \
            --interface     text of at most 7 bytes  default \"lo\"                  Where to look.\n  \
            --quiet         bool                     default false\n  \
            --offset        i32                      default -4\n  \
            --letter        u8                       default 0\n  \
            --all           u64                      default 18446744073709551615\n";
        assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""));
        assert_eq!(outcome.stdout, expected);
    }
}

#[test]
fn lf_112_wrong_arguments_are_named_and_nothing_runs() {
    for (argument, reason) in [
        ("--speed=1", "there is no option `--speed`"),
        ("surplus", "`surplus` is not an option"),
        ("--packet_limit", "`--packet_limit` needs a value"),
        ("--packet_limit=x", "`x` is not a number"),
        ("--packet_limit=65536", "65536 is too large"),
        ("--offset=2147483648", "out of range"),
        ("--quiet=maybe", "none of true, false"),
        ("--interface=much_too_long", "at most 7 fit"),
    ] {
        let outcome = options(&[argument]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (1, ""), "{argument}");
        assert!(outcome.stderr.contains(reason), "{argument}: {}", outcome.stderr);
        assert!(outcome.stderr.contains("usage: ks-host options.wasm"), "{argument}: {}", outcome.stderr);
    }
}

#[test]
fn lf_112_a_script_without_options_takes_no_arguments() {
    let script = "fn main() -> i32 {\n    print(\"ran\")\n    return 0\n}\n";
    let outcome = run_script("bare", script, &["--help"]);
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (0, "usage: ks-host bare.wasm\n\nThe plugin takes no options.\n")
    );
    assert_eq!(run_script("bare", script, &["word"]).code, 1);
}
