//! `--config block.field=value`: initial values of a plugin's config blocks. Pure: manifests and arguments
//! in, bytes at offsets out.

use std::collections::BTreeMap;

use ks_wit::manifest::{Config, ConfigField, Manifest};

use super::arguments;
use super::bindings::kernelscript::host::args::{OptionType, OptionValue};
use crate::near::near;
use crate::text::{MOST_BYTES, visible};

/// Values for config blocks: for each block, bytes and their offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings {
    blocks: BTreeMap<String, Vec<(usize, Vec<u8>)>>,
}

/// An invalid `--config` argument.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SettingError {
    /// The argument is not of the form `block.field=value`.
    #[error("`{argument}` is not of the form `block.field=value` or `block.field[index]=value`")]
    Form {
        /// The argument as written.
        argument: String,
    },
    /// There is no block, field or element of this name.
    #[error("`{argument}`: {}", visible(.reason, MOST_BYTES))]
    Unknown {
        /// The argument as written.
        argument: String,
        /// The missing name and the existing ones, as a sentence.
        reason: String,
    },
    /// The value is not of the field's type.
    #[error("`{argument}`: {}", visible(.reason, MOST_BYTES))]
    Value {
        /// The argument as written.
        argument: String,
        /// Why the value is invalid.
        reason: String,
    },
}

impl Settings {
    /// Parses arguments according to the manifests. The last of several arguments for one field takes effect.
    ///
    /// # Errors
    /// The first argument with an unknown name or an invalid value.
    pub fn read(arguments: &[String], manifests: &[Manifest]) -> Result<Settings, SettingError> {
        let mut settings = Settings::default();
        for argument in arguments {
            let (block, target) = read(argument, manifests)?;
            settings.blocks.entry(block).or_default().push(target);
        }
        Ok(settings)
    }

    /// Writes the values of a block over its defaults. Ignores values out of bounds, which occur only if the
    /// plugin violates its own manifest.
    pub(super) fn apply(&self, block: &str, bytes: &mut [u8]) {
        for (offset, value) in self.blocks.get(block).into_iter().flatten() {
            if let Some(target) = bytes.get_mut(*offset..).and_then(|rest| rest.get_mut(..value.len())) {
                target.copy_from_slice(value);
            }
        }
    }
}

/// Parses one argument. Returns its block, and the offset and bytes of the value.
fn read(argument: &str, manifests: &[Manifest]) -> Result<(String, (usize, Vec<u8>)), SettingError> {
    let unknown = |reason| SettingError::Unknown { argument: argument.into(), reason };
    let form = || SettingError::Form { argument: argument.into() };
    let (target, value) = argument.split_once('=').ok_or_else(form)?;
    // The name of an imported module's block contains a dot.
    let (block, field) = target.rsplit_once('.').ok_or_else(form)?;
    let (field, index) = match field.split_once('[') {
        Some((field, index)) => (field, Some(index.strip_suffix(']').ok_or_else(form)?)),
        None => (field, None),
    };
    let blocks = || manifests.iter().flat_map(|manifest| &manifest.configs);
    let config = blocks()
        .find(|config| config.name == block)
        .ok_or_else(|| unknown(no("config block", block, blocks().map(|one| one.name.clone()).collect())))?;
    let found = config.fields.iter().find(|one| one.name == field).ok_or_else(|| {
        let what = format!("field of `{block}`");
        unknown(no(&what, field, config.fields.iter().map(|one| one.name.clone()).collect()))
    })?;
    let wrong = |reason| SettingError::Value { argument: argument.into(), reason };
    let (offset, bytes) = field_bytes(config, found, index, value).map_err(wrong)?;
    Ok((config.name.clone(), (offset, bytes)))
}

/// Formats `there is no field of `limits` named `brust`; did you mean `burst`?`, or with a list of all if
/// none is similar.
fn no(what: &str, name: &str, known: Vec<String>) -> String {
    let quoted = |names: &[String]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    let near = near(name, known.clone());
    let help = match (near.is_empty(), known.is_empty()) {
        (false, _) => format!("did you mean {}?", quoted(&near).join(" or ")),
        (true, false) => format!("there is {}", quoted(&known).join(", ")),
        (true, true) => "the plugin has none".into(),
    };
    format!("there is no {what} named `{name}`; {help}")
}

/// Encodes the value of a field or of one of its elements. Returns its offset and bytes.
fn field_bytes(
    config: &Config,
    field: &ConfigField,
    index: Option<&str>,
    value: &str,
) -> Result<(usize, Vec<u8>), String> {
    let (element, len) = match field.ty.split_once('[') {
        Some((element, len)) => (element, len.strip_suffix(']').and_then(|len| len.parse::<usize>().ok())),
        None => (field.ty.as_str(), None),
    };
    let scalar =
        Scalar::of(element).ok_or_else(|| format!("this host cannot set a field of type `{}`", field.ty))?;
    let start = field.offset as usize;
    let target = || format!("`{}.{}` is of type `{}`", config.name, field.name, field.ty);
    match (len, index) {
        (None, None) => Ok((start, scalar.bytes(value)?)),
        (None, Some(_)) => Err(format!("{} and has no elements", target())),
        (Some(len), Some(index)) => {
            let index: usize =
                index.parse().map_err(|_| format!("`{index}` is not the number of an element"))?;
            if index >= len {
                return Err(format!("{}: the last element is {}", target(), len.saturating_sub(1)));
            }
            Ok((start.saturating_add(index.saturating_mul(scalar.size())), scalar.bytes(value)?))
        }
        (Some(len), None) => {
            let elements: Vec<&str> =
                if value.is_empty() { Vec::new() } else { value.split(',').map(str::trim).collect() };
            if elements.len() > len {
                return Err(format!("{}: {} values are too many", target(), elements.len()));
            }
            let mut bytes = Vec::new();
            for element in elements {
                bytes.extend(scalar.bytes(element)?);
            }
            // Missing elements are zero, as in the script.
            bytes.resize(len.saturating_mul(scalar.size()).min(MAX_BLOCK), 0);
            Ok((start, bytes))
        }
    }
}

/// Upper limit of an array in bytes. Guards against a manifest that declares `u8[99999999999]`.
const MAX_BLOCK: usize = 1 << 24;

/// The type of a field or element.
enum Scalar {
    Number(OptionType),
    Character,
}

impl Scalar {
    fn of(name: &str) -> Option<Scalar> {
        if name == "bool" {
            return Some(Scalar::Number(OptionType::Boolean));
        }
        if name == "char" {
            return Some(Scalar::Character);
        }
        let bits = match name.get(1..)? {
            "8" => 8,
            "16" => 16,
            "32" => 32,
            "64" => 64,
            _ => return None,
        };
        match name.get(..1)? {
            "u" => Some(Scalar::Number(OptionType::Unsigned(bits))),
            "i" => Some(Scalar::Number(OptionType::Signed(bits))),
            _ => None,
        }
    }

    fn size(&self) -> usize {
        match self {
            Scalar::Number(OptionType::Unsigned(bits) | OptionType::Signed(bits)) => usize::from(*bits / 8),
            _ => 1,
        }
    }

    fn bytes(&self, value: &str) -> Result<Vec<u8>, String> {
        let Scalar::Number(ty) = self else {
            return match value.as_bytes() {
                [one] => Ok(vec![*one]),
                _ => Err(format!("`{value}` is not one character of one byte")),
            };
        };
        let bytes = match arguments::read_value(value, ty)? {
            OptionValue::Unsigned(number) => number.to_le_bytes(),
            OptionValue::Signed(number) => number.to_le_bytes(),
            OptionValue::Boolean(on) => u64::from(on).to_le_bytes(),
            OptionValue::Text(_) => [0; 8],
        };
        Ok(bytes[..self.size()].to_vec())
    }
}

#[cfg(test)]
mod tests {
    use ks_wit::manifest::{FORMAT, Source};

    use super::*;

    fn manifest() -> Manifest {
        let field = |name: &str, ty: &str, offset| ConfigField {
            name: name.into(),
            ty: ty.into(),
            offset,
            docs: String::new(),
        };
        let fields = vec![
            field("burst", "u32", 0),
            field("strict", "bool", 4),
            field("mark", "char", 5),
            field("ports", "u16[4]", 6),
            field("least", "i64", 16),
            field("odd", "str(4)", 24),
        ];
        Manifest {
            format: FORMAT,
            compiler: String::new(),
            project: String::new(),
            source: Source { file: String::new(), sha256: String::new() },
            programs: Vec::new(),
            struct_ops: Vec::new(),
            maps: Vec::new(),
            globals: Vec::new(),
            events: Vec::new(),
            tests: Vec::new(),
            configs: vec![
                Config { name: "limits".into(), fields },
                Config { name: "lists.sizes".into(), fields: vec![field("most", "u8", 0)] },
            ],
        }
    }

    fn read(arguments: &[&str]) -> Result<Settings, SettingError> {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).into()).collect();
        Settings::read(&arguments, &[manifest()])
    }

    /// Applies arguments to a block whose bytes are all 0xee.
    fn block(arguments: &[&str]) -> [u8; 24] {
        let mut bytes = [0xee; 24];
        read(arguments).expect("they fit").apply("limits", &mut bytes);
        bytes
    }

    #[test]
    fn a_value_changes_its_field_and_no_other() {
        let mut expected = [0xee; 24];
        assert_eq!(block(&[]), expected);
        expected[..4].copy_from_slice(&[0x39, 5, 0, 0]);
        expected[4] = 1;
        expected[5] = b'x';
        expected[16..].copy_from_slice(&(-3_i64).to_le_bytes());
        let arguments =
            ["limits.burst=1", "limits.burst=0x539", "limits.strict=on", "limits.mark=x", "limits.least=-3"];
        assert_eq!(block(&arguments), expected);
    }

    #[test]
    fn an_array_is_set_as_a_whole_or_by_element() {
        assert_eq!(block(&["limits.ports=22, 80"])[6..14], [22, 0, 80, 0, 0, 0, 0, 0]);
        assert_eq!(block(&["limits.ports="])[6..14], [0; 8]);
        assert_eq!(block(&["limits.ports[2]=258"])[6..14], [0xee, 0xee, 0xee, 0xee, 2, 1, 0xee, 0xee]);
    }

    #[test]
    fn blocks_of_modules_have_a_dot_in_their_names() {
        let mut bytes = [0];
        read(&["lists.sizes.most=7"]).expect("it is there").apply("lists.sizes", &mut bytes);
        assert_eq!(bytes, [7]);
    }

    #[test]
    fn invalid_settings_are_named() {
        for (argument, reason) in [
            ("limits", "not of the form"),
            ("limits.burst", "not of the form"),
            ("burst=1", "not of the form"),
            ("limits.ports[1=2", "not of the form"),
            ("limit.burst=1", "no config block named `limit`; did you mean `limits`?"),
            ("quotas.burst=1", "there is `limits`, `lists.sizes`"),
            ("limits.brust=1", "no field of `limits` named `brust`; did you mean `burst`?"),
            ("limits.burst=x", "`x` is not a number"),
            ("limits.burst=4294967296", "the most is 4294967295"),
            ("limits.burst=-1", "-1 is negative"),
            ("limits.burst[0]=1", "has no elements"),
            ("limits.strict=maybe", "none of true, false"),
            ("limits.mark=xy", "not one character"),
            ("limits.ports=1,2,3,4,5", "5 values are too many"),
            ("limits.ports[4]=1", "the last element is 3"),
            ("limits.ports[x]=1", "not the number of an element"),
            ("limits.odd=a", "cannot set a field of type `str(4)`"),
        ] {
            let error = read(&[argument]).expect_err(argument).to_string();
            assert!(error.contains(reason), "{argument}: {error}");
        }
        assert!(
            Settings::read(&["a.b=1".into()], &[]).expect_err("no block").to_string().contains("has none")
        );
    }

    #[test]
    fn a_plugin_that_does_not_keep_to_its_manifest_gets_what_fits() {
        let settings = read(&["limits.least=5", "limits.burst=6"]).expect("they fit");
        let mut short = [0xee; 18];
        settings.apply("limits", &mut short);
        assert_eq!(short[..4], [6, 0, 0, 0]);
        assert_eq!(short[16..], [0xee; 2]);
        settings.apply("other", &mut short);
    }
}
