//! Test runs: runs a program on a packet or on arguments that the caller provides.

use ks_compiler::object::table::ProgramType;

use super::cursor::is_unsupported;
use super::error::BpfError;
use super::program::{LoadedType, Program};
use super::sys;

/// Size of the shortest packet in bytes: an Ethernet header (ETH_HLEN).
pub const MIN_PACKET_BYTES: u32 = 14;
/// Size of the longest packet in bytes. Guards the host's memory; the kernel accepts about a page.
pub const MAX_PACKET_BYTES: u32 = 1 << 16;

/// Size in bytes of a packet whose size is not given: what an Ethernet frame carries (ETH_DATA_LEN).
const USUAL_PACKET_BYTES: u32 = 1500;
/// Upper limit of repetitions of one test run.
pub const MAX_REPEAT: u32 = 10_000;
/// Upper limit of a raw tracepoint's arguments (MAX_BPF_FUNC_ARGS).
pub const MAX_ARGUMENTS: usize = 12;

/// The packet of a test run, and its pretended origin; the arguments of a raw tracepoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestInput {
    /// First bytes of the packet.
    pub data: Vec<u8>,
    /// Size of the whole packet in bytes; the rest is zero. None for the usual size.
    pub packet_size: Option<u32>,
    /// Index of the interface that the packet pretends to come from; 0 for none.
    pub ingress_ifindex: u32,
    /// The socket buffer's mark (`skb->mark`).
    pub mark: u32,
    /// Number of runs.
    pub repeat: u32,
    /// Arguments of a raw tracepoint.
    pub arguments: Vec<u64>,
}

impl Default for TestInput {
    fn default() -> TestInput {
        TestInput {
            data: Vec::new(),
            packet_size: None,
            ingress_ifindex: 0,
            mark: 0,
            repeat: 1,
            arguments: Vec::new(),
        }
    }
}

/// The result of a test run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestOutput {
    /// Return value of the last run.
    pub return_value: u32,
    /// The packet after the last run; empty for programs without packets.
    pub data: Vec<u8>,
    /// Mean duration of a run in nanoseconds.
    pub nanoseconds: u32,
}

impl TestInput {
    /// Returns the name of the interface that the packet pretends to come from; none for index 0.
    ///
    /// # Errors
    /// [`BpfError::Kernel`]: ENXIO if no interface has this index.
    pub fn interface(&self) -> Result<Option<String>, BpfError> {
        let number = self.ingress_ifindex;
        if number == 0 {
            return Ok(None);
        }
        sys::interface_name(number).map(Some).map_err(|errno| BpfError::Kernel {
            tried: format!("find the interface of number {number}"),
            call: "ioctl(SIOCGIFNAME)",
            errno,
        })
    }
}

impl TestInput {
    fn size(&self) -> u32 {
        let given = u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        self.packet_size.unwrap_or_else(|| USUAL_PACKET_BYTES.max(given))
    }
}

impl Program<'_> {
    /// Runs the program on a packet, or on the arguments of a raw tracepoint.
    ///
    /// # Errors
    /// [`BpfError::PacketSize`]; [`BpfError::TestRun`]; [`BpfError::NoTestRun`]; [`BpfError::Kernel`]: EINVAL if
    /// the interface does not exist or the packet is too long, ENODEV.
    pub fn test_run(&self, input: &TestInput) -> Result<TestOutput, BpfError> {
        if !(1..=MAX_REPEAT).contains(&input.repeat) || input.arguments.len() > MAX_ARGUMENTS {
            return Err(BpfError::TestRun { program: self.name() });
        }
        let run = match self.kind() {
            LoadedType::Known(ProgramType::RawTracepoint) => {
                let context = input.arguments.iter().flat_map(|one| one.to_le_bytes()).collect();
                // The kernel runs it once: it refuses repetitions and packets.
                sys::TestRun { packet: Vec::new(), context, repeat: 0 }
            }
            // The kernel calls functions of its own for these, with arguments of its own.
            kind @ LoadedType::Known(ProgramType::Tracing | ProgramType::Lsm) => {
                return Err(BpfError::NoTestRun { program: self.name(), kind });
            }
            kind => {
                let size = input.size();
                if !(MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&size) {
                    return Err(BpfError::PacketSize { program: self.name(), size });
                }
                let mut packet = input.data.clone();
                packet.resize(size as usize, 0);
                sys::TestRun { packet, context: context(kind, input, size), repeat: input.repeat }
            }
        };
        sys::test_run(self.descriptor(), &run).map_err(|errno| {
            if is_unsupported(errno) {
                return BpfError::NoTestRun { program: self.name(), kind: self.kind() };
            }
            let tried = match run.packet.len() {
                0 => format!("test-run program `{}`", self.name()),
                size => format!("test-run program `{}` on {size} bytes", self.name()),
            };
            BpfError::Kernel { tried, call: "bpf(BPF_PROG_TEST_RUN)", errno }
        })
    }
}

/// Encodes the first members of the context that the kernel accepts for a test run; empty if all are default.
///
/// Source: `struct xdp_md` and `struct __sk_buff` of `include/uapi/linux/bpf.h`; later members are zero.
fn context(kind: LoadedType, input: &TestInput, size: u32) -> Vec<u8> {
    let (members, used) = match kind {
        // data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        LoadedType::Known(ProgramType::Xdp) => {
            (vec![0, size, 0, input.ingress_ifindex, 0, 0], input.ingress_ifindex != 0)
        }
        // len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority,
        // ingress_ifindex.
        _ => (
            vec![0, 0, input.mark, 0, 0, 0, 0, 0, 0, input.ingress_ifindex],
            input.mark != 0 || input.ingress_ifindex != 0,
        ),
    };
    if used { members.into_iter().flat_map(u32::to_le_bytes).collect() } else { Vec::new() }
}
