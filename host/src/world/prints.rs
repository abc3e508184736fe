//! Lines that the kernel half prints: taken out of their ring buffer and shown where the plugin's own lines go.

use ks_wit::object::{PRINTS, Print, PrintValue};

use super::bindings::kernelscript::host::console::Value;
use super::format;
use crate::bpf::{BpfError, Object, Ring, split_entry};

/// Bytes of records that are taken out at once.
const AT_ONCE: usize = 64 << 10;

/// The ring of printed lines, and what its records mean.
pub(super) struct Printer {
    pub(super) ring: Ring,
    prints: Vec<Print>,
}

impl Printer {
    /// That of a loaded object; none if it prints nothing, or says nothing that makes sense of it.
    pub(super) fn of(object: &mut Object) -> Option<Printer> {
        let prints = serde_json::from_slice(object.print_table()?).ok()?;
        Some(Printer { ring: object.ring(PRINTS).ok()?, prints })
    }

    /// The lines that wait, in the order in which programs printed them.
    pub(super) fn lines(&mut self) -> Result<Vec<u8>, BpfError> {
        let mut lines = Vec::new();
        loop {
            let records = self.ring.take(AT_ONCE);
            let records = records.map_err(|long| long.in_batch_of(self.ring.name(), AT_ONCE))?;
            if records.bytes() == 0 {
                return Ok(lines);
            }
            let mut batch = vec![0; records.bytes()];
            records.copy_to(0, &mut batch);
            drop(records);
            let mut rest = &batch[..];
            while let Some((_, record, after)) = split_entry(rest) {
                lines.extend(self.line(record).unwrap_or_default());
                rest = after;
            }
        }
    }

    /// None for a record that the table does not describe.
    fn line(&self, record: &[u8]) -> Option<Vec<u8>> {
        let (position, mut rest) = record.split_first_chunk::<8>()?;
        let print = self.prints.get(usize::try_from(u64::from_le_bytes(*position)).ok()?)?;
        let mut values = Vec::with_capacity(print.values.len());
        for value in &print.values {
            let (bytes, after) = rest.split_at_checked(value.bytes())?;
            values.push(shown(value, bytes)?);
            rest = after;
        }
        Some(format::line(&print.format, &values))
    }
}

/// A value as `console.print` takes it.
fn shown(value: &PrintValue, bytes: &[u8]) -> Option<Value> {
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
                None => shown(number, bytes)?,
            }
        }
    })
}
