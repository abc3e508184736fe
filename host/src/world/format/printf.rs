//! Compares every conversion with the C library's on random values, by an oracle that the machine's C
//! compiler builds.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::line;
use crate::world::bindings::kernelscript::host::console::Value;

const CASES: usize = 20_000;

/// A conversion that C defines, with a value.
struct Case {
    letter: u8,
    /// Flags, width and precision.
    middle: String,
    value: Value,
    bits: u32,
    number: u64,
    text: String,
}

/// A xorshift generator with a fixed seed, for reproducible cases.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    /// Returns small numbers, limits of all widths, and numbers of any size.
    fn number(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(5).wrapping_sub(2),
            1 => (1_u64 << self.below(64)).wrapping_sub(self.below(3)),
            _ => self.next() >> self.below(64),
        }
    }

    /// Returns flags that C defines for a letter, a width and a precision, each optional.
    fn middle(&mut self, letter: u8) -> String {
        let (flags, precise) = match letter {
            b'd' | b'i' => ("-+ 0", true),
            b'u' => ("-0", true),
            b'x' | b'X' | b'o' => ("-0#", true),
            b's' => ("-", true),
            _ => ("-", false),
        };
        let mut middle: String = flags.chars().filter(|_| self.below(3) == 0).collect();
        if self.below(2) == 0 {
            let _ = write!(middle, "{}", 1 + self.below(30));
        }
        if precise && self.below(3) == 0 {
            let _ = write!(middle, ".{}", self.below(25));
        }
        middle
    }

    fn case(&mut self) -> Case {
        let letter = b"diuxXocsp"[self.below(9) as usize];
        let middle = self.middle(letter);
        // The C library formats a null pointer differently.
        let number = if letter == b'p' { self.number().max(1) } else { self.number() };
        let text: String = (0..self.below(12)).map(|_| char::from(b'a' + self.below(26) as u8)).collect();
        let (bits, value) = match (letter, self.below(8)) {
            (b's', _) => (64, Value::Text(text.clone().into_bytes())),
            (b'p', _) => (64, Value::Pointer(number)),
            (b'c', 0..4) => (8, Value::Character(number as u8)),
            (_, 0) => (8, Value::Unsigned8(number as u8)),
            (_, 1) => (8, Value::Signed8(number as i8)),
            (_, 2) => (16, Value::Unsigned16(number as u16)),
            (_, 3) => (16, Value::Signed16(number as i16)),
            (_, 4) => (32, Value::Unsigned32(number as u32)),
            (_, 5) => (32, Value::Signed32(number as i32)),
            (_, 6) => (64, Value::Unsigned64(number)),
            _ => (64, Value::Signed64(number.cast_signed())),
        };
        Case { letter, middle, value, bits, number, text }
    }
}

impl Case {
    /// The conversion as in a script, with one of the lengths that have no effect.
    fn format(&self, length: &str) -> String {
        format!("[%{}{length}{}]", self.middle, char::from(self.letter))
    }

    /// The input line for the oracle, with the length that C needs for the value.
    fn for_oracle(&self) -> String {
        let length = if b"csp".contains(&self.letter) { "" } else { "ll" };
        let letter = char::from(self.letter);
        // C promotes what an `int` holds.
        let (bits, number) = match self.value {
            Value::Unsigned8(number) => (32, number.into()),
            Value::Unsigned16(number) => (32, number.into()),
            _ => (self.bits, self.number),
        };
        format!("{letter}{bits} {number} {}\t{}\n", self.format(length), self.text)
    }
}

/// A temporary directory, removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A remaining temporary directory is harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Formats these cases with the C library.
fn oracle(cases: &[Case]) -> Vec<Vec<u8>> {
    let folder = Folder(std::env::temp_dir().join(format!("ks-printf-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("the temporary folder is writable");
    let (source, program) = (Path::new(env!("CARGO_MANIFEST_DIR")), folder.0.join("oracle"));
    let built = Command::new("cc")
        .args(["-O1", "-w", "-o"])
        .arg(&program)
        .arg(source.join("../host/src/world/format/printf.c"))
        .status()
        .expect("a C compiler is there: `scripts/packages cc` installs one");
    assert!(built.success(), "the oracle does not compile");
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the oracle starts");
    let input: String = cases.iter().map(Case::for_oracle).collect();
    let mut stdin = child.stdin.take().expect("it was asked for");
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("the oracle ends");
    feeder.join().expect("no panic").expect("the oracle reads all of it");
    // `%c` of zero writes a zero byte, too, so results are separated by `]` and zero.
    let mut results: Vec<Vec<u8>> = vec![Vec::new()];
    for byte in output.stdout {
        match results.last_mut() {
            Some(last) if byte == 0 && last.last() == Some(&b']') && last.len() > 1 => {
                results.push(Vec::new())
            }
            Some(last) => last.push(byte),
            None => {}
        }
    }
    results.pop();
    results
}

#[test]
fn conversions_are_those_of_the_c_library() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let cases: Vec<Case> = (0..CASES).map(|_| random.case()).collect();
    let expected = oracle(&cases);
    assert_eq!(expected.len(), CASES);
    for (case, mut expected) in cases.iter().zip(expected) {
        let length = ["", "h", "hh", "l", "ll", "z"][random.below(6) as usize];
        let format = case.format(length);
        expected.push(b'\n');
        let found = line(format.as_bytes(), std::slice::from_ref(&case.value));
        assert_eq!(found, expected, "{format} of {:?}", case.value);
    }
}
