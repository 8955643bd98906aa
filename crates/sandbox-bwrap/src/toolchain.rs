//! Tools of a person's home that are visible inside, read-only (SPEC CON-5).
//!
//! A toolchain stands inside at its path on the host, since compilers remember where they
//! were installed; its own `bin` comes first in `PATH`, and no proxy of its manager runs.
//! Nothing that the project names is executed on the host to find it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use sandbox_core::{ErrorCode, Result, SandboxError, shown};

use crate::config::{Config, ReadOnlyMount};

/// The largest settings file that is read, in bytes.
const MAX_SETTINGS_BYTES: u64 = 64 * 1024;

/// What a toolchain needs inside.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Toolchain {
    /// What is visible.
    pub mounts: Vec<ReadOnlyMount>,
    /// What comes first in `PATH`.
    pub path_prefix: Vec<String>,
    /// Variables that point its caches into the session's home.
    pub environment: BTreeMap<String, String>,
}

impl Toolchain {
    /// Adds it to a configuration.
    pub fn add_to(self, config: &mut Config) {
        for mount in self.mounts {
            if !config.mounts.contains(&mount) {
                config.mounts.push(mount);
            }
        }
        config.path_prefix.extend(self.path_prefix);
        config.environment.extend(self.environment);
    }
}

/// A file or folder of the host, visible inside at the same path.
///
/// Links are resolved now: what is visible is what they lead to now.
///
/// # Errors
/// `SANDBOX_NOT_FOUND` where it is not there; `SANDBOX_INVALID` for a path that is not
/// absolute once resolved or not UTF-8. Places that the sandbox needs for itself are
/// refused when the session is made.
pub fn read_only(path: &Path) -> Result<ReadOnlyMount> {
    let named = shown(path.as_os_str().as_encoded_bytes());
    let source = path.canonicalize().map_err(|error| {
        SandboxError::new(
            ErrorCode::NotFound,
            format!("the read-only path {named} can't be resolved"),
        )
        .with_source(error)
    })?;
    let destination = source
        .to_str()
        .ok_or_else(|| {
            SandboxError::new(
                ErrorCode::Invalid,
                format!("the read-only path {named} is not UTF-8"),
            )
        })?
        .to_owned();
    Ok(ReadOnlyMount {
        source,
        destination,
    })
}

/// What the host says about rustup: the caller reads its environment, not this crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rustup {
    /// `RUSTUP_HOME`, else `~/.rustup`.
    pub home: PathBuf,
    /// `RUSTUP_TOOLCHAIN`.
    pub toolchain: Option<String>,
}

impl Rustup {
    /// The toolchain that cargo in `project` would use: `RUSTUP_TOOLCHAIN`, else the
    /// project's `rust-toolchain.toml` or `rust-toolchain`, else rustup's default.
    ///
    /// # Errors
    /// `SANDBOX_NOT_FOUND` where rustup or that toolchain is not installed, naming it;
    /// `SANDBOX_INVALID` for a file that can't be read as what it is.
    pub fn toolchain(&self, project: &Path) -> Result<Toolchain> {
        let settings = self.settings()?;
        let chosen = match &self.toolchain {
            Some(name) => Some(name.clone()),
            None => project_channel(project)?,
        };
        let name = chosen
            .or_else(|| text(&settings, "default_toolchain"))
            .ok_or_else(|| {
                not_found("rustup has no default toolchain".to_owned())
                    .with_hint("choose one: `rustup default stable`")
            })?;
        let triple = text(&settings, "default_host_triple")
            .unwrap_or_else(|| format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
        let root = self.installed(&name, &triple)?;
        let mount = read_only(&root)?;
        Ok(Toolchain {
            path_prefix: vec![format!("{}/bin", mount.destination)],
            mounts: vec![mount],
            environment: BTreeMap::from([(
                "CARGO_HOME".to_owned(),
                "/home/agent/.cargo".to_owned(),
            )]),
        })
    }

    fn settings(&self) -> Result<toml::Table> {
        let path = self.home.join("settings.toml");
        let named = shown(path.as_os_str().as_encoded_bytes());
        match read_bounded(&path)? {
            Some(text) => text.parse().map_err(|_| {
                SandboxError::new(
                    ErrorCode::Invalid,
                    format!("rustup's settings {named} are not TOML"),
                )
            }),
            None => Err(
                not_found(format!("rustup is not installed: there is no {named}"))
                    .with_hint("install rustup, or name the tools with `--ro PATH`"),
            ),
        }
    }

    /// The folder of a toolchain, by its name or its channel.
    fn installed(&self, name: &str, triple: &str) -> Result<PathBuf> {
        let mut parts = Path::new(name).components();
        if !matches!(
            (parts.next(), parts.next()),
            (Some(Component::Normal(_)), None)
        ) {
            return Err(SandboxError::new(
                ErrorCode::Invalid,
                format!(
                    "the toolchain {} is refused: a name such as `stable` or `1.95.0` is accepted",
                    shown(name)
                ),
            ));
        }
        let folder = self.home.join("toolchains");
        let full = format!("{name}-{triple}");
        [name, &full]
            .into_iter()
            .map(|name| folder.join(name))
            .find(|path| path.join("bin/cargo").is_file())
            .ok_or_else(|| {
                not_found(format!("the toolchain {} is not installed", shown(name))).with_hint(
                    format!(
                        "install it: `rustup toolchain install {}`",
                        name.escape_default()
                    ),
                )
            })
    }
}

fn not_found(message: String) -> SandboxError {
    SandboxError::new(ErrorCode::NotFound, message)
}

/// The channel that a project asks for, looked for from its folder up (as rustup does).
fn project_channel(project: &Path) -> Result<Option<String>> {
    for folder in project.ancestors() {
        for name in ["rust-toolchain.toml", "rust-toolchain"] {
            let path = folder.join(name);
            if let Some(text) = read_bounded(&path)? {
                return channel(&text).map(Some).ok_or_else(|| {
                    SandboxError::new(
                        ErrorCode::Invalid,
                        format!(
                            "{} names no channel",
                            shown(path.as_os_str().as_encoded_bytes())
                        ),
                    )
                });
            }
        }
    }
    Ok(None)
}

/// The channel of a toolchain file: TOML, or the name alone in the old form.
fn channel(file: &str) -> Option<String> {
    if let Ok(table) = file.parse::<toml::Table>() {
        return Some(table.get("toolchain")?.get("channel")?.as_str()?.to_owned());
    }
    let line = file.trim();
    (!line.is_empty() && !line.contains(char::is_whitespace)).then(|| line.to_owned())
}

fn text(table: &toml::Table, key: &str) -> Option<String> {
    Some(table.get(key)?.as_str()?.to_owned())
}

/// A small text file; none where there is none.
fn read_bounded(path: &Path) -> Result<Option<String>> {
    let failed = |why: &str| {
        SandboxError::new(
            ErrorCode::Invalid,
            format!("{} {why}", shown(path.as_os_str().as_encoded_bytes())),
        )
    };
    // A FIFO or a device in a project must not be waited for.
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(failed("is no regular file")),
        Ok(metadata) if metadata.len() > MAX_SETTINGS_BYTES => Err(failed("is longer than 64 KiB")),
        Ok(_) => fs::read_to_string(path)
            .map(Some)
            .map_err(|error| failed("can't be read").with_source(error)),
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(failed("can't be looked at").with_source(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rustup home with these toolchains, and a project beside it.
    fn host(toolchains: &[&str]) -> (tempfile::TempDir, Rustup, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("rustup");
        for name in toolchains {
            let bin = home.join("toolchains").join(name).join("bin");
            fs::create_dir_all(&bin).unwrap();
            fs::write(bin.join("cargo"), "").unwrap();
        }
        fs::create_dir_all(&home).unwrap();
        fs::write(
            home.join("settings.toml"),
            "default_toolchain = \"stable-t\"\ndefault_host_triple = \"t\"\n",
        )
        .unwrap();
        let project = root.path().join("project/inner");
        fs::create_dir_all(&project).unwrap();
        (
            root,
            Rustup {
                home,
                toolchain: None,
            },
            project,
        )
    }

    fn chosen(rustup: &Rustup, project: &Path) -> String {
        let toolchain = rustup.toolchain(project).unwrap();
        toolchain.path_prefix[0]
            .rsplit('/')
            .nth(1)
            .unwrap()
            .to_owned()
    }

    // CON-5: the toolchain that cargo would use, found without running anything.
    #[test]
    fn con_5_rustup_is_asked_as_it_would_answer() {
        let (_root, mut rustup, project) = host(&["stable-t", "1.95.0-t", "nightly-t"]);
        assert_eq!(chosen(&rustup, &project), "stable-t");
        fs::write(
            project.parent().unwrap().join("rust-toolchain"),
            "nightly\n",
        )
        .unwrap();
        assert_eq!(chosen(&rustup, &project), "nightly-t");
        fs::write(
            project.join("rust-toolchain.toml"),
            "[toolchain]\nchannel = \"1.95.0\"\n",
        )
        .unwrap();
        assert_eq!(chosen(&rustup, &project), "1.95.0-t");
        rustup.toolchain = Some("stable".to_owned());
        assert_eq!(chosen(&rustup, &project), "stable-t");

        let toolchain = rustup.toolchain(&project).unwrap();
        assert_eq!(toolchain.environment["CARGO_HOME"], "/home/agent/.cargo");
        assert_eq!(
            toolchain.mounts[0].source,
            Path::new(&toolchain.mounts[0].destination)
        );
    }

    // CON-5: a project chooses among what is installed, and nothing else.
    #[test]
    fn con_5_a_project_can_name_no_other_folder() {
        let (root, rustup, project) = host(&["stable-t"]);
        for (content, code) in [
            (
                "[toolchain]\nchannel = \"../../project\"\n",
                ErrorCode::Invalid,
            ),
            ("[toolchain]\nchannel = \"/etc\"\n", ErrorCode::Invalid),
            ("[toolchain]\nchannel = \"..\"\n", ErrorCode::Invalid),
            ("[toolchain]\npath = \"/etc\"\n", ErrorCode::Invalid),
            ("[toolchain]\nchannel = \"beta\"\n", ErrorCode::NotFound),
            ("two words", ErrorCode::Invalid),
        ] {
            fs::write(project.join("rust-toolchain.toml"), content).unwrap();
            assert_eq!(
                rustup.toolchain(&project).unwrap_err().code(),
                code,
                "{content}"
            );
        }
        let nowhere = Rustup {
            home: root.path().join("nowhere"),
            toolchain: None,
        };
        assert_eq!(
            nowhere.toolchain(&project).unwrap_err().code(),
            ErrorCode::NotFound
        );
    }
}
