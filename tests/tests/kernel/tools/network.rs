//! Tools that show TCP connections and sockets.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use super::{RunningTool, histogram, rows};

/// A connection that was opened, used and closed.
pub(super) struct Connection {
    /// Both addresses as tools show them.
    address: &'static str,
    /// The ports.
    pub server: String,
    pub client: String,
}

const SENT: usize = 1000;
const ANSWERED: usize = 70;

/// Opens a connection of each family, sends, answers, and closes the client first: the server closes when it has read
/// the end.
pub(super) fn connections() -> Vec<Connection> {
    ["127.0.0.1:0", "[::1]:0"]
        .into_iter()
        .map(|bound| {
            let listener = TcpListener::bind(bound).expect("loopback is up");
            let at = listener.local_addr().expect("it is bound");
            let mut client = TcpStream::connect(at).expect("it listens");
            let from = client.local_addr().expect("it is connected");
            let (mut server, _) = listener.accept().expect("it is connected");
            client.write_all(&[1; SENT]).expect("it is connected");
            server.read_exact(&mut [0; SENT]).expect("they come");
            server.write_all(&[2; ANSWERED]).expect("it is connected");
            client.read_exact(&mut [0; ANSWERED]).expect("they come");
            drop(client);
            assert_eq!(server.read(&mut [0]).expect("the end comes"), 0);
            drop(server);
            let address = if at.is_ipv4() { "::ffff:127.0.0.1" } else { "::1" };
            Connection { address, server: at.port().to_string(), client: from.port().to_string() }
        })
        .collect()
}

#[test]
fn root_tcpstates_shows_both_families() {
    let beside = RunningTool::begin("tcpstates", &[]);
    let connections = connections();
    let ran = beside.end();
    for Connection { address, server, client } in &connections {
        // Addresses and ports of both ends stand before the states and the time.
        let states = |local: &str, remote_address: &str, remote: &str| {
            let ends = [*address, local, remote_address, remote];
            let rows = ran.stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let of = rows.filter(|row| row.len() > 7 && row[row.len() - 7..row.len() - 3] == ends);
            of.map(|row| row[row.len() - 2].to_owned()).collect::<Vec<_>>()
        };
        let nobody = if *address == "::1" { "::" } else { "::ffff:0.0.0.0" };
        assert_eq!(states(server, nobody, "0")[0], "LISTEN", "{ran:#?}");
        assert_eq!(states(client, address, server)[..2], ["ESTABLISHED", "FIN_WAIT1"], "{ran:#?}");
        let expected = ["SYN_RECV", "ESTABLISHED", "CLOSE_WAIT", "LAST_ACK", "CLOSE"];
        assert_eq!(states(server, address, client), expected, "{ran:#?}");
    }
}

#[test]
fn root_tcpconnect_tcpaccept_and_bindsnoop_show_both_ends() {
    let me = std::process::id().to_string();
    let [connects, accepts, binds] =
        ["tcpconnect", "tcpaccept", "bindsnoop"].map(|tool| RunningTool::begin(tool, &["--pid", &me]));
    let connections = connections();
    let [connects, accepts, binds] = [connects, accepts, binds].map(RunningTool::end);
    for Connection { address, server, client } in &connections {
        // A listener's address is the wildcard's, or its own; IPv4 of a socket of its own is plain.
        let plain = address.trim_start_matches("::ffff:");
        let ends_with = |ran, text: &str, ends: &[&str]| {
            rows(ran, text).iter().filter(|row| row[0] == me && row.ends_with(ends)).count()
        };
        assert_eq!(ends_with(&connects, server, &[address, address, server]), 1, "{connects:#?}");
        assert_eq!(ends_with(&accepts, server, &[plain, client, plain, server]), 1, "{accepts:#?}");
        assert_eq!(ends_with(&binds, server, &[plain, server, "0"]), 1, "{binds:#?}");
    }
}

#[test]
fn root_tcplife_counts_the_bytes_of_both_ends() {
    let beside = RunningTool::begin("tcplife", &[]);
    let connections = connections();
    let ran = beside.end();
    for Connection { address, server, client } in &connections {
        let row = |local: &str, remote: &str| {
            let ends = [*address, local, *address, remote];
            let found = rows(&ran, address)
                .into_iter()
                .find(|row| row.len() > 7 && row[row.len() - 7..][..4] == ends);
            let row = found.unwrap_or_else(|| panic!("{ran:#?}"));
            row[row.len() - 3..].iter().map(|word| word.parse().expect("a number")).collect::<Vec<usize>>()
        };
        let (ours, theirs) = (row(client, server), row(server, client));
        assert_eq!(ours[..2], [SENT, ANSWERED], "{ran:#?}");
        assert_eq!(theirs[..2], [ANSWERED, SENT], "{ran:#?}");
        assert!(ours[2] > 0 && theirs[2] > 0, "{ran:#?}");
    }
}

#[test]
fn root_tcptop_and_tcprtt_count_what_is_sent() {
    let me = std::process::id().to_string();
    let (bytes, times) = (RunningTool::begin("tcptop", &["--pid", &me]), RunningTool::begin("tcprtt", &[]));
    let connections = connections();
    let (bytes, times) = (bytes.end(), times.end());
    for Connection { address, server, client } in &connections {
        let plain = address.trim_start_matches("::ffff:");
        let row = |local: &str, remote: &str| {
            let ends = [local, plain, remote];
            let found = rows(&bytes, plain)
                .into_iter()
                .find(|row| row.len() > 6 && row[row.len() - 5..][..3] == ends);
            let row = found.unwrap_or_else(|| panic!("{bytes:#?}"));
            row[row.len() - 2..].iter().map(|word| word.parse().expect("a number")).collect::<Vec<usize>>()
        };
        assert_eq!(row(client, server), [SENT, ANSWERED], "{bytes:#?}");
        assert_eq!(row(server, client), [ANSWERED, SENT], "{bytes:#?}");
    }
    let (count, sum) = histogram(&times, "us ");
    // Each end of each connection got data.
    assert!(count >= 4 && sum > 0, "{times:#?}");
}

#[test]
fn root_tcpretrans_shows_what_is_sent_again() {
    let beside = RunningTool::begin("tcpretrans", &[]);
    // A listener with a full queue drops the beginnings of more connections, which are sent again after one second and
    // after three.
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("it is there");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("loopback is up");
    socket.listen(0).expect("it is bound");
    let at = socket.local_addr().ok().and_then(|at| at.as_socket()).expect("it is bound");
    let _queued = TcpStream::connect(at).expect("the queue has room for one");
    let refused = TcpStream::connect_timeout(&at, Duration::from_millis(3500));
    assert!(refused.is_err(), "the queue is full");
    let ran = beside.end();
    let port = at.port().to_string();
    let found = rows(&ran, &format!(" {port} "));
    assert!(!found.is_empty() && found.iter().all(|row| row[3..] == ["127.0.0.1", &*port, "2"]), "{ran:#?}");
}
