//! Which build a program is of.

/// The version and a fingerprint of this crate's sources: host and helper must have the same.
///
/// The two are separate programs that are installed together, and an upgrade may replace one
/// under the other. A version alone does not tell two builds of a working copy apart.
pub const BUILD_ID: &str = {
    const HEX: [u8; 16] = hex(fingerprint(SOURCES));
    const BYTES: [u8; VERSION.len() + 17] = {
        let mut out = [b'-'; VERSION.len() + 17];
        let (version, digits) = (VERSION.as_bytes(), HEX);
        let mut at = 0;
        while at < version.len() {
            out[at] = version[at];
            at += 1;
        }
        let mut digit = 0;
        while digit < 16 {
            out[version.len() + 1 + digit] = digits[digit];
            digit += 1;
        }
        out
    };
    match std::str::from_utf8(&BYTES) {
        Ok(text) => text,
        Err(_) => VERSION,
    }
};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Every source file of the crate; a test holds it against the folder.
const SOURCES: &[(&str, &[u8])] = &[
    ("entry.rs", include_bytes!("../entry.rs")),
    ("init.rs", include_bytes!("../init.rs")),
    ("init/execute.rs", include_bytes!("../init/execute.rs")),
    ("init/limits.rs", include_bytes!("../init/limits.rs")),
    ("init/reap.rs", include_bytes!("../init/reap.rs")),
    ("init/request.rs", include_bytes!("../init/request.rs")),
    ("keeper.rs", include_bytes!("../keeper.rs")),
    (
        "keeper/commands.rs",
        include_bytes!("../keeper/commands.rs"),
    ),
    ("keeper/etc.rs", include_bytes!("../keeper/etc.rs")),
    ("keeper/mounts.rs", include_bytes!("../keeper/mounts.rs")),
    (
        "keeper/namespaces.rs",
        include_bytes!("../keeper/namespaces.rs"),
    ),
    ("keeper/outer.rs", include_bytes!("../keeper/outer.rs")),
    ("keeper/status.rs", include_bytes!("../keeper/status.rs")),
    ("lib.rs", include_bytes!("../lib.rs")),
    ("probe.rs", include_bytes!("../probe.rs")),
    ("step.rs", include_bytes!("../step.rs")),
    ("sys.rs", include_bytes!("../sys.rs")),
    ("wire.rs", include_bytes!("../wire.rs")),
    ("wire/build.rs", include_bytes!("build.rs")),
    ("wire/codec.rs", include_bytes!("codec.rs")),
    ("wire/config.rs", include_bytes!("config.rs")),
    ("wire/message.rs", include_bytes!("message.rs")),
    ("wire/request.rs", include_bytes!("request.rs")),
    ("wire/socket.rs", include_bytes!("socket.rs")),
];

/// FNV-1a over all bytes: it tells builds apart and guards against nobody.
const fn fingerprint(sources: &[(&str, &[u8])]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut file = 0;
    while file < sources.len() {
        let bytes = sources[file].1;
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        file += 1;
    }
    hash
}

const fn hex(value: u64) -> [u8; 16] {
    let mut out = [0; 16];
    let mut at = 0;
    while at < 16 {
        out[at] = b"0123456789abcdef"[(value >> (60 - 4 * at) & 15) as usize];
        at += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    // FI-19: a changed file changes the build id, so none may be missing from the list.
    #[test]
    fn every_source_file_is_part_of_the_build_id() {
        fn collect(folder: &Path, prefix: &str, names: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let name = format!("{prefix}{}", entry.file_name().into_string().unwrap());
                if entry.path().is_dir() {
                    collect(&entry.path(), &format!("{name}/"), names);
                } else {
                    names.push(name);
                }
            }
        }
        let mut names = Vec::new();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        collect(&root, "", &mut names);
        names.sort();
        let listed: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, listed);
    }

    #[test]
    fn the_build_id_is_version_and_sixteen_hex_digits() {
        let (version, digits) = BUILD_ID.rsplit_once('-').unwrap();
        assert_eq!(version, VERSION);
        assert_eq!(
            u64::from_str_radix(digits, 16).unwrap(),
            fingerprint(SOURCES)
        );
        assert_eq!(hex(0x0123_4567_89ab_cdef), *b"0123456789abcdef");
    }
}
