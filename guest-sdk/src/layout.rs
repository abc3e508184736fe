//! Comparison of the plugin's types with those in the BTF of its object, scalar by scalar.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::error::{Error, Result};
use crate::plain::{Plain, Shape};
use crate::sys::layouts::{self, Layout, Member, Repetition, Scalar};

/// Limit on the members in a message.
const MOST_LISTED: usize = 32;

/// Compares a type with the object's, if the BTF has one.
///
/// # Errors
/// `Invalid`, with the first member that differs.
pub(crate) fn check<T: Plain>(what: &str, object: Option<Layout>) -> Result<()> {
    let Some(object) = object else { return Ok(()) };
    match difference(&object, &of::<T>()) {
        Some(difference) => {
            Err(Error::invalid(message(what, &object, &named(&T::SHAPE, T::SIZE), &difference)))
        }
        None => Ok(()),
    }
}

/// Compares the record type of a ring buffer, which is found by its name.
///
/// # Errors
/// See [`check`]; also if the object has no type of the name that the plugin names.
pub(crate) fn check_record<T: Plain>(ring: &str) -> Result<()> {
    let Shape::Struct { name, object_name, .. } = T::SHAPE else { return Ok(()) };
    let what = format!("a record of ring buffer `{ring}`");
    let found = match object_name {
        Some(object_name) => Some(layouts::of_type(object_name).ok_or_else(|| {
            Error::invalid(format!(
                "{what}: the plugin's object has no type `{object_name}`, which `{name}` is here\n  \
                 do: name the struct as the programs do, and let BTF show it: \
                 `struct {object_name} *unused __attribute__((unused));` in C"
            ))
        })?),
        None => layouts::of_type(name).or_else(|| layouts::of_type(&snake_case(name))),
    };
    check::<T>(&what, found)
}

/// Returns the layout of a type in the form of the contract.
pub(crate) fn of<T: Plain>() -> Layout {
    let mut members = Vec::new();
    add(
        &T::SHAPE,
        Member { path: String::new(), offset: 0, size: 0, kind: Scalar::Opaque, arrays: Vec::new() },
        T::SIZE,
        &mut members,
    );
    Layout { name: String::new(), size: T::SIZE as u32, members }
}

/// Adds the scalars of a shape at a position.
fn add(shape: &Shape, at: Member, size: usize, to: &mut Vec<Member>) {
    let kind = match shape {
        Shape::Unsigned => Scalar::Unsigned,
        Shape::Signed => Scalar::Signed,
        Shape::Boolean => Scalar::Boolean,
        Shape::Array { of, count, stride } => {
            if *count > 0 {
                let mut element = at;
                element.arrays.push(Repetition { count: *count as u32, stride: *stride as u32 });
                add(of, element, *stride, to);
            }
            return;
        }
        Shape::Struct { fields, .. } => {
            for field in *fields {
                let path = match at.path.as_str() {
                    "" => field.name.to_owned(),
                    path => format!("{path}.{}", field.name),
                };
                let offset = at.offset + field.offset as u32;
                add(field.shape, Member { path, offset, ..at.clone() }, field.size, to);
            }
            return;
        }
    };
    to.push(Member { size: size as u32, kind, ..at });
}

/// The first difference, in order of offsets.
enum Difference<'a> {
    Members(&'a Member, &'a Member),
    Missing(&'a Member),
    Added(&'a Member),
    Sizes(u32, u32),
}

fn difference<'a>(object: &'a Layout, here: &'a Layout) -> Option<Difference<'a>> {
    let (mut theirs, mut ours) = (object.members.iter(), here.members.iter());
    loop {
        match (theirs.next(), ours.next()) {
            (Some(there), Some(own)) if fits(there, own) => {}
            (Some(there), Some(own)) => return Some(Difference::Members(there, own)),
            (Some(there), None) => return Some(Difference::Missing(there)),
            (None, Some(own)) => return Some(Difference::Added(own)),
            (None, None) if object.size != here.size => {
                return Some(Difference::Sizes(object.size, here.size));
            }
            (None, None) => return None,
        }
    }
}

/// Whether a scalar of the object is compatible with the plugin's.
fn fits(object: &Member, here: &Member) -> bool {
    let nameless = object.path.is_empty() || object.path.ends_with('.');
    if object.offset != here.offset || !(nameless || object.path == here.path) {
        return false;
    }
    let is_same = object.size == here.size && is_eq(&object.arrays, &here.arrays);
    match object.kind {
        Scalar::Unsigned | Scalar::Pointer => is_same && here.kind == Scalar::Unsigned,
        Scalar::Signed => is_same && here.kind == Scalar::Signed,
        Scalar::Boolean => is_same && here.kind == Scalar::Boolean,
        Scalar::Character | Scalar::Enumeration => is_same && here.kind != Scalar::Boolean,
        Scalar::Opaque => here.kind == Scalar::Unsigned && (is_same || is_bytes_of(object, here)),
    }
}

/// Whether the plugin has a byte array of the size of the object's scalar.
fn is_bytes_of(object: &Member, here: &Member) -> bool {
    here.arrays.split_last().is_some_and(|(bytes, around)| {
        here.size == 1 && bytes.count == object.size && is_eq(&object.arrays, around)
    })
}

fn is_eq(object: &[Repetition], here: &[Repetition]) -> bool {
    let pair =
        |(there, own): (&Repetition, &Repetition)| there.count == own.count && there.stride == own.stride;
    object.len() == here.len() && object.iter().zip(here).all(pair)
}

fn message(what: &str, object: &Layout, here: &str, difference: &Difference<'_>) -> String {
    let name = if object.name.is_empty() { "a type without a name" } else { &object.name };
    let single = match object.members.as_slice() {
        [single] if single.path.is_empty() => Some(rust_type(single)),
        _ => None,
    };
    let differs = match difference {
        Difference::Members(_, own) if single.is_some() || own.path.is_empty() => {
            let object = single.clone().unwrap_or_else(|| name.to_owned());
            format!("the object has `{object}`, not `{here}`")
        }
        Difference::Members(there, own) => {
            format!("the object has {} where `{here}` has {}", display(there), display(own))
        }
        Difference::Missing(there) => format!("the object has {}, which `{here}` has not", display(there)),
        Difference::Added(own) => format!("`{here}` has {}, which the object has not", display(own)),
        Difference::Sizes(there, own) => {
            format!("the object's has {there} bytes with its padding, `{here}` has {own}")
        }
    };
    let todo = single.map_or_else(
        || format!("give its struct these members, in this order: {}", listed(&object.members)),
        |single| format!("take it for {single}"),
    );
    format!("{what}: {differs}\n  object: {name}, {} bytes\n  do: {todo}", object.size)
}

/// Formats members as Rust fields.
fn listed(members: &[Member]) -> String {
    let mut text = members.iter().take(MOST_LISTED).map(declared).collect::<Vec<_>>().join(", ");
    if let Some(more) = members.len().checked_sub(MOST_LISTED).filter(|more| *more > 0) {
        text.push_str(&format!(", and {more} more"));
    }
    text
}

/// Formats a scalar with its offset.
fn display(member: &Member) -> String {
    format!("`{}` at byte {}", declared(member), member.offset)
}

/// Formats a scalar as a Rust field.
fn declared(member: &Member) -> String {
    // A nameless union matches any name.
    let name = if member.path.is_empty() || member.path.ends_with('.') { "_" } else { "" };
    format!("{}{name}: {}", member.path, rust_type(member))
}

/// Returns the Rust type that fits a scalar.
fn rust_type(member: &Member) -> String {
    let bits = member.size * 8;
    let (mut text, mut size) = match member.kind {
        Scalar::Unsigned | Scalar::Character | Scalar::Enumeration | Scalar::Pointer => {
            (format!("u{bits}"), member.size)
        }
        Scalar::Signed => (format!("i{bits}"), member.size),
        Scalar::Boolean => ("bool".to_owned(), member.size),
        Scalar::Opaque => (format!("[u8; {}]", member.size), member.size),
    };
    for array in member.arrays.iter().rev() {
        // Elements with gaps are members of a struct that is the array's element.
        text = if array.stride == size {
            format!("[{text}; {}]", array.count)
        } else {
            format!("{text} ({} times, every {} bytes)", array.count, array.stride)
        };
        size = array.stride * array.count;
    }
    text
}

/// Returns the type's name in Rust.
fn named(shape: &Shape, size: usize) -> String {
    match shape {
        Shape::Unsigned => format!("u{}", size * 8),
        Shape::Signed => format!("i{}", size * 8),
        Shape::Boolean => "bool".to_owned(),
        Shape::Array { of, count, stride } => format!("[{}; {count}]", named(of, *stride)),
        Shape::Struct { name, .. } => (*name).to_owned(),
    }
}

/// Converts `OpenedFile` to C's spelling: `opened_file`.
fn snake_case(name: &str) -> String {
    let mut spelled = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            spelled.push('_');
        }
        spelled.extend(letter.to_lowercase());
    }
    spelled
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use super::*;

    #[derive(ks_guest_macros::Plain)]
    struct Point {
        x: u16,
        y: i16,
    }

    #[derive(ks_guest_macros::Plain)]
    struct Flow {
        from: Point,
        address: [u8; 16],
        points: [Point; 2],
        flags: u8,
    }

    fn number(path: &str, offset: u32, size: u32, kind: Scalar, arrays: &[(u32, u32)]) -> Member {
        let arrays = arrays.iter().map(|(count, stride)| Repetition { count: *count, stride: *stride });
        Member { path: path.to_owned(), offset, size, kind, arrays: arrays.collect() }
    }

    /// As clang writes it: the address is a union, the flags are bit-fields.
    fn flow() -> Layout {
        let members = vec![
            number("from.x", 0, 2, Scalar::Unsigned, &[]),
            number("from.y", 2, 2, Scalar::Signed, &[]),
            number("", 4, 16, Scalar::Opaque, &[]),
            number("points.x", 20, 2, Scalar::Unsigned, &[(2, 4)]),
            number("points.y", 22, 2, Scalar::Signed, &[(2, 4)]),
            number("flags", 28, 1, Scalar::Opaque, &[]),
        ];
        Layout { name: "struct flow".to_owned(), size: 30, members }
    }

    fn refusal(object: Layout) -> String {
        check::<Flow>("a value of map `flows`", Some(object)).expect_err("they differ").to_string()
    }

    #[test]
    fn nested_structs_arrays_and_opaque_bytes_agree() {
        assert_eq!(check::<Flow>("it", Some(flow())), Ok(()));
        assert_eq!(check::<Flow>("it", None), Ok(()));
    }

    #[test]
    fn each_difference_is_reported_with_both_sides_and_a_remedy() {
        let with = |change: fn(&mut Layout)| {
            let mut object = flow();
            change(&mut object);
            refusal(object)
        };
        let text = with(|object| object.members[3].arrays[0].count = 3);
        let expected = "a value of map `flows`: the object has `points.x: u16 (3 times, every 4 bytes)` at \
                        byte 20 where `Flow` has `points.x: u16 (2 times, every 4 bytes)` at byte 20\n  \
                        object: struct flow, 30 bytes\n  \
                        do: give its struct these members, in this order: from.x: u16, from.y: i16, \
                        _: [u8; 16], ";
        assert!(text.starts_with(expected), "{text}");
        let text = with(|object| object.members[1].kind = Scalar::Unsigned);
        assert!(text.contains("`from.y: u16` at byte 2 where `Flow` has `from.y: i16` at byte 2"), "{text}");
        let text = with(|object| object.members[0].path = "from.left".to_owned());
        assert!(text.contains("`from.left: u16` at byte 0 where `Flow` has `from.x: u16`"), "{text}");
        let text = with(|object| object.members.truncate(5));
        assert!(text.contains("`Flow` has `flags: u8` at byte 28, which the object has not"), "{text}");
        let text = with(|object| object.members.push(number("more", 29, 1, Scalar::Boolean, &[])));
        assert!(text.contains("the object has `more: bool` at byte 29, which `Flow` has not"), "{text}");
        let text = with(|object| object.size = 32);
        assert!(text.contains("has 32 bytes with its padding, `Flow` has 30"), "{text}");
    }

    #[test]
    fn numbers_of_one_size_are_distinguished() {
        let one =
            |kind, size| Layout { name: String::new(), size, members: vec![number("", 0, size, kind, &[])] };
        assert!(check::<u32>("it", Some(one(Scalar::Enumeration, 4))).is_ok());
        assert!(check::<i32>("it", Some(one(Scalar::Enumeration, 4))).is_ok());
        assert!(check::<u64>("it", Some(one(Scalar::Pointer, 8))).is_ok());
        assert!(check::<i64>("it", Some(one(Scalar::Pointer, 8))).is_err());
        assert!(check::<i8>("it", Some(one(Scalar::Character, 1))).is_ok());
        assert!(check::<u8>("it", Some(one(Scalar::Boolean, 1))).is_err());
        assert!(check::<bool>("it", Some(one(Scalar::Unsigned, 1))).is_err());
        let text =
            check::<i32>("a key of map `m`", Some(one(Scalar::Unsigned, 4))).expect_err("a sign").to_string();
        let expected = "a key of map `m`: the object has `u32`, not `i32`\n  object: a type without a name, \
                        4 bytes\n  \
                    do: take it for u32";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_name_is_spelled_as_c_does() {
        assert_eq!(snake_case("OpenedFile"), "opened_file");
        assert_eq!(snake_case("event"), "event");
    }
}
