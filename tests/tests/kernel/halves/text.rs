//! The fixed text around generated functions.

/// Page size in bytes. The first access to a page is the fault that runs the program.
pub const PAGE: usize = 4096;

/// The fields of `Record` in the order of the types.
pub const FIELDS: [&str; 8] = ["a", "e", "g", "c", "d", "f", "h", "b"];

/// The types that the generated functions use.
pub const TYPES: &str = r#"
struct Record {
    a: u8,
    b: i64,
    c: i16,
    d: u32,
    list: u8[4],
    e: i8,
    f: i32,
    g: u16,
    h: u64,
}
"#;

/// The maps that the generated functions use; each half has its own.
pub const MAPS: &str = r#"
var X_numbers : hash<u32, u64>(64)
var X_records : hash<u16, Record>(64)
var X_names : hash<str(8), u32>(64)
var X_texts : array<u8, str(16)>(256)
"#;

/// The inputs of the generated functions.
pub const INPUT: &str = r#"
var g0 : u8 = 0
var g1 : i8 = 0
var g2 : u16 = 0
var g3 : i16 = 0
var g4 : u32 = 0
var g5 : i32 = 0
var g6 : u64 = 0
var g7 : i64 = 0
"#;

/// Helper functions that the generated functions call.
pub const SHARED: &str = r#"
@HELPER
fn X_pass0(value: u8) -> u8 {
    return value
}
@HELPER
fn X_pass1(value: i8) -> i8 {
    return value
}
@HELPER
fn X_pass2(value: u16) -> u16 {
    return value + 1
}
@HELPER
fn X_pass3(value: i16) -> i16 {
    return value * 3
}
@HELPER
fn X_pass4(value: u32) -> u32 {
    return value
}
@HELPER
fn X_pass5(value: i32) -> i32 {
    return value - 1
}
@HELPER
fn X_pass6(value: u64) -> u64 {
    return value
}
@HELPER
fn X_pass7(value: i64) -> i64 {
    return value / 2
}
@HELPER
fn X_even(value: u32) -> bool {
    return value % 2 == 0
}
@HELPER
fn X_name(value: u16) -> str(8) {
    if (value == 0) {
        return "zero"
    }
    if (value > 40000) {
        return "enormous"
    }
    return "some"
}
@HELPER
fn X_longer(text: str(12)) -> str(12) {
    if (text == "zero") {
        text = "more than zero"
    }
    return text
}
@HELPER
fn X_checked(value: i32, least: i16) -> i32 {
    if (value < least) {
        throw 1
    }
    if (value % 3 == 1) {
        throw value
    }
    return value - least
}
@HELPER
fn X_change(record: Record, by: u8) -> Record {
    record.a += by
    record.list[by % 4] -= 1
    record.e *= 3
    record.g = record.a
    var other = record
    other.c = record.b as i16
    return other
}
@HELPER
fn X_fold(record: Record) -> u64 {
    var sum: u64 = record.h
    sum = sum * 31 + record.a
    sum = sum * 31 + (record.b as u64)
    sum = sum * 31 + (record.c as u64)
    sum = sum * 31 + record.d
    sum = sum * 31 + (record.e as u64)
    sum = sum * 31 + (record.f as u64)
    sum = sum * 31 + record.g
    for (i in 0..4) {
        sum = sum * 31 + record.list[i]
    }
    return sum
}
"#;

/// The start of `main`, which reads inputs and runs the functions in the userspace half; the calls follow it.
pub const MAIN: &str = include_str!("../scripts/text_main.ks");
