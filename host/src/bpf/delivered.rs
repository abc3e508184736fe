//! What the loader delivers, compared with the judged object by what the kernel says of it: a loader that was taken over
//! can deliver nothing else.
//!
//! The instructions of a program are those that the last look saw: the kernel's tag of a program is a digest of its
//! instructions as they were loaded. It has 64 bits: for an author who makes two programs with one tag, which takes some
//! 2^32 tries, and takes the loader over, too, it is no hindrance. The maps that a program uses are those that were
//! delivered.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use ks_compiler::object::Object as Model;
use ks_compiler::object::btf::TypeId;
use ks_compiler::object::model::Program as ModelProgram;
use ks_compiler::object::table::ProgramType;
use libbpf_rs::MapType;
use nix::errno::Errno;
use sha1::Sha1;
use sha2::{Digest as _, Sha256};

use super::kernel_types;
use super::loader::{Named, Prepared, PreparedProgram, Product};
use super::map::MapShape;
use super::object::{is_data_map, is_section_map};
use super::sys;

/// A created map, also that of a section of variables or of a kernel struct.
#[derive(Debug)]
pub(super) struct LoadedMap {
    pub(super) name: String,
    pub(super) shape: MapShape,
    pub(super) descriptor: OwnedFd,
    /// The kernel's number of it.
    id: u32,
}

impl LoadedMap {
    /// Whether it is a kernel struct.
    pub(super) fn is_struct(&self) -> bool {
        self.shape.ty == u32::from(MapType::StructOps)
    }
}

/// A loaded program.
#[derive(Debug)]
pub(super) struct LoadedProgram {
    /// The name in the object, not cut.
    pub(super) name: String,
    pub(super) section: String,
    /// Type, a number of `enum bpf_prog_type`.
    pub(super) kind: u32,
    /// A number of `enum bpf_attach_type`; 0 where the load needs none.
    pub(super) attach_type: u32,
    pub(super) descriptor: OwnedFd,
}

/// What was delivered.
#[derive(Debug)]
pub(super) struct Delivered {
    /// In the object's order.
    pub(super) maps: Vec<LoadedMap>,
    pub(super) programs: Vec<LoadedProgram>,
}

impl Delivered {
    /// Checks that these are maps and programs of the object, with the prepared instructions. Programs may also use
    /// `known` maps.
    ///
    /// # Errors
    /// A message: the first difference, or what the kernel did not say.
    pub(super) fn check(
        product: Product,
        model: &Model,
        tags: &Tags,
        known: &[BorrowedFd<'_>],
    ) -> Result<Delivered, String> {
        let maps: Vec<LoadedMap> =
            product.maps.into_iter().map(|map| checked_map(map, model)).collect::<Result<_, _>>()?;
        let known = known
            .iter()
            .map(|map| sys::map_info(*map).map(|info| info.id).map_err(|errno| unsaid("a map", errno)));
        let ids: Vec<u32> = known.chain(maps.iter().map(|map| Ok(map.id))).collect::<Result<_, _>>()?;
        let programs =
            product.programs.into_iter().map(|program| checked_program(program, model, tags, &ids));
        Ok(Delivered { programs: programs.collect::<Result<_, _>>()?, maps })
    }

    /// Whether there are kernel structs.
    pub(super) fn has_structs(&self) -> bool {
        self.maps.iter().any(LoadedMap::is_struct)
    }
}

fn unsaid(what: &str, errno: Errno) -> String {
    format!("the kernel says nothing of {what}: bpf(BPF_OBJ_GET_INFO_BY_FD): {errno}")
}

fn checked_map(Named { name, descriptor }: Named, model: &Model) -> Result<LoadedMap, String> {
    let info =
        sys::map_info(descriptor.as_fd()).map_err(|errno| unsaid(&format!("the map `{name}`"), errno))?;
    let (shape, id) = (MapShape::from(&info), info.id);
    let expected = if let Some(map) = model.maps.iter().find(|map| map.name.as_str() == name) {
        Some(map.shape.kind.number())
    } else if model.struct_ops.iter().any(|one| one.name.as_str() == name) {
        Some(u32::from(MapType::StructOps))
    } else {
        let is_kconfig = !model.kconfig.is_empty() && is_section_map(name.as_bytes(), ".kconfig");
        (is_kconfig || is_data_map(name.as_bytes())).then_some(u32::from(MapType::Array))
    };
    match expected {
        Some(ty) if ty == shape.ty => Ok(LoadedMap { name, shape, descriptor, id }),
        Some(ty) => Err(format!("the map `{name}` is of type {}, and the object has {ty}", shape.ty)),
        None => Err(format!("the loader has a map `{name}`, and the object has none")),
    }
}

fn checked_program(
    Named { name, descriptor }: Named,
    model: &Model,
    tags: &Tags,
    maps: &[u32],
) -> Result<LoadedProgram, String> {
    let Some((_, one)) = model.program(&name) else {
        return Err(format!("the loader has a program `{name}`, and the object has none"));
    };
    let (info, used) = sys::program_info_and_maps(descriptor.as_fd())
        .map_err(|errno| unsaid(&format!("the program `{name}`"), errno))?;
    let row = one.section.kind;
    if info.type_ != row.program.number() {
        return Err(format!(
            "the program `{name}` is of type {}, and the object has {}",
            info.type_,
            row.program.number()
        ));
    }
    if !tags.has(&name, info.tag) {
        return Err(format!("the instructions of the program `{name}` are not those that were judged"));
    }
    if used.iter().any(|map| !maps.contains(map)) {
        return Err(format!("the program `{name}` uses a map that is none of the object's"));
    }
    check_target(&name, one, &info)?;
    let attach_type = row.attach.map_or(0, |attach| attach.number());
    let section = one.section.to_string();
    let section = section.strip_prefix('?').unwrap_or(&section).to_owned();
    Ok(LoadedProgram { name, section, kind: info.type_, attach_type, descriptor })
}

/// Checks what a program was loaded for, where that is a function or hook of the kernel itself. Which of them is
/// decided by the load; whether it runs at its begin or its end, by a number that the kernel compares when it is
/// attached.
fn check_target(name: &str, program: &ModelProgram, info: &libbpf_sys::bpf_prog_info) -> Result<(), String> {
    let is_of_kernel = matches!(program.section.kind.program, ProgramType::Tracing | ProgramType::Lsm);
    if !is_of_kernel {
        return Ok(());
    }
    let wanted = program.section.target.to_string();
    // Source: libbpf v1.7, `find_kernel_btf_id`.
    let prefixes = ["", "btf_trace_", "bpf_lsm_", "bpf_iter_"];
    let is_wanted = |found: &str| prefixes.iter().any(|prefix| found.strip_prefix(prefix) == Some(&*wanted));
    if kernel_types::any_named(TypeId(info.attach_btf_id), is_wanted)? {
        Ok(())
    } else {
        Err(format!("the program `{name}` was loaded for another function of the kernel than `{wanted}`"))
    }
}

/// Tags that the kernel may give to programs with prepared instructions.
#[derive(Debug, Default)]
pub(super) struct Tags(Vec<(String, [[u8; 8]; 2])>);

impl Tags {
    pub(super) fn of(prepared: &Prepared) -> Tags {
        Tags(prepared.programs.iter().map(|program| (program.name.clone(), tags(program))).collect())
    }

    fn has(&self, program: &str, tag: [u8; 8]) -> bool {
        self.0.iter().any(|(name, tags)| name == program && tags.contains(&tag))
    }
}

/// Returns both digests of a program's instructions: which of them is the tag depends on the kernel.
///
/// Source: kernel/bpf/core.c, `bpf_prog_calc_tag`: the first 8 bytes of SHA-1, from v6.18 on of SHA-256, with zeros for
/// descriptors of maps and places in them.
fn tags(program: &PreparedProgram) -> [[u8; 8]; 2] {
    const LOAD_WIDE: u8 = 0x18;
    let mut code = program.code.clone();
    let mut is_second = false;
    for slot in code.chunks_exact_mut(8) {
        let of_map = [libbpf_sys::BPF_PSEUDO_MAP_FD, libbpf_sys::BPF_PSEUDO_MAP_VALUE];
        let loads_map = !is_second && slot[0] == LOAD_WIDE && of_map.contains(&u32::from(slot[1] >> 4));
        if loads_map || is_second && slot[..4] == [0; 4] {
            slot[4..].fill(0);
        }
        is_second = loads_map;
    }
    let first = |digest: &[u8]| *digest.first_chunk().unwrap_or(&[0; 8]);
    [first(&Sha1::digest(&code)), first(&Sha256::digest(&code))]
}

#[cfg(test)]
mod tests {
    use ks_compiler::object::KernelFunctionIds;
    use ks_wit::section::{Arch, BpfRecord};

    use super::*;
    use crate::bpf::loader::{
        ChosenPrograms, KernelPart, LibbpfLoader, NotLoaded, OnlyPrograms, Order, Prepared,
    };
    use crate::policy::{Admitted, ObjectSet, Policy, Request};

    /// An object with maps, variables, callbacks, kernel functions and variables, kconfig symbols and CO-RE
    /// relocations.
    const FEATURES: &[u8] = include_bytes!("../../../compiler/src/object/tests/objects/features.o");

    const PROGRAMS: [&str; 4] = ["tail", "leads_on", "not_loaded", "at_function"];

    fn admitted() -> Admitted {
        let record = BpfRecord { name: "delivered".into(), arch: Arch::Any, elf: FEATURES.to_vec() };
        let objects = ObjectSet::read(&[record], Some(0)).expect("it is sound");
        let admitted = Policy::everything().admit(Request::new(objects, &[]), 1).expect("allowed");
        admitted.expect("there is one")
    }

    /// Loads the object, and returns what is delivered, with its tags.
    fn loaded() -> (Model, Product, Tags) {
        let (product, prepared) = loaded_by(LibbpfLoader::default());
        (admitted().object().model().clone(), product, Tags::of(&prepared))
    }

    /// Returns what this loader delivers, and what it has prepared.
    fn loaded_by(mut loader: LibbpfLoader) -> (Product, Prepared) {
        let order = Order {
            name: "delivered".into(),
            elf: admitted().elf(&KernelFunctionIds::new()).expect("it can be written"),
            written: Vec::new(),
            reused: Vec::new(),
            // Any kernel of ours has what these need.
            programs: ChosenPrograms::Only(OnlyPrograms {
                names: PROGRAMS.map(str::to_owned).to_vec(),
                structs: false,
            }),
        };
        let mut seen = None;
        let product = loader.load(&order, &[], |prepared| {
            seen = Some(prepared);
            Ok(())
        });
        match product {
            Ok(product) => (product, seen.expect("it was shown")),
            Err(NotLoaded::Refused(refused)) => panic!("{refused:?} {:?}", refused.verifier()),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn root_nothing_but_the_judged_object_is_taken() {
        let (model, product, tags) = loaded();
        let numbers = (product.maps.len(), product.programs.len());
        let taken = Delivered::check(product, &model, &tags, &[]).expect("it is the object's own");
        assert_eq!((taken.maps.len(), taken.programs.len()), numbers);
        assert!(numbers.0 >= 3 && numbers.1 >= 3, "{numbers:?}");

        let refused = |change: &dyn Fn(&mut Product, &mut Model, &mut Tags)| {
            let (mut model, mut product, mut tags) = loaded();
            change(&mut product, &mut model, &mut tags);
            Delivered::check(product, &model, &tags, &[]).expect_err("it was changed")
        };
        let said = refused(&|product, _, _| product.programs[0].name = "another".into());
        assert!(said.contains("has a program `another`"), "{said}");
        let said = refused(&|product, _, _| product.maps[0].name = "another".into());
        assert!(said.contains("has a map `another`"), "{said}");
        let said = refused(&|product, _, _| {
            // Two programs under each other's names.
            let [first, second, ..] = &mut product.programs[..] else { panic!("it has some") };
            std::mem::swap(&mut first.name, &mut second.name);
        });
        assert!(said.contains("are not those that were judged") || said.contains("is of type"), "{said}");
        let said = refused(&|_, _, tags| tags.0[0].1.iter_mut().for_each(|tag| tag[7] ^= 1));
        assert!(said.contains("are not those that were judged"), "{said}");
        let said = refused(&|product, _, _| {
            product.maps.pop();
            product.maps.drain(..product.maps.len() - 1);
        });
        assert!(said.contains("uses a map that is none of the object's"), "{said}");
        let said = refused(&|product, model, _| {
            // Variables under the name of a map that is no array.
            let is_other = |name: &str| {
                model.maps.iter().any(|map| map.name.as_str() == name && map.shape.kind.number() != 2)
            };
            let at = product.maps.iter().position(|map| is_other(&map.name)).expect("it has one");
            let name = product.maps.remove(at).name;
            let variables = product.maps.iter_mut().find(|map| is_data_map(map.name.as_bytes()));
            variables.expect("it has some").name = name;
        });
        assert!(said.contains("is of type"), "{said}");
    }

    /// The object asks for the id of a type, which is another one in a part.
    #[test]
    fn root_an_answer_that_depends_on_all_types_is_of_no_part() {
        let kernel = kernel_types::running().expect("it has types");
        assert_eq!(KernelPart::of(admitted().object().model(), kernel), None);
    }

    /// A program that counts what it was not loaded for.
    #[test]
    fn root_a_program_for_another_function_of_the_kernel_is_seen() {
        let types = kernel_types::running().expect("it has types");
        let (id, name) = (1..=types.len())
            .find_map(|id| match types.get(TypeId(id)) {
                Ok(ks_compiler::object::btf::Type::Func { name, .. }) => Some((TypeId(id), name.to_owned())),
                _ => None,
            })
            .expect("the kernel has functions");
        assert!(kernel_types::any_named(id, |found| found == name).expect("readable"));
        assert!(!kernel_types::any_named(id, |found| found != name).expect("readable"));
        assert!(!kernel_types::any_named(TypeId(u32::MAX), |_| true).expect("readable"), "no such type");
    }
}
