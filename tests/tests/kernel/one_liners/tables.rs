//! How maps are printed: the first rows, in another order, as pictures on a terminal, and taken whole while programs count.

use std::process::Command;

use ks_tests::{Outcome, command, finish};

use super::Dd;

fn observed(script: &str, dd: &Dd, times: u32) -> Outcome {
    dd.observed(script, times)
}

#[test]
fn root_the_first_rows_are_printed() {
    let script = r#"
        struct Seen { low: u64, high: u64 }
        var seen : hash<u64, Seen>(64)
        @syscall_enter("write") if (comm() == "NAME") {
            total += 1
            n[total % 4] += total
            seen[total % 4].low += 1
            seen[total % 4].high = 100 - total
            sizes[total % 4].add(1)
        }
        var total : u64 = 0
        @end {
            print_map(n, top: 2)
            print_map(seen, by: high, top: 3)
            print_map(n, by: key, top: 10)
            print_map(sizes, top: 1)
            print("%llu", total)
        }"#;
    let outcome = observed(script, &Dd::new(), 7);
    // Of 1 to 7: the remainders 1, 2, 3 have two numbers, 0 has one.
    let expected = "n\nkey  value\n  3     10\n  2      8\n(2 more)\n\
                    seen\nkey  low  high\n  0    1    96\n  1    2    95\n  2    2    94\n(1 more)\n\
                    n\nkey  value\n  3     10\n  2      8\n  1      6\n  0      4\n";
    assert!(outcome.stdout.starts_with(expected), "{outcome:#?}");
    assert!(outcome.stdout.contains("sizes[1]  count  2 values, sum 2, mean 1\n"), "{outcome:#?}");
    assert!(outcome.stdout.ends_with("(3 more)\n7\n"), "{outcome:#?}");
}

#[test]
fn root_json_has_the_first_rows_only() {
    let dd = Dd::new();
    let script = format!(
        "@syscall_enter(\"write\") if (comm() == \"{}\") {{ total += 1; n[total] += total }}
         local var total : u64 = 0
         @end {{ print_map(n, top: 2) }}",
        dd.name
    );
    let outcome = finish(command("ks-host").args(["--json", "-e", &script, "--exec"]).args(dd.command(5)));
    let rows: Vec<&str> = outcome.stdout.lines().filter_map(|line| line.split("\"row\":").nth(1)).collect();
    assert_eq!(rows, ["{\"key\":5,\"value\":5}}", "{\"key\":4,\"value\":4}}"], "{outcome:#?}");
}

/// What is counted while a map is taken is in this one or in the next: the sum of all is what the programs did. Two of them
/// write on both CPUs, and new keys come all the time.
#[test]
fn root_what_is_taken_adds_up() {
    let dd = Dd::new();
    let script = r#"
        var sum : u64 = 0
        var takes : u32 = 0
        var n : hash<u64, u64>(65536)
        var per_cpu_too : percpu_hash<u64, u64>(1024)
        @syscall_enter("write") if (comm() == "NAME") {
            n[time_ns() / 1000 % 4096] += 1
            per_cpu_too[time_ns() % 16] += 1
        }
        fn add() -> void {
            take(n)
            for (key, count in n) { sum += count }
            takes += 1
        }
        var other : u64 = 0
        fn add_other() -> void {
            take(per_cpu_too)
            for (key, count in per_cpu_too) { other += count }
        }
        @interval("5ms") { add(); add_other() }
        @end { add(); add_other(); add(); add_other(); print("%llu %llu %u", sum, other, takes) }"#;
    let each = 400_000;
    let program = dd.command(each).join(" ");
    let both = format!("{program} & {program} & wait");
    let outcome = super::observed(&script.replace("NAME", &dd.name), &["sh", "-c", &both]);
    let words: Vec<u64> =
        outcome.stdout.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert_eq!(words[..2], [2 * u64::from(each), 2 * u64::from(each)], "{outcome:#?}");
    assert!(words[2] > 10, "{outcome:#?}");
    assert!(!outcome.stderr.contains("lost"), "{outcome:#?}");
}

#[test]
fn root_an_interval_redraws_on_a_terminal_only() {
    let script = r#"@profile(99) { n[cpu()] += 1 } @interval("100ms") { print_map(n); print("then") }"#;
    let host = ks_tests::binary("ks-host").display().to_string();
    let line = format!("{host} --timeout 1 -e '{script}'");
    let terminal = finish(Command::new("script").args(["-qec", &line, "/dev/null"]));
    let pictures: Vec<&str> = terminal.stdout.split("\u{1b}[H\u{1b}[J").collect();
    assert!(pictures.len() > 3, "{terminal:#?}");
    assert!(pictures[1..].iter().all(|one| one.starts_with("n\r\nkey  value\r\n")), "{terminal:#?}");
    assert!(pictures[1].ends_with("then\r\n"), "{terminal:#?}");
    let piped = finish(Command::new("sh").args(["-c", &line]));
    assert!(piped.stdout.matches("n\nkey  value\n").count() > 3, "{piped:#?}");
    assert!(!piped.stdout.contains('\u{1b}'), "{piped:#?}");
    // A script that prints lines only does not lose those before.
    let lines = line.replace("print_map(n); ", "");
    let terminal = finish(Command::new("script").args(["-qec", &lines, "/dev/null"]));
    assert!(
        !terminal.stdout.contains('\u{1b}') && terminal.stdout.matches("then").count() > 3,
        "{terminal:#?}"
    );
}

#[test]
fn columns_get_headings_while_a_script_runs() {
    let script = r#"
        struct Use { @column("first", "ns") a: u64, events: u64[4] }
        var uses : hash<u32, Use>(8)
        fn main() -> i32 {
            uses[7] = Use { a: 1, events: [2, 3, 4, 5] }
            uses[8] = Use { a: 9, events: [8, 7, 6, 5] }
            var names: str(16)[4]
            names[0] = "renamed"
            names[2] = "third" + "!"
            print_map(uses, headings: names)
            names[0] = ""
            print_map(uses, top: 1, by: "events[0]", headings: names)
            return 0
        }"#;
    let outcome = finish(command("ks-host").args(["-e", script]));
    let expected = "uses\nkey  renamed (ns)  third!  events[3]\n  8             9       7          5\n  7             1       3          5\n\
                    uses\nkey  third!  events[3]\n  8       7          5\n(1 more)\n";
    assert_eq!(outcome.stdout, expected, "{outcome:#?}");
    let json = finish(command("ks-host").args(["--json", "-e", script]));
    assert!(json.stdout.contains(r#""row":{"events[3]":5,"key":8,"third!":7}}"#), "{json:#?}");
}

/// Headings and units are the same with and without `main`, as text and as JSON.
#[test]
fn root_columns_have_headings_and_units() {
    let kept = r#"
        struct Who { @column("COMMAND") comm: str(16), failed: bool }
        struct Cost { @column("calls") n: u32, @column("got", "By") bytes: stats, @column("each", "By") parts: u16[2] }
        @column("longest", "By") var most : u64 = 0
        var costs : hash<Who, Cost>(64)
        @column("size", "By") var sizes : hash<u32, u64>(64)
        @syscall_enter("write")
        fn writes(fd: u32, buf: *u8, count: u64) -> i32 {
            if (comm() == "NAME") {
                costs[comm(), false].n += 1
                costs[comm(), false].bytes.add(7)
                costs[comm(), false].parts[1] = 9
                sizes[3] += 5
                most = 8
            }
            return 0
        }
        "#;
    let shown = "print_map(sizes, top: 1, by: size)";
    let without_main = format!("{kept} @end {{ {shown} }}");
    let main = "fn main() -> i32 { attach(load(writes), \"\", 0); sleep(600000);";
    let with_main = format!("{kept} {main} {shown}; print_kept(); return 0 }}");
    let dd = Dd::new();
    for script in [without_main, with_main] {
        let script = script.replace("NAME", &dd.name);
        let text = observed(&script, &dd, 2).stdout;
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split("  ").filter(|part| !part.is_empty()).collect()).collect();
        let headings = [
            "COMMAND",
            "failed",
            "calls",
            "got.count",
            "got.sum (By)",
            "got.min (By)",
            "got.max (By)",
            "got.mean (By)",
            "each[0] (By)",
            "each[1] (By)",
        ];
        let row = [&dd.name, "false", "2", "2", "14", "7", "7", "7", "0", "9"].map(str::trim);
        let expected = [
            &["sizes"][..],
            &["key", "size (By)"],
            &["3", "10"],
            &["longest (By)"],
            &["8"],
            &["costs"],
            &headings,
            &row,
        ];
        let lines: Vec<Vec<&str>> =
            lines.into_iter().map(|line| line.into_iter().map(str::trim).collect()).collect();
        assert_eq!(lines, expected, "{text}");
        let json = finish(command("ks-host").args(["--json", "-e", &script, "--exec"]).args(dd.command(2)));
        let rows: Vec<serde_json::Value> =
            json.stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let of = |table: &str| rows.iter().find(|row| row["table"] == table).expect(table);
        let (costs, sizes) = (of("costs"), of("sizes"));
        assert_eq!((&costs["row"]["calls"], &costs["row"]["got.sum"]), (&2.into(), &14.into()), "{costs}");
        assert_eq!(costs["row"]["COMMAND"], dd.name.as_str(), "{costs}");
        assert_eq!(costs["row"]["each"], serde_json::json!([0, 9]), "{costs}");
        let with_unit = ["got.sum", "got.min", "got.max", "got.mean", "each"];
        let units = with_unit.map(|name| (name.to_owned(), "By".into()));
        assert_eq!(costs["units"], serde_json::Value::Object(units.into_iter().collect()), "{costs}");
        assert_eq!((&sizes["row"]["size"], &sizes["units"]["size"]), (&10.into(), &"By".into()), "{sizes}");
    }
}
