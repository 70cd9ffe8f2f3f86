use authn::User;
use http::Method;

use super::Seats;
use requests::request_info::{Query, RequestInfo};

fn info(method: &Method, url: &str) -> RequestInfo {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    RequestInfo::parse(method, path, &Query::parse(query))
}

#[test]
fn a_request_over_the_limit_is_rejected_with_retry_after() {
    let seats = Seats::new(1, 1);
    let (user, list) = (User::named("u"), info(&Method::GET, "/api/v1/pods"));
    let seat = seats.take(&user, &list).unwrap();
    let refused = seats.take(&user, &list).unwrap_err();
    assert_eq!((refused.code(), refused.details().unwrap().retry_after_seconds), (429, 1));
    assert!(seats.take(&user, &info(&Method::POST, "/api/v1/pods")).is_ok());
    drop(seat);
    assert!(seats.take(&user, &list).is_ok());
}

#[test]
fn watches_and_masters_need_no_seat() {
    let seats = Seats::new(1, 1);
    let user = User::named("u");
    let list = info(&Method::GET, "/api/v1/pods");
    let _seat = seats.take(&user, &list).unwrap();
    assert!(seats.take(&user, &info(&Method::GET, "/api/v1/pods?watch=1")).is_ok());
    assert!(seats.take(&User::named("m").in_groups([authn::names::MASTERS]), &list).is_ok());
}
#[tokio::test]
async fn a_request_reacquiring_its_seat_goes_before_new_requests() {
    let seats = Seats::new(1, 1);
    let (user, post) = (User::named("u"), info(&Method::POST, "/api/v1/pods"));
    let mut slow = seats.take(&user, &post).unwrap();
    slow.reacquire().await.unwrap();
    assert_eq!(seats.in_use(), (0, 1), "a seat that was not released is not taken twice");
    slow.release();
    let other = seats.take(&user, &post).unwrap();
    let mut again = Box::pin(slow.reacquire());
    let first = std::future::poll_fn(|cx| std::task::Poll::Ready(again.as_mut().poll(cx))).await;
    assert!(first.is_pending(), "the only seat is taken");
    drop(other);
    assert!(seats.take(&user, &post).is_err(), "the one that waits comes first");
    again.await.unwrap();
    assert_eq!(seats.in_use(), (0, 1));
    drop(slow);
    assert_eq!(seats.in_use(), (0, 0));
}

#[tokio::test]
async fn members_of_system_masters_reacquire_without_waiting_for_a_seat() {
    let seats = Seats::new(1, 1);
    let post = info(&Method::POST, "/api/v1/pods");
    let mut master = seats.take(&User::named("m").in_groups([authn::names::MASTERS]), &post).unwrap();
    master.release();
    let _other = seats.take(&User::named("u"), &post).unwrap();
    master.reacquire().await.unwrap();
}
