//! The memory that this process may use.

use std::path::Path;

/// Files of a control group with its limit: version 2, and version 1.
const LIMIT_FILES: [&str; 2] = ["sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes"];

/// The memory of the machine, or the limit of the control group if that is lower, in bytes. `None` if it is unknown.
pub fn available_bytes() -> Option<u64> {
    available_below(Path::new("/"))
}

fn available_below(root: &Path) -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let machine = read("proc/meminfo").as_deref().and_then(total_of_machine);
    // A group without limit says `max`, or a number above any memory.
    let groups = LIMIT_FILES.iter().filter_map(|path| read(path)?.trim().parse::<u64>().ok());
    machine.into_iter().chain(groups).min()
}

fn total_of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{LIMIT_FILES, available_below};

    #[test]
    fn the_lower_one_of_machine_and_control_group_limits_memory() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!(available_below(root.path()), None);
        write("proc/meminfo", "MemTotal:       24576000 kB\nMemFree:        1000 kB\n");
        assert_eq!(available_below(root.path()), Some(24_576_000 * 1024));
        write(LIMIT_FILES[0], "max\n");
        assert_eq!(available_below(root.path()), Some(24_576_000 * 1024));
        write(LIMIT_FILES[0], "1073741824\n");
        assert_eq!(available_below(root.path()), Some(1 << 30));
        write(LIMIT_FILES[1], "9223372036854771712\n");
        assert_eq!(available_below(root.path()), Some(1 << 30));
    }
}
