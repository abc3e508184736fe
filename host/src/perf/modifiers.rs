//! Modifiers after an event in `perf list`'s spelling: `cache-misses:u`, `cpu/event=0x3c/pp`.
//!
//! Source: perf-list(1), "EVENT MODIFIERS".

use super::attr::Options;
use super::event::InvalidEvent;

/// The effect of modifiers, applied on top of the options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Modifiers {
    exclude_user: bool,
    exclude_kernel: bool,
    exclude_hv: bool,
    exclude_host: bool,
    exclude_guest: bool,
    exclude_idle: bool,
    precise: u32,
    pinned: bool,
    exclusive: bool,
    weak: bool,
}

impl Modifiers {
    /// Parses modifier letters.
    ///
    /// `u`, `k`, `h` select user code, kernel and hypervisor, and exclude those of the three that are not
    /// named; `G`, `H` likewise select virtual machines and the host. `I` is `exclude_idle`, each `p` one
    /// step of `precise`, `D` `pinned`, `e` `exclusive`, `W` `weak`.
    pub(super) fn parse(letters: &str) -> Result<Modifiers, InvalidEvent> {
        let has = |letter| letters.contains(letter);
        let unknown = letters.chars().find(|letter| !"ukhGHIpDeW".contains(*letter));
        if let Some(letter) = unknown {
            return Err(InvalidEvent::Modifier { letter, letters: letters.to_owned() });
        }
        let levels = has('u') || has('k') || has('h');
        let machines = has('G') || has('H');
        let precise = letters.matches('p').count() as u32;
        if precise > 3 {
            return Err(InvalidEvent::Modifier { letter: 'p', letters: letters.to_owned() });
        }
        Ok(Modifiers {
            exclude_user: levels && !has('u'),
            exclude_kernel: levels && !has('k'),
            exclude_hv: levels && !has('h'),
            exclude_host: machines && !has('H'),
            exclude_guest: machines && !has('G'),
            exclude_idle: has('I'),
            precise,
            pinned: has('D'),
            exclusive: has('e'),
            weak: has('W'),
        })
    }

    /// Returns the options with the modifiers applied.
    pub(super) fn apply(self, options: &Options) -> Options {
        let mut options = options.clone();
        options.exclude_user |= self.exclude_user;
        options.exclude_kernel |= self.exclude_kernel;
        options.exclude_hv |= self.exclude_hv;
        options.exclude_host |= self.exclude_host;
        options.exclude_guest |= self.exclude_guest;
        options.exclude_idle |= self.exclude_idle;
        options.precise = options.precise.max(self.precise);
        options.pinned |= self.pinned;
        options.exclusive |= self.exclusive;
        options.weak |= self.weak;
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(letters: &str) -> Options {
        Modifiers::parse(letters).unwrap().apply(&Options::default())
    }

    #[test]
    fn levels_leave_out_what_they_do_not_name() {
        let user = applied("u");
        assert_eq!((user.exclude_user, user.exclude_kernel, user.exclude_hv), (false, true, true));
        let both = applied("uk");
        assert_eq!((both.exclude_user, both.exclude_kernel, both.exclude_hv), (false, false, true));
        let guest = applied("G");
        assert_eq!((guest.exclude_host, guest.exclude_guest, guest.exclude_user), (true, false, false));
        let rest = applied("ppIDeW");
        assert_eq!((rest.precise, rest.exclude_idle, rest.pinned), (2, true, true));
        assert!(rest.exclusive && rest.weak);
        assert_eq!(applied(""), Options::default());
    }

    #[test]
    fn modifiers_keep_requested_options() {
        let options = Options { exclude_user: true, precise: 3, ..Options::default() };
        let both = Modifiers::parse("up").unwrap().apply(&options);
        assert!(both.exclude_user && both.exclude_kernel);
        assert_eq!(both.precise, 3);
    }

    #[test]
    fn other_letters_are_refused() {
        for letters in ["z", "uS", "pppp", "u k"] {
            assert!(Modifiers::parse(letters).is_err(), "{letters}");
        }
    }
}
