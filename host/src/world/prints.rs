//! Lines printed by the kernel half: read from their ring buffer and shown with the plugin's own lines.

use ks_wit::object::{DisplayForm, PRINTS, Print, PrintValue};

use super::bindings::kernelscript::host::console::Value;
use super::format;
use super::state::State;
use crate::bpf::{Object, Ring, TooLong, split_entry};
use crate::display;
use crate::host_bytes::{Charge, HostBytes};
use crate::text::MOST_BYTES;

/// Size in bytes of a batch of records.
const AT_ONCE: usize = 64 << 10;

/// Upper limit of enumerators of one value. Guards against a long search for each record of 8 bytes.
const MAX_ENUMERATORS: usize = 4096;

/// Size in bytes of a print, a value or an enumerator in the host, in addition to its texts.
const ENTRY_BYTES: usize = 64;

/// The table of prints, which describes the records of printed lines.
pub(super) struct Table {
    prints: Vec<Print>,
    _charge: Charge,
}

impl Table {
    /// Parses the table of an object. None if the object prints nothing or the table is malformed.
    ///
    /// # Errors
    /// As text: a record of 8 bytes would become an overlong line, or the table exceeds the host's memory for
    /// the plugin.
    pub(super) fn of(object: &Object, host_bytes: &HostBytes) -> Result<Option<Table>, String> {
        let Some(prints) = object.print_table().and_then(Print::table) else { return Ok(None) };
        let bytes = prints.iter().map(print_bytes).sum::<Result<usize, String>>()?;
        let charge =
            host_bytes.charge(bytes as u64).map_err(|full| format!("its table of prints: {full}"))?;
        Ok(Some(Table { prints, _charge: charge }))
    }

    /// Formats the line of a record; none if the table does not describe it. `state` names addresses.
    fn line(&self, record: &[u8], state: &mut State) -> Option<PrintedLine> {
        let (position, mut rest) = record.split_first_chunk::<8>()?;
        let print = self.prints.get(usize::try_from(u64::from_le_bytes(*position)).ok()?)?;
        let mut values = Vec::with_capacity(print.values.len());
        for value in &print.values {
            let (bytes, after) = rest.split_at_checked(value.bytes())?;
            values.push(display(value, bytes, state)?);
            rest = after;
        }
        let text = match one_line(&print.values, &values) {
            Some(shown) => format::line(&print.format, &shown),
            None => format::line(&print.format, &values),
        };
        Some(PrintedLine { text, values })
    }
}

/// Returns the values of a line with `\n` where texts have line feeds, so that none of a process looks like a line of its
/// own; none if there is no line feed. What the host formats itself may have several lines.
fn one_line(of: &[PrintValue], values: &[Value]) -> Option<Vec<Value>> {
    let breaks = |(of, value): (&PrintValue, &Value)| match (of, value) {
        (PrintValue::Text(_), Value::Text(text)) => text.contains(&b'\n'),
        _ => false,
    };
    of.iter().zip(values).any(breaks).then(|| {
        let shown = of.iter().zip(values).map(|(of, value)| match (of, value) {
            (PrintValue::Text(_), Value::Text(text)) => {
                Value::Text(text.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(&b"\\n"[..]))
            }
            _ => value.clone(),
        });
        shown.collect()
    })
}

/// A line that the kernel half printed; empty if its record is malformed.
#[derive(Default)]
pub(super) struct PrintedLine {
    /// The line, with its line end.
    pub(super) text: Vec<u8>,
    /// The values that it was formatted from.
    pub(super) values: Vec<Value>,
}

/// Returns the size of a print in the host in bytes; the error names the part that is too long.
fn print_bytes(print: &Print) -> Result<usize, String> {
    let line = print.line;
    let check = |what: &str, bytes: usize| {
        if bytes <= MOST_BYTES {
            Ok(bytes + ENTRY_BYTES)
        } else {
            Err(format!("{what} of its print in line {line} has {bytes} bytes; the limit is {MOST_BYTES}"))
        }
    };
    let mut sum = check("the format", print.format.len())? + check("the file name", print.file.len())?;
    for value in &print.values {
        sum += ENTRY_BYTES;
        if let PrintValue::Display(DisplayForm::TimeOfDay(format)) = value {
            sum += check("a format of a time", format.len())?;
        }
        if let PrintValue::Display(DisplayForm::Enumerator(of)) = value {
            sum += check("the name of an enum", of.len())?;
        }
        if let PrintValue::Display(DisplayForm::KernelStack(map) | DisplayForm::ProcessStack(map)) = value {
            sum += check("the name of a map", map.len())?;
        }
        if let PrintValue::Enum { enumerators, .. } = value {
            if enumerators.len() > MAX_ENUMERATORS {
                let number = enumerators.len();
                return Err(format!(
                    "an enum of its print in line {line} has {number} enumerators; the limit is \
                     {MAX_ENUMERATORS}"
                ));
            }
            for (_, name) in enumerators {
                sum += check("an enumerator", name.len())?;
            }
        }
    }
    Ok(sum)
}

/// The ring buffer of printed lines, with the table of prints.
pub(super) struct Printer {
    pub(super) ring: Ring,
    table: Table,
}

impl Printer {
    /// Opens the ring buffer of a loaded object; none if it has none.
    pub(super) fn new(object: &mut Object, table: Table) -> Option<Printer> {
        Some(Printer { ring: object.ring(PRINTS).ok()?, table })
    }

    /// Takes a batch of records and calls `line` with each formatted line in the order of printing, until it
    /// returns false. Returns the size of the batch in bytes; 0 if no record is waiting.
    pub(super) fn take(
        &mut self,
        state: &mut State,
        mut line: impl FnMut(&mut State, PrintedLine) -> bool,
    ) -> u64 {
        let records = match self.ring.take(AT_ONCE) {
            Ok(records) => records,
            // Longer than any printed line. Drop the record, so that it does not block those after it.
            Err(TooLong(bytes)) => return self.ring.take(bytes).map_or(0, |long| long.bytes() as u64),
        };
        let mut batch = vec![0; records.bytes()];
        records.copy_to(0, &mut batch);
        drop(records);
        let mut rest = &batch[..];
        while let Some((_, record, after)) = split_entry(rest) {
            let formatted = self.table.line(record, state).unwrap_or_default();
            if !line(state, formatted) {
                break;
            }
            rest = after;
        }
        batch.len() as u64
    }
}

/// Converts a value to one for `console.print`.
fn display(value: &PrintValue, bytes: &[u8], state: &mut State) -> Option<Value> {
    if let PrintValue::Text(len) = value {
        let text = bytes.get(..*len as usize)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        return Some(Value::Text(text[..end].to_vec()));
    }
    if let PrintValue::Display(form) = value {
        return Some(Value::Text(text_of(form, bytes, state)?.into_bytes()));
    }
    let bits = u64::from_le_bytes(*bytes.first_chunk()?);
    // Truncation keeps the low bits, which are those of the type.
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
        PrintValue::Text(_) | PrintValue::Display(_) => return None,
        PrintValue::Enum { number, enumerators } => {
            match enumerators.iter().find(|(value, _)| *value == bits) {
                Some((_, name)) => Value::Text(name.clone().into_bytes()),
                None => display(number, bytes, state)?,
            }
        }
    })
}

/// Makes the text of a form from the operands in a record.
fn text_of(form: &DisplayForm, operands: &[u8], state: &mut State) -> Option<String> {
    let number = u64::from_le_bytes(*operands.first_chunk()?);
    Some(match form {
        // The low half is the address, whose bytes come first.
        DisplayForm::Ipv4 => display::ipv4(number as u32),
        DisplayForm::Ipv6 => display::ipv6(operands),
        DisplayForm::Mac => display::mac(operands),
        DisplayForm::SystemCall => display::system_call(number.cast_signed()),
        DisplayForm::Errno => display::errno(number.cast_signed()),
        DisplayForm::Signal => display::signal(number.cast_signed()),
        DisplayForm::Capability => display::capability(number.cast_signed()),
        DisplayForm::Enumerator(of) => state.enums.name(of, number.cast_signed()),
        // If the audit log cannot be written, the plugin ends at its next action.
        DisplayForm::KernelFunction => state.function(None, number).ok()?,
        DisplayForm::ProcessFunction => {
            let address = u64::from_le_bytes(*operands.last_chunk()?);
            state.function(Some(i32::try_from(number.cast_signed()).unwrap_or(-1)), address).ok()?
        }
        DisplayForm::KernelStack(map) => state.stack(map, None, number.cast_signed()).ok()?,
        DisplayForm::ProcessStack(map) => {
            let id = i64::from_le_bytes(*operands.last_chunk()?);
            state.stack(map, Some(i32::try_from(number.cast_signed()).unwrap_or(-1)), id).ok()?
        }
        DisplayForm::TimeOfDay(format) => state.zone.time_of_day(format, number),
        DisplayForm::Bytes => display::bytes(number),
        DisplayForm::Duration => display::duration(number),
    })
}
