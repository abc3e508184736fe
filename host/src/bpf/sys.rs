//! Every call of libbpf that libbpf-rs does not offer, or whose errno it loses. Each function is safe to call.
#![expect(unsafe_code, reason = "calls into libbpf")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use libbpf_rs::{AsRawLibbpf, MapCore, Object, OpenMapMut, OpenObject, ProgramAttachType};
use libbpf_sys::{libbpf_print_fn_t, libbpf_print_level};
use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{MapFlags, ProtFlags, mmap};

use super::print;

/// libbpf's answers are 0 or a negative errno.
fn check(answer: i32) -> Result<i32, Errno> {
    if answer < 0 { Err(Errno::from_raw(answer.saturating_neg())) } else { Ok(answer) }
}

/// Makes the maps of an object, and the instructions as the kernel will get them. On failure it is to be closed: libbpf leaves
/// its maps half made.
pub(super) fn prepare(object: &mut OpenObject) -> Result<(), Errno> {
    // SAFETY: `object` owns an opened `bpf_object`.
    check(unsafe { libbpf_sys::bpf_object__prepare(object.as_libbpf_object().as_ptr()) }).map(drop)
}

/// The descriptor of a map; none if libbpf has not made it.
pub(super) fn map_descriptor(map: &libbpf_rs::OpenMap<'_>) -> Option<i32> {
    // SAFETY: the map is a live one of an open object.
    let descriptor = unsafe { libbpf_sys::bpf_map__fd(map.as_libbpf_object().as_ptr()) };
    (descriptor >= 0).then_some(descriptor)
}

/// Why a load failed, and what the verifier said of each program, in the order of the object; empty if nothing.
pub(super) struct Refusal {
    pub(super) errno: Errno,
    pub(super) logs: Vec<(String, Vec<u8>)>,
}

/// Loads a prepared object, with room for so many bytes of log for each program. On failure it is closed: libbpf leaves its
/// maps half made.
pub(super) fn load(mut object: OpenObject, log_bytes: usize) -> Result<Object, Refusal> {
    let mut logs = Vec::new();
    for mut program in object.progs_mut() {
        if program.section().as_bytes().starts_with(b"tcx/") {
            // The link says where such a program is attached. Without a type of its own, which is 0, programs of both
            // directions may be called by each other.
            program.set_attach_type(ProgramAttachType::CgroupInetIngress);
        }
        // Zeroed memory costs nothing until the kernel writes to it.
        let mut log = vec![0_u8; log_bytes];
        // SAFETY: the program is a live one of an open object. libbpf keeps the pointer and uses it in the call below
        // only; `logs` owns the block until after that, and a block does not move when its `Vec` does.
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

/// Makes libbpf pin no map of this name.
pub(super) fn forget_pin_path(map: &mut OpenMapMut<'_>) {
    // SAFETY: the map is a live one of an open object; no path is a null pointer. Without a path there is nothing that could
    // fail.
    unsafe { libbpf_sys::bpf_map__set_pin_path(map.as_libbpf_object().as_ptr(), ptr::null()) };
}

/// The kind of a map, a number of `enum bpf_map_type`: libbpf-rs has no name for the newest, and forgets their numbers.
pub(super) fn map_type(map: &impl AsRawLibbpf<LibbpfType = libbpf_sys::bpf_map>) -> u32 {
    // SAFETY: the map is a live one of an open or loaded object.
    unsafe { libbpf_sys::bpf_map__type(map.as_libbpf_object().as_ptr()) }
}

/// Hands all that libbpf prints to [`print::hook`] from now on.
///
/// libbpf-rs has this, too, but takes what is no UTF-8 for a mistake of the caller and panics, below C functions: a name in a
/// plugin's object would end the process.
pub(super) fn print_to_hook() {
    // SAFETY: both are pointers to functions of the C calling convention with these three arguments. bindgen's type of the
    // last differs by platform; it is a pointer on all.
    let hook = unsafe { std::mem::transmute::<PrintHook, libbpf_print_fn_t>(printed) };
    // SAFETY: the function lives as long as the process.
    unsafe { libbpf_sys::libbpf_set_print(hook) };
}

type PrintHook = extern "C" fn(libbpf_print_level, *const c_char, *mut c_void) -> c_int;

extern "C" fn printed(level: libbpf_print_level, format: *const c_char, arguments: *mut c_void) -> c_int {
    // SAFETY: libbpf calls this with a format and the arguments for it, which live until it returns.
    if let Ok(text) = unsafe { vsprintf::vsprintf_raw(format, arguments) } {
        print::hook(level == libbpf_sys::LIBBPF_WARN, &text);
    }
    // libbpf does not look at it.
    0
}

/// Pins a map.
///
/// Source: bpf(2), BPF_OBJ_PIN.
pub(super) fn pin(map: BorrowedFd<'_>, path: &Path) -> Result<(), Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the path ends in a zero and the descriptor is open for the time of the call.
    check(unsafe { libbpf_sys::bpf_obj_pin(map.as_raw_fd(), path.as_ptr()) }).map(drop)
}

/// Maps the pages of a map of global data over the image of its section, as libbpf does with maps that it makes.
pub(super) fn map_over_image(map: &libbpf_rs::Map<'_>) -> Result<(), Errno> {
    let mut len: libbpf_sys::size_t = 0;
    // SAFETY: the map is a live one of a loaded object; libbpf writes the size where the pointer says.
    let image =
        unsafe { libbpf_sys::bpf_map__initial_value(map.as_libbpf_object().as_ptr(), (&raw mut len).cast()) };
    let (Some(image), Some(len)) = (NonZeroUsize::new(image as usize), NonZeroUsize::new(len as usize))
    else {
        return Err(Errno::EINVAL);
    };
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: libbpf made the image by mmap, rounded up to whole pages, for this purpose, and unmaps it with the object; no
    // reference leads into it. The kernel maps as many pages as the map's only value has.
    unsafe { mmap(Some(image), len, access, MapFlags::MAP_SHARED | MapFlags::MAP_FIXED, map.as_fd(), 0) }?;
    Ok(())
}

/// Links a program to a perf event: it runs at every overflow (or hit, for a tracepoint) until the link is closed, and
/// finds the cookie by `bpf_get_attach_cookie`.
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
    // SAFETY: both descriptors are open for the time of the call, and so are the options, whose size is in them.
    let fd = check(unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            event.as_raw_fd(),
            libbpf_sys::BPF_PERF_EVENT,
            &raw const options,
        )
    })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Links a program to a target, which is a descriptor or the number of a network interface.
///
/// Source: bpf(2), BPF_LINK_CREATE.
pub(super) fn create_link(
    program: BorrowedFd<'_>,
    target: i32,
    attach_type: u32,
    flags: u32,
) -> Result<OwnedFd, Errno> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the program's descriptor is open for the time of the call; a target that is none makes the kernel refuse;
    // `options` says its own size and holds no pointers.
    let fd = check(unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), target, attach_type, &raw const options)
    })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The number of the network interface of this name.
///
/// Source: if_nametoindex(3).
pub(super) fn interface_number(name: &CStr) -> Result<i32, Errno> {
    // SAFETY: the name ends in a zero.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(Errno::last()),
        number => i32::try_from(number).map_err(|_| Errno::ENODEV),
    }
}

/// The name of the network interface of this number.
///
/// Source: if_indextoname(3).
pub(super) fn interface_name(number: u32) -> Result<String, Errno> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: there is room for the longest name and its zero.
    let answer = unsafe { libc::if_indextoname(number, name.as_mut_ptr().cast()) };
    if answer.is_null() {
        return Err(Errno::last());
    }
    let name = CStr::from_bytes_until_nul(&name).map_err(|_| Errno::ENODEV)?;
    Ok(name.to_string_lossy().into_owned())
}

/// The number of the xdp program of an interface.
///
/// Source: libbpf's `bpf_xdp_query_id`, which asks rtnetlink(7) (RTM_GETLINK, IFLA_XDP).
pub(super) fn xdp_program(interface: i32) -> Result<u32, Errno> {
    let mut id = 0;
    // SAFETY: libbpf writes one number to the pointer.
    check(unsafe { libbpf_sys::bpf_xdp_query_id(interface, 0, &raw mut id) })?;
    if id == 0 { Err(Errno::ENOENT) } else { Ok(id) }
}

/// A packet socket that gets no packets yet.
///
/// Source: packet(7): protocol 0.
pub(super) fn packet_socket() -> Result<OwnedFd, Errno> {
    // SAFETY: plain numbers.
    let fd = Errno::result(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a program the filter of a socket.
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

/// Lets a packet socket get every packet of an interface.
///
/// Source: packet(7), `struct sockaddr_ll`.
pub(super) fn bind_to_interface(socket: BorrowedFd<'_>, interface: i32) -> Result<(), Errno> {
    // SAFETY: a struct of numbers, of which all zero is one.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = interface;
    // SAFETY: the address is of the size that is passed, and lives until the call returns.
    let answer = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    };
    Errno::result(answer).map(drop)
}

/// Attaches a program to a raw tracepoint until the descriptor is closed.
///
/// Source: bpf(2), BPF_RAW_TRACEPOINT_OPEN.
pub(super) fn open_raw_tracepoint(name: &CStr, program: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: the name ends in a zero and the descriptor is open for the time of the call.
    let fd = check(unsafe { libbpf_sys::bpf_raw_tracepoint_open(name.as_ptr(), program.as_raw_fd()) })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Runs a program once on this packet, with these first bytes of its context, and gives what it returned.
///
/// Source: bpf(2), BPF_PROG_TEST_RUN.
pub(super) fn test_run(program: BorrowedFd<'_>, packet: &[u8], context: &[u8]) -> Result<u32, Errno> {
    let len = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| Errno::E2BIG);
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as libbpf_sys::size_t,
        data_in: packet.as_ptr().cast(),
        data_size_in: len(packet)?,
        ctx_in: if context.is_empty() { ptr::null() } else { context.as_ptr().cast() },
        ctx_size_in: len(context)?,
        ..Default::default()
    };
    // SAFETY: packet and context have the sizes that are said and live until the call returns, the kernel only reads
    // them, and nothing is asked for that it would write elsewhere than into `options`.
    check(unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &raw mut options) })?;
    Ok(options.retval)
}

/// A descriptor of the program of this id, whoever loaded it.
///
/// Source: bpf(2), BPF_PROG_GET_FD_BY_ID.
pub(super) fn program_by_id(id: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes a number.
    let fd = check(unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the kernel count the runs of all programs until the descriptor is closed.
///
/// Source: bpf(2), BPF_ENABLE_STATS; since 5.8.
pub(super) fn enable_statistics() -> Result<OwnedFd, Errno> {
    // SAFETY: the call takes a number.
    let fd = check(unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the kernel knows of a program.
///
/// Source: bpf(2), BPF_OBJ_GET_INFO_BY_FD.
pub(super) fn program_info(program: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_prog_info, Errno> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes, all zero: the kernel follows none of the pointers in it, and writes no more
    // than `len` bytes.
    check(unsafe { libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len) })?;
    Ok(info)
}

/// Any link that the kernel holds, of whatever process.
///
/// Source: bpf(2), BPF_LINK_GET_NEXT_ID, BPF_LINK_GET_FD_BY_ID.
pub(super) fn any_link() -> Result<OwnedFd, Errno> {
    let mut id = 0;
    // SAFETY: libbpf writes one number to the pointer.
    check(unsafe { libbpf_sys::bpf_link_get_next_id(0, &raw mut id) })?;
    // SAFETY: the call takes a number.
    let fd = check(unsafe { libbpf_sys::bpf_link_get_fd_by_id(id) })?;
    // SAFETY: the kernel just made this descriptor for us; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Bytes of what the kernel tells of a link: the size of its `struct bpf_link_info`, or of ours if that is smaller.
///
/// Source: bpf(2), BPF_OBJ_GET_INFO_BY_FD; kernel/bpf/syscall.c, `bpf_link_get_info_by_fd`, v6.18.
pub(super) fn link_info_bytes(link: BorrowedFd<'_>) -> Result<u32, Errno> {
    let mut info = libbpf_sys::bpf_link_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes, all zero: the kernel follows none of the pointers in it, and writes no more
    // than `len` bytes.
    check(unsafe { libbpf_sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len) })?;
    Ok(len)
}

/// Some entries of a map.
pub(super) struct Batch {
    pub(super) keys: Vec<u8>,
    /// One after the other, in per-CPU kinds with the kernel's padding.
    pub(super) values: Vec<u8>,
    /// Where to go on.
    pub(super) next: Option<Vec<u8>>,
}

/// A map's descriptor and the sizes that the kernel reads and writes for it.
#[derive(Debug)]
pub(super) struct RawMap {
    fd: OwnedFd,
    key_len: usize,
    value_len: usize,
}

impl RawMap {
    /// A second descriptor of a created map. `slots` is how many values the kernel copies at once: the number of
    /// possible CPUs in per-CPU kinds, else 1.
    ///
    /// Source: `bpf_map_value_size` in `kernel/bpf/syscall.c`, v6.18: a per-CPU value is rounded up to 8 bytes.
    pub(super) fn of(map: &libbpf_rs::Map<'_>, slots: usize) -> std::io::Result<RawMap> {
        let size = map.value_size() as usize;
        let stride = if map.map_type().is_percpu() { size.next_multiple_of(8) } else { size };
        Ok(RawMap {
            fd: map.as_fd().try_clone_to_owned()?,
            key_len: map.key_size() as usize,
            value_len: stride * slots,
        })
    }

    /// The map's descriptor.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Bytes that the kernel reads and writes for a value.
    pub(super) fn value_len(&self) -> usize {
        self.value_len
    }

    /// The value at a key.
    pub(super) fn lookup(&self, key: &[u8]) -> Result<Vec<u8>, Errno> {
        let key = self.key(key)?;
        let mut value = vec![0; self.value_len];
        // SAFETY: the key has the map's size; `value` has the size that the kernel writes.
        check(unsafe {
            libbpf_sys::bpf_map_lookup_elem(self.fd.as_raw_fd(), key, value.as_mut_ptr().cast())
        })?;
        Ok(value)
    }

    /// Takes the next value out of a queue or stack.
    pub(super) fn take(&self) -> Result<Vec<u8>, Errno> {
        let mut value = vec![0; self.value_len];
        // SAFETY: these kinds have no key; `value` has the size that the kernel writes. Other kinds are refused.
        check(unsafe {
            libbpf_sys::bpf_map_lookup_and_delete_elem(
                self.fd.as_raw_fd(),
                self.key(&[])?,
                value.as_mut_ptr().cast(),
            )
        })?;
        Ok(value)
    }

    /// Whether a bloom filter may have a value.
    pub(super) fn contains(&self, value: &[u8]) -> Result<bool, Errno> {
        if value.len() != self.value_len {
            return Err(Errno::EINVAL);
        }
        let mut value = value.to_vec();
        // SAFETY: this kind has no key; `value` has the size that the kernel reads. What another kind would write has that
        // size, too.
        let found = check(unsafe {
            libbpf_sys::bpf_map_lookup_elem(self.fd.as_raw_fd(), self.key(&[])?, value.as_mut_ptr().cast())
        });
        match found {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// The key behind one, or the first. ENOENT at the end; the first again if the key is not there.
    pub(super) fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        let key = key.map_or(Ok(ptr::null()), |key| self.key(key))?;
        let mut next = vec![0; self.key_len];
        // SAFETY: the key is null or has the map's size, and `next` has it.
        check(unsafe {
            libbpf_sys::bpf_map_get_next_key(self.fd.as_raw_fd(), key, next.as_mut_ptr().cast())
        })?;
        Ok(next)
    }

    /// Up to `most` entries from a position on: keys, values, and the position behind them, none at the end.
    pub(super) fn batch(&self, from: Option<&[u8]>, most: u32) -> Result<Batch, Errno> {
        // A position is a key, or 4 bytes (kernel/bpf/hashtab.c, `__htab_map_lookup_and_delete_batch`, v6.12).
        let position_len = self.key_len.max(4);
        if from.is_some_and(|from| from.len() != position_len) {
            return Err(Errno::EINVAL);
        }
        let mut from = from.map(<[u8]>::to_vec);
        let mut next = vec![0; position_len];
        let mut keys = vec![0; self.key_len * most as usize];
        let mut values = vec![0; self.value_len * most as usize];
        let mut count = most;
        // SAFETY: positions, keys and values have room for what the kernel writes of `count` entries.
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

    /// The pointer that the kernel reads the key from; kinds without keys (queue, stack) want a null one.
    fn key(&self, key: &[u8]) -> Result<*const c_void, Errno> {
        match key.len() {
            len if len != self.key_len => Err(Errno::EINVAL),
            0 => Ok(ptr::null()),
            _ => Ok(key.as_ptr().cast()),
        }
    }
}
