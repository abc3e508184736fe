//! Programs on packets, run by the kernel on our packets (BPF test runs): their results for valid, truncated
//! and hostile packets are compared with a plain model. These tests need root.

use ks_tests::runs::{Loaded, Run};

/// A random number generator with the same numbers in every run.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Returns a frame of Ethernet, IPv4 or another protocol, UDP or another protocol, with options and lengths
/// that may be wrong.
fn frame(rng: &mut Rng, least: usize) -> Vec<u8> {
    let mut frame: Vec<u8> = (0..14 + 60 + 8 + 64).map(|_| rng.next() as u8).collect();
    let ethertype: u16 = match rng.below(8) {
        0 => 0x86dd,
        1 => 0x8100,
        2 => rng.next() as u16,
        _ => 0x0800,
    };
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
    frame[14] = match rng.below(4) {
        0 => rng.next() as u8,
        1 => 0x40 | rng.below(16) as u8,
        _ => 0x45,
    };
    frame[23] = [17, 6, 1, rng.next() as u8][rng.below(4) as usize];
    let header = usize::from(frame[14] & 15) * 4;
    let port = [53_u16, 9000, rng.next() as u16][rng.below(3) as usize];
    frame[14 + header + 2..14 + header + 4].copy_from_slice(&port.to_be_bytes());
    let len = least + rng.below((frame.len() - least + 1) as u64) as usize;
    frame.truncate(len);
    frame
}

/// A plain model of the scripts below: reads beyond the packet return 0, writes beyond it do nothing.
#[derive(Debug, Default, PartialEq, Eq)]
struct Model {
    /// Numbers of frames: another ethertype, IPv4 with another protocol, UDP, UDP to port 53.
    counts: [u64; 4],
    ports: u64,
    bytes: u64,
    options: u64,
}

impl Model {
    fn byte(frame: &[u8], at: usize) -> u8 {
        frame.get(at).copied().unwrap_or(0)
    }

    fn be16(frame: &[u8], at: usize) -> u16 {
        frame.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Processes a frame, which it may change; returns the action (0 drop, 1 pass).
    fn take(&mut self, frame: &mut [u8]) -> usize {
        self.bytes += frame.len() as u64;
        if Model::be16(frame, 12) != 0x0800 {
            self.counts[0] += 1;
            return 1;
        }
        let ip = 14;
        let header = usize::from(Model::byte(frame, ip) & 15) * 4;
        for at in 20..header {
            self.options += u64::from(Model::byte(frame, ip + at));
        }
        if Model::byte(frame, ip + 9) != 17 {
            self.counts[1] += 1;
            return 1;
        }
        self.counts[2] += 1;
        let port = Model::be16(frame, ip + header + 2);
        self.ports += u64::from(port);
        if let Some(ttl) = frame.get_mut(ip + 8) {
            *ttl = ttl.wrapping_sub(1);
        }
        // The write covers the whole destination address, or does nothing.
        if let Some(address) = frame.get_mut(ip + 16..ip + 20) {
            address.copy_from_slice(&0x0a09_0001_u32.to_be_bytes());
        }
        if port == 53 {
            self.counts[3] += 1;
            return 0;
        }
        1
    }
}

/// The same as a script; KIND, CONTEXT, RESULT, DROP and PASS are filled in.
const SCRIPT: &str = r#"
struct ipv4_header {
    version_and_length: u8,
    service: u8,
    length: u16,
    id: u16,
    fragment: u16,
    ttl: u8,
    protocol: u8,
    checksum: u16,
    source: u32,
    destination: u32,
}

struct udp_header {
    source: u16,
    destination: u16,
    length: u16,
    checksum: u16,
}

var counts : array<u32, u64>(4)
var sums : array<u32, u64>(3)

@helper
fn header_bytes(ip: *ipv4_header) -> u32 {
    return (ip->version_and_length & 15) * 4
}

@helper
fn udp_of(ip: *ipv4_header) -> *udp_header {
    return ((ip as *u8) + header_bytes(ip)) as *udp_header
}

KIND
fn watch(ctx: *CONTEXT) -> RESULT {
    var packet = ctx->data
    sums[1] += ctx->data_end - packet
    var ethertype = (packet + 12) as *u16
    if (ntohs(*ethertype) != 0x0800) {
        counts[0] += 1
        return PASS
    }
    var ip = (packet + 14) as *ipv4_header
    var options : u64 = 0
    for (at in 20..header_bytes(ip)) {
        options += packet[14 + at]
    }
    sums[2] += options
    if (ip->protocol != 17) {
        counts[1] += 1
        return PASS
    }
    counts[2] += 1
    var udp = udp_of(ip)
    var port = ntohs(udp->destination)
    sums[0] += port
    ip->ttl -= 1
    ip->destination = htonl(0x0a090001)
    if (port == 53) {
        counts[3] += 1
        return DROP
    }
    return PASS
}
"#;

/// Number of packets per corpus.
const PACKETS: u32 = 1500;

/// Compares a program kind with the model. `least` is the shortest packet for which the kernel runs the
/// program kind.
fn against_the_model(kind: &str, context: &str, result: &str, actions: [(&str, i32); 2], least: usize) {
    let script = SCRIPT
        .replace("KIND", kind)
        .replace("CONTEXT", context)
        .replace("RESULT", result)
        .replace("DROP", actions[0].0)
        .replace("PASS", actions[1].0);
    let loaded = Loaded::new(&script);
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let mut model = Model::default();
    let mut refused = 0;
    for packet_index in 0..PACKETS {
        let mut packet = frame(&mut rng, least);
        let Some(seen) = loaded.run_in("watch", &packet, &mut []) else {
            // The kernel runs no tc program on a packet shorter than the header of its ethertype.
            assert!((14..54).contains(&packet.len()), "round {packet_index}: {} bytes", packet.len());
            refused += 1;
            continue;
        };
        let action = actions[model.take(&mut packet)].1;
        assert_eq!(seen, Run { result: action, packet }, "round {packet_index}");
    }
    assert_eq!(loaded.entries("counts", 4), model.counts);
    assert_eq!(loaded.entries("sums", 3), [model.ports, model.bytes, model.options]);
    assert!(model.counts.iter().all(|count| *count > 20), "the corpus has everything: {model:?}");
    assert!(refused < PACKETS / 3, "{refused} of {PACKETS} packets were not tried");
}

#[test]
fn root_xdp_agrees_with_a_plain_model() {
    against_the_model("@xdp", "xdp_md", "xdp_action", [("XDP_DROP", 1), ("XDP_PASS", 2)], 14);
}

#[test]
fn root_tc_agrees_with_a_plain_model() {
    against_the_model("@tc(\"ingress\")", "__sk_buff", "i32", [("TC_ACT_SHOT", 2), ("TC_ACT_OK", 0)], 15);
}
