//! Objects as libbpf relocates them for the running kernel, before the kernel sees them.
#![expect(unsafe_code, reason = "libbpf's functions")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;

use libbpf_sys as libbpf;

/// What libbpf would pass to the kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Prepared {
    /// The instructions of each program that is loaded, by its name. Maps are numbered by their position in the
    /// order of their names, instead of by descriptors.
    pub programs: BTreeMap<String, Vec<[u8; 8]>>,
    /// The type, the sizes of key and value in bytes, the entries and the flags of each map, by its name.
    pub maps: BTreeMap<String, [u32; 5]>,
}

/// Opens an object. The name is that of maps of variables.
///
/// # Errors
/// The step that failed with its errno.
pub(crate) fn open(name: &str, elf: &[u8]) -> Result<Owner, String> {
    let name = CString::new(name).map_err(|error| error.to_string())?;
    let options = libbpf::bpf_object_open_opts {
        sz: size_of::<libbpf::bpf_object_open_opts>() as libbpf::size_t,
        object_name: name.as_ptr(),
        ..Default::default()
    };
    // SAFETY: the bytes and the options live until the call returns; the result is closed by the owner.
    let object = unsafe {
        libbpf::bpf_object__open_mem(elf.as_ptr().cast(), elf.len() as libbpf::size_t, &raw const options)
    };
    ptr::NonNull::new(object).map(Owner).ok_or_else(|| failed("open"))
}

/// Opens and prepares an object: creates its maps and relocates its instructions. The name is that of maps of
/// variables.
///
/// # Errors
/// The step that failed with its errno.
///
/// Source: libbpf 1.7, `bpf_object__prepare`.
pub fn prepare(name: &str, elf: &[u8]) -> Result<Prepared, String> {
    libbpf_rs::set_print(None);
    let object = open(name, elf)?;
    // SAFETY: the object is open.
    if unsafe { libbpf::bpf_object__prepare(object.0.as_ptr()) } != 0 {
        return Err(failed("prepare"));
    }
    let mut prepared = Prepared::default();
    let mut descriptors = BTreeMap::new();
    let mut map = ptr::null_mut();
    loop {
        // SAFETY: the object is open; the map is one of its maps, or null to start with.
        map = unsafe { libbpf::bpf_object__next_map(object.0.as_ptr(), map) };
        if map.is_null() {
            break;
        }
        // SAFETY: as above; the functions read fields of the map.
        let (name, descriptor, facts) = unsafe {
            let facts = [
                libbpf::bpf_map__type(map),
                libbpf::bpf_map__key_size(map),
                libbpf::bpf_map__value_size(map),
                libbpf::bpf_map__max_entries(map),
                libbpf::bpf_map__map_flags(map),
            ];
            (text(libbpf::bpf_map__name(map)), libbpf::bpf_map__fd(map), facts)
        };
        descriptors.insert(descriptor, name.clone());
        prepared.maps.insert(name, facts);
    }
    let mut program = ptr::null_mut();
    loop {
        // SAFETY: as for maps.
        program = unsafe { libbpf::bpf_object__next_program(object.0.as_ptr(), program) };
        if program.is_null() {
            break;
        }
        // SAFETY: the program is one of the object's; its instructions live as long as the object.
        let (loads, name, insns) = unsafe {
            let count = libbpf::bpf_program__insn_cnt(program) as usize;
            let insns = std::slice::from_raw_parts(libbpf::bpf_program__insns(program), count);
            (libbpf::bpf_program__autoload(program), text(libbpf::bpf_program__name(program)), insns)
        };
        if loads {
            let slots = insns.iter().map(|insn| slot(insn, &descriptors, &prepared.maps)).collect();
            prepared.programs.insert(name, slots);
        }
    }
    Ok(prepared)
}

/// Source: include/uapi/linux/bpf.h, BPF_PSEUDO_MAP_FD and BPF_PSEUDO_MAP_VALUE.
fn slot(
    insn: &libbpf::bpf_insn,
    descriptors: &BTreeMap<i32, String>,
    maps: &BTreeMap<String, [u32; 5]>,
) -> [u8; 8] {
    let of_map = insn.code == 0x18 && matches!(insn.src_reg(), 1 | 2);
    let position = |name: &String| maps.keys().position(|known| known == name);
    let number = match descriptors.get(&insn.imm).filter(|_| of_map).and_then(position) {
        Some(position) => position as i32,
        None => insn.imm,
    };
    let [o0, o1] = insn.off.to_le_bytes();
    let [c0, c1, c2, c3] = number.to_le_bytes();
    [insn.code, insn.src_reg() << 4 | insn.dst_reg(), o0, o1, c0, c1, c2, c3]
}

/// An open object, closed when dropped.
pub(crate) struct Owner(pub(crate) ptr::NonNull<libbpf::bpf_object>);

impl Drop for Owner {
    fn drop(&mut self) {
        // SAFETY: the object is open and has no other owner.
        unsafe { libbpf::bpf_object__close(self.0.as_ptr()) };
    }
}

fn failed(step: &str) -> String {
    format!("{step}: {}", std::io::Error::last_os_error())
}

/// Returns a text of libbpf.
pub(crate) fn text(name: *const c_char) -> String {
    // SAFETY: names of libbpf end with a zero and live as long as the object.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
