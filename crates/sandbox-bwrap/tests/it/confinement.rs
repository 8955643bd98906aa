//! What a command sees and may do (cases of `containment`).

use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use sandbox_core::ErrorCode;
use sandbox_helper::wire::{Limits, Record};

use crate::session::{Session, exited, owner, request};

// S02, PROC-1: exactly 0, 1 and 2, all pipes of ours.
#[tokio::test]
async fn s02_descriptors_are_three_pipes() {
    let session = Session::start().await;
    // By number, not by a look into /proc, which would open one more.
    let script = "import os, stat\n\
                  for fd in range(1000):\n \
                  try: print(fd, stat.S_ISFIFO(os.fstat(fd).st_mode))\n \
                  except OSError: pass";
    let ran = session.run(&request(&["python3", "-c", script])).await;
    assert_eq!(ran.stdout, "0 True\n1 True\n2 True\n", "{ran:?}");
    session.keeper.close().await.unwrap();
}

// FI-32, ARG-2: no capability, no new privileges, no signal ignored or blocked.
#[tokio::test]
async fn fi_32_privileges_and_dispositions_are_none() {
    let session = Session::start().await;
    let ran = session.run(&request(&["cat", "/proc/self/status"])).await;
    let field = |name: &str| {
        ran.stdout
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"))
            .unwrap()
    };
    for name in [
        "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "SigIgn", "SigBlk", "SigCgt",
    ] {
        assert_eq!(field(name), "0000000000000000", "{name}");
    }
    assert_eq!(field("NoNewPrivs"), "1");
    assert_eq!(field("Uid"), "1000\t1000\t1000\t1000");
    assert_eq!(field("Gid"), "1000\t1000\t1000\t1000");
    session.keeper.close().await.unwrap();
}

// CMD-2, S05: the environment is exactly what the request says.
#[tokio::test]
async fn s05_environment_is_exactly_the_declared_one() {
    let session = Session::start().await;
    let mut asked = request(&["/usr/bin/env"]);
    asked.environment = ["A=1", "B=two words\nand a line", "--bind=/", "A=2"]
        .map(|entry| CString::new(entry).unwrap())
        .to_vec();
    let ran = session.run(&asked).await;
    assert_eq!(ran.stdout, "A=1\nB=two words\nand a line\n--bind=/\nA=2\n");
    session.keeper.close().await.unwrap();
}

// H17, ARG-4: whatever an argument holds, the command gets it, and nobody else does.
#[tokio::test]
async fn h17_arguments_arrive_byte_for_byte() {
    let session = Session::start().await;
    let long = "x".repeat(100 * 1024);
    let odd = [
        "",
        "--",
        "-rf",
        "--bind",
        "a b",
        "a\nb",
        "$HOME",
        "\u{1b}[2J",
        &long,
    ];
    let mut arguments = vec!["/usr/bin/printf", "%s\\0"];
    arguments.extend(odd);
    let ran = session.run(&request(&arguments)).await;
    let arrived: Vec<&str> = ran.stdout.split_terminator('\0').collect();
    assert_eq!(arrived, odd);
    let huge = "x".repeat(128 * 1024);
    let ran = session.run(&request(&["/usr/bin/true", &huge])).await;
    let too_long = Record::NotExecuted {
        errno: libc::E2BIG,
        exists: true,
    };
    assert_eq!(ran.record(), too_long);
    session.keeper.close().await.unwrap();
}

// A05, A06, ARG-2: only the declared places can be written, and no mount be changed.
#[tokio::test]
async fn a05_only_the_declared_places_can_be_written() {
    let session = Session::start().await;
    let script = "for place in / /usr /usr/bin /bin /etc /etc/ssl /run /run/init /dev /home /var \
                  /proc /proc/sys/kernel/hostname; do \
                  touch $place/planted 2>/dev/null && echo written $place; \
                  (echo x >$place) 2>/dev/null && echo written $place; done; \
                  for place in /workspace /tmp /home/agent /dev/shm /var/tmp; do \
                  touch $place/x || echo not written $place; done; \
                  for call in 'mount -o remount,rw /usr' 'umount /proc' 'mount --bind /usr /tmp' \
                  'mount -t tmpfs none /tmp' 'unshare -U true' 'unshare -m true' 'chroot /'; do \
                  $call 2>/dev/null && echo allowed $call; done; true";
    assert_eq!(session.text(script).await, "");
    session.keeper.close().await.unwrap();
}

// S03, S01: pid 1 is opaque but for its constant command line, and immortal.
#[tokio::test]
async fn s03_pid_1_is_opaque() {
    let session = Session::start().await;
    let script = "cd /proc/1 && tr '\\0' '\\n' <cmdline; \
                  for file in environ maps mem auxv syscall; do \
                  head -c 1 $file >/dev/null 2>&1 && echo read $file; done; \
                  for link in exe cwd root fd/0 ns/net; do \
                  readlink $link >/dev/null && echo read $link; done; \
                  kill -9 1; kill -STOP 1; kill -9 -1; true";
    // The last kill ends whatever the command could reach: itself is left out by kill(2).
    assert_eq!(session.text(script).await, "/run/init\n");
    session.keeper.close().await.unwrap();
}

// ARG-2, N01, N09, RUN-2: a network of its own with loopback alone.
#[tokio::test]
async fn n09_the_network_is_loopback_alone() {
    let session = Session::start().await;
    let devices = "awk -F: 'NR > 2 { print $1 }' /proc/net/dev | tr -d ' '";
    assert_eq!(session.text(devices).await, "lo\n");
    let echo = "python3 -c 'import socket\n\
                server = socket.create_server((\"localhost\", 0))\n\
                client = socket.create_connection(server.getsockname())\n\
                server.accept()[0].sendall(b\"met\")\n\
                print(client.recv(3).decode())\n\
                try: socket.create_connection((\"192.0.2.1\", 80), 5)\n\
                except OSError as error: print(error.errno)\n\
                try: socket.getaddrinfo(\"example.com\", 80)\n\
                except socket.gaierror as error: print(error.errno)'";
    // ENETUNREACH, and EAI_AGAIN at once.
    assert_eq!(session.text(echo).await, "met\n101\n-3\n");
    session.keeper.close().await.unwrap();
}

// RUN-2, RUN-3: `/tmp`, home and the workspace are the session's, `/dev/shm` a command's.
#[tokio::test]
async fn run_3_places_are_the_sessions_or_the_commands() {
    let session = Session::start().await;
    session
        .text("for place in /tmp ~ /workspace /dev/shm; do echo x >$place/left; done")
        .await;
    let found = session.text("ls /tmp ~ /workspace /dev/shm").await;
    assert_eq!(
        found,
        "/dev/shm:\n\n/home/agent:\nleft\n\n/tmp:\nleft\n\n/workspace:\nleft\n"
    );
    // BAK, §8: never the kernel's root, and readable from the host through its own path.
    let metadata = session.folder.workspace().join("left").metadata().unwrap();
    let own = rustix::process::getuid().as_raw();
    assert_eq!(metadata.uid(), owner().map_or(own, |owner| owner.uid));
    session.keeper.close().await.unwrap();
}

// R03, ARG-2: the memory file systems are bounded, in bytes and entries.
#[tokio::test]
async fn r03_memory_file_systems_are_small() {
    let session = Session::start().await;
    for place in ["/tmp", "/dev/shm"] {
        let fill = format!("head -c 2000000 /dev/zero >{place}/full; wc -c <{place}/full");
        let ran = session.shell(&fill).await;
        assert_eq!(ran.stdout.trim(), "1048576", "{ran:?}");
        assert!(ran.stderr.contains("No space left on device"), "{ran:?}");
        session.text("rm -f /tmp/full").await;
    }
    let many = session
        .shell("i=0; while : >/tmp/$i; do i=$((i + 1)); done; echo $i")
        .await;
    // A redirection that fails ends the shell.
    assert!(many.stderr.contains("No space left on device"), "{many:?}");
    assert_eq!(session.text("ls /tmp | wc -l").await, "99\n");
    session.keeper.close().await.unwrap();
}

// R01, R02, R06, S10: the limits of the request hold.
#[tokio::test]
async fn r01_limits_are_those_of_the_request() {
    let session = Session::start().await;
    let mut asked = request(&["/bin/sh", "-c", "cat /proc/self/limits"]);
    asked.limits = Limits {
        processes: Some(40),
        open_files: Some(50),
        file_bytes: Some(60_000),
        locked_bytes: Some(70_000),
        message_queue_bytes: Some(0),
    };
    let ran = session.run(&asked).await;
    for (name, value) in [
        ("Max processes", "40"),
        ("Max open files", "50"),
        ("Max file size", "60000"),
        ("Max locked memory", "70000"),
        ("Max msgqueue size", "0"),
        ("Max core file size", "1"),
    ] {
        let line = ran
            .stdout
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap();
        let mut values = line[name.len()..].split_whitespace();
        assert_eq!(
            (values.next(), values.next()),
            (Some(value), Some(value)),
            "{line}"
        );
    }
    let script = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i + 1)); done";
    asked.arguments[2] = CString::new(script).unwrap();
    let ran = session.run(&asked).await;
    assert!(ran.stderr.contains("Cannot fork"), "{ran:?}");
    session.keeper.close().await.unwrap();
}

// R01: the session's own bound holds over what each command may have.
#[tokio::test]
async fn r01_the_session_bounds_the_processes_of_all_its_commands() {
    let session = Session::start_with(|setup| setup.processes = Some(24))
        .await
        .unwrap();
    let script = "i=0; while [ $i -lt 40 ]; do sleep 1 & i=$((i + 1)); done; echo all";
    let ran = session.shell(script).await;
    assert_eq!(ran.stdout, "", "{ran:?}");
    assert!(ran.stderr.contains("Cannot fork"), "{ran:?}");
    // Another session is not touched.
    let other = Session::start().await;
    assert_eq!(other.shell(script).await.stdout, "all\n");
    other.keeper.close().await.unwrap();
    session.keeper.close().await.unwrap();
}

// H18, ARG-4: what can't be entered is told apart, and nothing ran.
#[tokio::test]
async fn h18_working_directories_are_entered_beneath_the_workspace() {
    let session = Session::start().await;
    let prepare = "mkdir -p deep/er closed; touch file; ln -s / out; ln -s ../../usr usr; \
                   ln -s deep/er in; ln -s loop loop; chmod 0 closed";
    session.text(prepare).await;
    let run = async |cwd: &str| {
        let mut asked = request(&["/bin/pwd", "-P"]);
        asked.cwd = CString::new(cwd).unwrap();
        session.run(&asked).await
    };
    for (cwd, inside) in [
        ("", "/workspace\n"),
        ("deep", "/workspace/deep\n"),
        ("in", "/workspace/deep/er\n"),
    ] {
        let ran = run(cwd).await;
        assert_eq!((ran.record(), ran.stdout.as_str()), (exited(0), inside));
    }
    for (cwd, errno) in [
        ("missing", libc::ENOENT),
        ("file", libc::ENOTDIR),
        ("closed", libc::EACCES),
        ("out", libc::EXDEV),
        ("usr", libc::EXDEV),
        ("loop", libc::ELOOP),
    ] {
        let ran = run(cwd).await;
        assert_eq!(ran.record(), Record::BadCwd(errno), "{cwd}: {ran:?}");
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
    }
    session.text("chmod 700 closed").await;
    session.keeper.close().await.unwrap();
}

// ARG-2: names, time, trust and libraries are there, and nothing of the host's users.
#[tokio::test]
async fn arg_2_etc_is_small_and_sufficient() {
    let session = Session::start().await;
    let script = "whoami; hostname; getent hosts localhost | tr -s ' '; getent passwd | wc -l; \
                  test -s /etc/ld.so.cache && echo cache; ls /etc/shadow /etc/ssh 2>/dev/null; \
                  awk --version >/dev/null 2>&1 || awk 'BEGIN { exit 0 }' && echo alternatives";
    let expected =
        "agent\nsandbox\n::1 localhost ip6-localhost ip6-loopback\n3\ncache\nalternatives\n";
    assert_eq!(session.text(script).await, expected);
    // The install path of the helper, and whoever's home it is in, does not show.
    let mounts = session.text("cat /proc/self/mountinfo").await;
    assert!(mounts.contains(" /k/h /run/init "), "{mounts}");
    assert!(!mounts.contains("sandbox-helper"), "{mounts}");
    session.keeper.close().await.unwrap();
}

// CON-5: read-only trees, a folder and a file, whoever may reach them on the host.
#[tokio::test]
async fn con_5_read_only_mounts_are_there_and_can_not_be_written() {
    let tools = tempfile::tempdir().unwrap();
    std::fs::create_dir(tools.path().join("bin")).unwrap();
    std::fs::write(tools.path().join("bin/tool"), "tool\n").unwrap();
    // A root host's own folder is closed to the user that the sandbox runs as: the mount itself
    // must be reachable, the folders above it need not.
    let inner = tools.path().join("bin");
    let session = Session::with_mount(&inner, "/home/ada/.tools/bin")
        .await
        .unwrap();
    let script = "cat /home/ada/.tools/bin/tool; \
                  echo x >/home/ada/.tools/bin/tool; touch /home/ada/x; ls -A /home/ada";
    let ran = session.shell(script).await;
    assert_eq!(ran.stdout, "tool\n.tools\n");
    assert_eq!(
        ran.stderr.matches("Read-only file system").count(),
        2,
        "{ran:?}"
    );
    session.keeper.close().await.unwrap();

    let file = inner.join("tool");
    let session = Session::with_mount(&file, "/opt/tool").await.unwrap();
    assert_eq!(session.text("cat /opt/tool").await, "tool\n");
    session.keeper.close().await.unwrap();

    let missing = Session::with_mount(&inner.join("missing"), "/opt/x")
        .await
        .unwrap_err();
    assert_eq!(missing.code(), ErrorCode::Invalid);
    let below = Session::with_mount(&inner, "/workspace/x")
        .await
        .unwrap_err();
    assert_eq!(below.code(), ErrorCode::Invalid);
}

// DESIGN, "file operations": the passed descriptor is the workspace that commands see.
#[tokio::test]
async fn the_workspace_descriptor_is_what_commands_see() {
    let session = Session::start().await;
    session
        .text("mkdir a; echo inside >a/file; ln -s / out")
        .await;
    let open = |path: &str| {
        rustix::fs::openat2(
            session.workspace.as_fd(),
            path,
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
        )
    };
    let file = open("a/file").unwrap();
    let mut bytes = [0; 16];
    let length = rustix::io::read(&file, &mut bytes).unwrap();
    assert_eq!(&bytes[..length], b"inside\n");
    assert_eq!(open("out/etc/passwd").unwrap_err(), rustix::io::Errno::XDEV);
    session.keeper.close().await.unwrap();
}

// CON-3: a program in the request is the last thing before the command, and holds for it.
#[tokio::test]
async fn con_3_a_filter_holds_and_a_broken_one_is_no_command() {
    let session = Session::start().await;
    let mut asked = request(&["/usr/bin/true"]);
    // Load the number; answer ENOSYS to all but execve and the like by allowing everything: the
    // two instructions only show that a filter is there.
    let allow_all = [0x06_u8, 0, 0, 0, 0, 0, 0xff, 0x7f];
    asked.filter = allow_all.to_vec();
    asked.arguments = ["cat", "/proc/self/status"]
        .map(|argument| CString::new(argument).unwrap())
        .to_vec();
    asked.executable = c"cat".to_owned();
    let ran = session.run(&asked).await;
    assert!(ran.stdout.contains("\nSeccomp:\t2\n"), "{ran:?}");
    asked.filter = vec![0; 7];
    let ran = session.run(&asked).await;
    let Record::Failed(failure) = ran.record() else {
        panic!("{ran:?}");
    };
    assert_eq!(failure.step, sandbox_helper::Step::Filter);
    assert_eq!(failure.errno, libc::EINVAL);
    session.keeper.close().await.unwrap();
}
