//! Why a user namespace can't be made, by name.

use std::fs;

use sandbox_core::shown;

use super::{Check, Status};

/// The kernel's switches, as far as it has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    /// `kernel.unprivileged_userns_clone` (Debian's).
    unprivileged_clone: Option<String>,
    /// `user.max_user_namespaces`.
    max_user_namespaces: Option<String>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu's).
    apparmor_restrict: Option<String>,
}

impl Settings {
    pub(super) fn read() -> Self {
        let read = |path: &str| {
            fs::read_to_string(path)
                .ok()
                .map(|value| value.trim().to_owned())
        };
        Self {
            unprivileged_clone: read("/proc/sys/kernel/unprivileged_userns_clone"),
            max_user_namespaces: read("/proc/sys/user/max_user_namespaces"),
            apparmor_restrict: read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"),
        }
    }
}

/// A profile that lets bubblewrap, and nothing else, make user namespaces.
const APPARMOR_FIX: &str = "let bubblewrap make them, and nothing else: put `abi <abi/4.0>, include <tunables/global> \
    profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, }` into /etc/apparmor.d/bwrap and run \
    `apparmor_parser -r /etc/apparmor.d/bwrap`; the helper needs the same";

/// Names what stands in the way, from the switches and from bubblewrap's own words.
pub(super) fn judge(name: &'static str, words: &str, settings: &Settings) -> Check {
    let is = |setting: &Option<String>, value: &str| setting.as_deref() == Some(value);
    let (cause, fix) = if is(&settings.max_user_namespaces, "0") {
        (
            "user.max_user_namespaces is 0",
            "allow them: `sysctl user.max_user_namespaces=15000`, and the same line in /etc/sysctl.d/",
        )
    } else if is(&settings.unprivileged_clone, "0") {
        (
            "kernel.unprivileged_userns_clone is 0",
            "allow them: `sysctl kernel.unprivileged_userns_clone=1`, and the same line in /etc/sysctl.d/",
        )
    } else if is(&settings.apparmor_restrict, "1") {
        (
            "AppArmor restricts them (kernel.apparmor_restrict_unprivileged_userns is 1)",
            APPARMOR_FIX,
        )
    } else if words.contains("mount proc") {
        (
            "a part of /proc is hidden, as containers do, so that no fresh one can be mounted",
            "run the container with an unmasked /proc (`--security-opt unmask=ALL`)",
        )
    } else {
        (
            "the kernel refuses them, and none of its switches says why: a container's seccomp profile does that",
            "run the container with a profile that allows unshare, clone and mount (`--security-opt seccomp=…`)",
        )
    };
    Check {
        name,
        status: Status::Missing,
        found: format!("{cause}; bubblewrap says {}", shown(words.trim())),
        fix: Some(fix.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H26, CON-4: each cause by its name, with its own fix.
    #[test]
    fn h26_what_blocks_user_namespaces_is_named() {
        let some = |value: &str| Some(value.to_owned());
        let table = [
            (
                Settings {
                    max_user_namespaces: some("0"),
                    ..Settings::default()
                },
                "",
                "user.max_user_namespaces",
            ),
            (
                Settings {
                    unprivileged_clone: some("0"),
                    ..Settings::default()
                },
                "",
                "kernel.unprivileged_userns_clone",
            ),
            (
                Settings {
                    apparmor_restrict: some("1"),
                    ..Settings::default()
                },
                "",
                "kernel.apparmor_restrict_unprivileged_userns",
            ),
            (
                Settings::default(),
                "bwrap: Can't mount proc on /newroot/proc",
                "/proc",
            ),
            (Settings::default(), "bwrap: No permissions", "seccomp"),
        ];
        for (settings, words, named) in table {
            let check = judge("user namespaces", words, &settings);
            assert_eq!(check.status, Status::Missing);
            assert!(check.found.contains(named), "{check:?}");
            assert!(check.fix.is_some());
        }
    }
}
