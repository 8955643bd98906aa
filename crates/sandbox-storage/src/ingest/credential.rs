//! Names that credentials usually have: for a warning, nothing is left out by it.

use crate::tree::split;

/// Whether a file's name says that it may hold a secret.
pub(super) fn is_credential_like(path: &[u8]) -> bool {
    let (folder, name) = split(path);
    let name = name.to_ascii_lowercase();
    let name = name.as_slice();
    let parent = split(folder).1;
    if NAMES.contains(&name) {
        return true;
    }
    if let Some(rest) = name.strip_prefix(b".env") {
        return rest.first() == Some(&b'.') && !is_example(rest);
    }
    if ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        return true;
    }
    match parent {
        b".ssh" => name.starts_with(b"id_") && !name.ends_with(b".pub"),
        b".aws" | b".docker" | b".kube" | b".cargo" => {
            matches!(
                name,
                b"credentials" | b"credentials.toml" | b"config" | b"config.json"
            )
        }
        _ => false,
    }
}

/// Whole names, in lower case.
const NAMES: [&[u8]; 18] = [
    b".env",
    b".envrc",
    b".git-credentials",
    b".htpasswd",
    b".netrc",
    b".npmrc",
    b".pgpass",
    b".pypirc",
    b"_netrc",
    b"credentials",
    b"credentials.json",
    b"id_dsa",
    b"id_ecdsa",
    b"id_ed25519",
    b"id_rsa",
    b"kubeconfig",
    b"secrets.yaml",
    b"secrets.yml",
];

/// Endings of names, in lower case.
const ENDINGS: [&[u8]; 8] = [
    b".jks",
    b".kdbx",
    b".key",
    b".keystore",
    b".p12",
    b".pem",
    b".pfx",
    b".ppk",
];

/// Whether the rest of a `.env` name says that it only shows how one looks.
fn is_example(rest: &[u8]) -> bool {
    [
        &b".example"[..],
        b".sample",
        b".template",
        b".dist",
        b".defaults",
    ]
    .iter()
    .any(|ending| rest.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_are_known_and_examples_are_not() {
        for named in [
            ".env",
            "a/.env.local",
            "deploy.PEM",
            "x/server.key",
            ".ssh/id_work",
            "id_rsa",
            ".aws/credentials",
            "home/.npmrc",
        ] {
            assert!(is_credential_like(named.as_bytes()), "{named}");
        }
        for plain in [
            ".env.example",
            "env",
            ".environment",
            "keys.rs",
            ".ssh/id_work.pub",
            "config",
            "src/credentials.rs",
            "monkey",
        ] {
            assert!(!is_credential_like(plain.as_bytes()), "{plain}");
        }
    }
}
