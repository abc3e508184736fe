//! CO-RE records: paths, questions, and the instructions that take the answers.

use super::super::limits::MAX_CORE_RECORDS;
use super::super::model::{Instruction, Wide};
use super::file::{File, Types, kind, slot, wide};
use super::{Reason, accepted, assert_refused, refused};
use crate::bpf::{Insn, Operand};

/// `mov r1, NUMBER`, `add r1, NUMBER`, `r1 = *(u32 *)(r1 + 4)`, `*(u32 *)(r1 + 4) = NUMBER`
const MOV: u8 = 0xb7;
const ADD: u8 = 0x07;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x62;

/// Questions of `enum bpf_core_relo_kind`, by number.
const OF_FIELDS: std::ops::Range<u32> = 0..6;
const OF_TYPES: [u32; 5] = [6, 7, 8, 9, 12];
const OF_ENUMERATORS: [u32; 2] = [10, 11];
const TYPE_IDS: [u32; 2] = [6, 7];

/// Builds a program whose first instruction loads from a kernel struct, with a CO-RE record.
fn with_core(access: &str, kind: u32, record: impl FnOnce(&mut [u32; 4])) -> File {
    let mut file = File::with_code(&[vec![slot(0x61, 1, 1, 4, 0)]]);
    let root = file.types.structure("task", 8, &[("first", 1, 0), ("second", 1, 32)]);
    let mut core = [0, root, file.types.string(access), kind];
    record(&mut core);
    let name = file.types.string("xdp");
    file.ext.core.push((name, vec![core]));
    file
}

#[test]
fn access_strings_are_lists_of_small_numbers() {
    let object = accepted(&with_core("0:1", 0, |_| {}));
    assert_eq!(object.programs[0].body.core[0].path, [0, 1]);
    let long = vec!["0"; 65].join(":");
    for access in
        ["", ":", "0:", ":0", "0:99999999999", "0:-1", "0: 1", "0:1x", "00:1", "0:01", "0:\u{1b}", &long]
    {
        let file = with_core(access, 0, |_| {});
        assert_refused(&file, ".BTF.ext", |reason| matches!(reason, Reason::Core(_)));
    }
    for access in ["0:2", "0:1:0", "999999999:1"] {
        let file = with_core(access, 0, |_| {});
        assert_refused(&file, "xdp", |reason| matches!(reason, Reason::Core(_)));
    }
}

#[test]
fn core_records_ask_about_what_there_is() {
    // An unknown question, another root, an offset between instructions and outside the function.
    let wrong: [fn(&mut [u32; 4]); 4] =
        [|core| core[3] = 13, |core| core[1] = 0, |core| core[0] = 4, |core| core[0] = 800];
    for change in wrong {
        let error = refused(&with_core("0:1", 0, change));
        assert!(matches!(error.reason, Reason::Core(_) | Reason::TypeHeader(_)), "{error}");
    }
    // A question about a type or an enumerator of a member, and one whose answer the instruction cannot take.
    for (access, kind) in [("0:1", 8), ("0", 10), ("0", 8), ("0:1", 6)] {
        let error = refused(&with_core(access, kind, |_| {}));
        assert!(matches!(error.reason, Reason::Core(_)), "{access} {kind}: {error}");
    }
    let mut file = with_core("0:1", 0, |_| {});
    let second = file.ext.core[0].1[0];
    file.ext.core[0].1.push(second);
    assert_refused(&file, "xdp", |reason| matches!(reason, Reason::SecondRelocation));
}

/// Builds a program that starts with this instruction, with a record for it.
fn asking(code: Vec<[u8; 8]>, root: impl Fn(&mut Types) -> u32, access: &str, kind: u32) -> File {
    let mut file = File::with_code(&[code]);
    let root = root(&mut file.types);
    let core = [0, root, file.types.string(access), kind];
    let name = file.types.string("xdp");
    file.ext.core.push((name, vec![core]));
    file
}

fn task(types: &mut Types) -> u32 {
    types.structure("task", 8, &[("first", 1, 0), ("second", 1, 32)])
}

fn choices(types: &mut Types) -> u32 {
    let (one, two) = (types.string("ONE"), types.string("TWO"));
    types.add("choices", kind::ENUM, 2, 4, &[one, 1, two, 2])
}

/// Returns whether the reader accepts a record for a `mov` with this root and path.
fn takes(root: impl Fn(&mut Types) -> u32, access: &str, kind: u32) -> bool {
    let file = asking(vec![slot(MOV, 1, 0, 0, 7)], root, access, kind);
    match super::read(&file.bytes()) {
        Ok(_) => accepted(&file).programs[0].body.core.len() == 1,
        Err(error) => {
            assert!(matches!(error.reason, Reason::Core(_)), "{error}");
            false
        }
    }
}

#[test]
fn questions_about_types_have_no_path() {
    for kind in OF_TYPES {
        assert!(takes(task, "0", kind), "{kind}");
        assert!(!takes(task, "1", kind) && !takes(task, "0:0", kind), "{kind}");
    }
}

#[test]
fn questions_about_enumerators_name_one() {
    for kind in OF_ENUMERATORS {
        assert!(takes(choices, "0", kind) && takes(choices, "1", kind), "{kind}");
        for access in ["2", "3", "0:0", "1:1"] {
            assert!(!takes(choices, access, kind), "{access}");
        }
        assert!(!takes(task, "0", kind) && !takes(|_| 1, "0", kind));
    }
    assert!(!takes(choices, "0:0", 0), "an enumerator is no member");
}

#[test]
fn indices_of_arrays_are_below_their_length_if_it_is_known() {
    let root = |types: &mut Types| {
        let (three, one, open) = (types.array(1, 3), types.array(1, 1), types.array(1, 0));
        types.structure("arrays", 16, &[("three", three, 0), ("one", one, 96), ("open", open, 128)])
    };
    for kind in OF_FIELDS {
        for (access, expected) in [
            ("0:0:0", true),
            ("0:0:2", true),
            ("0:0:3", false),
            ("0:0:4", false),
            // The length of these is often not the true one.
            ("0:1:0", true),
            ("0:1:1", true),
            ("0:1:1048576", true),
            ("0:1:1048577", false),
            ("0:2:0", true),
            ("0:2:1048576", true),
            ("0:2:1048577", false),
            ("0:3", false),
            ("0:0:0:0", false),
        ] {
            assert_eq!(takes(root, access, kind), expected, "{access} {kind}");
        }
    }
}

#[test]
fn paths_end_below_four_gigabits() {
    // 64 bits each: 2^26 of them are 2^32.
    assert!(takes(task, "67108863:0", 0) && takes(task, "67108863:1", 0));
    assert!(!takes(task, "67108864:0", 0));
    let nested = |types: &mut Types| {
        let many = types.array(1, 1);
        types.structure("nested", 8, &[("first", 1, 0), ("many", many, 32)])
    };
    // The sum is what counts: 2^32 - 64, and 32 for the member, and 32 for each element.
    assert!(takes(nested, "67108863:1:0", 0));
    assert!(!takes(nested, "67108863:1:1", 0));
    // A type without a size has no second value.
    let forward = |types: &mut Types| types.add("forward", kind::FWD, 0, 0, &[]);
    assert!(!takes(forward, "0:0", 0) && !takes(forward, "1", 0));
}

#[test]
fn instructions_take_the_answers_that_fit_them() {
    let one = |opcode| vec![slot(opcode, 1, u8::from(opcode == LOAD), 4 * i16::from(opcode & 7 != 7), 7)];
    let jump = vec![slot(0x05, 0, 0, 0, 0)];
    let by_register = vec![slot(0xbf, 1, 2, 0, 0)];
    for kind in 0..13 {
        let (root, access): (fn(&mut Types) -> u32, _) = match kind {
            _ if OF_FIELDS.contains(&kind) => (task, "0:1"),
            _ if OF_ENUMERATORS.contains(&kind) => (choices, "1"),
            _ => (task, "0"),
        };
        let is_field = OF_FIELDS.contains(&kind);
        let is_id = TYPE_IDS.contains(&kind);
        for (code, expected) in [
            (one(MOV), true),
            (wide(1, 7), true),
            (one(ADD), !is_id),
            (vec![slot(LOAD, 1, 1, 4, 0)], is_field),
            (one(STORE), is_field),
            (jump.clone(), false),
            (by_register.clone(), false),
        ] {
            let file = asking(code.clone(), root, access, kind);
            match super::read(&file.bytes()) {
                Ok(_) => assert!(expected, "{code:?} {kind}"),
                Err(error) => assert!(!expected && matches!(error.reason, Reason::Core(_)), "{kind} {error}"),
            }
        }
        // Ids of the file's types mean nothing elsewhere; other constants are the script's own.
        let kept = if is_id { 0 } else { 7 };
        let of = |code| accepted(&asking(code, root, access, kind)).programs[0].body.code[0];
        let Instruction::Plain(mov) = of(one(MOV)) else { panic!("a plain instruction") };
        assert!(
            matches!(mov.insn(), Insn::Mov { src: Operand::Imm(number), .. } if number == kept),
            "{kind}"
        );
        let Instruction::LoadWide { value, .. } = of(wide(1, 7)) else { panic!("a wide load") };
        assert_eq!(value, Wide::Constant(kept.unsigned_abs().into()), "{kind}");
    }
}

/// Returns a program with a record, and the offset of `.BTF.ext` in its file.
fn with_ext() -> (File, usize) {
    let file = with_core("0:1", 0, |_| {});
    let start = file.bytes().windows(8).rposition(|bytes| bytes == [0x9f, 0xeb, 1, 0, 32, 0, 0, 0]);
    (file, start.expect("it has the section"))
}

fn patched(at: usize, bytes: &[u8]) -> File {
    let (mut file, start) = with_ext();
    file.patches.push((start + at, bytes.to_vec()));
    file
}

#[test]
fn headers_of_records_are_of_version_1() {
    for (at, value) in [(0, 0xeb), (1, 0x9f), (2, 0), (2, 2), (3, 1)] {
        let error = refused(&patched(at, &[value]));
        assert!(error.to_string().contains("magic number, version or flags"), "{at}: {error}");
    }
    for size in [0_u32, 20, 28, 36] {
        let error = refused(&patched(4, &size.to_le_bytes()));
        assert!(matches!(error.reason, Reason::TypeHeader(_)), "{size}: {error}");
    }
}

#[test]
fn tables_of_records_follow_each_other() {
    // An empty table lies anywhere.
    accepted(&patched(8, &[4]));
    accepted(&patched(16, &[4]));
    let follows = |file: &File| refused(file).to_string();
    assert!(follows(&patched(24, &[4])).contains("the tables do not follow each other"));
    // The size of its records, a section, a count, and one record.
    for len in [27, 26, 29, 32, 1 << 20] {
        let error = refused(&patched(28, &u32::to_le_bytes(len)));
        assert_eq!(error.reason, Reason::Outside("a table"), "{len}");
    }
    assert!(follows(&patched(28, &[24])).contains("bytes follow the tables"));
}

#[test]
fn lists_of_records_have_as_many_as_they_say() {
    let count = 32 + 4 + 4;
    for number in [0, 2, 3, 16, u32::MAX] {
        let error = refused(&patched(count, &number.to_le_bytes()));
        assert_eq!(
            (&error.reason, error.offset),
            (&Reason::Outside("a list of records"), count as u64),
            "{number}"
        );
    }
    let error = refused(&patched(32, &[12]));
    assert!(error.to_string().contains("another size"), "{error}");
}

#[test]
fn records_are_limited() {
    let mut file = File::new();
    let (section, access) = (file.types.string("xdp"), file.types.string("0"));
    file.ext.core.push((section, vec![[0, 1, access, 0]; MAX_CORE_RECORDS + 1]));
    let (what, limit) = ("CO-RE records", MAX_CORE_RECORDS as u64);
    assert_eq!(refused(&file).reason, Reason::TooMany { what, found: limit + 1, limit });
}
