//! The reader of Kubernetes' protobuf encoding.

use data_encoding::HEXLOWER;
use fuzz::Corpus;
use schema::{decode, protobuf};
use value::{json, write};

use crate::seeds;

fn corpus() -> Corpus {
    let text = String::from_utf8(seeds::file("schema/src/protobuf/samples.txt")).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let samples: Vec<Vec<u8>> =
        lines.chunks(2).map(|pair| HEXLOWER.decode(pair[0].as_bytes()).unwrap()).collect();
    assert!(samples.len() > 10, "only {} samples", samples.len());
    let tokens = [
        "k8s\0",
        "\n\0",
        "\x12\0",
        "\x1a\0",
        "\"\0",
        "\n\x02v1",
        "\x12\x03Pod",
        "\x08\x01",
        "\n\x7f",
        "\x0b",
        "\x0c",
        "\u{80}\u{80}\u{80}\u{80}\x01",
    ];
    Corpus::new(samples, &tokens)
}

#[test]
fn decoded_protobuf_can_be_written_as_json() {
    fuzz::run(&corpus().inputs(), |input| {
        let Ok(mut tree) = protobuf::read(input) else { return Ok(()) };
        if tree.depth() > json::MAX_DEPTH {
            return Err(format!("{} levels deep", tree.depth()));
        }
        let text = |key: &str| tree.str_at(&[key]).unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let written = write::to_vec(&tree);
        // One byte of a repeated number becomes several digits of JSON.
        if written.len() > input.len() * 64 + 1024 {
            return Err(format!("{} bytes became {}", input.len(), written.len()));
        }
        if json::parse(&written).map_err(|error| format!("not JSON: {error}"))? != tree {
            return Err("its JSON is another tree".to_owned());
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
        let schema = schema::of(group, version, &kind).ok_or("read without a schema")?;
        decode::normalize(&mut tree, schema);
        Ok(())
    });
}
