//! Histograms: slots are the same in both halves and by arithmetic, and the printed counts are the counted
//! ones.

use std::fmt::Write as _;

use ks_tests::{Folder, command, compile, finish, run_script};

/// Returns boundary values with their neighbours.
fn values() -> Vec<u64> {
    let near = |value: u64| [value.wrapping_sub(1), value, value.wrapping_add(1)];
    let mut values: Vec<u64> = (0..64).flat_map(|bit| near(1 << bit)).collect();
    values.extend([7, 10, 99, 1000, u64::MAX]);
    values
}

/// Scales as (low, step, slots).
const SCALES: [(u64, u64, u64); 5] = [(0, 1, 8), (10, 5, 4), (3, 0, 9), (1000, 1 << 40, 100), (1, 1, 1)];

fn linear(value: u64, low: u64, step: u64, slots: u64) -> u64 {
    match value.checked_sub(low) {
        None => 0,
        Some(above) => (above.checked_div(step).unwrap_or(0)).saturating_add(1).min(slots - 1),
    }
}

#[test]
fn root_slots_are_the_same_in_both_halves() {
    let values = values();
    let (mut slots, mut kernel, mut expected) = (String::new(), String::new(), String::new());
    for (index, (low, step, count)) in SCALES.iter().enumerate() {
        let _ = writeln!(slots, "    l{index} = linear_slot(v, {low}, {step}, {count})");
        let _ = writeln!(kernel, "var l{index} : u32 = 0");
    }
    for value in &values {
        let _ = write!(expected, "{}", u64::BITS - value.leading_zeros());
        for (low, step, count) in SCALES {
            let _ = write!(expected, " {}", linear(*value, low, step, count));
        }
        expected.push('\n');
    }
    let list: Vec<_> = values.iter().map(|value| format!("{value:#x}")).collect();
    let script = format!(
        r#"
const COUNT: u32 = {count}
var value : u64 = 0
var log : u32 = 0
{kernel}
var memory : u8[2097152]

@perf_event
fn kshsts(ctx: *bpf_perf_event_data) -> i32 {{
    var v = value
    log = log2_slot(v)
{slots}    return 0
}}

fn main() -> i32 {{
    var values: u64[{count}] = [{list}]
    var program = load(kshsts)
    attach(program, perf_options {{ event: page_faults, pid: 0, cpu: -1, period: 1 }}, 0)
    for (i in 0..{count}) {{
        var v = values[i]
        value = v
        memory[(i + 1) * 8192] = 1
        var same = log == log2_slot(v)
        {compare}
        if (!same) {{
            print("the halves differ for %llu", v)
        }}
        print("{format}", log, {names})
    }}
    return 0
}}
"#,
        count = values.len(),
        list = list.join(", "),
        compare = (0..SCALES.len())
            .map(|index| {
                let (low, step, count) = SCALES[index];
                format!("same = same && l{index} == linear_slot(v, {low}, {step}, {count})")
            })
            .collect::<Vec<_>>()
            .join("\n        "),
        format = ["%u"; 1 + SCALES.len()].join(" "),
        names = (0..SCALES.len()).map(|index| format!("l{index}")).collect::<Vec<_>>().join(", "),
    );
    let outcome = run_script("kshsts", &script, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    assert_eq!(outcome.stdout, expected, "{script}");
}

const PRINTED: &str = include_str!("scripts/histograms_printed.ks");

#[test]
fn histograms_are_printed_as_bars() {
    let outcome = run_script("kshstp", PRINTED, &[] as &[&str]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (0, ""), "{outcome:#?}");
    let bar = |columns: usize| format!("|{}{}|", "#".repeat(columns), " ".repeat(40 - columns));
    let rows = [(" 0 - 0  ", 1, 1), (" 1 - 1  ", 1, 1), (" 2 - 3  ", 2, 2), (" 4 - 7  ", 4, 4)]
        .into_iter()
        .chain([(" 8 - 15 ", 8, 8), ("16 - 31 ", 16, 17), ("32 - 63 ", 32, 35), ("64 - 127", 36, 40)]);
    let mut expected = "before\nwait, us  count\n".to_owned();
    for (range, count, columns) in rows {
        let _ = writeln!(expected, "{range}  {count:>5}  {}", bar(columns));
    }
    let _ = write!(
        expected,
        "steps    count\n 0 - 9       1  {}\n10 - 14      0  {}\n15 - 19      2  {}\nbehind\n",
        bar(20),
        bar(0),
        bar(40)
    );
    assert_eq!(outcome.stdout, expected);
}

#[test]
fn histograms_are_objects_for_programs() {
    let folder = Folder::new();
    let plugin = folder.write("kshstj.wasm", compile("kshstj", PRINTED).plugin);
    let outcome = finish(command("ks-host").arg("--json").arg(plugin));
    let lines: Vec<serde_json::Value> =
        outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let [before, waits, steps, after] = &lines[..] else { panic!("{outcome:#?}") };
    assert_eq!((&before["line"], &after["line"]), (&"before".into(), &"behind".into()));
    assert_eq!((&waits["plugin"], &waits["histogram"]["title"]), (&"kshstj.wasm".into(), &"wait, us".into()));
    let last = serde_json::json!({ "low": 64, "high": 127, "count": 36 });
    assert_eq!(waits["histogram"]["slots"][7], last, "{waits}");
    let all = serde_json::json!([
        { "low": 0, "high": 9, "count": 1 }, { "low": 10, "high": 14, "count": 0 }, { "low": 15, "high": 19, "count": 2 }
    ]);
    assert_eq!(steps["histogram"]["slots"], all);
}
