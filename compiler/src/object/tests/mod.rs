//! Tests of the reader and the writer with objects made by hand, by our compiler, by clang and by rustc with
//! Aya.

mod code;
mod core;
mod elf;
mod file;
mod foreign;
mod look;
mod maps;
mod mutants;
#[cfg(feature = "language")]
mod own;
mod parts;
mod types;

use super::{Object, ReadError, Reason, read, write};
use file::File;

/// Writes an object, and asserts that the result reads as the same object and is written the same again.
fn written(object: &Object) -> Vec<u8> {
    let bytes = write(object).expect("what was read can be written");
    let again = read(&bytes).unwrap_or_else(|error| panic!("{error}\n{object:#?}"));
    assert_eq!(&again, object);
    assert_eq!(write(&again).expect("what was read can be written"), bytes);
    bytes
}

/// Returns the object of a file, and asserts that it can be written and read again.
fn accepted(file: &File) -> Object {
    let object = read(&file.bytes()).unwrap_or_else(|error| panic!("{error}"));
    written(&object);
    object
}

/// Returns the reason for which a file is rejected.
fn refused(file: &File) -> ReadError {
    match read(&file.bytes()) {
        Ok(object) => panic!("accepted: {object:#?}"),
        Err(error) => error,
    }
}

/// Asserts the section and the reason of a rejection, and that the message is one line.
fn assert_refused(file: &File, section: &str, expected: fn(&Reason) -> bool) {
    let error = refused(file);
    assert!(expected(&error.reason), "{error:?}");
    assert_eq!(error.section.as_deref().unwrap_or_default(), section, "{error}");
    assert!(!error.to_string().contains(|char: char| char.is_control()), "{error}");
}
