//! `ks-host sign` and `ks-host verify`: signatures of plugin files.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ks_host::plugin::{Plugin, PublicKey, hex, key_pair, sign as signed};
use ks_host::policy::Policy;
use ks_wit::command_output::{shown, write_lines, write_stderr, write_stdout};

use crate::output::printable;
use crate::{not_a_plugin, output_file, policy};

/// Arguments of `ks-host sign`.
#[derive(Debug, clap::Args)]
pub(crate) struct SignArgs {
    /// The plugin file. It is replaced by the signed one, unless `-o` says otherwise.
    plugin: PathBuf,
    /// The private key: ed25519, PKCS#8 in PEM (`openssl genpkey -algorithm ed25519` creates one, too).
    #[arg(long, value_name = "FILE")]
    key: PathBuf,
    /// Creates the key first, if there is none yet, and its public half next to it with the ending `.pub`.
    #[arg(long)]
    new_key: bool,
    /// The signer's identity, as policies will name it: a mail address, a team, a build.
    #[arg(long = "as", value_name = "IDENTITY")]
    identity: String,
    /// The signed file; by default the plugin file is replaced.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Arguments of `ks-host verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// The signed plugin file.
    plugin: PathBuf,
    /// A required signer: an identity, and its public key as 64 hexadecimal digits or as a PEM file. May be
    /// given several times; one of them is enough.
    #[arg(long, value_name = "IDENTITY=KEY", required_unless_present = "policy")]
    signer: Vec<String>,
    /// A policy whose `[signers]` are required.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
}

/// Signs the plugin and returns the exit code.
pub(crate) fn sign(args: &SignArgs) -> anyhow::Result<u8> {
    let plugin = match read(&args.plugin) {
        Ok(plugin) => plugin,
        Err(code) => return Ok(code),
    };
    if args.new_key {
        make_key(&args.key).with_context(|| format!("cannot make the key {}", shown(&args.key)))?;
    }
    let key = fs::read_to_string(&args.key).with_context(|| format!("cannot read {}", shown(&args.key)))?;
    let file = signed(&plugin, &args.identity, &key)
        .with_context(|| format!("cannot sign with {}", shown(&args.key)))?;
    let output = args.output.as_ref().unwrap_or(&args.plugin);
    let is_printed = output_file::is_standard_output(output);
    if is_printed {
        anyhow::ensure!(
            !io::stdout().is_terminal(),
            "a plugin is not text for a terminal: send it on, or to a file (-o FILE)"
        );
        write_stdout(&file)?;
    } else {
        output_file::replace(output, &file).with_context(|| format!("cannot write {}", shown(output)))?;
    }
    let signatures = signatures(&Plugin::from_bytes(file)?);
    if is_printed {
        write_stderr(format_args!("{}", signatures.trim_end()))
    } else {
        write_lines(&signatures)?
    }
    Ok(0)
}

/// Verifies the plugin and returns the exit code: 0, or 126 if a run would be denied.
pub(crate) fn verify(args: &VerifyArgs) -> anyhow::Result<u8> {
    let plugin = match read(&args.plugin) {
        Ok(plugin) => plugin,
        Err(code) => return Ok(code),
    };
    let policy = policy::of(args.policy.as_deref(), Policy::nothing(), &[], &[])?;
    let policy = demanding(policy, &args.signer)?;
    anyhow::ensure!(
        policy.demands_signer(),
        "the policy has no `[signers]`, and nobody else is named: --signer"
    );
    write_lines(&signatures(&plugin))?;
    match policy.judge_signers(&plugin.signers()) {
        Ok(()) => Ok(0),
        Err(reason) => {
            write_stderr(format_args!("ks-host: {}: {reason}", shown(&args.plugin)));
            Ok(crate::DENIED)
        }
    }
}

/// Adds required signers to a policy: `IDENTITY=KEY`.
pub(crate) fn demanding(mut policy: Policy, signers: &[String]) -> anyhow::Result<Policy> {
    for argument in signers {
        let (identity, key) =
            argument.rsplit_once('=').with_context(|| format!("--signer {argument}: not IDENTITY=KEY"))?;
        let key = match fs::read_to_string(key) {
            Ok(pem) => PublicKey::read(&pem),
            Err(_) => PublicKey::read(key),
        };
        policy.demand_signer(identity, key.with_context(|| format!("--signer {argument}"))?);
    }
    Ok(policy)
}

/// Formats the digest, and a line for each signature.
pub(crate) fn signatures(plugin: &Plugin) -> String {
    let digest = plugin.digest();
    let lines = plugin.signatures().iter().map(|signature| {
        let identity = printable(&signature.identity);
        match signature.check(&digest) {
            Ok(signer) => format!("signed by {identity}, key {}\n", signer.key),
            Err(error) => format!("NOT signed by {identity}: {}\n", printable(&error.to_string())),
        }
    });
    format!("digest sha256:{}\n{}", hex(&digest), lines.collect::<String>())
}

fn read(path: &Path) -> Result<Plugin, u8> {
    Plugin::from_file(path).map_err(|error| not_a_plugin(path, &error))
}

/// Creates a key file that only this user can read. An existing file stays as it is.
fn make_key(path: &Path) -> anyhow::Result<()> {
    let mut seed = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut seed)?;
    let (private, public) = key_pair(&seed)?;
    let new = |mode| {
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        options
    };
    new(0o600).open(path)?.write_all(private.as_bytes())?;
    new(0o644).open(path.with_extension("pub"))?.write_all(public.as_bytes())?;
    Ok(())
}
