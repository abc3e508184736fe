//! Test runs: runs a program once on a packet that the caller provides.

use std::os::fd::AsFd;

use ks_compiler::object::table::ProgramType;

use super::error::BpfError;
use super::program::{LoadedType, Program};
use super::sys;

/// Size of the shortest packet in bytes: an Ethernet header (ETH_HLEN).
pub const MIN_PACKET_BYTES: u32 = 14;
/// Size of the longest packet in bytes. Guards the host's memory; the kernel accepts about a page.
pub const MAX_PACKET_BYTES: u32 = 1 << 16;

/// The packet of a test run, and its pretended origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestInput {
    /// First bytes of the packet.
    pub data: Vec<u8>,
    /// Size of the whole packet in bytes; the rest is zero.
    pub packet_size: u32,
    /// Index of the interface that the packet pretends to come from; 0 for none.
    pub ingress_ifindex: u32,
    /// The socket buffer's mark (`skb->mark`).
    pub mark: u32,
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
            call: "if_indextoname",
            errno,
        })
    }
}

impl Program<'_> {
    /// Runs the program on a packet and returns the program's result.
    ///
    /// # Errors
    /// [`BpfError::PacketSize`]; [`BpfError::Kernel`]: EINVAL if programs of this type cannot be test-run,
    /// the interface does not exist or the packet is too long, ENODEV.
    pub fn test_run(&self, input: &TestInput) -> Result<u32, BpfError> {
        let size = input.packet_size;
        if !(MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&size) {
            return Err(BpfError::PacketSize { program: self.name(), size });
        }
        let mut packet = input.data.clone();
        packet.resize(size as usize, 0);
        let context = context(self.kind(), input);
        sys::test_run(self.inner.as_fd(), &packet, &context).map_err(|errno| BpfError::Kernel {
            tried: format!("test-run program `{}` on {size} bytes", self.name()),
            call: "bpf(BPF_PROG_TEST_RUN)",
            errno,
        })
    }
}

/// Encodes the first members of the context that the kernel accepts for a test run; empty if all are default.
///
/// Source: `struct xdp_md` and `struct __sk_buff` of `include/uapi/linux/bpf.h`; later members are zero.
fn context(kind: LoadedType, input: &TestInput) -> Vec<u8> {
    let (members, used) = match kind {
        // data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
        LoadedType::Known(ProgramType::Xdp) => {
            (vec![0, input.packet_size, 0, input.ingress_ifindex, 0, 0], input.ingress_ifindex != 0)
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
