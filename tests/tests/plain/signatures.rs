//! Signatures: who vouches for which bytes, and policies that demand it.

use std::path::PathBuf;
use std::process::{Command, Output};

use ks_host::plugin::{Outcome, Plugin, PublicKey, SignatureError, sign};
use ks_host::policy::Policy;
use ks_tests::binary;
use ks_tests::plugins::{component, run_with, with_section};

/// Made by `openssl genpkey -algorithm ed25519`, for these tests alone.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIFYwJBkM1y+aFqsrAdqNgDygp2TU3CQi/LJUKNZHiPyJ
-----END PRIVATE KEY-----
";
/// Made of it by `openssl pkey -pubout`.
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAXfXcjGpUHRH7k7+PCpelAbES2GC5Fnz9z4G2SZS/Qcw=
-----END PUBLIC KEY-----
";
/// Of somebody else.
const OTHER_KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIFpCh5Tht6T+l+aYNL3zMwMmgBlb663s7PqxNAABgp/W
-----END PRIVATE KEY-----
";
const OTHER_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA+YjRBrlcjGCC6l2Y/mf90vngdV86P+9k6YKkUMD0KOs=
-----END PUBLIC KEY-----
";

fn plugin() -> Plugin {
    Plugin::from_bytes(component(r#"(func (export "run") (result i32) (i32.const 3))"#)).expect("a plugin")
}

fn key(pem: &str) -> PublicKey {
    PublicKey::read(pem).expect("a key")
}

/// What comes of the file where this identity with this key is demanded.
fn started(file: &[u8], identity: &str, pem: &str) -> Outcome {
    let mut policy = Policy::everything();
    policy.demand_signer(identity, key(pem));
    run_with(file.to_vec(), |options| options.policy = policy).outcome
}

#[test]
fn a_policy_that_demands_a_signer_starts_what_they_have_signed() {
    let signed = sign(&plugin(), "alice", KEY).expect("it is signed");
    assert_eq!(started(&signed, "alice", PUBLIC), Outcome::Returned(3));
    // Another key, another name, no signature.
    for (file, identity, pem) in
        [(&signed[..], "alice", OTHER_PUBLIC), (&signed, "bob", PUBLIC), (plugin().bytes(), "alice", PUBLIC)]
    {
        match started(file, identity, pem) {
            Outcome::Denied(reason) => {
                assert!(
                    reason.contains(&format!("a signature by `{identity}` with key {}", key(pem))),
                    "{reason}"
                )
            }
            other => panic!("{other:?}"),
        }
    }
    // Two have signed: each of them is enough.
    let both = sign(&Plugin::from_bytes(signed).expect("a plugin"), "bob", OTHER_KEY).expect("it is signed");
    assert_eq!(started(&both, "alice", PUBLIC), Outcome::Returned(3));
    assert_eq!(started(&both, "bob", OTHER_PUBLIC), Outcome::Returned(3));
    assert!(
        matches!(started(&both, "alice", OTHER_PUBLIC), Outcome::Denied(_)),
        "nobody's name with another's key"
    );
}

#[test]
fn a_signature_does_not_change_what_is_signed() {
    let signed = Plugin::from_bytes(sign(&plugin(), "alice", KEY).expect("it is signed")).expect("a plugin");
    assert_eq!(signed.digest(), plugin().digest());
    let signers = signed.signers();
    assert_eq!((signers[0].identity.as_str(), signers[0].key), ("alice", key(PUBLIC)));
    assert_eq!(PublicKey::read(&key(PUBLIC).to_string()).expect("as policies have it"), key(PUBLIC));
}

/// Of the signature every byte, of the rest some: either the file is no plugin any more, or nobody has signed it.
#[test]
fn no_changed_byte_is_vouched_for() {
    let (plugin, signed) = (plugin(), sign(&plugin(), "alice", KEY).expect("it is signed"));
    let (before, digest) = (plugin.bytes().len(), plugin.digest());
    let offsets = (0..before).step_by(61).chain(before..signed.len());
    for at in offsets {
        let mut changed = signed.clone();
        changed[at] ^= 1 << (at % 8);
        let Ok(changed) = Plugin::from_bytes(changed) else { continue };
        let signers = changed.signers();
        // The case of a hexadecimal digit means nothing.
        let same = changed.digest() == digest
            && signers.iter().all(|signer| (signer.identity.as_str(), signer.key) == ("alice", key(PUBLIC)));
        assert!(signers.is_empty() || same, "byte {at} of {}", signed.len());
    }
    // Nor what is added, before or behind.
    let more = Plugin::from_bytes(with_section(signed, "kernelscript:lines", &[])).expect("a plugin");
    assert!(more.signers().is_empty());
    let digest = more.digest();
    assert!(matches!(more.signatures()[0].check(&digest), Err(SignatureError::Digest { .. })));
}

#[test]
fn a_signature_is_for_one_identity() {
    let signed = Plugin::from_bytes(sign(&plugin(), "alice", KEY).expect("it is signed")).expect("a plugin");
    let mut signature = signed.signatures()[0].clone();
    assert!(signature.check(&signed.digest()).is_ok());
    signature.identity = "bob".into();
    assert!(matches!(signature.check(&signed.digest()), Err(SignatureError::Forged)));
    signature.identity = "ali\x1bce".into();
    assert!(matches!(signature.check(&signed.digest()), Err(SignatureError::Identity)));
    assert!(matches!(sign(&plugin(), "", KEY), Err(SignatureError::Identity)));
    assert!(matches!(sign(&plugin(), "alice", PUBLIC), Err(SignatureError::Key(_))));
}

struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let folder = std::env::temp_dir().join(format!("ks-signatures-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the folder for temporary files is writable");
        Folder(folder)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).expect("writable");
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn host(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output: Output = Command::new(binary("ks-host")).args(arguments).output().expect("ks-host starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_commands_sign_verify_show_and_demand() {
    let folder = Folder::new();
    let file = folder.write("plugin.wasm", plugin().bytes());
    let (private, public) = (folder.write("key.pem", KEY), folder.write("key.pub", PUBLIC));
    let demanded = format!("alice@example.org={public}");
    let (code, _, said) = host(&["verify", "--signer", &demanded, &file]);
    assert!(code == Some(126) && said.contains("nobody has signed this very file"), "{said}");

    let (code, printed, said) = host(&["sign", "--key", &private, "--as", "alice@example.org", &file]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(printed.contains(&format!("signed by alice@example.org, key {}", key(PUBLIC))), "{printed}");
    assert_eq!(host(&["verify", "--signer", &demanded, &file]).0, Some(0));
    assert_eq!(
        host(&["verify", "--signer", &format!("alice@example.org={}", key(PUBLIC)), &file]).0,
        Some(0)
    );
    assert_eq!(host(&["verify", "--signer", &format!("bob={public}"), &file]).0, Some(126));
    let (_, printed, _) = host(&["inspect", &file]);
    let digest: String = plugin().digest().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(printed.contains(&format!("digest sha256:{digest}\nsigned by alice@example.org")), "{printed}");
    let (_, json, _) = host(&["inspect", "--json", &file]);
    assert!(json.contains(&digest) && json.contains(&key(PUBLIC).to_string()), "{json}");

    let policy =
        format!("[allow]\nimport = [\"*\"]\n[signers]\n\"alice@example.org\" = \"{}\"\n", key(PUBLIC));
    let policy = folder.write("policy.toml", policy);
    assert_eq!(host(&["--policy", &policy, &file]).0, Some(3));
    assert_eq!(host(&["--signer", &demanded, &file]).0, Some(3));
    let unsigned = folder.write("unsigned.wasm", plugin().bytes());
    let (code, _, said) = host(&["--policy", &policy, &unsigned]);
    assert!(code == Some(126) && said.contains("demands a signature by `alice@example.org`"), "{said}");
    // A later byte.
    let mut changed = std::fs::read(&file).expect("readable");
    let at = changed.windows(3).position(|window| window == b"run").expect("the export");
    changed[at] = b'q';
    let changed = folder.write("changed.wasm", changed);
    let (code, printed, _) = host(&["verify", "--policy", &policy, &changed]);
    assert!(
        code == Some(126) && printed.contains("NOT signed by alice@example.org: the file has changed"),
        "{printed}"
    );
    // A key that is there is not replaced.
    assert_eq!(host(&["sign", "--new-key", "--key", &private, "--as", "alice", &file]).0, Some(125));
    assert_eq!(std::fs::read_to_string(&private).expect("readable"), KEY);
    let own = folder.0.join("own.pem").display().to_string();
    let (code, _, said) = host(&["sign", "--new-key", "--key", &own, "--as", "carol", &file]);
    assert_eq!((code, said.as_str()), (Some(0), ""));
    let own = format!("carol={}", folder.0.join("own.pub").display());
    assert_eq!(host(&["verify", "--signer", &own, &file]).0, Some(0));
    // Nothing is demanded, which is a mistake.
    let nothing = folder.write("nothing.toml", "[allow]\n");
    assert_eq!(host(&["verify", "--policy", &nothing, &file]).0, Some(125));
}
