//! The machines and kernels that the kernel half is compiled for.

use anyhow::{Result, bail};
use ks_compiler::kernel::Cpu;
use ks_compiler::kernel_version::{KernelVersion, NotAVersion};
use ks_compiler::pipeline::Target;
use ks_wit::section::Arch;

#[derive(clap::Args)]
pub struct TargetArgs {
    /// The architecture of the kernel half; by default all
    #[arg(long, value_enum)]
    arch: Option<ArchArg>,
    /// The BPF instruction set of the kernel half
    #[arg(long, value_enum, default_value = "v3")]
    cpu: CpuArg,
    /// The oldest kernel that must accept the kernel half, such as 5.15 or 5.14-rhel9; features that it lacks
    /// are avoided, or are errors
    #[arg(long, value_name = "VERSION", value_parser = target_kernel)]
    target_kernel: Option<KernelVersion>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ArchArg {
    #[value(name = "x86_64")]
    X86_64,
    #[value(name = "aarch64")]
    Aarch64,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum CpuArg {
    /// 64-bit arithmetic only, fewer comparisons
    V1,
    /// All comparisons (Linux 4.14)
    V2,
    /// 32-bit arithmetic (Linux 5.1)
    V3,
    /// Signed division and sign extension (Linux 6.6)
    V4,
}

/// The oldest kernel that objects are compiled for.
const OLDEST: KernelVersion = KernelVersion::new(5, 15);

/// Kernels with more features than their version has, each with the version whose features its oldest release
/// has.
///
/// RHEL 9 keeps the version 5.14 and takes BPF from later kernels; every release has at least the features of
/// 5.15.
const DISTRIBUTIONS: [(&str, KernelVersion); 1] = [("5.14-rhel9", KernelVersion::new(5, 15))];

fn target_kernel(text: &str) -> Result<KernelVersion, String> {
    if let Some((_, kernel)) = DISTRIBUTIONS.iter().find(|(name, _)| *name == text) {
        return Ok(*kernel);
    }
    let kernel: KernelVersion = text.parse().map_err(|error: NotAVersion| error.to_string())?;
    if kernel < OLDEST {
        let others = DISTRIBUTIONS.map(|(name, _)| name).join(", ");
        return Err(format!("objects are made for Linux {OLDEST} and newer, and for {others}"));
    }
    Ok(kernel)
}

impl TargetArgs {
    /// Returns the target of the kernel half, with the settings for users.
    ///
    /// # Errors
    /// If the kernel does not have the instruction set.
    pub fn target(&self) -> Result<Target> {
        let arch = self.arch.map(|arch| match arch {
            ArchArg::X86_64 => Arch::X86_64,
            ArchArg::Aarch64 => Arch::Aarch64,
        });
        let cpu = match self.cpu {
            CpuArg::V1 => Cpu::V1,
            CpuArg::V2 => Cpu::V2,
            CpuArg::V3 => Cpu::V3,
            CpuArg::V4 => Cpu::V4,
        };
        if let Some(kernel) = self.target_kernel.filter(|kernel| *kernel < cpu.since()) {
            bail!("--cpu v4 needs Linux {}, and --target-kernel is {kernel}: use --cpu v3", cpu.since());
        }
        Ok(Target { arch, cpu, kernel: self.target_kernel, ..Target::default() }.for_users())
    }
}
