//! Lines that the kernel half prints: taken out of their ring buffer and shown where the plugin's own lines go.

use ks_wit::object::{PRINTS, Print, PrintValue};

use super::bindings::kernelscript::host::console::Value;
use super::format;
use crate::bpf::{Object, Ring, TooLong, split_entry};
use crate::host_bytes::{Charge, HostBytes};
use crate::text::MOST_BYTES;

/// Bytes of records that are taken out at once.
const AT_ONCE: usize = 64 << 10;

/// Most enumerators of one value. Guards against a search without end for each record of 8 bytes.
const MAX_ENUMERATORS: usize = 4096;

/// What the host keeps of a print, a value and an enumerator beside their texts.
const ENTRY_BYTES: usize = 64;

/// What the records of printed lines mean.
pub(super) struct Table {
    prints: Vec<Print>,
    _charge: Charge,
}

impl Table {
    /// That of an object; none if it prints nothing, or says nothing that makes sense of it.
    ///
    /// # Errors
    /// Why it is refused, in words: a record of 8 bytes would become a line without measure, or the host would keep too much.
    pub(super) fn of(object: &Object, host_bytes: &HostBytes) -> Result<Option<Table>, String> {
        let Some(prints) = object.print_table().and_then(|table| serde_json::from_slice(table).ok()) else {
            return Ok(None);
        };
        let prints: Vec<Print> = prints;
        let bytes = prints.iter().map(print_bytes).sum::<Result<usize, String>>()?;
        let charge =
            host_bytes.charge(bytes as u64).map_err(|full| format!("its table of prints: {full}"))?;
        Ok(Some(Table { prints, _charge: charge }))
    }

    /// None for a record that the table does not describe.
    fn line(&self, record: &[u8]) -> Option<Vec<u8>> {
        let (position, mut rest) = record.split_first_chunk::<8>()?;
        let print = self.prints.get(usize::try_from(u64::from_le_bytes(*position)).ok()?)?;
        let mut values = Vec::with_capacity(print.values.len());
        for value in &print.values {
            let (bytes, after) = rest.split_at_checked(value.bytes())?;
            values.push(display(value, bytes)?);
            rest = after;
        }
        Some(format::line(&print.format, &values))
    }
}

/// What the host keeps of a print, or what of it is too long.
fn print_bytes(print: &Print) -> Result<usize, String> {
    let line = print.line;
    let check = |what: &str, bytes: usize| match bytes <= MOST_BYTES {
        true => Ok(bytes + ENTRY_BYTES),
        false => {
            Err(format!("{what} of its print in line {line} has {bytes} bytes; the limit is {MOST_BYTES}"))
        }
    };
    let mut sum = check("the format", print.format.len())? + check("the file name", print.file.len())?;
    for value in &print.values {
        sum += ENTRY_BYTES;
        if let PrintValue::Enum { enumerators, .. } = value {
            if enumerators.len() > MAX_ENUMERATORS {
                let number = enumerators.len();
                return Err(format!(
                    "an enum of its print in line {line} has {number} enumerators; the limit is {MAX_ENUMERATORS}"
                ));
            }
            for (_, name) in enumerators {
                sum += check("an enumerator", name.len())?;
            }
        }
    }
    Ok(sum)
}

/// The ring of printed lines, and what its records mean.
pub(super) struct Printer {
    pub(super) ring: Ring,
    table: Table,
}

impl Printer {
    /// That of a loaded object; none if it has no such ring.
    pub(super) fn new(object: &mut Object, table: Table) -> Option<Printer> {
        Some(Printer { ring: object.ring(PRINTS).ok()?, table })
    }

    /// Takes records out, some at once: the number of their bytes, 0 if none waits, and their lines one by one, in the order
    /// in which programs printed them, as long as they are wanted.
    pub(super) fn take(&mut self, mut line: impl FnMut(Vec<u8>) -> bool) -> u64 {
        let records = match self.ring.take(AT_ONCE) {
            Ok(records) => records,
            // Longer than any line. It would keep all that follow it waiting.
            Err(TooLong(bytes)) => return self.ring.take(bytes).map_or(0, |long| long.bytes() as u64),
        };
        let mut batch = vec![0; records.bytes()];
        records.copy_to(0, &mut batch);
        drop(records);
        let mut rest = &batch[..];
        while let Some((_, record, after)) = split_entry(rest) {
            if !line(self.table.line(record).unwrap_or_default()) {
                break;
            }
            rest = after;
        }
        batch.len() as u64
    }
}

/// A value as `console.print` takes it.
fn display(value: &PrintValue, bytes: &[u8]) -> Option<Value> {
    if let PrintValue::Text(len) = value {
        let text = bytes.get(..*len as usize)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        return Some(Value::Text(text[..end].to_vec()));
    }
    let bits = u64::from_le_bytes(*bytes.first_chunk()?);
    // The conversions keep the low bits, which is what the type has.
    Some(match value {
        PrintValue::Unsigned(8) => Value::Unsigned8(bits as u8),
        PrintValue::Unsigned(16) => Value::Unsigned16(bits as u16),
        PrintValue::Unsigned(32) => Value::Unsigned32(bits as u32),
        PrintValue::Unsigned(_) => Value::Unsigned64(bits),
        PrintValue::Signed(8) => Value::Signed8(bits as i8),
        PrintValue::Signed(16) => Value::Signed16(bits as i16),
        PrintValue::Signed(32) => Value::Signed32(bits as i32),
        PrintValue::Signed(_) => Value::Signed64(bits as i64),
        PrintValue::Boolean => Value::Boolean(bits != 0),
        PrintValue::Character => Value::Character(bits as u8),
        PrintValue::Pointer => Value::Pointer(bits),
        PrintValue::Text(_) => return None,
        PrintValue::Enum { number, enumerators } => {
            match enumerators.iter().find(|(value, _)| *value == bits) {
                Some((_, name)) => Value::Text(name.clone().into_bytes()),
                None => display(number, bytes)?,
            }
        }
    })
}
