//! Programs on packets, run by the kernel on packets of ours (BPF test runs): what they make of valid, truncated and hostile
//! ones is compared with a plain model. These tests need root.

use ks_tests::compile;
use libbpf_rs::{MapCore as _, MapFlags, Object, ProgramInput};

/// A loaded script.
struct Loaded(Object);

/// What a run gave: the result, and the packet as it is now.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    result: i32,
    packet: Vec<u8>,
}

impl Loaded {
    fn new(script: &str) -> Loaded {
        let built = compile("packets", script);
        let elf = built.objects[0].1.elf().to_vec();
        let open = libbpf_rs::ObjectBuilder::default().open_memory(&elf).expect("libbpf opens it");
        Loaded(open.load().expect("the verifier accepts it"))
    }

    fn run(&self, program: &str, packet: &[u8]) -> Run {
        self.run_in(program, packet, None)
    }

    /// Runs a program on a packet; the context is changed by the run.
    fn run_in(&self, program: &str, packet: &[u8], context: Option<&mut [u8]>) -> Run {
        let program = self.0.progs_mut_by_name(program);
        let mut out = vec![0; packet.len() + 512];
        let (result, len) = {
            let mut input =
                ProgramInput { data_in: Some(packet), data_out: Some(&mut out), ..Default::default() };
            let mut copy = context.as_deref().map(<[u8]>::to_vec);
            if let (Some(context), Some(copy)) = (context, copy.as_deref_mut()) {
                input.context_in = Some(copy);
                input.context_out = Some(context);
                let output = program.test_run(input).expect("the kernel runs it");
                (output.return_value, output.data.map_or(0, |data| data.len()))
            } else {
                let output = program.test_run(input).expect("the kernel runs it");
                (output.return_value, output.data.map_or(0, |data| data.len()))
            }
        };
        out.truncate(len);
        Run { result: result.cast_signed(), packet: out }
    }
}
