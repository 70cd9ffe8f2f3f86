//! The tests that every backend whose data outlives a store must pass: `every_reopened_backend!` runs them.

use storage::{Backend, ListAt, ListRequest, Store};

use crate::fixture::{at, create, now, remove, update};
use crate::suite::open;

const ALL: &str = "/registry/core/things/";

/// Closes a store and opens another one on the same data.
async fn reopen<B: Backend>(store: Store, backend: impl Fn() -> B) -> Store {
    store.close().await;
    open(backend()).await
}

pub(crate) async fn a_directory_that_is_empty_when_the_store_is_opened_is_listed_at_an_older_revision<
    B: Backend,
>(
    backend: impl Fn() -> B,
) {
    let store = open(backend()).await;
    let before = store.revision();
    create(&store, "a", "1").await;
    let both = create(&store, "b", "1").await;
    remove(&store, "a").await;
    let one = store.revision();
    remove(&store, "b").await;
    let store = reopen(store, backend).await;
    assert_eq!(now(&store, ALL).await, [""; 0]);
    assert_eq!(at(&store, ALL, both).await.unwrap(), ["a=1", "b=1"]);
    assert_eq!(at(&store, ALL, one).await.unwrap(), ["b=1"]);
    assert_eq!(at(&store, "/", one).await.unwrap(), ["b=1"], "also above all directories");
    assert_eq!(at(&store, ALL, before).await.unwrap(), [""; 0]);
    assert_eq!(at(&store, ALL, store.revision()).await.unwrap(), [""; 0]);
    // The directory is filled again, while the revision is still older than the store.
    create(&store, "c", "1").await;
    assert_eq!(at(&store, ALL, both).await.unwrap(), ["a=1", "b=1"]);
}

pub(crate) async fn the_pages_of_a_list_continue_after_its_entries_are_deleted_and_the_store_is_opened_again<
    B: Backend,
>(
    backend: impl Fn() -> B,
) {
    let store = open(backend()).await;
    for number in 0..5 {
        update(&store, &number.to_string(), "1").await;
    }
    let page = store.list(ListRequest { limit: 2, ..ListRequest::all(ALL) }).await.unwrap();
    let mut names: Vec<String> = page.entries.iter().map(|entry| entry.key.to_string()).collect();
    for number in 0..5 {
        remove(&store, &number.to_string()).await;
    }
    let store = reopen(store, backend).await;
    let at = ListAt::Exact(page.revision);
    let mut more = page.more;
    while let Some(after) = more {
        let next = ListRequest { at, after: Some(&after), limit: 2, ..ListRequest::all(ALL) };
        let page = store.list(next).await.unwrap();
        names.extend(page.entries.iter().map(|entry| entry.key.to_string()));
        more = page.more;
    }
    assert_eq!(names, (0..5).map(|number| format!("{ALL}{number}")).collect::<Vec<_>>());
}

/// Runs the tests for backends: each expression returns a value that must outlive the stores, and a function that makes a backend for
/// the same data each time; `None` if the backend's tests are left out.
macro_rules! every_reopened_backend {
    ($($name:ident: $make:expr;)*) => {
        $(mod $name {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_directory_that_is_empty_when_the_store_is_opened_is_listed_at_an_older_revision() {
                let Some((_data, backend)) = $make else { return };
                crate::reopen::a_directory_that_is_empty_when_the_store_is_opened_is_listed_at_an_older_revision(backend)
                    .await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn the_pages_of_a_list_continue_after_its_entries_are_deleted_and_the_store_is_opened_again() {
                let Some((_data, backend)) = $make else { return };
                crate::reopen::the_pages_of_a_list_continue_after_its_entries_are_deleted_and_the_store_is_opened_again(
                    backend,
                )
                .await;
            }
        })*
    };
}
