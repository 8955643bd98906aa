//! What `/etc` holds inside: little of its own, and of the host's what programs need to start.

use std::ffi::CString;

use sandbox_helper::wire::EtcEntry;

/// The entries, in order. Nothing of it tells one host's users from another's.
pub(super) fn entries(host_names: impl IntoIterator<Item = String>) -> Vec<EtcEntry> {
    let written = WRITTEN.iter().map(|(path, text)| EtcEntry::File {
        path: string(path),
        bytes: text.as_bytes().to_vec(),
    });
    let copied = COPIED
        .iter()
        .map(|path| EtcEntry::Copy { path: string(path) });
    // A language's configuration stands in a folder with its version in the name.
    let languages = host_names
        .into_iter()
        .filter(|name| LANGUAGES.iter().any(|prefix| name.starts_with(prefix)))
        .filter_map(|name| CString::new(name).ok())
        .map(|path| EtcEntry::Copy { path });
    written.chain(copied).chain(languages).collect()
}

/// The names in the host's `/etc`; one that can't be read has none to give.
pub(super) fn host_names() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/etc") else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

fn string(constant: &str) -> CString {
    CString::new(constant).expect("constants hold no NUL")
}

const WRITTEN: &[(&str, &str)] = &[
    (
        "passwd",
        "root:x:0:0:root:/root:/usr/sbin/nologin\n\
         agent:x:1000:1000:agent:/home/agent:/bin/sh\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n"),
    (
        "hosts",
        "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n",
    ),
    ("hostname", "sandbox\n"),
    (
        "nsswitch.conf",
        "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n\
         networks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n",
    ),
    ("resolv.conf", "nameserver 127.0.0.1\noptions edns0\n"),
    ("shells", "/bin/sh\n/bin/bash\n"),
];

/// Links, caches and settings of the distribution, and its trust bundles.
const COPIED: &[&str] = &[
    "alternatives",
    "ca-certificates/extracted",
    "crypto-policies",
    "debian_version",
    "gai.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "lsb-release",
    "magic",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust/extracted",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "services",
    "ssl/cert.pem",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// How the names of language configuration begin.
const LANGUAGES: &[&str] = &["java", "jvm", "python"];

#[cfg(test)]
mod tests {
    use super::*;

    // ARG-2: a small /etc; what the host has of its users, hosts and secrets stays out.
    #[test]
    fn arg_2_etc_names_no_user_of_the_host() {
        let host = ["java-17-openjdk", "python3", "shadow", "ssh", "hosts"];
        let entries = entries(host.map(str::to_owned));
        let copied: Vec<&str> = entries
            .iter()
            .filter_map(|entry| match entry {
                EtcEntry::Copy { path } => path.to_str().ok(),
                EtcEntry::File { .. } => None,
            })
            .collect();
        assert!(copied.ends_with(&["java-17-openjdk", "python3"]));
        for own in WRITTEN
            .iter()
            .map(|(path, _)| path)
            .chain(&["shadow", "ssh"])
        {
            assert!(!copied.contains(own), "{own}");
        }
    }
}
