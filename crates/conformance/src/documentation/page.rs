//! Reads the code blocks and directives of a Markdown page.

use crate::{Problem, Result};

#[derive(Debug, PartialEq, Eq)]
pub struct DocPage {
    /// The path below the root of the repository.
    pub name: String,
    /// Programs without which no block of the page can run.
    pub needs: Vec<String>,
    pub blocks: Vec<DocBlock>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockLanguage {
    Shell,
    Console,
    Yaml,
    Json,
    Python,
    Rust,
    Text,
}

/// A fenced code block, with the directives before it.
#[derive(Debug, PartialEq, Eq)]
pub struct DocBlock {
    pub language: BlockLanguage,
    /// The lines between the fences, without the indentation of the fence, each with its line feed.
    pub text: String,
    /// The line number of the opening fence, from 1.
    pub line: usize,
    /// The reason why the block is not run.
    pub not_run: Option<String>,
    pub file: Option<String>,
    pub background: bool,
    pub retry: bool,
    pub needs: Vec<String>,
}

#[derive(Default)]
struct Directives {
    line: usize,
    not_run: Option<String>,
    file: Option<String>,
    background: bool,
    retry: bool,
    needs: Vec<String>,
}

impl DocPage {
    /// Fails for an unknown language tag, a file that the prose does not name, a data block that is neither a file nor marked
    /// `not-run`, output without commands, an open fence, and a directive that no block follows.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let at = |line: usize, words: &str| Problem::new(format!("{name}:{line}: {words}"));
        let mut page = DocPage { name: name.to_owned(), needs: Vec::new(), blocks: Vec::new() };
        let mut pending: Option<Directives> = None;
        // The prose since the last block, in which a file must be named.
        let mut prose = String::new();
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let number = index + 1;
            let content = line.trim_start();
            let Some(tag) = content.strip_prefix("```") else {
                if let Some(comment) = comment(content) {
                    if let Some(programs) = comment.strip_prefix("page-needs:") {
                        page.needs.extend(list(programs));
                        continue;
                    }
                    let directives = pending.get_or_insert_default();
                    if directives.read(comment) {
                        directives.line = number;
                        continue;
                    }
                    if directives.line == 0 {
                        pending = None;
                    }
                }
                if !content.is_empty()
                    && let Some(directives) = &pending
                {
                    return Err(at(directives.line, "no block follows this directive"));
                }
                prose.push_str(line);
                prose.push('\n');
                continue;
            };
            let indent = line.len() - content.len();
            let mut body = String::new();
            loop {
                let (_, line) = lines.next().ok_or_else(|| at(number, "the block has no end"))?;
                if line.trim() == "```" {
                    break;
                }
                body.push_str(line.get(indent..).unwrap_or_default());
                body.push('\n');
            }
            let tag = tag.split(',').next().unwrap_or_default();
            let language = BlockLanguage::from_tag(tag).ok_or_else(|| {
                at(
                    number,
                    &format!("unknown language `{tag}`; use sh, console, yaml, json, python, rust or text"),
                )
            })?;
            let Directives { not_run, file, background, retry, needs, .. } =
                pending.take().unwrap_or_default();
            let block =
                DocBlock { language, text: body, line: number, not_run, file, background, retry, needs };
            block.check(page.blocks.last(), &prose).map_err(|problem| at(number, &problem.to_string()))?;
            page.blocks.push(block);
            prose.clear();
        }
        match pending {
            Some(directives) => Err(at(directives.line, "no block follows this directive")),
            None => Ok(page),
        }
    }
}

impl DocBlock {
    /// Whether this is the output of the block before it, rather than a transcript.
    pub fn is_output(&self) -> bool {
        self.language == BlockLanguage::Console && !self.text.starts_with("$ ")
    }

    /// The commands of a transcript, each with its output. A command goes on after a backslash at the end of a line.
    pub fn transcript(&self) -> Vec<(String, String)> {
        let mut steps: Vec<(String, String)> = Vec::new();
        let mut continued = false;
        for line in self.text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push((format!("{command}\n"), String::new()));
                continued = line.ends_with('\\');
            } else if let Some((command, output)) = steps.last_mut() {
                let part = if continued { command } else { output };
                part.push_str(line);
                part.push('\n');
                continued &= line.ends_with('\\');
            }
        }
        steps
    }

    fn check(&self, before: Option<&DocBlock>, prose: &str) -> Result<()> {
        let refuse = |words: &str| Err(Problem::new(words));
        if self.not_run.as_deref() == Some("") {
            return refuse("`not-run` needs a reason");
        }
        let is_data =
            matches!(self.language, BlockLanguage::Yaml | BlockLanguage::Json | BlockLanguage::Python);
        match &self.file {
            Some(_) if !is_data => return refuse("only yaml, json and python blocks are files"),
            Some(file) if !prose.contains(&format!("`{file}`")) => {
                return refuse("the prose above the block does not name its file in backticks");
            }
            None if is_data && self.not_run.is_none() => {
                return refuse("say `<!-- file: path -->` or `<!-- not-run: reason -->` before the block");
            }
            _ => {}
        }
        if self.is_output() && self.not_run.is_none() {
            let commands = before.filter(|block| block.language == BlockLanguage::Shell);
            if commands.is_none_or(|block| block.not_run.is_some()) {
                return refuse("this output has no commands: begin it with `$ command`, or tag it `text`");
            }
        }
        Ok(())
    }
}

impl BlockLanguage {
    fn from_tag(tag: &str) -> Option<Self> {
        Some(match tag {
            "sh" => BlockLanguage::Shell,
            "console" => BlockLanguage::Console,
            "yaml" => BlockLanguage::Yaml,
            "json" => BlockLanguage::Json,
            "python" => BlockLanguage::Python,
            "rust" => BlockLanguage::Rust,
            "text" => BlockLanguage::Text,
            _ => return None,
        })
    }
}

impl Directives {
    /// Returns false for a comment that is no directive.
    fn read(&mut self, comment: &str) -> bool {
        match comment.split_once(':') {
            None if comment == "background" => self.background = true,
            None if comment == "retry" => self.retry = true,
            Some(("not-run", reason)) => self.not_run = Some(reason.trim().to_owned()),
            Some(("file", path)) => self.file = Some(path.trim().to_owned()),
            Some(("needs", programs)) => self.needs.extend(list(programs)),
            _ => return false,
        }
        true
    }
}

fn comment(line: &str) -> Option<&str> {
    Some(line.strip_prefix("<!--")?.trim_end().strip_suffix("-->")?.trim())
}

fn list(words: &str) -> impl Iterator<Item = String> {
    words.split(',').map(|word| word.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::{BlockLanguage, DocPage};

    fn problem(page: &str) -> String {
        DocPage::parse("page.md", page).unwrap_err().to_string()
    }

    #[test]
    fn blocks_are_read_with_their_directives_and_without_the_indentation_of_lists() {
        let text = "<!-- page-needs: curl, jq -->\n\n1. Run:\n\n   <!-- retry -->\n   ```sh\n   a\n     b\n   ```\n\n   ```console\n   out\n   ```\n";
        let page = DocPage::parse("page.md", text).unwrap();
        assert_eq!(page.needs, ["curl", "jq"]);
        let [commands, output] = page.blocks.as_slice() else { panic!("{page:?}") };
        assert_eq!((commands.text.as_str(), commands.line, commands.retry), ("a\n  b\n", 6, true));
        assert_eq!((output.language, output.is_output()), (BlockLanguage::Console, true));
    }

    #[test]
    fn transcripts_are_split_into_commands_and_their_output() {
        let text = "```console\n$ a \\\n  b\nout\n$ c\n$ d\nx\ny\n```\n";
        let page = DocPage::parse("page.md", text).unwrap();
        let step = |command: &str, output: &str| (command.to_owned(), output.to_owned());
        let steps = page.blocks.first().unwrap().transcript();
        assert_eq!(steps, [step("a \\\n  b\n", "out\n"), step("c\n", ""), step("d\n", "x\ny\n")]);
    }

    #[test]
    fn blocks_that_would_not_be_tested_are_refused() {
        for (page, expected) in [
            ("```\na\n```\n", "page.md:1: unknown language ``"),
            ("\n```bash\na\n```\n", "page.md:2: unknown language `bash`"),
            ("```sh\na\n", "page.md:1: the block has no end"),
            ("```yaml\na: 1\n```\n", "page.md:1: say `<!-- file: path -->`"),
            (
                "<!-- file: a.yaml -->\n```yaml\na: 1\n```\n",
                "page.md:2: the prose above the block does not name",
            ),
            ("`a`\n<!-- file: a -->\n```sh\na\n```\n", "page.md:3: only yaml, json and python"),
            ("<!-- not-run: -->\n```sh\na\n```\n", "page.md:2: `not-run` needs a reason"),
            ("```console\nout\n```\n", "page.md:1: this output has no commands"),
            (
                "<!-- not-run: x -->\n```sh\na\n```\n```console\nout\n```\n",
                "page.md:5: this output has no commands",
            ),
            ("<!-- not-run: x -->\nprose\n```sh\na\n```\n", "page.md:1: no block follows"),
            ("<!-- retry -->\n", "page.md:1: no block follows"),
        ] {
            assert!(problem(page).starts_with(expected), "{page}\n{}", problem(page));
        }
        DocPage::parse(
            "page.md",
            "<!-- generated -->\nIn `a.yaml`:\n<!-- file: a.yaml -->\n```yaml\na: 1\n```\n",
        )
        .unwrap();
    }
}
