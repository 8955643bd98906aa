//! Every outcome of a command is told apart (SPEC CMD-4, PROC-7).

use sandbox_helper::wire::Record;

use crate::session::{Session, exited, request, signalled};

// CMD-4
#[tokio::test]
async fn cmd_4_codes_and_signals_are_told_apart() {
    let session = Session::start().await;
    for (script, record) in [
        ("exit 0", exited(0)),
        ("exit 7", exited(7)),
        ("exit 127", exited(127)),
        ("exit 137", exited(137)),
        ("kill -9 $$", signalled(9)),
        ("kill -15 $$", signalled(15)),
    ] {
        let ran = session.shell(script).await;
        assert_eq!(ran.record(), record, "{script}: {ran:?}");
    }
    session.keeper.close().await.unwrap();
}

// PROC-7, H19: what can't be executed is a result, each kind by its number.
#[tokio::test]
async fn h19_executables_that_are_none_are_told_apart() {
    let session = Session::start().await;
    session
        .text(
            "printf '#!/missing/interpreter\\n' >script; printf 'no program' >text; \
             printf '\\177ELF\\2\\1\\1\\0\\0\\0\\0\\0\\0\\0\\0\\0\\2\\0\\363\\0\\1\\0\\0\\0' >other; \
             mkdir folder; touch closed; chmod +x script text other",
        )
        .await;
    let not_executed = |errno, exists| Record::NotExecuted { errno, exists };
    for (name, record) in [
        ("missing", not_executed(libc::ENOENT, false)),
        ("./missing", not_executed(libc::ENOENT, false)),
        ("./closed/missing", not_executed(libc::ENOENT, false)),
        ("./closed", not_executed(libc::EACCES, true)),
        ("./folder", not_executed(libc::EACCES, true)),
        ("./script", not_executed(libc::ENOENT, true)),
        ("./text", not_executed(libc::ENOEXEC, true)),
        ("./other", not_executed(libc::ENOEXEC, true)),
        ("", not_executed(libc::ENOENT, false)),
    ] {
        let ran = session.run(&request(&[name])).await;
        assert_eq!(ran.record(), record, "{name}: {ran:?}");
    }
    session.keeper.close().await.unwrap();
}
