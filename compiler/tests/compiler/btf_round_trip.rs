//! The reader reads the writer's output; the running kernel's types are found; damaged bytes are rejected.

use ks_compiler::kernel_types::KernelTypes;
use ks_compiler::object::btf::{
    Btf, BtfBuilder, BtfError, BtfKind, BtfReadError, DatasecEntry, Enumerator, FuncLinkage, FwdKind,
    IntEncoding, LookupError, Member, Signedness, Type, TypeId, VarLinkage,
};
use proptest::prelude::*;

fn builder_with_everything() -> BtfBuilder {
    let mut btf = BtfBuilder::new();
    let int = btf.int("int", 4, IntEncoding::Signed);
    let char = btf.int("char", 1, IntEncoding::Char);
    let name = btf.array(char, 16);
    let name = btf.typedef("comm_t", name);
    let name = btf.constant(name);
    let name = btf.volatile(name);
    let inner = btf.structure("", 8, &[Member::at("low", int, 0), Member::at("high", int, 4)]);
    let either = btf.union("", 8, &[Member::at("", inner, 0), Member::at("both", int, 0)]);
    let task = btf.declare_struct("task");
    let parent = btf.ptr(task);
    let flag = Member { name: "flag", ty: int, bit_offset: 65, bitfield_bits: 3 };
    let members =
        [Member::at("parent", parent, 0), flag, Member::at("comm", name, 12), Member::at("", either, 32)];
    btf.define_struct(task, 40, &members);
    let values = [Enumerator { name: "MINUS", value: -1 }, Enumerator { name: "ONE", value: 1 }];
    btf.enumeration("small", 4, Signedness::Signed, &values);
    let huge = [Enumerator { name: "HUGE", value: 1 << 40 }];
    btf.enumeration("large", 8, Signedness::Unsigned, &huge);
    let proto = btf.func_proto(int, &[("task", parent), ("count", int)]);
    let func = btf.func("visit", proto, FuncLinkage::Global);
    btf.decl_tag("kfunc", func, None);
    btf.fwd("elsewhere", FwdKind::Union);
    let var = btf.var("current", parent, VarLinkage::Global);
    btf.datasec(".data", 16, &[DatasecEntry { var, offset: 8, size: 8 }]);
    btf
}

fn everything() -> Vec<u8> {
    builder_with_everything().finish().expect("the types are well-formed")
}

#[test]
fn the_reader_finds_what_was_written() {
    let btf = Btf::parse(everything()).expect("well-formed");
    let task = btf.find_struct("task").expect("written");
    assert_eq!(btf.size_of(task), Ok(40));
    let field = |name| btf.field(task, name).expect("no error").expect("written");
    assert_eq!((field("comm").bit_offset, field("comm").path), (96, vec![2]));
    assert_eq!(btf.size_of(field("comm").ty), Ok(16));
    assert_eq!((field("flag").bit_offset, field("flag").bitfield_bits), (65, 3));
    // Through the anonymous union and the anonymous struct in it.
    assert_eq!((field("high").bit_offset, field("high").path), (32 * 8 + 32, vec![3, 0, 1]));
    assert_eq!(btf.field(task, "absent"), Ok(None));

    let function = btf.find_function("visit").expect("no error").expect("written");
    assert_eq!(function.params.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["task", "count"]);
    assert_eq!(function.linkage, FuncLinkage::Global);
    assert_eq!(btf.find_function("absent"), Ok(None));

    for (name, expected) in [("small", vec![("MINUS", -1), ("ONE", 1)]), ("large", vec![("HUGE", 1 << 40)])] {
        let found = btf.find_enum(name).expect("written");
        let Ok(Type::Enum { values, .. }) = btf.get(found) else { panic!("{name} is an enum") };
        let values: Vec<_> = values.map(|value| value.expect("has a name")).collect();
        assert_eq!(values.iter().map(|value| (value.name, value.value)).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn equal_types_have_equal_ids_and_equal_calls_equal_bytes() {
    let mut btf = BtfBuilder::new();
    let int = btf.int("int", 4, IntEncoding::Signed);
    assert_eq!(btf.ptr(int), btf.ptr(int));
    assert_ne!(btf.ptr(int), btf.ptr(TypeId::VOID));
    assert_eq!(btf.int("int", 4, IntEncoding::Signed), int);
    assert_eq!(everything(), everything());
}

#[test]
fn mistakes_are_reported_at_the_end() {
    let mut undefined = BtfBuilder::new();
    undefined.declare_struct("task");
    assert_eq!(undefined.finish(), Err(BtfError::Undefined("task".to_owned())));

    let mut foreign = BtfBuilder::new();
    foreign.ptr(TypeId(7));
    assert_eq!(foreign.finish(), Err(BtfError::NoSuchType(TypeId(7))));

    let mut odd = BtfBuilder::new();
    odd.int("odd", 3, IntEncoding::Unsigned);
    assert_eq!(odd.finish(), Err(BtfError::IntSize { name: "odd".to_owned(), bytes: 3 }));

    let mut many = BtfBuilder::new();
    let params = vec![("p", TypeId::VOID); 65_536];
    many.func_proto(TypeId::VOID, &params);
    assert!(matches!(many.finish(), Err(BtfError::TooManyElements { count: 65_536, .. })));
}

#[test]
fn types_that_contain_themselves_end_in_an_error() {
    let mut btf = BtfBuilder::new();
    let own = btf.declare_struct("own");
    let inner = btf.structure("", 8, &[Member::at("", own, 0)]);
    btf.define_struct(own, 8, &[Member::at("", inner, 0)]);
    // A typedef of the type with the next id but one, which is a typedef of it.
    let loops = btf.typedef("loops", TypeId(inner.0 + 2));
    btf.typedef("back", loops);
    let btf = Btf::parse(btf.finish().expect("the writer does not look")).expect("the records are whole");
    assert_eq!(btf.field(own, "x"), Err(LookupError::TooDeep(own)));
    assert_eq!(btf.resolve(loops), Err(LookupError::TooDeep(loops)));
    assert_eq!(btf.size_of(loops), Err(LookupError::TooDeep(loops)));
}

#[test]
fn anonymous_members_that_share_types_do_not_double_the_work() {
    let mut btf = BtfBuilder::new();
    let int = btf.int("int", 4, IntEncoding::Signed);
    let mut ty = btf.structure("", 4, &[Member::at("x", int, 0)]);
    for _ in 0..40 {
        ty = btf.structure("", 4, &[Member::at("", ty, 0), Member::at("", ty, 0)]);
    }
    let btf = Btf::parse(btf.finish().expect("well-formed")).expect("well-formed");
    assert_eq!(btf.field(ty, "absent"), Err(LookupError::TooDeep(ty)));
}

#[test]
fn malformed_btf_is_refused() {
    assert!(matches!(Btf::parse([]), Err(BtfReadError::Header(_))));
    let good = everything();
    let mut swapped = good.clone();
    swapped[..2].copy_from_slice(&[0xeb, 0x9f]);
    assert!(matches!(Btf::parse(swapped), Err(BtfReadError::Header(_))));
    let mut kind = good.clone();
    kind[24 + 7] = 31;
    assert_eq!(Btf::parse(kind).err(), Some(BtfReadError::NoLayout { id: TypeId(1), kind: 31 }));
    for end in 0..good.len() {
        assert!(Btf::parse(&good[..end]).is_err(), "{end} bytes are not the whole");
    }
}

/// Record bytes after the header, and bytes of each element, for kinds 0 to 19, as Linux 7.1 writes them.
///
/// Source: tools/lib/bpf/btf.c, `layouts`, v7.1.
const LAYOUTS: [(u8, u8); 20] = [
    (0, 0),
    (4, 0),
    (0, 0),
    (12, 0),
    (0, 12),
    (0, 12),
    (0, 8),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 8),
    (4, 0),
    (0, 12),
    (0, 0),
    (4, 0),
    (0, 0),
    (0, 12),
];

fn u32_at(bytes: &[u8], index: usize) -> u32 {
    u32::from_le_bytes(bytes[4 * index..][..4].try_into().expect("a word"))
}

/// Appends records to the same types, under a header of 32 bytes that refers to layouts.
fn with_layouts(old: &[u8], more: &[u32], layouts: &[(u8, u8)]) -> Vec<u8> {
    let (type_bytes, string_bytes) = (u32_at(old, 3) as usize, u32_at(old, 5) as usize);
    let (types, strings) = old[24..].split_at(type_bytes);
    let all_types = type_bytes + 4 * more.len();
    let layout_bytes = 4 * layouts.len();
    let header = [32, 0, all_types, all_types + layout_bytes, string_bytes, all_types, layout_bytes];
    let mut bytes = old[..4].to_vec();
    header.iter().for_each(|field| bytes.extend((*field as u32).to_le_bytes()));
    bytes.extend(types);
    more.iter().for_each(|field| bytes.extend(field.to_le_bytes()));
    layouts.iter().for_each(|(whole, each)| bytes.extend([*whole, *each, 0, 0]));
    bytes.extend(strings);
    bytes
}

/// Records of an unknown kind, a typedef of `int` with the name of the first type, and a struct with members
/// of both and an anonymous member of an unknown kind.
fn records_of_the_future(kind: u32, first: u32) -> Vec<u32> {
    let name = u32_at(&everything(), 6);
    let unknown = [0, kind << 24 | 2, 8, 0xffff_ffff, 7, 9];
    let typedef = [name, 8 << 24, 1];
    let members = [[0, first, 0], [name, first, 64], [name + 1, first + 1, 128]];
    let structure = [name, 4 << 24 | 3, 24];
    [unknown.as_slice(), &typedef, &structure, members.as_flattened()].concat()
}

#[test]
fn types_under_a_header_of_32_bytes_are_read() {
    let btf = Btf::parse(with_layouts(&everything(), &[], &LAYOUTS)).expect("well-formed");
    assert_eq!(btf.len(), Btf::parse(everything()).expect("well-formed").len());
    let task = btf.find_struct("task").expect("written");
    let comm = btf.field(task, "comm").expect("no error").expect("written");
    assert_eq!((comm.bit_offset, btf.size_of(comm.ty)), (96, Ok(16)));
    assert!(btf.find_function("visit").expect("no error").is_some());
}

#[test]
fn types_after_one_of_an_unknown_kind_are_read() {
    let first = Btf::parse(everything()).expect("well-formed").len() + 1;
    for kind in [20, 31, 32, 127] {
        let mut layouts = LAYOUTS.to_vec();
        layouts.resize(kind as usize, (0, 0));
        layouts.push((4, 4));
        let bytes = with_layouts(&everything(), &records_of_the_future(kind, first), &layouts);
        let btf = Btf::parse(bytes.clone()).expect("the layout has its length");
        let unknown = BtfReadError::UnknownKind { id: TypeId(first), kind };
        assert_eq!(btf.get(TypeId(first)).err(), Some(unknown));
        assert!(matches!(btf.get(TypeId(first + 1)), Ok(Type::Typedef { name: "int", .. })));
        assert_eq!(btf.size_of(TypeId(first + 1)), Ok(4));
        // The struct is read, without its unknown members.
        let structure = TypeId(first + 2);
        assert_eq!(btf.size_of(structure), Ok(24));
        let known = btf.field(structure, "nt").expect("no error").expect("written");
        assert_eq!((known.bit_offset, btf.size_of(known.ty)), (128, Ok(4)));
        let other = btf.field(structure, "int").expect("no error").expect("written");
        assert_eq!(btf.size_of(other.ty), Err(LookupError::Read(unknown)));
        ask_everything(&btf);
        // The language's view of the same types.
        let types = KernelTypes::from_btf(bytes).expect("well-formed");
        let member = |name| types.member("int", name).expect("the struct has it").ty;
        assert_eq!((member("int").scalar(), member("nt").scalar()), (None, Some((4, true))));
        assert_eq!(types.structure("int").expect("the struct").members.len(), 2);
    }
}

#[test]
fn types_of_the_future_without_a_length_are_refused_with_the_reason() {
    let first = Btf::parse(everything()).expect("well-formed").len() + 1;
    let more = records_of_the_future(20, first);
    let refused =
        |layouts: &[(u8, u8)]| Btf::parse(with_layouts(&everything(), &more, layouts)).expect_err("refused");
    for layouts in [&LAYOUTS[..], &[]] {
        assert_eq!(
            refused(layouts).to_string(),
            format!(
                "type {first} is of kind 20, which is not known here, and no layout in the header tells how \
                 long it is"
            )
        );
    }
    // A known kind with another length would be read wrongly.
    let mut other = LAYOUTS;
    other[4] = (0, 16);
    assert_eq!(
        refused(&other).to_string(),
        "the layout of kind 4 has 0 bytes and 16 for each element; known are 0 and 12"
    );
    // Its elements exceed the section of types.
    let long = [LAYOUTS.as_slice(), &[(200, 200)]].concat();
    assert_eq!(refused(&long), BtfReadError::Truncated(TypeId(first)));
    for (at, value, wanted) in [(28, 3, "the last layout is cut off"), (28, 9999, "the layouts lie outside")]
    {
        let mut bytes = with_layouts(&everything(), &[], &LAYOUTS);
        bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
        assert_eq!(Btf::parse(bytes).err(), Some(BtfReadError::Header(wanted)));
    }
    // The reader of the running kernel's types reports the same reason.
    let bytes = with_layouts(&everything(), &more, &LAYOUTS);
    let types = KernelTypes::fetched(move || Some(bytes));
    assert!(!types.has_btf());
    assert!(types.no_btf().contains("is of kind 20"), "{}", types.no_btf());
}

/// Calls every query for every type; only a panic or an endless loop is a failure.
fn ask_everything(btf: &Btf) {
    for id in (0..=btf.len() + 1).map(TypeId) {
        let _ = btf.size_of(id);
        let _ = btf.field(id, "high");
        match btf.get(id) {
            Ok(Type::Struct { members, .. } | Type::Union { members, .. }) => drop(members.count()),
            Ok(Type::Enum { values, .. }) => drop(values.count()),
            Ok(Type::FuncProto { params, .. }) => drop(params.count()),
            Ok(Type::Datasec { entries, .. }) => drop(entries.count()),
            _ => {}
        }
    }
    let _ = btf.find("task", BtfKind::Struct);
    let _ = btf.find_function("visit");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]

    #[test]
    fn damaged_types_are_errors_or_answers(
        future in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)
    ) {
        let first = Btf::parse(everything()).expect("well-formed").len() + 1;
        let layouts = [LAYOUTS.as_slice(), &[(4, 4)]].concat();
        let mut bytes = if future {
with_layouts(&everything(), &records_of_the_future(20, first), &layouts)
} else {
everything()
};
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(btf) = Btf::parse(bytes) {
            ask_everything(&btf);
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(btf) = Btf::parse(bytes) {
            ask_everything(&btf);
        }
    }
}

#[test]
fn the_running_kernels_types_are_found() {
    let bytes = std::fs::read("/sys/kernel/btf/vmlinux").expect("the kernel has BTF");
    let btf = Btf::parse(bytes).expect("the kernel's BTF is well-formed");

    // The stable context: sizes and offsets are those of the UAPI header on 64-bit machines, after the
    // registers.
    let data = btf.find_struct("bpf_perf_event_data").expect("perf events are compiled in");
    let offset = |name| btf.field(data, name).expect("no error").expect("stable").bit_offset;
    assert_eq!(offset("addr"), offset("sample_period") + 64);
    assert_eq!(btf.size_of(data), Ok(u64::from(offset("addr")) / 8 + 8));

    let task = btf.find_struct("task_struct").expect("every kernel has it");
    let comm = btf.field(task, "comm").expect("no error").expect("every kernel has it");
    assert_eq!(btf.size_of(comm.ty), Ok(16));
    let wrapper = btf.find_struct("list_head").expect("every kernel has it");
    assert_eq!(btf.size_of(wrapper), Ok(16));

    let next = btf.find_function("bpf_iter_num_next").expect("no error").expect("since Linux 6.4");
    assert_eq!(next.params.len(), 1);
    let map_types = btf.find_enum("bpf_map_type").expect("every kernel with BPF has it");
    let Ok(Type::Enum { values, .. }) = btf.get(map_types) else { panic!("it is an enum") };
    let hash = values.flatten().find(|value| value.name == "BPF_MAP_TYPE_HASH").expect("stable");
    assert_eq!(hash.value, 1);

    let image = Btf::open_image(btf.to_image().expect("32 bits count it")).expect("it was just made");
    assert!(image.to_image() == btf.to_image(), "its tables are the same");
    for (id, name) in btf.named(BtfKind::Struct) {
        assert_eq!(image.find_struct(name), btf.find_struct(name), "{}", id.0);
    }
    let found = btf.find_enumerator("BPF_MAP_TYPE_HASH").expect("stable");
    assert_eq!((image.find_enumerator("BPF_MAP_TYPE_HASH"), found.owner), (Some(found), map_types));
}
