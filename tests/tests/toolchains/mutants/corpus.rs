//! The kept mutants of `corpus.txt`: changes of the committed objects that once were the first of their sort.
//! Unlike a seed, a line stays the same mutant when the mutator changes.

use std::fmt::Write as _;

use ks_compiler::object::{read, write};

use super::loader::{LoadOutcome, Loader};
use super::{FOREIGN, OF_KERNEL, asks_kernel, canonical, has_small_maps};

const CORPUS: &str = include_str!("corpus.txt");

/// A line of the corpus.
struct Kept {
    is_accepted: bool,
    name: &'static str,
    object: &'static [u8],
    mutant: Vec<u8>,
}

impl Kept {
    /// Parses `accepted|refused OBJECT OFFSET:BYTES..`, with numbers in hexadecimal.
    fn parse(line: &str) -> Option<Kept> {
        let mut fields = line.split(' ');
        let is_accepted = match fields.next()? {
            "accepted" => true,
            "refused" => false,
            _ => return None,
        };
        let name = fields.next()?;
        let (name, object) = FOREIGN.into_iter().find(|(known, _)| *known == name)?;
        let mut mutant = object.to_vec();
        for change in fields {
            let (offset, bytes) = change.split_once(':')?;
            let offset = usize::from_str_radix(offset, 16).ok()?;
            let bytes: Option<Vec<u8>> = (0..bytes.len())
                .step_by(2)
                .map(|at| u8::from_str_radix(bytes.get(at..at + 2)?, 16).ok())
                .collect();
            let bytes = bytes?;
            mutant.get_mut(offset..offset + bytes.len())?.copy_from_slice(&bytes);
        }
        Some(Kept { is_accepted, name, object, mutant })
    }
}

/// Returns the line of a mutant of the same length.
pub(super) fn line(outcome: &str, name: &str, object: &[u8], mutant: &[u8]) -> String {
    let mut line = format!("{outcome} {name}");
    let mut last = None;
    for (at, (_, byte)) in object.iter().zip(mutant).enumerate().filter(|(_, (one, other))| one != other) {
        if last.is_none_or(|last: usize| last + 1 != at) {
            write!(line, " {at:x}:").expect("a string grows");
        }
        write!(line, "{byte:02x}").expect("a string grows");
        last = Some(at);
    }
    line
}

#[test]
fn root_kept_mutants_harm_no_loader() {
    let mut loader = Loader::start();
    let folder = ks_tests::Folder::new();
    let (mut of_kernel, mut accepted, mut refused) = (0, 0, 0);
    for text in CORPUS.lines().filter(|line| !line.starts_with('#')) {
        let kept = Kept::parse(text).unwrap_or_else(|| panic!("{text}"));
        let outcome = if kept.is_accepted { "accepted" } else { "refused" };
        assert_eq!(
            line(outcome, kept.name, kept.object, &kept.mutant),
            text,
            "a line changes each byte once"
        );
        let model = match read(&kept.mutant) {
            Ok(model) if kept.is_accepted => model,
            Err(_) if !kept.is_accepted => {
                refused += 1;
                continue;
            }
            other => panic!("{text}: {:?}", other.map(|_| "accepted")),
        };
        let elf = write(&model).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_ne!(elf, canonical(kept.object), "{text}: nothing of it reaches libbpf");
        let types = folder.write("types.o", kept.object).display().to_string();
        of_kernel += u64::from(asks_kernel(&model));
        let prepare = has_small_maps(&model) && (!asks_kernel(&model) || of_kernel % (OF_KERNEL / 10) == 1);
        let said = loader.load(&elf, &types, prepare);
        assert!(said.is_some_and(|said| said != LoadOutcome::NotOpened), "{text}: {said:?}");
        accepted += 1;
    }
    println!("{accepted} accepted, {refused} refused");
    assert!(accepted > 100 && refused > 100, "{accepted} accepted, {refused} refused");
}
