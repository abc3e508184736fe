//! rtnetlink messages for qdiscs and filters. Nothing here allocates: the code also runs in a process that
//! was forked while other threads ran.
//!
//! Source: rtnetlink(7), include/uapi/linux/rtnetlink.h, include/uapi/linux/pkt_cls.h, net/sched/cls_bpf.c,
//! v6.1.

use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use super::{AttachPoint, Side};

/// Handle of the qdisc and of its parent. Source: include/uapi/linux/pkt_sched.h, `TC_H_CLSACT`, v6.1.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;
/// The parents of the qdisc's filters: `TC_H_MIN_INGRESS`, `TC_H_MIN_EGRESS`.
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
/// All protocols (`ETH_P_ALL`) in network byte order, the lower half of `tcm_info`; the upper is the priority.
const PROTOCOLS: u32 = (libc::ETH_P_ALL as u16).to_be() as u32;

const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_ID: u16 = 11;
/// Name of the filters of this host, zero-terminated.
const NAME: &[u8] = b"ks-host\0";
/// The program's result is the tc action.
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;

const REQUEST: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
const CREATE: u16 = REQUEST | (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
const DUMP: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;

/// Sizes of `struct nlmsghdr` and `struct tcmsg` in bytes.
const HEADER: usize = 16;
const TC_MESSAGE: usize = 20;
/// Buffer sizes in bytes, for the largest request here and for one read of an answer.
const REQUEST_BYTES: usize = 128;
const ANSWER_BYTES: usize = 16 << 10;

pub(super) fn add_qdisc(interface: i32) -> Result<(), Errno> {
    let mut message = Message::new(libc::RTM_NEWQDISC, CREATE, interface, CLSACT_HANDLE, CLSACT, 0);
    message.attribute(TCA_KIND, b"clsact\0");
    message.done()
}

pub(super) fn delete_qdisc(interface: i32) -> Result<(), Errno> {
    let mut message = Message::new(libc::RTM_DELQDISC, REQUEST, interface, CLSACT_HANDLE, CLSACT, 0);
    message.attribute(TCA_KIND, b"clsact\0");
    message.done()
}

pub(super) fn add_filter(attach_point: &AttachPoint, program: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut message = Message::filter(libc::RTM_NEWTFILTER, CREATE, attach_point);
    message.attribute(TCA_KIND, b"bpf\0");
    let options = message.begin(TCA_OPTIONS);
    message.attribute(TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes());
    message.attribute(TCA_BPF_NAME, NAME);
    message.attribute(TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes());
    message.end(options);
    message.done()
}

pub(super) fn delete_filter(attach_point: &AttachPoint) -> Result<(), Errno> {
    let mut message = Message::filter(libc::RTM_DELTFILTER, REQUEST, attach_point);
    message.attribute(TCA_KIND, b"bpf\0");
    message.done()
}

/// Returns whether there is a filter with this priority, handle and program.
pub(super) fn is_there(attach_point: &AttachPoint) -> Result<bool, Errno> {
    let parent = if attach_point.side == Side::Ingress { INGRESS } else { EGRESS };
    let message = Message::new(libc::RTM_GETTFILTER, DUMP, attach_point.interface, 0, parent, 0);
    let word = |body: &[u8], at: usize| {
        body.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let mut found = false;
    message.exchange(|kind, body| {
        let program = body
            .get(TC_MESSAGE..)
            .and_then(|attributes| content(attributes, TCA_OPTIONS))
            .and_then(|options| content(options, TCA_BPF_ID))
            .map_or(0, |id| word(id, 0));
        found |= kind == libc::RTM_NEWTFILTER
            && word(body, 8) == attach_point.handle
            && word(body, 16) >> 16 == u32::from(attach_point.priority)
            && program == attach_point.program;
    })?;
    Ok(found)
}

/// Returns the content of the first attribute of this kind.
fn content(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    let mut rest = attributes;
    loop {
        let len = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
        let found = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
        let content = rest.get(4..len)?;
        // The upper bits say that an attribute is nested, or in network byte order (NLA_TYPE_MASK).
        if found & 0x3fff == kind {
            return Some(content);
        }
        rest = rest.get(len.next_multiple_of(4)..)?;
    }
}

/// Owners of the filters at an interface's clsact qdisc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filters {
    /// The qdisc has no filters.
    None,
    /// All filters belong to this host or to other instances of it.
    Ours,
    /// At least one filter belongs to another tool.
    Others,
}

pub(super) fn filters(interface: i32) -> Result<Filters, Errno> {
    let mut found = Filters::None;
    for parent in [INGRESS, EGRESS] {
        let message = Message::new(libc::RTM_GETTFILTER, DUMP, interface, 0, parent, 0);
        message.exchange(|kind, body| {
            // An entry without a handle stands for a whole priority; the entries of its filters follow.
            if kind != libc::RTM_NEWTFILTER || body.get(8..12) == Some(&[0; 4]) {
                return;
            }
            let is_ours = body.windows(NAME.len()).any(|bytes| bytes == NAME);
            if !is_ours {
                found = Filters::Others;
            } else if found == Filters::None {
                found = Filters::Ours;
            }
        })?;
    }
    Ok(found)
}

/// A request under construction.
struct Message {
    bytes: [u8; REQUEST_BYTES],
    len: usize,
}

impl Message {
    fn new(kind: u16, flags: u16, interface: i32, handle: u32, parent: u32, info: u32) -> Message {
        let mut message = Message { bytes: [0; REQUEST_BYTES], len: HEADER + TC_MESSAGE };
        message.put(4, &kind.to_ne_bytes());
        message.put(6, &flags.to_ne_bytes());
        message.put(HEADER + 4, &interface.to_ne_bytes());
        message.put(HEADER + 8, &handle.to_ne_bytes());
        message.put(HEADER + 12, &parent.to_ne_bytes());
        message.put(HEADER + 16, &info.to_ne_bytes());
        message
    }

    fn filter(kind: u16, flags: u16, attach_point: &AttachPoint) -> Message {
        let parent = if attach_point.side == Side::Ingress { INGRESS } else { EGRESS };
        let info = u32::from(attach_point.priority) << 16 | PROTOCOLS;
        Message::new(kind, flags, attach_point.interface, attach_point.handle, parent, info)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn attribute(&mut self, kind: u16, content: &[u8]) {
        let start = self.begin(kind);
        self.put(self.len, content);
        self.len += content.len();
        self.end(start);
    }

    /// Appends the header of an attribute; `end` fills in its length.
    fn begin(&mut self, kind: u16) -> usize {
        let start = self.len;
        self.put(start + 2, &kind.to_ne_bytes());
        self.len += 4;
        start
    }

    fn end(&mut self, start: usize) {
        let len = (self.len - start) as u16;
        self.put(start, &len.to_ne_bytes());
        self.len = self.len.next_multiple_of(4);
    }

    fn done(self) -> Result<(), Errno> {
        self.exchange(|_, _| {})
    }

    /// Sends the request and reads the answer to its end. Calls `seen` with the type and body of each message
    /// but the last.
    fn exchange(mut self, mut seen: impl FnMut(u16, &[u8])) -> Result<(), Errno> {
        self.put(0, &(self.len as u32).to_ne_bytes());
        let flags = SockFlag::SOCK_CLOEXEC;
        let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
        send(socket.as_raw_fd(), &self.bytes[..self.len], MsgFlags::empty())?;
        let mut answer = [0; ANSWER_BYTES];
        loop {
            let len = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
            let mut rest = answer.get(..len).unwrap_or_default();
            while let Some((kind, body, tail)) = split(rest) {
                match i32::from(kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => {
                        let errno =
                            body.first_chunk().map_or(-libc::EPROTO, |bytes| i32::from_ne_bytes(*bytes));
                        return if errno == 0 {
                            Ok(())
                        } else {
                            Err(Errno::from_raw(errno.saturating_neg()))
                        };
                    }
                    _ => seen(kind, body),
                }
                rest = tail;
            }
        }
    }
}

/// Splits off the first message of an answer: its type, the body after its header, and the rest.
fn split(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}
