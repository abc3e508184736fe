//! Generated scripts of any length that resemble hand-written ones.

/// Lines of one [`unit`], including its part of `main`.
const UNIT_LINES: usize = 45;

/// Returns a script of about this many lines, without errors: structs, maps, programs, helpers, loops and
/// matches.
pub fn of_lines(lines: usize) -> String {
    let units = lines.div_ceil(UNIT_LINES);
    let mut script: String = (0..units).map(unit).collect();
    script.push_str("fn main() -> i32 {\n    var total: u64 = 0\n");
    for number in 0..units {
        script.push_str(&format!("    total += loop_{number}({number})\n    open_{number}()\n"));
    }
    script.push_str("    print(\"%u\", total)\n    return 0\n}\n");
    script
}

fn unit(number: usize) -> String {
    UNIT.replace("NUMBER", &number.to_string())
}

const UNIT: &str = r#"// What one event leaves behind.
struct Seen_NUMBER {
    count: u64,
    last: u64,
    flags: u32,
}

var seen_NUMBER : hash<u32, Seen_NUMBER>(1024)
var total_NUMBER : u64 = 0

@helper
fn note_NUMBER(key: u32, amount: u64) -> u64 {
    var was = seen_NUMBER[key]
    if (was == null) {
        seen_NUMBER[key] = Seen_NUMBER { count: 1, last: amount, flags: 0 }
        return amount
    }
    total_NUMBER += amount * 2 + 1
    return amount - key
}

@perf_event
fn on_event_NUMBER(ctx: *bpf_perf_event_data) -> i32 {
    var left = note_NUMBER(NUMBER, 7)
    return match (left) { 0: 1, default: 0 }
}

fn loop_NUMBER(limit: u32) -> u64 {
    var sum: u64 = 0
    var iterations: u32 = 0
    for (i in 0..limit) {
        // Every third one counts twice.
        if (i % 3 == 0 && sum < 1000000) {
            sum += 2
        } else {
            sum = sum + 1
        }
        iterations += 1
    }
    return sum * 10 + total_NUMBER / 3 + iterations
}

fn open_NUMBER() {
    var program = load(on_event_NUMBER)
    if (program == null) { print("unit NUMBER was not loaded") }
}

"#;
