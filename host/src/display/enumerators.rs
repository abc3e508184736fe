//! Names of the values of the running kernel's enums.

use std::collections::HashMap;

use ks_compiler::object::btf::{Btf, Type};

use crate::bpf::running_types;

/// Maximum number of enums whose names are kept. A plugin may ask for any number of them.
const MAX_ENUMS: usize = 64;

/// The kernel's enums. Read once, before the thread loses access to files.
#[derive(Debug, Default)]
pub(crate) struct EnumNames {
    types: Option<&'static Btf>,
    /// Enumerators by the name that was asked for.
    found: HashMap<String, Option<Enumerators>>,
}

/// The enumerators of an enum, in order.
#[derive(Debug)]
struct Enumerators {
    bytes: u32,
    values: Vec<(i64, &'static str)>,
}

impl EnumNames {
    /// Reads the types of the running kernel; no value has a name where they cannot be read.
    pub(crate) fn of_running() -> EnumNames {
        EnumNames { types: running_types().ok(), found: HashMap::new() }
    }

    /// Knows no names, for runs that show none.
    pub(crate) fn none() -> EnumNames {
        EnumNames::default()
    }

    /// Returns the first enumerator with this value of the enum that has this name or an enumerator of this name; the
    /// number if there is none.
    pub(crate) fn name(&mut self, of: &str, number: i64) -> String {
        if let Some(found) = self.found.get(of) {
            return text(found.as_ref(), number);
        }
        let found = self.types.and_then(|types| Enumerators::of(types, of));
        let text = text(found.as_ref(), number);
        if self.found.len() < MAX_ENUMS {
            self.found.insert(of.to_owned(), found);
        }
        text
    }
}

fn text(of: Option<&Enumerators>, number: i64) -> String {
    of.and_then(|of| of.name(number)).map_or_else(|| number.to_string(), str::to_owned)
}

impl Enumerators {
    fn of(types: &'static Btf, name: &str) -> Option<Enumerators> {
        let Ok(Type::Enum { bytes, values, .. }) = types.get(types.find_enum_of(name)?) else { return None };
        Some(Enumerators { bytes, values: values.flatten().map(|one| (one.value, one.name)).collect() })
    }

    fn name(&self, number: i64) -> Option<&'static str> {
        self.values.iter().find(|(value, _)| self.is_same(*value, number)).map(|(_, name)| *name)
    }

    /// Whether a number is a value of the enum: in 32 bits its sign is that of the variable it was kept in.
    fn is_same(&self, value: i64, number: i64) -> bool {
        let in_32_bits =
            |number| i32::try_from(number).ok().or(u32::try_from(number).ok().map(u32::cast_signed));
        value == number
            || self.bytes <= 4 && in_32_bits(value).is_some() && in_32_bits(value) == in_32_bits(number)
    }
}

#[cfg(test)]
mod tests {
    use ks_compiler::object::btf::{BtfBuilder, Enumerator, Signedness};

    use super::*;

    fn names(sign: Signedness, of: &str, numbers: &[i64]) -> Vec<String> {
        let mut builder = BtfBuilder::new();
        let values = [("NONE", -1), ("FIRST", 0), ("ALSO", 0), ("LAST", 7)];
        let values = values.map(|(name, value)| Enumerator { name, value });
        builder.enumeration("", 4, sign, &values);
        builder.enumeration("other", 8, Signedness::Unsigned, &[Enumerator { name: "WIDE", value: 1 << 40 }]);
        let types = Btf::parse(builder.finish().expect("small")).expect("well-formed");
        let mut names = EnumNames { types: Some(Box::leak(Box::new(types))), found: HashMap::new() };
        numbers.iter().map(|number| names.name(of, *number)).collect()
    }

    #[test]
    fn values_have_the_name_of_the_first_enumerator() {
        let found = names(Signedness::Signed, "LAST", &[-1, 0xffff_ffff, 0, 7, 8, 1 << 32]);
        assert_eq!(found, ["NONE", "NONE", "FIRST", "LAST", "8", "4294967296"]);
        assert_eq!(names(Signedness::Signed, "other", &[1 << 40, 0]), ["WIDE", "0"]);
        assert_eq!(names(Signedness::Signed, "missing", &[0]), ["0"]);
        assert_eq!(EnumNames::none().name("other", -5), "-5");
    }
}
