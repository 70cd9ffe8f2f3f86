//! Runs request scripts by hand: `record` writes the answers of the reference server (`REFERENCE_URL`), `diff` compares the built
//! binary with the reference server or with the recorded answers. `PORTCULLIS_SCRIPT` selects scripts by a part of their name.

use std::process::ExitCode;

use conformance::suite;

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match std::env::args().nth(1).as_deref() {
        Some("record") => suite::record().await.map(|steps| {
            println!("recorded {steps} steps");
            true
        }),
        Some("diff") => suite::run().await.map(|score| {
            print!("{}", score.report);
            score.passed == score.total
        }),
        _ => {
            eprintln!("usage: replay record|diff");
            return ExitCode::FAILURE;
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(problem) => {
            eprintln!("error: {problem}");
            ExitCode::FAILURE
        }
    }
}
