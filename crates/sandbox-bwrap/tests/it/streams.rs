//! Standard input, signals, and what a command leaves running.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::processes;
use crate::session::{PATIENCE, Session, exited, request, signalled};

// PROC-2, R09, FI-10: who does not read its input is no error, and nothing hangs.
#[tokio::test]
async fn proc_2_unread_input_ends_with_the_command() {
    let session = Session::start().await;
    let mut spawned = session.spawn(&request(&["/bin/sh", "-c", "exit 3"])).await;
    let input = vec![7; 1 << 20];
    let written = tokio::time::timeout(PATIENCE, spawned.stdin.write_all(&input));
    let error = written.await.expect("the writer hangs").unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    assert_eq!(spawned.finish().await.record(), exited(3));
    session.keeper.close().await.unwrap();
}

// PROC-2: what is given is read, to its end.
#[tokio::test]
async fn proc_2_input_arrives_and_ends() {
    let session = Session::start().await;
    let mut spawned = session.spawn(&request(&["wc", "-c"])).await;
    let mut input = std::mem::replace(&mut spawned.stdin, spare_sender());
    let writer = tokio::spawn(async move { input.write_all(&vec![7; 1 << 20]).await });
    let ran = spawned.finish().await;
    writer.await.unwrap().unwrap();
    assert_eq!(
        (ran.record(), ran.stdout.as_str()),
        (exited(0), "1048576\n")
    );
    session.keeper.close().await.unwrap();
}

fn spare_sender() -> tokio::net::unix::pipe::Sender {
    let (read, write) = rustix::pipe::pipe().unwrap();
    drop(read);
    tokio::net::unix::pipe::Sender::from_owned_fd(write).unwrap()
}

// RUN-1: a signal reaches the command's group, and a command that handles it goes on.
#[tokio::test]
async fn run_1_signals_reach_the_group() {
    let session = Session::start().await;
    let script = "trap 'echo caught; exit 5' USR1; echo ready; while :; do sleep 0.05; done";
    let mut spawned = session.spawn(&request(&["/bin/sh", "-c", script])).await;
    let mut line = [0; 6];
    spawned.stdout.read_exact(&mut line).await.unwrap();
    // Numbers that are none are dropped where they arrive.
    for number in [0, -1, 99, libc::SIGUSR1] {
        spawned.command.try_signal(number);
    }
    let ran = spawned.finish().await;
    assert_eq!((ran.record(), ran.stdout.as_str()), (exited(5), "caught\n"));

    let mut spawned = session
        .spawn(&request(&["/bin/sh", "-c", "echo ready; sleep 1000"]))
        .await;
    spawned.stdout.read_exact(&mut line).await.unwrap();
    spawned.command.try_signal(libc::SIGTERM);
    assert_eq!(spawned.finish().await.record(), signalled(libc::SIGTERM));
    session.keeper.close().await.unwrap();
}

// R11, R13, PROC-5: nothing outlives its command, however it hid, and no pipe stays open.
#[tokio::test]
async fn r11_nothing_outlives_its_command() {
    let session = Session::start().await;
    let marker = "31536000.11";
    let script = format!(
        "trap '' TERM HUP; (setsid sh -c 'sleep {marker} & sleep {marker}' &) ; \
         setsid sleep {marker} & sleep {marker} & exit 4"
    );
    let ran = session.shell(&script).await;
    assert_eq!(ran.record(), exited(4));
    assert_eq!(processes::with_argument(marker), [0_u32; 0]);
    session.keeper.close().await.unwrap();
}

// Facts §1.3: hundreds of orphans are reaped while the command runs.
#[tokio::test]
async fn orphans_are_reaped_while_the_command_runs() {
    let session = Session::start().await;
    let script = "i=0; while [ $i -lt 100 ]; do (true &); i=$((i + 1)); done; sleep 0.2; \
                  cat /proc/[0-9]*/stat | grep -c ' Z '";
    assert_eq!(session.shell(script).await.stdout, "0\n");
    session.keeper.close().await.unwrap();
}

// PROC-6: a dropped command is killed, with everything that it started.
#[tokio::test]
async fn proc_6_a_dropped_command_is_gone() {
    let session = Session::start().await;
    let marker = "31536000.06";
    let script = format!("setsid sleep {marker} & echo ready; sleep {marker}");
    let mut spawned = session.spawn(&request(&["/bin/sh", "-c", &script])).await;
    let mut line = [0; 6];
    spawned.stdout.read_exact(&mut line).await.unwrap();
    // The shell and both sleeps.
    processes::wait_for(marker, 3).await;
    drop(spawned.command);
    let mut rest = String::new();
    let read = spawned.stdout.read_to_string(&mut rest);
    tokio::time::timeout(PATIENCE, read)
        .await
        .expect("a pipe stays open")
        .unwrap();
    processes::all_gone(&processes::with_argument(marker)).await;
    // The session goes on.
    assert_eq!(session.text("echo next").await, "next\n");
    session.keeper.close().await.unwrap();
}

// OWN-1: as many at once as a session may admit by default, and each keeps its own output.
#[tokio::test]
async fn own_1_eight_at_once_keep_their_own_output() {
    let session = Session::start().await;
    let run = async |number: usize| session.text(&format!("sleep 0.1; echo {number}")).await;
    let outputs = tokio::join!(
        run(1),
        run(2),
        run(3),
        run(4),
        run(5),
        run(6),
        run(7),
        run(8)
    );
    let expected = ["1\n", "2\n", "3\n", "4\n", "5\n", "6\n", "7\n", "8\n"];
    let (a, b, c, d, e, f, g, h) = outputs;
    assert_eq!([a, b, c, d, e, f, g, h], expected);
    session.keeper.close().await.unwrap();
}
