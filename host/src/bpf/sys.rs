//! libbpf calls that libbpf-rs does not wrap, or whose errno it loses. Each function is safe to call.
#![expect(unsafe_code, reason = "calls into libbpf")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use ks_compiler::object::model::MapShape as ModelShape;
use libbpf_rs::{AsRawLibbpf, Object, OpenMapMut, OpenObject, OpenProgramMut, ProgramAttachType};
use libbpf_sys::{libbpf_print_fn_t, libbpf_print_level};
use nix::errno::Errno;
use nix::libc;

use super::map::MapShape;
use super::print;
use super::test_run::TestOutput;

/// Converts a libbpf result: 0 or positive for success, else a negative errno.
fn check(answer: i32) -> Result<i32, Errno> {
    if answer < 0 { Err(Errno::from_raw(answer.saturating_neg())) } else { Ok(answer) }
}

/// Waits for a grace period of RCU: until every program that runs now has ended, other than those that may sleep.
///
/// Source: membarrier(2); include/uapi/linux/membarrier.h, MEMBARRIER_CMD_GLOBAL, v6.12.
pub(super) fn membarrier_global() -> Result<(), Errno> {
    const GLOBAL: libc::c_int = 1;
    // SAFETY: the call takes numbers only.
    Errno::result(unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) }).map(drop)
}

/// Creates the maps of an object and relocates its instructions. After a failure the object must be closed:
/// libbpf leaves its maps incomplete.
pub(super) fn prepare(object: &mut OpenObject) -> Result<(), Errno> {
    // SAFETY: `object` owns an opened `bpf_object`.
    check(unsafe { libbpf_sys::bpf_object__prepare(object.as_libbpf_object().as_ptr()) }).map(drop)
}

/// The tracepoints of programs by their names, as ids of the kernel's types: what [`set_tracepoint`] was told.
static TRACEPOINTS: Mutex<BTreeMap<CString, u32>> = Mutex::new(BTreeMap::new());

/// Has libbpf take the tracepoints of programs of this section from [`set_tracepoint`], and not look for them in all types of
/// the kernel. For objects that are opened later. libbpf may open no object meanwhile.
pub(super) fn name_tracepoints(section: &CStr) -> Result<(), Errno> {
    let options = libbpf_sys::libbpf_prog_handler_opts {
        sz: size_of::<libbpf_sys::libbpf_prog_handler_opts>() as libbpf_sys::size_t,
        cookie: 0,
        prog_setup_fn: None,
        prog_prepare_load_fn: Some(load_at_tracepoint),
        prog_attach_fn: None,
    };
    // SAFETY: libbpf copies the name and the options; the function lives as long as the program.
    check(unsafe {
        libbpf_sys::libbpf_register_prog_handler(
            section.as_ptr(),
            libbpf_sys::BPF_PROG_TYPE_TRACING,
            libbpf_sys::BPF_TRACE_RAW_TP,
            &raw const options,
        )
    })
    .map(drop)
}

/// Says which tracepoint a program attaches to: the id of its typedef in the kernel's types.
pub(super) fn set_tracepoint(program: &mut OpenProgramMut<'_>, id: u32) -> Result<(), Errno> {
    /// Stands for a program to attach to, so that libbpf does not read all types of the kernel. It is not used.
    const PLACEHOLDER: c_int = 1;
    let program = program.as_libbpf_object().as_ptr();
    // SAFETY: the program belongs to a live open object; its name lives as long.
    let (name, answer) = unsafe {
        let name = CStr::from_ptr(libbpf_sys::bpf_program__name(program)).to_owned();
        (name, libbpf_sys::bpf_program__set_attach_target(program, PLACEHOLDER, ptr::null()))
    };
    TRACEPOINTS.lock().unwrap_or_else(PoisonError::into_inner).insert(name, id);
    check(answer).map(drop)
}

/// Sets what a program attaches to, before libbpf loads it.
unsafe extern "C" fn load_at_tracepoint(
    program: *mut libbpf_sys::bpf_program,
    options: *mut libbpf_sys::bpf_prog_load_opts,
    _: c_long,
) -> c_int {
    // SAFETY: libbpf calls this with a program of an open object, and with options that it fills.
    let (name, options) = unsafe { (CStr::from_ptr(libbpf_sys::bpf_program__name(program)), &mut *options) };
    let tracepoints = TRACEPOINTS.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(id) = tracepoints.get(name) else { return -libc::ESRCH };
    options.attach_prog_fd = 0;
    options.attach_btf_id = *id;
    0
}

/// Returns the descriptor of a map; none if libbpf has not created it.
pub(super) fn map_descriptor(map: &libbpf_rs::OpenMap<'_>) -> Option<i32> {
    // SAFETY: the map belongs to a live open object.
    let descriptor = unsafe { libbpf_sys::bpf_map__fd(map.as_libbpf_object().as_ptr()) };
    (descriptor >= 0).then_some(descriptor)
}

/// Returns the bytes of an instruction's slot.
pub(super) fn slot_bytes(insn: &libbpf_sys::bpf_insn) -> [u8; 8] {
    let [o0, o1] = insn.off.to_le_bytes();
    let [c0, c1, c2, c3] = insn.imm.to_le_bytes();
    [insn.code, insn.src_reg() << 4 | insn.dst_reg(), o0, o1, c0, c1, c2, c3]
}

/// Returns the name of the kernel or module whose types a descriptor holds.
///
/// Source: bpf(2), BPF_OBJ_GET_INFO_BY_FD; include/uapi/linux/bpf.h, `struct bpf_btf_info`, v5.11.
pub(super) fn btf_name(descriptor: i32) -> Result<String, Errno> {
    // Names of modules have fewer bytes: include/linux/moduleparam.h, `MODULE_NAME_LEN`, v6.18.
    let mut name = [0_u8; 64];
    let mut info = libbpf_sys::bpf_btf_info {
        name: name.as_mut_ptr() as u64,
        name_len: name.len() as u32,
        ..Default::default()
    };
    let mut size = size_of_val(&info) as u32;
    // SAFETY: the kernel writes at most `size` bytes to `info` and `name_len` bytes to `name`, which live; it
    // refuses a number that is no descriptor of types.
    check(unsafe { libbpf_sys::bpf_btf_get_info_by_fd(descriptor, &raw mut info, &raw mut size) })?;
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::ENAMETOOLONG)?;
    Ok(name.to_string_lossy().into_owned())
}

/// Whether a program of a loaded object is loaded itself.
pub(super) fn is_loaded(program: &libbpf_rs::Program<'_>) -> bool {
    // SAFETY: the program belongs to a live object.
    unsafe { libbpf_sys::bpf_program__fd(program.as_libbpf_object().as_ptr()) >= 0 }
}

/// Whether a map of a loaded object was created. libbpf has descriptors, of nothing, for those that it was not to create.
pub(super) fn is_created(map: &impl AsRawLibbpf<LibbpfType = libbpf_sys::bpf_map>) -> bool {
    let map = map.as_libbpf_object().as_ptr();
    // SAFETY: the map belongs to a live object.
    unsafe { libbpf_sys::bpf_map__autocreate(map) && libbpf_sys::bpf_map__fd(map) >= 0 }
}

/// A failed load: errno, and each program's verifier log in the order of the object. A log may be empty.
pub(super) struct Refusal {
    pub(super) errno: Errno,
    pub(super) logs: Vec<(String, Vec<u8>)>,
}

/// Loads a prepared object, with `log_bytes` of verifier log for each program. A failure closes the object:
/// libbpf leaves its maps incomplete.
pub(super) fn load(mut object: OpenObject, log_bytes: usize) -> Result<Object, Refusal> {
    let mut logs = Vec::new();
    for mut program in object.progs_mut() {
        if program.section().as_bytes().starts_with(b"tcx/") {
            // The attach type of tc programs is given to the link; use one value for both directions here, so
            // that they can call each other. The value must not be 0.
            program.set_attach_type(ProgramAttachType::CgroupInetIngress);
        }
        // Zeroed pages are not allocated until the kernel writes to them.
        let mut log = vec![0_u8; log_bytes];
        // SAFETY: the program belongs to a live open object. libbpf keeps the pointer and uses it only in the
        // call below; `logs` owns the block until after that, and moving a `Vec` does not move its block.
        let answer = unsafe {
            libbpf_sys::bpf_program__set_log_buf(
                program.as_libbpf_object().as_ptr(),
                log.as_mut_ptr().cast(),
                log_bytes as libbpf_sys::size_t,
            )
        };
        check(answer).map_err(|errno| Refusal { errno, logs: Vec::new() })?;
        logs.push((program.name().to_string_lossy().into_owned(), log));
    }
    // SAFETY: `object` owns an opened `bpf_object`, and the logs that it points to are alive.
    match check(unsafe { libbpf_sys::bpf_object__load(object.as_libbpf_object().as_ptr()) }) {
        // SAFETY: `take_ptr` gives up the only owner of the pointer, and the load just succeeded.
        Ok(_) => Ok(unsafe { Object::from_ptr(object.take_ptr()) }),
        Err(errno) => Err(Refusal { errno, logs }),
    }
}

/// Prevents libbpf from pinning a map by its own rules.
pub(super) fn forget_pin_path(map: &mut OpenMapMut<'_>) {
    // SAFETY: the map belongs to a live open object; a null pointer means no path. Without a path the call
    // cannot fail.
    unsafe { libbpf_sys::bpf_map__set_pin_path(map.as_libbpf_object().as_ptr(), ptr::null()) };
}

/// Redirects libbpf's messages to [`print::hook`].
///
/// libbpf-rs offers this, too, but treats invalid UTF-8 as an error of the caller and panics across C frames:
/// a name in a plugin's object would end the process.
pub(super) fn print_to_hook() {
    // SAFETY: both are function pointers of the C calling convention with these three arguments. bindgen's
    // type of the last one differs by platform; it is a pointer on all.
    let hook = unsafe { std::mem::transmute::<PrintHook, libbpf_print_fn_t>(printed) };
    // SAFETY: the function lives as long as the process.
    unsafe { libbpf_sys::libbpf_set_print(hook) };
}

type PrintHook = extern "C" fn(libbpf_print_level, *const c_char, *mut c_void) -> c_int;

extern "C" fn printed(level: libbpf_print_level, format: *const c_char, arguments: *mut c_void) -> c_int {
    // SAFETY: libbpf calls this with a format and its arguments, which live until it returns.
    if let Ok(text) = unsafe { vsprintf::vsprintf_raw(format, arguments) } {
        print::hook(level == libbpf_sys::LIBBPF_WARN, &text);
    }
    // libbpf ignores the result.
    0
}

/// Pins a map.
///
/// Source: bpf(2), BPF_OBJ_PIN.
pub(super) fn pin(map: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the path is zero-terminated, and the descriptor is open during the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(map.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Links a program to a perf event. It runs at every overflow (or hit, for a tracepoint) until the link is
/// closed, and reads the cookie by `bpf_get_attach_cookie`.
///
/// Source: bpf(2), BPF_LINK_CREATE with BPF_PERF_EVENT; since 5.15.
pub(super) fn link_perf_event(
    program: BorrowedFd<'_>,
    event: BorrowedFd<'_>,
    cookie: u64,
) -> Result<OwnedFd, Errno> {
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    // SAFETY: both descriptors are open during the call; the options are alive and contain their own size.
    let fd = check(unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            event.as_raw_fd(),
            libbpf_sys::BPF_PERF_EVENT,
            &raw const options,
        )
    })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Links a program to a target, which is a descriptor or the index of a network interface.
///
/// Source: bpf(2), BPF_LINK_CREATE.
pub(super) fn create_link(
    program: BorrowedFd<'_>,
    target: i32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
) -> Result<OwnedFd, Errno> {
    let mut options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // libbpf refuses options of another kind of link, unless they are zero.
    if cookie != 0 {
        options.__bindgen_anon_1.tracing.cookie = cookie;
    }
    // SAFETY: the program's descriptor is open during the call; the kernel rejects an invalid target;
    // `options` contains its own size and no pointers.
    let fd = check(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, attach_type, &raw const options)
    })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the index of a network interface by its name. ENODEV if there is none; if_nametoindex(3) says ENOENT
/// for that and for want of a descriptor.
///
/// Source: netdevice(7), SIOCGIFINDEX.
pub(super) fn interface_number(name: &CStr) -> Result<i32, Errno> {
    // SAFETY: numbers and names of zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // Its last byte stays zero. `c_char` has a sign on some architectures.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(name.to_bytes()) {
        *to = c_char::from_ne_bytes([*from]);
    }
    ask_about_interface(libc::SIOCGIFINDEX, &mut request)?;
    // SAFETY: the kernel wrote this member.
    Ok(unsafe { request.ifr_ifru.ifru_ifindex })
}

/// Returns the name of a network interface by its index. ENXIO if there is none.
///
/// Source: netdevice(7), SIOCGIFNAME.
pub(super) fn interface_name(number: u32) -> Result<String, Errno> {
    // SAFETY: numbers and names of zeros are valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_ifru.ifru_ifindex = number.cast_signed();
    ask_about_interface(libc::SIOCGIFNAME, &mut request).map_err(|errno| match errno {
        Errno::ENODEV => Errno::ENXIO,
        errno => errno,
    })?;
    let name = request.ifr_name.map(|byte| byte.to_ne_bytes()[0]);
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::ENODEV)?;
    Ok(name.to_string_lossy().into_owned())
}

/// Makes a request about an interface by a socket that reaches only the kernel; others reach services, too.
///
/// Source: net/socket.c, `sock_do_ioctl`, v6.18: sockets of any family take these requests.
fn ask_about_interface(request: libc::Ioctl, about: &mut libc::ifreq) -> Result<(), Errno> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = Errno::result(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: the kernel reads and writes within the struct that both requests take.
    Errno::result(unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut *about) }).map(drop)
}

/// Returns the id of an interface's xdp program.
///
/// Source: libbpf's `bpf_xdp_query_id`, which asks rtnetlink(7) (RTM_GETLINK, IFLA_XDP).
pub(super) fn xdp_program(interface: i32) -> Result<u32, Errno> {
    let mut id = 0;
    // SAFETY: libbpf writes one number to the pointer.
    check(unsafe { libbpf_sys::bpf_xdp_query_id(interface, 0, &raw mut id) })?;
    if id == 0 { Err(Errno::ENOENT) } else { Ok(id) }
}

/// Creates a packet socket that receives no packets yet.
///
/// Source: packet(7): protocol 0.
pub(super) fn packet_socket() -> Result<OwnedFd, Errno> {
    // SAFETY: the arguments are plain numbers.
    let fd = Errno::result(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a program to a socket as its filter.
///
/// Source: socket(7), SO_ATTACH_BPF.
pub(super) fn attach_filter(socket: BorrowedFd<'_>, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let program = program.as_raw_fd();
    // SAFETY: the option is an int, which lives until the call returns.
    let answer = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_BPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    Errno::result(answer).map(drop)
}

/// Binds a packet socket to an interface, so that it receives all of its packets.
///
/// Source: packet(7), `struct sockaddr_ll`.
pub(super) fn bind_to_interface(socket: BorrowedFd<'_>, interface: i32) -> Result<(), Errno> {
    // SAFETY: a struct of integers, for which all zeros is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface;
    // SAFETY: the address has the passed size and lives until the call returns.
    let answer = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    };
    Errno::result(answer).map(drop)
}

/// Attaches a program to a raw tracepoint until the descriptor is closed.
///
/// Source: bpf(2), BPF_RAW_TRACEPOINT_OPEN.
pub(super) fn open_raw_tracepoint(
    name: &CStr,
    program: BorrowedFd<'_>,
    cookie: u64,
) -> Result<OwnedFd, Errno> {
    let mut options = libbpf_sys::bpf_raw_tp_opts {
        sz: size_of::<libbpf_sys::bpf_raw_tp_opts>() as libbpf_sys::size_t,
        tp_name: name.as_ptr(),
        cookie,
    };
    // SAFETY: the name is zero-terminated, it and the options live during the call, the options contain their
    // own size, and the descriptor is open during the call.
    let fd =
        check(unsafe { libbpf_sys::bpf_raw_tracepoint_open_opts(program.as_raw_fd(), &raw mut options) })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A test run: packet, context and repetitions.
pub(super) struct TestRun {
    pub(super) packet: Vec<u8>,
    pub(super) context: Vec<u8>,
    pub(super) repeat: u32,
}

/// Growth of a packet for which the output of a test run has room, in bytes: programs may lengthen it.
const PACKET_GROWTH: usize = 4096;

/// Runs a program on a packet or a context.
///
/// Source: bpf(2), BPF_PROG_TEST_RUN; `net/bpf/test_run.c`, v6.18.
pub(super) fn test_run(program: BorrowedFd<'_>, run: &TestRun) -> Result<TestOutput, Errno> {
    let TestRun { packet, context, repeat } = run;
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| Errno::E2BIG);
    let mut data = if packet.is_empty() { Vec::new() } else { vec![0; packet.len() + PACKET_GROWTH] };
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: if packet.is_empty() { ptr::null() } else { packet.as_ptr().cast() },
        data_size_in: len(packet)?,
        data_out: if data.is_empty() { ptr::null_mut() } else { data.as_mut_ptr().cast() },
        data_size_out: len(&data)?,
        ctx_in: if context.is_empty() { ptr::null() } else { context.as_ptr().cast() },
        ctx_size_in: len(context)?,
        repeat: i32::try_from(*repeat).map_err(|_| Errno::EINVAL)?,
        ..Default::default()
    };
    // SAFETY: packet, context and output have the passed sizes and live until the call returns. The kernel
    // writes to the output, at most its size, and to `options`.
    check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    data.truncate(options.data_size_out as usize);
    Ok(TestOutput { return_value: options.retval, data, nanoseconds: options.duration })
}

/// Opens a program by its id, whoever loaded it.
///
/// Source: bpf(2), BPF_PROG_GET_FD_BY_ID.
pub(super) fn program_by_id(id: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the argument is a plain number.
    let fd = check(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the lowest id of a program above this one; none if there is none.
///
/// Source: bpf(2), BPF_PROG_GET_NEXT_ID.
pub(super) fn next_program(after: u32) -> Result<Option<u32>, Errno> {
    let mut id = 0;
    // SAFETY: libbpf writes one number to the pointer.
    match check(unsafe { libbpf_sys::bpf_prog_get_next_id(after, &raw mut id) }) {
        Ok(_) => Ok(Some(id)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Enables run statistics of all programs until the descriptor is closed.
///
/// Source: bpf(2), BPF_ENABLE_STATS; since 5.8.
pub(super) fn enable_statistics() -> Result<OwnedFd, Errno> {
    // SAFETY: the argument is a plain number.
    let fd = check(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Queries the kernel about a program.
///
/// Source: bpf(2), BPF_OBJ_GET_INFO_BY_FD.
pub(super) fn program_info(program: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_prog_info, Errno> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes, all zero: the kernel follows none of the pointers in it, and writes no
    // more than `len` bytes.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len) })?;
    Ok(info)
}

/// Returns the kernel's information about a program, and the ids of its maps.
///
/// Source: bpf(2), BPF_OBJ_GET_INFO_BY_FD.
pub(super) fn program_info_and_maps(
    program: BorrowedFd<'_>,
) -> Result<(libbpf_sys::bpf_prog_info, Vec<u32>), Errno> {
    let count = program_info(program)?.nr_map_ids;
    let mut maps = vec![0_u32; count as usize];
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: count,
        map_ids: maps.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes; its only pointer points to as many numbers as it says.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len) })?;
    maps.truncate(info.nr_map_ids.min(count) as usize);
    Ok((info, maps))
}

/// Returns the kernel's information about a map.
///
/// Source: bpf(2), BPF_OBJ_GET_INFO_BY_FD.
pub(super) fn map_info(map: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_map_info, Errno> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes, all zero: the kernel follows none of the pointers in it.
    check(unsafe { libbpf_sys::bpf_map_get_info_by_fd(map.as_raw_fd(), &raw mut info, &raw mut len) })?;
    Ok(info)
}

/// Opens an arbitrary link that exists in the kernel, of any process.
///
/// Source: bpf(2), BPF_LINK_GET_NEXT_ID, BPF_LINK_GET_FD_BY_ID.
pub(super) fn any_link() -> Result<OwnedFd, Errno> {
    let mut id = 0;
    // SAFETY: libbpf writes one number to the pointer.
    check(unsafe { libbpf_sys::bpf_link_get_next_id(0, &raw mut id) })?;
    // SAFETY: the argument is a plain number.
    let fd = check(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the size in bytes of the kernel's information about a link: that of its `struct bpf_link_info`, or
/// of ours if that is smaller.
///
/// Source: bpf(2), BPF_OBJ_GET_INFO_BY_FD; kernel/bpf/syscall.c, `bpf_link_get_info_by_fd`, v6.18.
pub(super) fn link_info_bytes(link: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes, all zero: the kernel follows none of the pointers in it, and writes no
    // more than `len` bytes.
    check(unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len) })?;
    Ok(len)
}

/// Creates a map without types.
///
/// Source: bpf(2), BPF_MAP_CREATE.
pub(super) fn create_map(name: &str, shape: &ModelShape) -> Result<OwnedFd, Errno> {
    let name = CString::new(name.as_bytes().get(..MAP_NAME_BYTES).unwrap_or(name.as_bytes()))
        .map_err(|_| Errno::EINVAL)?;
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
        map_flags: shape.flags,
        numa_node: shape.numa_node.unwrap_or_default(),
        ..Default::default()
    };
    // SAFETY: the name is zero-terminated; `options` has its own size, and all its descriptors are 0: none.
    let made = check(unsafe {
        libbpf_sys::bpf_map_create(
            shape.kind.number(),
            name.as_ptr(),
            shape.key.bytes(),
            shape.value.bytes(),
            shape.entries,
            &raw const options,
        )
    })?;
    // SAFETY: the kernel just created this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Bytes of a map's name that the kernel keeps. Source: include/uapi/linux/bpf.h, BPF_OBJ_NAME_LEN less the zero.
const MAP_NAME_BYTES: usize = 15;

/// A batch of map entries.
pub(super) struct Batch {
    pub(super) keys: Vec<u8>,
    /// Concatenated; in per-CPU kinds with the kernel's padding.
    pub(super) values: Vec<u8>,
    /// Position of the next batch; none at the end.
    pub(super) next: Option<Vec<u8>>,
}

/// A map's descriptor, and the key and value sizes of the kernel's interface.
#[derive(Debug)]
pub(super) struct RawMap {
    fd: OwnedFd,
    key_len: usize,
    value_len: usize,
}

impl RawMap {
    /// Wraps the descriptor of a created map of this shape. `slots` is the number of values that the kernel copies at
    /// once: the number of possible CPUs in per-CPU kinds, else 1.
    ///
    /// Source: `bpf_map_value_size` in `kernel/bpf/syscall.c`, v6.18: a per-CPU value is rounded up to 8
    /// bytes.
    pub(super) fn new(fd: OwnedFd, shape: MapShape, slots: usize) -> RawMap {
        let size = shape.value_size as usize;
        let stride = if shape.per_cpu { size.next_multiple_of(8) } else { size };
        RawMap { fd, key_len: shape.key_size as usize, value_len: stride * slots }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the number of bytes that the kernel reads or writes for a value.
    pub(super) fn value_len(&self) -> usize {
        self.value_len
    }

    /// Returns the value at a key. ENOENT if there is no entry.
    pub(super) fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let key = self.key(key)?;
        let mut value = vec![0; self.value_len];
        // SAFETY: the key has the map's size; `value` has the size that the kernel writes.
        check(unsafe {
            libbpf_sys::bpf_map_lookup_elem(self.fd.as_raw_fd(), key, value.as_mut_ptr().cast())
        })?;
        Ok(value)
    }

    /// As [`RawMap::lookup`], under the lock of the value.
    pub(super) fn lookup_locked(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let key = self.key(key)?;
        let mut value = vec![0; self.value_len];
        // SAFETY: the key has the map's size; `value` has the size that the kernel writes.
        check(unsafe {
            libbpf_sys::bpf_map_lookup_elem_flags(
                self.fd.as_raw_fd(),
                key,
                value.as_mut_ptr().cast(),
                libbpf_sys::BPF_F_LOCK.into(),
            )
        })?;
        Ok(value)
    }

    /// Removes an entry and returns its value. ENOENT if there is no entry.
    pub(super) fn lookup_and_delete(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let key = self.key(key)?;
        let mut value = vec![0; self.value_len];
        // SAFETY: the key has the map's size, or is null for kinds without keys; `value` has the size that
        // the kernel writes.
        check(unsafe {
            libbpf_sys::bpf_map_lookup_and_delete_elem(self.fd.as_raw_fd(), key, value.as_mut_ptr().cast())
        })?;
        Ok(value)
    }

    /// Forbids writing from user space.
    pub(super) fn freeze(&self) -> Result<(), Errno> {
        // SAFETY: the call has no argument but the descriptor.
        check(unsafe { libbpf_sys::bpf_map_freeze(self.fd.as_raw_fd()) }).map(drop)
    }

    /// Writes `number` entries.
    pub(super) fn update_batch(
        &self,
        keys: &[u8],
        values: &[u8],
        number: u32,
        flags: u64,
    ) -> Result<(), Errno> {
        if keys.len() != self.key_len * number as usize || values.len() != self.value_len * number as usize {
            return Err(Errno::EINVAL);
        }
        let mut count = number;
        let options = libbpf_sys::bpf_map_batch_opts {
            sz: size_of::<libbpf_sys::bpf_map_batch_opts>() as libbpf_sys::size_t,
            elem_flags: flags,
            flags: 0,
        };
        // SAFETY: keys and values hold `count` entries of the sizes that the kernel reads; `options` has its
        // own size.
        check(unsafe {
            libbpf_sys::bpf_map_update_batch(
                self.fd.as_raw_fd(),
                keys.as_ptr().cast(),
                values.as_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        })
        .map(drop)
    }

    /// Returns whether a bloom filter may contain a value.
    pub(super) fn contains(&self, value: &[u8]) -> Result<bool, Errno> {
        if value.len() != self.value_len {
            return Err(Errno::EINVAL);
        }
        let mut value = value.to_vec();
        // SAFETY: this kind has no key; `value` has the size that the kernel reads. What another kind would
        // write has that size, too.
        let found = check(unsafe {
            libbpf_sys::bpf_map_lookup_elem(self.fd.as_raw_fd(), self.key(&[])?, value.as_mut_ptr().cast())
        });
        match found {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Returns the key after this one, or the first. ENOENT at the end; the first key again if `key` is not
    /// in the map.
    pub(super) fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        let key = key.map_or(Ok(ptr::null()), |key| self.key(key))?;
        let mut next = vec![0; self.key_len];
        // SAFETY: the key is null or has the map's size, and `next` has the map's size.
        check(unsafe {
            libbpf_sys::bpf_map_get_next_key(self.fd.as_raw_fd(), key, next.as_mut_ptr().cast())
        })?;
        Ok(next)
    }

    /// Reads up to `most` entries starting at a position.
    pub(super) fn batch(&self, from: Option<&[u8]>, most: u32) -> Result<Batch, Errno> {
        // A position is a key, or 4 bytes (kernel/bpf/hashtab.c, `__htab_map_lookup_and_delete_batch`,
        // v6.12).
        let position_len = self.key_len.max(4);
        if from.is_some_and(|from| from.len() != position_len) {
            return Err(Errno::EINVAL);
        }
        let mut from = from.map(<[u8]>::to_vec);
        let mut next = vec![0; position_len];
        let mut keys = vec![0; self.key_len * most as usize];
        let mut values = vec![0; self.value_len * most as usize];
        let mut count = most;
        // SAFETY: the buffers of positions, keys and values hold `count` entries.
        let answer = check(unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                self.fd.as_raw_fd(),
                from.as_mut().map_or(ptr::null_mut(), |from| from.as_mut_ptr().cast()),
                next.as_mut_ptr().cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                ptr::null(),
            )
        });
        let next = match answer {
            Ok(_) => Some(next),
            Err(Errno::ENOENT) => None,
            Err(errno) => return Err(errno),
        };
        keys.truncate(self.key_len * count as usize);
        values.truncate(self.value_len * count as usize);
        Ok(Batch { keys, values, next })
    }

    /// Writes a value.
    pub(super) fn update(&self, key: &[u8], value: &[u8], flags: u64) -> Result<(), Errno> {
        let key = self.key(key)?;
        if value.len() != self.value_len {
            return Err(Errno::EINVAL);
        }
        // SAFETY: key and value have the sizes that the kernel reads.
        check(unsafe {
            libbpf_sys::bpf_map_update_elem(self.fd.as_raw_fd(), key, value.as_ptr().cast(), flags)
        })
        .map(drop)
    }

    /// Removes an entry.
    pub(super) fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        let key = self.key(key)?;
        // SAFETY: the key has the size that the kernel reads.
        check(unsafe { libbpf_sys::bpf_map_delete_elem(self.fd.as_raw_fd(), key) }).map(drop)
    }

    /// Returns the key as a pointer for the kernel: null for kinds without keys (queue, stack).
    fn key(&self, key: &[u8]) -> Result<*const c_void, Errno> {
        match key.len() {
            len if len != self.key_len => Err(Errno::EINVAL),
            0 => Ok(ptr::null()),
            _ => Ok(key.as_ptr().cast()),
        }
    }
}
