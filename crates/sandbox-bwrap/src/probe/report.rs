//! What the probe's lines mean.

use sandbox_core::{Finding, Restriction, Standing};

/// Where a command may write: the session's own places.
const WRITABLE: [&str; 4] = ["/workspace", "/tmp", "/home/agent", "/dev/shm"];

/// Devices that bubblewrap binds one by one, and the sandbox's own terminals: nothing is
/// stored there.
const DEVICES: [&str; 8] = [
    "/dev/console",
    "/dev/full",
    "/dev/null",
    "/dev/pts",
    "/dev/random",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
];

/// A parsed report: lines of `name value`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Report(Vec<(String, String)>);

impl Report {
    pub(super) fn parse(text: &str) -> Self {
        let lines = text
            .lines()
            .map(|line| line.split_once(' ').unwrap_or((line, "")));
        Self(
            lines
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        )
    }

    /// One finding per restriction; `declared` are the names of the variables that every
    /// command gets.
    pub(super) fn findings(&self, declared: &[String]) -> Vec<Finding> {
        vec![
            judge(
                Restriction::WriteContained,
                &[
                    self.closed(),
                    self.mounts(),
                    self.capabilities(),
                    self.nesting(),
                ],
            ),
            judge(
                Restriction::ProcessContained,
                &[
                    self.capabilities(),
                    self.no_new_privileges(),
                    self.nesting(),
                    self.init(),
                    self.processes(),
                    self.seccomp(),
                ],
            ),
            judge(
                Restriction::SecretsHidden,
                &[self.descriptors(), self.environment(declared), self.init()],
            ),
            judge(Restriction::NetworkDenied, &[self.interfaces()]),
            judge(Restriction::ResourcesBounded, &[self.limits(), no_cgroup()]),
        ]
    }

    fn value(&self, name: &'static str) -> Option<&str> {
        self.values(name).next()
    }

    fn values(&self, name: &'static str) -> impl Iterator<Item = &str> {
        self.0
            .iter()
            .filter(move |(found, _)| found == name)
            .map(|(_, value)| value.as_str())
    }

    fn closed(&self) -> Seen {
        let tried: Vec<&str> = self.values("closed").collect();
        let open: Vec<&str> = tried
            .iter()
            .filter_map(|line| line.strip_suffix(" done"))
            .collect();
        match (tried.is_empty(), open.is_empty()) {
            (true, _) => Seen::nothing("writing to the system's folders"),
            (_, true) => Seen::ok(format!(
                "a file can't be made in any of {} folders of the system",
                tried.len()
            )),
            (_, false) => Seen::missing(format!("a file can be made in {}", open.join(", "))),
        }
    }

    fn mounts(&self) -> Seen {
        let mounts: Vec<&str> = self
            .values("writable")
            .filter_map(|line| line.split(' ').next())
            .collect();
        let foreign: Vec<&str> = mounts
            .iter()
            .copied()
            .filter(|path| !WRITABLE.contains(path) && !DEVICES.contains(path))
            .collect();
        match (mounts.contains(&"/workspace"), foreign.is_empty()) {
            (false, _) => Seen::nothing("the mount table"),
            (true, true) => Seen::ok(format!(
                "writable mounts are {} and devices",
                WRITABLE.join(", ")
            )),
            (true, false) => Seen::missing(format!("also writable: {}", foreign.join(", "))),
        }
    }

    fn capabilities(&self) -> Seen {
        match self.value("capabilities") {
            Some(sets) if is_five_zeros(sets) => Seen::ok("no capability in any set".to_owned()),
            Some(sets) => Seen::missing(format!("capability sets are {sets}")),
            None => Seen::nothing("capabilities"),
        }
    }

    fn no_new_privileges(&self) -> Seen {
        match self.value("no-new-privileges") {
            Some("1") => Seen::ok("no program gains privileges".to_owned()),
            Some(value) => Seen::missing(format!("NoNewPrivs is {value}")),
            None => Seen::nothing("NoNewPrivs"),
        }
    }

    fn nesting(&self) -> Seen {
        match self.value("user-namespace") {
            Some("done") => Seen::missing("a further user namespace can be made".to_owned()),
            Some(errno) => Seen::ok(format!("a further user namespace is refused ({errno})")),
            None => Seen::nothing("user namespaces"),
        }
    }

    fn init(&self) -> Seen {
        match self.value("init") {
            Some("done") => Seen::missing("pid 1 can be looked into".to_owned()),
            Some(errno) => Seen::ok(format!("pid 1 is opaque ({errno})")),
            None => Seen::nothing("pid 1"),
        }
    }

    fn processes(&self) -> Seen {
        match self
            .value("processes")
            .and_then(|count| count.parse::<u32>().ok())
        {
            Some(1..=2) => Seen::ok("only its own processes are visible".to_owned()),
            Some(count) => Seen::missing(format!("{count} processes are visible")),
            None => Seen::nothing("visible processes"),
        }
    }

    /// A fact beside the others: without a filter the kernel's whole surface is open, which
    /// the namespaces don't change.
    fn seccomp(&self) -> Seen {
        match self.value("seccomp") {
            Some("2") => Seen::ok("a seccomp filter is in force".to_owned()),
            Some(_) => Seen::ok(
                "there is no seccomp filter yet: every system call reaches the kernel".to_owned(),
            ),
            None => Seen::nothing("seccomp"),
        }
    }

    fn descriptors(&self) -> Seen {
        match self.value("descriptors") {
            Some("0 1 2") => Seen::ok("descriptors are 0, 1 and 2".to_owned()),
            Some(list) => Seen::missing(format!("open descriptors are {list}")),
            None => Seen::nothing("descriptors"),
        }
    }

    fn environment(&self, declared: &[String]) -> Seen {
        let Some(names) = self.value("environment") else {
            return Seen::nothing("the environment");
        };
        let foreign: Vec<&str> = names
            .split_whitespace()
            .filter(|name| !declared.iter().any(|own| own == name))
            .collect();
        if foreign.is_empty() {
            Seen::ok(format!(
                "the environment holds only {}",
                declared.join(", ")
            ))
        } else {
            Seen::missing(format!("the environment also holds {}", foreign.join(", ")))
        }
    }

    fn interfaces(&self) -> Seen {
        match self.value("interfaces") {
            Some("lo") => Seen::ok(
                "the only interface is lo, in a network namespace of the session".to_owned(),
            ),
            Some(list) => Seen::missing(format!("interfaces are {list}")),
            None => Seen::nothing("network interfaces"),
        }
    }

    fn limits(&self) -> Seen {
        let named: Vec<String> = [
            "max-processes",
            "max-files",
            "max-file-bytes",
            "max-core-bytes",
        ]
        .iter()
        .filter_map(|name| Some(format!("{name} {}", self.value(name)?)))
        .collect();
        match named.iter().find(|limit| limit.ends_with("unlimited")) {
            Some(limit) => Seen::missing(limit.clone()),
            None if named.len() == 4 => Seen::ok(named.join(", ")),
            None => Seen::nothing("limits"),
        }
    }
}

/// Memory and CPU need a delegated cgroup v2 subtree, which nothing here uses yet.
fn no_cgroup() -> Seen {
    Seen::missing("memory and CPU are not bounded: no cgroup is used yet".to_owned())
}

fn is_five_zeros(sets: &str) -> bool {
    let sets: Vec<&str> = sets.split(' ').collect();
    sets.len() == 5
        && sets
            .iter()
            .all(|set| !set.is_empty() && set.bytes().all(|digit| digit == b'0'))
}

/// One thing that was looked at.
struct Seen {
    standing: Standing,
    what: String,
}

impl Seen {
    fn ok(what: String) -> Self {
        Self {
            standing: Standing::Ok,
            what,
        }
    }

    fn missing(what: String) -> Self {
        Self {
            standing: Standing::Missing,
            what,
        }
    }

    fn nothing(what: &str) -> Self {
        Self {
            standing: Standing::Unknown,
            what: format!("{what}: not in the report"),
        }
    }
}

/// A restriction holds when all that it rests on does; the evidence names what does not, or all.
fn judge(restriction: Restriction, seen: &[Seen]) -> Finding {
    let at = |standing| {
        seen.iter()
            .filter(move |seen| seen.standing == standing)
            .collect::<Vec<_>>()
    };
    let (missing, unknown) = (at(Standing::Missing), at(Standing::Unknown));
    let (standing, told) = if !missing.is_empty() {
        (Standing::Missing, missing)
    } else if !unknown.is_empty() {
        (Standing::Unknown, unknown)
    } else {
        (Standing::Ok, at(Standing::Ok))
    };
    let evidence: Vec<&str> = told.iter().map(|seen| seen.what.as_str()).collect();
    Finding {
        restriction,
        standing,
        evidence: evidence.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "\
capabilities 0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000
no-new-privileges 1
seccomp 0
descriptors 0 1 2
environment HOME PATH
interfaces lo
processes 2
init EACCES
closed / EROFS
closed /usr EROFS
writable /workspace ext4
writable /tmp tmpfs
writable /dev/null devtmpfs
max-processes 512
max-files 4096
max-file-bytes 8589934592
max-core-bytes 1
user-namespace ENOSPC
";

    fn standings(text: &str) -> Vec<Standing> {
        let declared = ["HOME".to_owned(), "PATH".to_owned()];
        Report::parse(text)
            .findings(&declared)
            .into_iter()
            .map(|finding| finding.standing)
            .collect()
    }

    // CON-4: what is not in the report is unknown, and no constant says otherwise.
    #[test]
    fn con_4_nothing_measured_is_unknown() {
        use Standing::{Missing, Ok, Unknown};
        assert_eq!(standings(SOUND), [Ok, Ok, Ok, Ok, Missing]);
        assert_eq!(standings(""), [Unknown, Unknown, Unknown, Unknown, Missing]);
    }

    // CON-4: each line of the report can lose a restriction.
    #[test]
    fn con_4_each_kind_of_evidence_counts() {
        let worse = [
            (
                "closed /usr EROFS",
                "closed /usr done",
                Restriction::WriteContained,
            ),
            (
                "writable /tmp tmpfs",
                "writable /mnt ext4",
                Restriction::WriteContained,
            ),
            (
                "user-namespace ENOSPC",
                "user-namespace done",
                Restriction::WriteContained,
            ),
            (
                "no-new-privileges 1",
                "no-new-privileges 0",
                Restriction::ProcessContained,
            ),
            ("processes 2", "processes 9", Restriction::ProcessContained),
            ("init EACCES", "init done", Restriction::SecretsHidden),
            (
                "descriptors 0 1 2",
                "descriptors 0 1 2 3",
                Restriction::SecretsHidden,
            ),
            (
                "environment HOME PATH",
                "environment HOME PATH TOKEN",
                Restriction::SecretsHidden,
            ),
            (
                "interfaces lo",
                "interfaces eth0 lo",
                Restriction::NetworkDenied,
            ),
            (
                "0000000000000000\nno",
                "0000000000000001\nno",
                Restriction::ProcessContained,
            ),
        ];
        for (good, bad, restriction) in worse {
            let text = SOUND.replace(good, bad);
            assert_ne!(text, SOUND, "{good}");
            let findings = Report::parse(&text).findings(&["HOME".to_owned(), "PATH".to_owned()]);
            let finding = findings
                .into_iter()
                .find(|finding| finding.restriction == restriction)
                .unwrap();
            assert_eq!(
                finding.standing,
                Standing::Missing,
                "{bad}: {}",
                finding.evidence
            );
        }
    }
}
