//! Attaching programs to network interfaces: xdp, tc, socket filters.

use std::ffi::CString;
use std::num::{NonZeroU16, NonZeroU32};
use std::os::fd::AsFd;

use nix::errno::Errno;

use super::super::error::{BpfError, PACKET_SOCKET};
use super::super::link::Link;
use super::super::program::Program;
use super::super::sys;
use super::clsact::{Filter, Side};

/// Where an xdp program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, or in generic mode if the driver cannot.
    Best,
    /// In the kernel's own code, on every kind of interface.
    #[doc(alias = "XDP_FLAGS_SKB_MODE")]
    Generic,
    /// In the driver.
    #[doc(alias = "XDP_FLAGS_DRV_MODE")]
    Native,
    /// On the device.
    #[doc(alias = "XDP_FLAGS_HW_MODE")]
    Offloaded,
}

impl XdpMode {
    /// Source: include/uapi/linux/if_link.h, v6.12.
    fn flags(self) -> u32 {
        match self {
            XdpMode::Best => 0,
            XdpMode::Generic => 2,
            XdpMode::Native => 4,
            XdpMode::Offloaded => 8,
        }
    }
}

/// A network interface, found once: what a policy was asked about is what a program is attached to, whatever
/// is renamed meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The name or index as it was given, for messages.
    target: String,
    /// The index, which stays as long as the interface.
    number: i32,
    /// The kernel's primary name at the time of the search.
    name: String,
}

impl Interface {
    /// Returns the kernel's primary name, by which policies know the interface.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Size in bytes of an interface name with its terminating zero. Source: include/uapi/linux/if.h, `IFNAMSIZ`,
/// v6.12.
const NAME_BYTES: usize = 16;

/// The order of a tc filter among those of an interface. None lets the kernel or this host choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterOrder {
    /// The priority: of two filters, the one with the lower number runs first. Not 0.
    pub priority: Option<NonZeroU16>,
    /// The handle, unique within the priority. Not 0.
    pub handle: Option<NonZeroU32>,
}

/// Programs that an interface takes at a side. Source: include/linux/bpf_mprog.h, `bpf_mprog_max`, v6.18.
const MOST_PROGRAMS: u32 = 63;

const INTERFACE: &str = "the name of a network interface, or its number";

impl Program<'_> {
    /// Attaches an xdp program to an interface.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Occupied`]; [`BpfError::XdpMode`]; [`BpfError::Kernel`].
    pub fn attach_xdp(&self, interface: &Interface, mode: XdpMode) -> Result<Link, BpfError> {
        let Interface { number, target, .. } = interface;
        let linked = match self.create_link(*number, mode.flags(), 0) {
            // The driver supports xdp, but not with this program or these settings.
            Err(Errno::EOPNOTSUPP | Errno::EINVAL | Errno::ERANGE) if mode == XdpMode::Best => {
                self.create_link(*number, XdpMode::Generic.flags(), 0)
            }
            linked => linked,
        };
        linked.map_err(|errno| {
            let refused = self.not_linked(&format!("the interface `{target}`"), errno);
            match (refused, self.occupants) {
                // EEXIST: a program in driver mode blocks one in generic mode.
                (
                    BpfError::Kernel { tried, call, errno: errno @ (Errno::EBUSY | Errno::EEXIST) },
                    Some(finder),
                ) => match finder.find(*number) {
                    Some(occupant) => {
                        let (interface, occupant) = (target.clone(), Box::new(occupant));
                        BpfError::Occupied { tried, call, errno, interface, occupant }
                    }
                    None => BpfError::Kernel { tried, call, errno },
                },
                (BpfError::Kernel { tried, call, errno: errno @ Errno::EOPNOTSUPP }, _)
                    if matches!(mode, XdpMode::Native | XdpMode::Offloaded) =>
                {
                    BpfError::XdpMode { tried, call, errno }
                }
                (refused, _) => refused,
            }
        })
    }

    /// Attaches a tc program to an interface, before the existing programs: by a tcx link (Linux 6.6), else
    /// by a clsact filter. A filter with an order of its own is always one of clsact.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Crowded`]; [`BpfError::Kernel`].
    pub fn attach_tc(&self, interface: &Interface, order: FilterOrder) -> Result<Link, BpfError> {
        let number = interface.number;
        let target_text = format!("the interface `{}`", interface.target);
        // EINVAL is the answer of kernels without such links.
        let linked =
            if order == FilterOrder::default() { self.create_link(number, 0, 0) } else { Err(Errno::EINVAL) };
        match (linked, self.supervisor) {
            (Ok(link), _) => Ok(link),
            (Err(Errno::EINVAL), Some(supervisor)) => {
                let is_egress = self.attach_type() == libbpf_sys::BPF_TCX_EGRESS;
                let side = if is_egress { Side::Egress } else { Side::Ingress };
                let filter = Filter::attach(self.descriptor(), number, side, order, supervisor);
                filter.map(Link::of_filter).map_err(|errno| {
                    self.kernel(
                        &format!("attach to {target_text}"),
                        "rtnetlink(RTM_NEWQDISC, RTM_NEWTFILTER)",
                        errno,
                    )
                })
            }
            (Err(Errno::ERANGE), _) => Err(self.crowded(&target_text, MOST_PROGRAMS, Errno::ERANGE)),
            (Err(errno), _) => Err(self.not_linked(&target_text, errno)),
        }
    }

    /// Runs a socket filter on every packet of an interface, by attaching it to a packet socket that nobody
    /// reads.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Kernel`].
    ///
    /// Source: packet(7), socket(7) (SO_ATTACH_BPF).
    pub fn attach_socket_filter(&self, interface: &Interface) -> Result<Link, BpfError> {
        let tried = format!("attach to the interface `{}`", interface.target);
        let refused = |call, errno| self.kernel(&tried, call, errno);
        let socket = sys::packet_socket().map_err(|errno| refused(PACKET_SOCKET, errno))?;
        // Attached before the socket is bound, so that the filter misses no packet.
        sys::attach_filter(socket.as_fd(), self.descriptor())
            .map_err(|errno| refused("setsockopt(SO_ATTACH_BPF)", errno))?;
        sys::bind_to_interface(socket.as_fd(), interface.number)
            .map_err(|errno| refused("bind(AF_PACKET)", errno))?;
        Ok(Link::new(socket))
    }

    /// Finds an interface of this process's network namespace by its name, alternative name or index.
    ///
    /// # Errors
    /// [`BpfError::Target`]; [`BpfError::Kernel`]: ENODEV or ENXIO if there is none.
    pub fn find_interface(&self, target: &str) -> Result<Interface, BpfError> {
        let not_found = |call, errno| self.kernel(&format!("find the interface `{target}`"), call, errno);
        let number = match target.parse::<i32>() {
            Ok(number) if number > 0 => number,
            _ => {
                let name =
                    CString::new(target).ok().filter(|name| !name.is_empty() && target.len() < NAME_BYTES);
                let name = name.ok_or_else(|| self.target(target, INTERFACE))?;
                sys::interface_number(&name).map_err(|errno| not_found("ioctl(SIOCGIFINDEX)", errno))?
            }
        };
        let name = sys::interface_name(number.cast_unsigned());
        let name = name.map_err(|errno| not_found("if_indextoname", errno))?;
        Ok(Interface { target: target.to_owned(), number, name })
    }
}
