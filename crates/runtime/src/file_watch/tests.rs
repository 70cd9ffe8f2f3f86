use std::fs;
use std::os::unix::fs::symlink;

use super::*;

/// A temporary directory whose path contains no symbolic links.
fn root() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

#[test]
fn a_plain_file_is_watched_through_its_directory_alone() {
    let (_temporary, root) = root();
    fs::write(root.join("a"), "x").unwrap();
    let watched_paths = WatchedPaths::of([root.join("a").as_path()]);
    assert_eq!(watched_paths, WatchedPaths { directories: [root.clone()].into(), links: BTreeSet::new() });
    assert!(watched_paths.has(&root.join("b")), "a rename onto it begins with another name");
    assert!(!watched_paths.has(root.parent().unwrap()));
}

#[test]
fn only_the_symbolic_links_on_the_way_to_a_file_are_watched() {
    let (_temporary, root) = root();
    let (directory, far) = (root.join("directory"), root.join("far"));
    for path in [&directory, &far, &far.join("v1"), &root.join("deep")] {
        fs::create_dir(path).unwrap();
    }
    fs::write(far.join("v1/file"), "x").unwrap();
    symlink("v1", far.join("current")).unwrap();
    symlink("../far/current", root.join("deep/hop")).unwrap();
    symlink(root.join("deep/hop/file"), directory.join("file")).unwrap();
    let watched_paths = WatchedPaths::of([directory.join("file").as_path()]);
    let links = [directory.join("file"), root.join("deep/hop"), far.join("current")];
    assert_eq!(watched_paths.links, links.clone().into());
    assert_eq!(watched_paths.directories, [directory.clone(), far.join("v1")].into());
    assert_eq!(watched_paths.watched(), [directory, far.clone(), far.join("v1"), root.join("deep")].into());
    assert!(links.iter().all(|link| watched_paths.has(link)));
    assert!(!watched_paths.has(&far.join("other")), "what else happens there is no hint");
}

#[test]
fn dangling_and_circular_symbolic_links_end_path_resolution() {
    let (_temporary, root) = root();
    symlink("loop", root.join("loop")).unwrap();
    symlink("gone/file", root.join("dangling")).unwrap();
    let watched_paths = WatchedPaths::of([root.join("loop").as_path()]);
    assert_eq!(watched_paths.watched(), [root.clone()].into());
    let watched_paths = WatchedPaths::of([root.join("dangling").as_path()]);
    assert_eq!(watched_paths.watched(), [root.clone(), root.join("gone")].into());
}

#[tokio::test]
async fn a_change_is_noticed_that_is_made_while_a_replaced_directory_is_read() {
    let (_temporary, root) = root();
    let (directory, fresh) = (root.join("directory"), root.join("fresh"));
    for (path, content) in [(&directory, "0"), (&fresh, "1")] {
        fs::create_dir(path).unwrap();
        fs::write(path.join("file"), content).unwrap();
    }
    let (_stop, stopped) = watch::channel(false);
    let (sender, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let look = move |directory: &mut PathBuf, _| {
        let file = directory.join("file");
        let content = fs::read_to_string(&file).unwrap_or_default();
        if content == "1" {
            fs::write(&file, "2").unwrap();
        }
        let _ = sender.send(content);
    };
    let paths = |directory: &PathBuf| {
        let missing = (!directory.is_dir()).then(|| directory.clone());
        missing.into_iter().chain([directory.join("any")]).collect()
    };
    tokio::spawn(FileWatch::new(Duration::ZERO, stopped).follow(directory.clone(), paths, look));
    assert_eq!(seen.recv().await.unwrap(), "0");
    fs::rename(&directory, root.join("away")).unwrap();
    fs::rename(&fresh, &directory).unwrap();
    // Much sooner than the next check without a notification.
    let noticed = async { while seen.recv().await.unwrap() != "2" {} };
    tokio::time::timeout(POLL / 2, noticed).await.unwrap();
}
