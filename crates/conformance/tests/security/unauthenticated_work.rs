//! Parsing a request before authentication is cheap, whatever it contains.

use conformance::Server;

/// The processor time of a process, in ticks of ten milliseconds.
fn cpu_ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The program name in parentheses may contain spaces.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Sixteen requests with quadratic work take half a minute of processor time, with linear work less than a second: the limit is
/// between the two even for an unoptimized build with other load.
#[tokio::test]
async fn a_selector_of_only_operators_is_cheap_to_reject() {
    const MOST_TICKS: u64 = 1000;
    let server = Server::serve(&["--anonymous-auth=false"]).await.unwrap();
    let client = server.client().unwrap().as_token(None);
    let before = cpu_ticks(server.pid());
    for operators in ["(", "!", "=", ",!"] {
        let text = operators.repeat(60_000 / operators.len());
        for _ in 0..4 {
            let path = format!("/api/v1/pods?fieldSelector=metadata.name%3Dx&labelSelector={text}");
            assert_eq!(client.get(&path).await.unwrap().code, 401);
        }
    }
    let used = cpu_ticks(server.pid()) - before;
    assert!(used < MOST_TICKS, "{used} ticks of processor time");
}
