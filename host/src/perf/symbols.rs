//! Where probes and breakpoints go: addresses of the kernel's symbols, offsets of functions in files.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::read::elf::{ElfFile32, ElfFile64};
use object::{Object, ObjectSegment, ObjectSymbol};

use super::error::{ErrorKind, PerfError};
use super::event::InvalidEvent;
use super::table::integer;
use crate::files::read_program;

/// The address of a symbol of the kernel.
pub(super) fn kernel_symbol(symbol: &str) -> Result<u64, PerfError> {
    let failed =
        |kind, because: String, remedy| PerfError::Place { place: symbol.to_owned(), kind, because, remedy };
    let list = fs::read_to_string("/proc/kallsyms").map_err(|error| {
        failed(ErrorKind::Unsupported, format!("/proc/kallsyms: {error}"), "give the address as a number")
    })?;
    let address = list.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (address, _, name) = (words.next()?, words.next()?, words.next()?);
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

/// `function` or `function+0x10`: the name, and the bytes behind its start.
pub(super) fn with_offset(text: &str) -> Option<(&str, u64)> {
    let (name, offset) = match text.split_once('+') {
        Some((name, offset)) => (name, integer(offset)?),
        None => (text, 0),
    };
    (!name.is_empty()).then_some((name, offset))
}

/// `path:function`, `path:function+0x10` or `path:+0x1040`: the path, and the offset in the file.
pub(super) fn in_file(text: &str) -> Result<(CString, u64), PerfError> {
    let form = "a place in a program, `path:function` or `path:+0x1040`";
    let invalid = || InvalidEvent::Form { text: text.to_owned(), form };
    let (path, place) = text.rsplit_once(':').ok_or_else(invalid)?;
    let failed =
        |kind, because: String, remedy| PerfError::Place { place: text.to_owned(), kind, because, remedy };
    // The kernel looks the path up from the same folder, so that a relative one would do; messages show the whole.
    let path = fs::canonicalize(path).map_err(|error| {
        failed(ErrorKind::NotFound, format!("{path}: {error}"), "name an executable file or a library")
    })?;
    let offset = match place.strip_prefix('+') {
        Some(offset) => integer(offset).ok_or_else(invalid)?,
        None => {
            let (function, more) = with_offset(place).ok_or_else(invalid)?;
            let at = offset_of(&path, function).map_err(|because| {
                failed(
                    ErrorKind::NotFound,
                    because,
                    "name a function of its symbol table, or an offset: `path:+0x1040`",
                )
            })?;
            at.checked_add(more).ok_or_else(invalid)?
        }
    };
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| invalid())?;
    Ok((path, offset))
}

/// Where a function's code lies in an ELF file; the error is the reason.
fn offset_of(path: &Path, function: &str) -> Result<u64, String> {
    let bytes = read_program(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let offset = if let Ok(file) = ElfFile64::<object::Endianness>::parse(&*bytes) {
        offset_in(&file, function)
    } else if let Ok(file) = ElfFile32::<object::Endianness>::parse(&*bytes) {
        offset_in(&file, function)
    } else {
        return Err(format!("{} is no ELF file", path.display()));
    };
    offset.ok_or_else(|| format!("{} has no function `{function}`", path.display()))
}

fn offset_in<'file>(file: &impl Object<'file>, function: &str) -> Option<u64> {
    let mut symbols = file.symbols().chain(file.dynamic_symbols());
    let found = symbols.find(|symbol| symbol.name() == Ok(function) && symbol.is_definition())?;
    file.segments().find_map(|segment| {
        let (start, size) = segment.file_range();
        let inside = found.address().checked_sub(segment.address())?;
        (inside < size).then(|| start.checked_add(inside))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_program_is_found() {
        let own = std::env::current_exe().unwrap();
        let own = own.display();
        let (path, offset) = in_file(&format!("{own}:main")).unwrap();
        assert!(offset > 0 && path.to_str().unwrap().starts_with('/'));
        let (_, behind) = in_file(&format!("{own}:main+0x4")).unwrap();
        assert_eq!(behind, offset + 4);
        assert_eq!(in_file(&format!("{own}:+0x40")).unwrap().1, 0x40);
        for missing in [format!("{own}:no_such_function"), "/no/such/file:main".to_owned()] {
            assert!(matches!(in_file(&missing), Err(PerfError::Place { .. })), "{missing}");
        }
        for bad in ["main", "/bin/true:", "/bin/true:+many"] {
            assert!(in_file(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn root_symbols_of_the_kernel_have_addresses() {
        assert!(kernel_symbol("schedule").unwrap() > 1 << 63);
        assert!(matches!(
            kernel_symbol("no_such_symbol"),
            Err(PerfError::Place { kind: ErrorKind::NotFound, .. })
        ));
    }
}
