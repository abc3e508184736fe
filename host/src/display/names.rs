//! Names of the kernel's numbers. A number without a name is shown in decimal.

use ks_wit::section::Arch;
use ks_wit::system_call;
use nix::errno::Errno;
use nix::sys::signal::Signal;

/// Errnos that the kernel keeps to itself, which its own functions return.
///
/// Source: include/linux/errno.h, v6.18.
const OF_KERNEL: [(i32, &str); 19] = [
    (512, "ERESTARTSYS"),
    (513, "ERESTARTNOINTR"),
    (514, "ERESTARTNOHAND"),
    (515, "ENOIOCTLCMD"),
    (516, "ERESTART_RESTARTBLOCK"),
    (517, "EPROBE_DEFER"),
    (518, "EOPENSTALE"),
    (519, "ENOPARAM"),
    (521, "EBADHANDLE"),
    (522, "ENOTSYNC"),
    (523, "EBADCOOKIE"),
    (524, "ENOTSUPP"),
    (525, "ETOOSMALL"),
    (526, "ESERVERFAULT"),
    (527, "EBADTYPE"),
    (528, "EJUKEBOX"),
    (529, "EIOCBQUEUED"),
    (530, "ERECALLCONFLICT"),
    (531, "ENOGRACE"),
];

/// The first and the last signal for applications: the C library keeps 32 and 33 for itself.
const FOR_APPLICATIONS: std::ops::RangeInclusive<i32> = 34..=64;

/// Formats the number of a system call of this machine.
pub(crate) fn system_call(number: i64) -> String {
    let name = Arch::HOST.and_then(|arch| system_call::name(arch, number));
    name.map_or_else(|| number.to_string(), str::to_owned)
}

/// Formats an errno, also a negative one.
pub(crate) fn errno(number: i64) -> String {
    let found = i32::try_from(number.unsigned_abs()).ok().filter(|raw| *raw != 0).and_then(|raw| {
        let of_kernel = OF_KERNEL.iter().find(|(own, _)| *own == raw).map(|(_, name)| (*name).to_owned());
        of_kernel.or_else(|| match Errno::from_raw(raw) {
            Errno::UnknownErrno => None,
            known => Some(format!("{known:?}")),
        })
    });
    found.unwrap_or_else(|| number.to_string())
}

/// Formats the number of a signal.
pub(crate) fn signal(number: i64) -> String {
    let found = i32::try_from(number).ok().and_then(|raw| match Signal::try_from(raw) {
        Ok(signal) => Some(signal.as_str().to_owned()),
        Err(_) if !FOR_APPLICATIONS.contains(&raw) => None,
        Err(_) if raw == *FOR_APPLICATIONS.start() => Some("SIGRTMIN".to_owned()),
        Err(_) => Some(format!("SIGRTMIN+{}", raw - FOR_APPLICATIONS.start())),
    });
    found.unwrap_or_else(|| number.to_string())
}

/// Formats the number of a capability.
pub(crate) fn capability(number: i64) -> String {
    let all = caps::all();
    let found = all.iter().find(|capability| i64::from(capability.index()) == number);
    found.map_or_else(|| number.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn numbers_have_names() {
        assert_eq!(
            [2, -2, 11, 110, -512, 524, 131].map(errno),
            ["ENOENT", "ENOENT", "EAGAIN", "ETIMEDOUT", "ERESTARTSYS", "ENOTSUPP", "ENOTRECOVERABLE"]
        );
        assert_eq!(
            [9, 17, 34, 35, 64].map(signal),
            ["SIGKILL", "SIGCHLD", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+30"]
        );
        assert_eq!(
            [0, 12, 21, 40].map(capability),
            ["CAP_CHOWN", "CAP_NET_ADMIN", "CAP_SYS_ADMIN", "CAP_CHECKPOINT_RESTORE"]
        );
    }

    #[test]
    fn a_number_without_a_name_is_shown_as_it_is() {
        assert_eq!(
            [0, 41, 520, -4095, i64::MIN].map(errno),
            ["0", "41", "520", "-4095", "-9223372036854775808"]
        );
        assert_eq!(
            [0, -1, 32, 33, 65, i64::MAX].map(signal),
            ["0", "-1", "32", "33", "65", "9223372036854775807"]
        );
        assert_eq!([-1, 41, 64].map(capability), ["-1", "41", "64"]);
        assert_eq!([-1, 5000].map(system_call), ["-1", "5000"]);
    }

    /// Returns the macros of a header with numbers as values, as the C compiler of this machine has them.
    fn macros(header: &str, prefix: &str) -> Vec<(String, i64)> {
        let source = format!("echo '#include <{header}>' | cc -E -dM -");
        let output = Command::new("sh").args(["-c", &source]).output().expect("a shell");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).expect("text");
        let number = |line: &str| {
            let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
            Some((name.strip_prefix(prefix)?.to_owned(), value.trim().parse().ok()?))
        };
        text.lines().filter_map(number).collect()
    }

    #[test]
    fn names_are_those_of_the_headers() {
        let errnos = macros("linux/errno.h", "E");
        assert!(errnos.len() > 130, "{}", errnos.len());
        for (name, number) in errnos {
            assert_eq!(errno(number), format!("E{name}"));
        }
        let signals: Vec<(String, i64)> = macros("linux/signal.h", "SIG")
            .into_iter()
            .filter(|(name, number)| *number < 32 && !name.contains('_') && name != "UNUSED" && name != "IOT")
            .collect();
        assert!(signals.len() > 28, "{signals:?}");
        for (name, number) in signals {
            assert_eq!(signal(number), format!("SIG{name}"));
        }
        let capabilities = macros("linux/capability.h", "CAP_");
        assert!(capabilities.len() > 38, "{capabilities:?}");
        for (name, number) in capabilities {
            assert_eq!(capability(number), format!("CAP_{name}"));
        }
        let calls = macros("asm/unistd.h", "__NR_");
        assert!(calls.len() > 250, "{}", calls.len());
        for (name, number) in calls {
            assert_eq!(system_call(number), name);
        }
    }
}
