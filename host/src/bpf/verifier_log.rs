//! Analysis of the verifier's log of a rejected program. Pure.

/// The verifier's log at level 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierLog {
    text: String,
}

impl VerifierLog {
    /// Reads the kernel's buffer up to its terminating zero. `None` if the log is empty.
    pub fn from_buffer(buffer: &[u8]) -> Option<VerifierLog> {
        let text = buffer.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = String::from_utf8_lossy(text).trim_end().to_owned();
        (!text.is_empty()).then_some(VerifierLog { text })
    }

    /// Returns the whole log.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the line that states the reason: the last one before the statistics.
    ///
    /// Source: `bpf_check` in `kernel/bpf/verifier.c`, v6.18: the reason is printed where the check fails,
    /// and only `print_verification_stats` comes after it.
    pub fn reason(&self) -> &str {
        self.text
            .lines()
            .rev()
            .map(str::trim)
            .find(|line| !line.is_empty() && !is_statistics(line))
            .unwrap_or_default()
    }

    /// Returns the last source line before the rejection, if the object has line information: `; text @
    /// file:line`.
    pub fn source_line(&self) -> Option<&str> {
        self.text.lines().rev().find_map(|line| line.strip_prefix("; ")).map(str::trim)
    }

    /// Returns the struct member, if the log ends at an instruction that libbpf could not relocate to the
    /// kernel's types: `struct task_struct.se.vlag`.
    ///
    /// Source: libbpf v1.7, `fixup_log_failed_core_relo` and `bpf_core_format_spec`.
    pub fn unfit_member(&self) -> Option<&str> {
        let relocation = self.reason().strip_prefix("failed to resolve CO-RE relocation ")?;
        let (_, member) = relocation.split_once("] ")?;
        Some(member.split_once(" (").map_or(member, |(member, _)| member))
    }

    /// Returns the variable of the kernel whose address the kernel does not know, if the program was refused for that.
    ///
    /// Source: kernel/bpf/verifier.c, `__check_pseudo_btf_id`, v6.18.
    pub fn unlisted_variable(&self) -> Option<&str> {
        let name = self.reason().strip_prefix("ldimm64 failed to find the address for kernel symbol '")?;
        name.split_once('\'').map(|(name, _)| name)
    }

    /// Returns the number of lines.
    pub fn lines(&self) -> usize {
        self.text.lines().count()
    }
}

fn is_statistics(line: &str) -> bool {
    ["processed ", "verification time ", "stack depth ", "mark_precise: ", "max_states_per_insn "]
        .iter()
        .any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"func#0 @0\n\
        0: R1=ctx() R10=fp0\n\
        ; count += ctx->addr @ faults.ks:7\n\
        0: (61) r0 = *(u32 *)(r1 +400)\n\
        invalid bpf_context access off=400 size=4\n\
        processed 1 insns (limit 1000000) max_states_per_insn 0 total_states 0\n\0rest";

    #[test]
    fn the_reason_is_the_last_line_before_the_statistics() {
        let log = VerifierLog::from_buffer(LOG).expect("not empty");
        assert_eq!(log.reason(), "invalid bpf_context access off=400 size=4");
        assert_eq!(log.source_line(), Some("count += ctx->addr @ faults.ks:7"));
        assert_eq!(log.lines(), 6);
    }

    #[test]
    fn a_member_that_does_not_fit_is_named() {
        let said = b"3: <invalid CO-RE relocation>\n\
            failed to resolve CO-RE relocation <byte_off> [3] struct task_struct.se.lag (0:0:0 @ offset 0)\n\
            processed 4 insns\n";
        let log = VerifierLog::from_buffer(said).expect("not empty");
        assert_eq!(log.unfit_member(), Some("struct task_struct.se.lag"));
        assert_eq!(VerifierLog::from_buffer(LOG).expect("not empty").unfit_member(), None);
    }

    #[test]
    fn a_variable_that_the_kernel_does_not_list_is_found() {
        let said = b"ldimm64 failed to find the address for kernel symbol 'runqueues'.\nprocessed 1 insns\n";
        let log = VerifierLog::from_buffer(said).expect("not empty");
        assert_eq!(log.unlisted_variable(), Some("runqueues"));
        assert_eq!(VerifierLog::from_buffer(LOG).expect("not empty").unlisted_variable(), None);
    }

    #[test]
    fn an_unwritten_buffer_is_not_a_log() {
        assert_eq!(VerifierLog::from_buffer(&[0; 16]), None);
        assert_eq!(VerifierLog::from_buffer(&[]), None);
        assert_eq!(VerifierLog::from_buffer(b"\n\0"), None);
    }

    #[test]
    fn a_log_of_statistics_alone_has_no_reason() {
        let log = VerifierLog::from_buffer(b"processed 3 insns\n").expect("not empty");
        assert_eq!(log.reason(), "");
        assert_eq!(log.source_line(), None);
    }
}
