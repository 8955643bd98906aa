//! Looks at the host's processes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A process: its number may be another's later, number and start time never.
pub(crate) type Known = (u32, u64);

/// What `/proc/N/stat` says.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) parent: u32,
    pub(crate) name: String,
    pub(crate) started: u64,
    pub(crate) zombie: bool,
}

/// All processes.
pub(crate) fn all() -> BTreeMap<u32, Process> {
    let entries = std::fs::read_dir("/proc").unwrap();
    entries
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((pid, look(pid)?))
        })
        .collect()
}

fn look(pid: u32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    Some(Process {
        parent: fields[1].parse().ok()?,
        name: head.split_once('(')?.1.to_owned(),
        started: fields[19].parse().ok()?,
        zombie: fields[0] == "Z",
    })
}

/// Everything below a process, itself left out.
pub(crate) fn below(root: u32) -> BTreeMap<u32, Process> {
    let all = all();
    let mut found = BTreeMap::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for (pid, process) in &all {
            if process.parent == parent && found.insert(*pid, process.clone()).is_none() {
                parents.push(*pid);
            }
        }
    }
    found
}

/// The parents of a process by name, the nearest first, up to this process.
pub(crate) fn above(pid: u32) -> Vec<(String, u32)> {
    let all = all();
    let mut found = Vec::new();
    let mut next = all[&pid].parent;
    while next > 1 && next != std::process::id() {
        let process = &all[&next];
        found.push((process.name.clone(), next));
        next = process.parent;
    }
    found
}

/// Sends a signal to a process that may be gone.
pub(crate) fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.try_into().unwrap()).unwrap();
    let _ = rustix::process::kill_process(pid, signal);
}

/// Those with this argument on their command line.
pub(crate) fn with_argument(argument: &str) -> Vec<u32> {
    all()
        .into_keys()
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(argument)
        })
        .filter(|pid| *pid != std::process::id())
        .collect()
}

/// Waits until there are this many of them.
pub(crate) async fn wait_for(argument: &str, count: usize) {
    let limit = Instant::now() + Duration::from_secs(5);
    while with_argument(argument).len() != count {
        assert!(Instant::now() < limit, "{:?}", with_argument(argument));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Whether this very process still lives; one that only waits to be reaped does not.
pub(crate) fn lives((pid, started): Known) -> bool {
    look(pid).is_some_and(|process| process.started == started && !process.zombie)
}

/// Waits until none of these is left.
pub(crate) async fn all_gone(pids: &[u32]) {
    let known: Vec<Known> = pids
        .iter()
        .filter_map(|pid| Some((*pid, look(*pid)?.started)))
        .collect();
    let limit = Instant::now() + Duration::from_secs(5);
    while known.iter().any(|known| lives(*known)) {
        assert!(Instant::now() < limit, "still there: {known:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
