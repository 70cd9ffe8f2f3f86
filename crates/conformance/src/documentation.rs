//! Runs the code blocks of `README.md` and `docs/`, so that no page shows a command that fails or output that does not come.
//!
//! [`DocPage::parse`] reads the blocks of a page, [`run`] runs them in order, and [`check_blocks`] parses those that are not run.
//!
//! | language | meaning |
//! |---|---|
//! | `sh` | commands; all blocks of a page share one bash, which stops at the first error |
//! | `console` | lines that begin with `$ ` are commands, whatever their exit code, and the lines below them are their output; without such a line, the block is the output of the `sh` block before it |
//! | `yaml`, `json`, `python` | a file; a `file:` directive says which |
//! | `rust` | a doc test; the crate that includes the page compiles it |
//! | `text` | neither run nor compared |
//!
//! In expected output, `…` stands for any text within a line, and for any number of lines where it is a line of its own.
//! Directives are HTML comments before a block:
//!
//! | directive | effect |
//! |---|---|
//! | `<!-- not-run: reason -->` | the block is parsed and not run |
//! | `<!-- file: path -->` | the block is written to this file, which the prose above it names in backticks |
//! | `<!-- background -->` | a server in a terminal of its own: the next block runs when it is ready |
//! | `<!-- retry -->` | the block is run again until its output is as shown |
//! | `<!-- needs: program -->` | the block is left out, with a message, where the program is missing |
//! | `<!-- page-needs: program, program -->` | the same for the whole page |
//!
//! A program of etcd that is missing is a failure, unless `PORTCULLIS_ETCD` is `left-out`: `cargo xtask test` sets and reports that.

mod expected_output;
mod page;
mod page_shell;
mod programs;
mod unrun_blocks;

use std::path::{Path, PathBuf};

pub use expected_output::compare as compare_output;
pub use page::{BlockLanguage, DocBlock, DocPage};
pub use unrun_blocks::check_blocks;

use crate::server::free_port;
use crate::{Problem, Result};
use page_shell::{OnFailure, PageShell};
use programs::missing_programs;

/// Ports that pages name, each replaced by a free one.
const PORTS: [&str; 5] = ["6443", "8443", "9443", "2379", "2380"];

/// The root of this repository.
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

/// Runs the blocks of a page in order and compares what they print. `replacements` are made in commands, files and expected output.
pub fn run(page: &DocPage, replacements: &[(&str, &str)]) -> Result<()> {
    let missing = missing_programs(&page.needs).map_err(|e| Problem::at(&page.name, e))?;
    if !missing.is_empty() {
        println!("left out: {} needs {}", page.name, missing.join(", "));
        return Ok(());
    }
    if page.blocks.iter().all(|block| block.not_run.is_some() || block.language == BlockLanguage::Text) {
        return Ok(());
    }
    let ports = free_ports()?;
    let mut shell = PageShell::start(&ports)?;
    let etc = shell.work_folder().join("etc").display().to_string();
    let examples = repository().join("docs/examples").display().to_string();
    let mut all: Vec<(&str, &str)> = replacements.to_vec();
    all.extend(PORTS.into_iter().zip(ports.iter().map(String::as_str)));
    all.push(("/etc/kubernetes", &etc));
    all.push(("docs/examples", &examples));
    all.push(("cargo run --release --", "portcullis"));
    let replace = |text: &str| all.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));

    let mut blocks = page.blocks.iter().peekable();
    while let Some(block) = blocks.next() {
        let output = blocks.next_if(|next| block.language == BlockLanguage::Shell && next.is_output());
        if block.not_run.is_some() {
            continue;
        }
        let missing = missing_programs(&block.needs).map_err(|e| Problem::at(&page.name, e))?;
        if !missing.is_empty() {
            println!("left out: {}:{} needs {}", page.name, block.line, missing.join(", "));
            continue;
        }
        let step = run_block(&mut shell, block, output, &replace);
        step.map_err(|problem| Problem::new(format!("{}:{}: {problem}", page.name, block.line)))?;
    }
    Ok(())
}

fn run_block(
    shell: &mut PageShell,
    block: &DocBlock,
    output: Option<&DocBlock>,
    replace: &impl Fn(&str) -> String,
) -> Result<()> {
    let expected = output.filter(|output| output.not_run.is_none()).map(|output| replace(&output.text));
    match block.language {
        BlockLanguage::Shell if block.background => {
            shell.run_in_background(&replace(&block.text), expected.as_deref())
        }
        BlockLanguage::Shell if block.retry => {
            shell.retry(&replace(&block.text), expected.as_deref().unwrap_or("…"))
        }
        BlockLanguage::Shell => {
            let printed = shell.run(&replace(&block.text), OnFailure::Stop)?;
            expected.map_or(Ok(()), |expected| compare_output(&printed, &expected))
        }
        BlockLanguage::Console => {
            for (command, expected) in block.transcript() {
                let (command, expected) = (replace(&command), replace(&expected));
                if block.retry {
                    shell.retry(&command, &expected)?;
                } else {
                    let printed = shell.run(&command, OnFailure::Continue)?;
                    compare_output(&printed, &expected)
                        .map_err(|problem| Problem::new(format!("$ {command}\n{problem}")))?;
                }
            }
            Ok(())
        }
        BlockLanguage::Yaml | BlockLanguage::Json | BlockLanguage::Python => match &block.file {
            Some(file) => shell.write_file(&replace(file), &replace(&block.text)),
            None => Ok(()),
        },
        BlockLanguage::Rust | BlockLanguage::Text => Ok(()),
    }
}

/// One free port for each of [`PORTS`]; none contains one of them, because it would be replaced in turn.
fn free_ports() -> Result<Vec<String>> {
    let mut listeners = Vec::new();
    let mut ports: Vec<String> = Vec::new();
    while ports.len() < PORTS.len() {
        let (port, listener) = free_port()?;
        listeners.push(listener);
        let port = port.to_string();
        ports.extend((!PORTS.iter().any(|named| port.contains(named))).then_some(port));
    }
    Ok(ports)
}
