//! Metrics of the process: its resource usage and its build.

use prometheus::{
    Counter, Gauge, IntCounter, register_counter_with_registry, register_gauge_vec_with_registry,
    register_gauge_with_registry,
};

use crate::{MetricRegistry, dropped_log_lines, version};

/// CPU time, memory, open files and lost log lines of this process.
pub struct ProcessMetrics {
    cpu: Counter,
    resident: Gauge,
    virtual_bytes: Gauge,
    open_fds: Gauge,
    max_fds: Gauge,
    dropped_log_lines: IntCounter,
}

impl ProcessMetrics {
    /// `started` is the start time of the process in seconds since the Unix epoch.
    pub fn new(registry: &MetricRegistry, started: f64) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| register_gauge_with_registry!(name, help, registry);
        gauge("process_start_time_seconds", "Start time of the process since unix epoch in seconds.")?
            .set(started);
        Ok(ProcessMetrics {
            cpu: register_counter_with_registry!(
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
                registry
            )?,
            resident: gauge("process_resident_memory_bytes", "Resident memory size in bytes.")?,
            virtual_bytes: gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.")?,
            open_fds: gauge("process_open_fds", "Number of open file descriptors.")?,
            max_fds: gauge("process_max_fds", "Maximum number of open file descriptors.")?,
            dropped_log_lines: registry.counter(
                "portcullis_log_lines_dropped_total",
                "Number of log lines that were dropped, because standard error was not read in time.",
            )?,
        })
    }

    /// Updates the values. Those from `/proc` stay zero without it.
    #[expect(clippy::cast_precision_loss, reason = "figures for a page of floats")]
    pub fn read(&self) {
        const PAGE: f64 = 4096.0;
        const TICKS: f64 = 100.0;
        let known = self.dropped_log_lines.get();
        self.dropped_log_lines.inc_by(dropped_log_lines().saturating_sub(known));
        if let Ok(stat) = std::fs::read_to_string("/proc/self/stat")
            && let Some((_, fields)) = stat.rsplit_once(") ")
        {
            let field =
                |n: usize| fields.split(' ').nth(n).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0) as f64;
            let seconds = (field(11) + field(12)) / TICKS;
            self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
            self.virtual_bytes.set(field(20));
            self.resident.set(field(21) * PAGE);
        }
        if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
            self.open_fds.set(files.count() as f64);
        }
        if let Ok(limits) = std::fs::read_to_string("/proc/self/limits")
            && let Some(line) = limits.lines().find(|l| l.starts_with("Max open files"))
        {
            let soft = line.split_whitespace().nth(3).and_then(|f| f.parse::<f64>().ok());
            self.max_fds.set(soft.unwrap_or(0.0));
        }
    }
}

/// Registers `kubernetes_build_info`, a constant 1 whose labels carry the information.
pub fn register_build_info(registry: &MetricRegistry) -> Result<(), prometheus::Error> {
    const HELP: &str = "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.";
    let labels = [
        ("build_date", ""),
        ("compiler", "rustc"),
        ("git_commit", ""),
        ("git_tree_state", "clean"),
        ("git_version", version::reported()),
        ("go_version", ""),
        ("major", "1"),
        ("minor", "37"),
        ("platform", version::PLATFORM),
    ];
    let names = labels.map(|(name, _)| name);
    let info = register_gauge_vec_with_registry!("kubernetes_build_info", HELP, &names, registry)?;
    info.with_label_values(&labels.map(|(_, value)| value)).set(1.0);
    Ok(())
}
