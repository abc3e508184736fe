//! The proof that an instruction begins at an offset of a file.

use std::ops::ControlFlow;

use super::code::{MAX_FUNCTION_BYTES, Reached};
use super::elf::{Image, SymbolKind};
use super::error::ProbePointError;
use super::frames::{UnwindFunction, frame_of};
use super::{ProbeMoment, debugdata, go, notes};

/// Limit of the functions around an address that are decoded: aliases and nested functions. Bounds the time
/// of a host call.
const MAX_AROUND: usize = 8;

/// The facts that a file contains about an address.
#[derive(Debug, Default)]
struct AddressFacts {
    /// Starts and lengths of functions that contain the address after their start.
    around: Vec<(u64, u64)>,
    /// Whether a function starts at the address.
    is_start: bool,
    /// Whether a function that is called starts at the address, judged by unwind information or else by the
    /// symbol's name.
    is_called: bool,
    /// Whether the address lies in a data object.
    is_data: bool,
    frame: Option<UnwindFunction>,
}

/// Proves that an instruction begins at an offset of the file. For a probe at returns, also proves
/// that a function that is called starts there.
///
/// # Errors
/// [`ProbePointError`].
pub(super) fn prove(image: &Image<'_>, offset: u64, moment: ProbeMoment) -> Result<(), ProbePointError> {
    let address = image.address_of(offset).ok_or(ProbePointError::NoCode(offset))?;
    let rest = image.code_at(address).filter(|range| range.offset == offset);
    let rest = rest.ok_or(ProbePointError::NoCode(offset))?.bytes;
    if image.has_text_relocations()? {
        return Err(ProbePointError::TextRelocations);
    }
    let known = AddressFacts::of(image, address)?;
    if known.is_data {
        return Err(ProbePointError::NoCode(offset));
    }
    // A symbol may lie inside an instruction, so every function that contains the address is checked.
    let (mut is_reached, mut is_long) = (false, false);
    for &(start, bytes) in &known.around {
        if address - start >= MAX_FUNCTION_BYTES {
            is_long = true;
            continue;
        }
        let Some(code) = image.code_at(start) else { continue };
        let bytes = image.bytes(code.offset, bytes.min(code.bytes).min(MAX_FUNCTION_BYTES))?;
        match image.machine.reach(&bytes, start, address) {
            Reached::Boundary => is_reached = true,
            Reached::Inside => return Err(ProbePointError::InsideInstruction(offset)),
            Reached::Unknown => {}
        }
    }
    let is_known = known.is_start || is_reached || notes::is_probe(image, address)?;
    let first = image.bytes(offset, rest.min(image.machine.max_instruction_bytes() as u64))?;
    if !is_known || !image.machine.is_instruction(&first, address) {
        return Err(if is_long {
            ProbePointError::LongFunction(offset)
        } else {
            ProbePointError::Unproven(offset)
        });
    }
    match moment {
        ProbeMoment::Return if !known.is_called => Err(ProbePointError::NoCall(offset)),
        ProbeMoment::Instruction | ProbeMoment::Return => Ok(()),
    }
}

impl AddressFacts {
    fn of(image: &Image<'_>, address: u64) -> Result<AddressFacts, ProbePointError> {
        let mut known = AddressFacts { frame: frame_of(image, address)?, ..AddressFacts::default() };
        if let Some(UnwindFunction { start, bytes, .. }) = known.frame {
            known.add(address, start, bytes);
        }
        if let Some((start, bytes)) = go::function_of(image, address)? {
            known.add(address, start, bytes);
        }
        known.look(image, address)?;
        if !known.is_start
            && known.around.is_empty()
            && let Some(unpacked) = debugdata::image(image)?
        {
            known.look(&unpacked, address)?;
        }
        // Unwind information about a function's first instruction is more reliable than the symbol's name.
        if let Some(frame) = known.frame.filter(|frame| frame.start == address) {
            known.is_called = frame.is_called;
        }
        Ok(known)
    }

    /// Adds the facts from the symbol tables.
    fn look(&mut self, image: &Image<'_>, address: u64) -> Result<(), ProbePointError> {
        let is_whole = |name: &[u8]| !contains(name, b".cold") && !contains(name, b".__part.");
        for table in image.symbol_tables() {
            let mut names = Vec::new();
            image.symbols(&table, |symbol| {
                let inside = address.checked_sub(symbol.address).filter(|_| symbol.is_defined);
                let lies_in = inside.is_some_and(|inside| inside < symbol.bytes);
                match symbol.kind {
                    SymbolKind::Function | SymbolKind::Resolver if lies_in || inside == Some(0) => {
                        self.add(address, symbol.address, symbol.bytes);
                        if inside == Some(0) && names.len() < MAX_AROUND {
                            names.push(symbol.name);
                        }
                    }
                    SymbolKind::Object => self.is_data |= lies_in,
                    _ => {}
                }
                ControlFlow::Continue(())
            })?;
            for name in names {
                self.is_called |= is_whole(&image.name(&table, name)?);
            }
        }
        Ok(())
    }

    /// Adds a function that contains the address.
    fn add(&mut self, address: u64, start: u64, bytes: u64) {
        if start == address {
            self.is_start = true;
        } else if !self.around.contains(&(start, bytes)) && self.around.len() < MAX_AROUND {
            self.around.push((start, bytes));
        }
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
