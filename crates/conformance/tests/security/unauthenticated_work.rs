//! What is read of a request before its caller is authenticated costs little, whatever it says.

use conformance::Server;

/// Processor time that a process has used so far, in ticks of ten milliseconds.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name of the program, in parentheses, may have blanks.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Sixteen requests of quadratic work are half a minute of processor time, and those of linear work are less than a second:
/// the limit lies between the two even for an unoptimised build that does other things as well.
#[tokio::test]
async fn a_selector_of_operators_alone_costs_an_anonymous_client_s_target_little() {
    const MOST_TICKS: u64 = 1000;
    let server = Server::serve(&["--anonymous-auth=false"]).await.unwrap();
    let client = server.client().unwrap().as_token(None);
    let before = ticks(server.pid());
    for operators in ["(", "!", "=", ",!"] {
        let text = operators.repeat(60_000 / operators.len());
        for _ in 0..4 {
            let path = format!("/api/v1/pods?fieldSelector=metadata.name%3Dx&labelSelector={text}");
            assert_eq!(client.get(&path).await.unwrap().code, 401);
        }
    }
    let used = ticks(server.pid()) - before;
    assert!(used < MOST_TICKS, "{used} ticks of processor time");
}
