//! Resolves the locations of probes and breakpoints: addresses of kernel symbols, offsets of functions in
//! files.

use std::fs;

use ks_wit::target::UprobeTarget;

use super::error::{ErrorKind, PerfError};
use super::event::InvalidEvent;
use super::table::integer;
use crate::probed::{AllowsFile, ProbePoint, When};

/// Returns the address of a kernel symbol.
pub(super) fn kernel_symbol(symbol: &str) -> Result<u64, PerfError> {
    let failed = |kind, because: String, remedy| PerfError::ProbeLocation {
        location: symbol.to_owned(),
        kind,
        because,
        remedy,
    };
    let list = fs::read_to_string("/proc/kallsyms").map_err(|error| {
        failed(ErrorKind::Unsupported, format!("/proc/kallsyms: {error}"), "give the address as a number")
    })?;
    let address = list.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (address, _, name) = (fields.next()?, fields.next()?, fields.next()?);
        (name == symbol).then(|| u64::from_str_radix(address, 16).ok())?
    });
    match address {
        Some(0) => Err(failed(
            ErrorKind::NotPermitted,
            "the kernel hides its addresses (kernel.kptr_restrict)".to_owned(),
            "give ks-host CAP_SYSLOG, or lower the setting",
        )),
        Some(address) => Ok(address),
        None => Err(failed(
            ErrorKind::NotFound,
            "the kernel has no symbol of that name, or lists no data (CONFIG_KALLSYMS_ALL)".to_owned(),
            "look into /proc/kallsyms, or give the address as a number",
        )),
    }
}

/// Splits `function` or `function+0x10` into the name and the offset in bytes.
pub(super) fn with_offset(text: &str) -> Option<(&str, u64)> {
    let (name, offset) = match text.split_once('+') {
        Some((name, offset)) => (name, integer(offset)?),
        None => (text, 0),
    };
    (!name.is_empty()).then_some((name, offset))
}

/// Returns the instructions at a location in a file ([`ks_wit::target`]): one for each function with its
/// name. The file must be one that `allows` accepts.
pub(super) fn in_file(text: &str, allows: &AllowsFile<'_>) -> Result<Vec<ProbePoint>, PerfError> {
    let location = UprobeTarget::parse(text)
        .map_err(|error| InvalidEvent::ProbeLocation { text: text.to_owned(), reason: error.to_string() })?;
    ProbePoint::find(&location, When::Instruction, allows).map_err(|error| PerfError::ProbeLocation {
        location: text.to_owned(),
        kind: error.kind(),
        because: format!("{}: {error}", location.path),
        remedy: error.remedy(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probed::ANY_FILE;

    #[test]
    fn a_function_of_this_program_is_found() {
        let own = std::env::current_exe().unwrap();
        let own = own.display();
        let offset = |location: &str| in_file(&format!("{own}:{location}"), ANY_FILE).unwrap()[0].offset();
        let main = offset("main");
        assert_eq!(offset(&format!("+{main:#x}")), main);
        for missing in [
            format!("{own}:no_such_function"),
            format!("{own}:main+0xfffffff"),
            format!("{own}:+0x40"),
            "/no/such/file:main".to_owned(),
        ] {
            assert!(matches!(in_file(&missing, ANY_FILE), Err(PerfError::ProbeLocation { .. })), "{missing}");
        }
        for bad in ["main", ":main", "/bin/true:", "/bin/true:+many"] {
            assert!(in_file(bad, ANY_FILE).is_err(), "{bad}");
        }
    }

    #[test]
    fn root_symbols_of_the_kernel_have_addresses() {
        assert!(kernel_symbol("schedule").unwrap() > 1 << 63);
        assert!(matches!(
            kernel_symbol("no_such_symbol"),
            Err(PerfError::ProbeLocation { kind: ErrorKind::NotFound, .. })
        ));
    }
}
