use super::*;

#[derive(Clone, PartialEq, prost::Message)]
struct TextMessage {
    #[prost(string, tag = "1")]
    text: String,
}

fn text(text: &str) -> TextMessage {
    TextMessage { text: text.to_owned() }
}

#[test]
fn messages_are_read_from_data_that_is_cut_anywhere() {
    let data =
        [encode(&text("one")).unwrap(), encode(&text("")).unwrap(), encode(&text("three")).unwrap()].concat();
    for cut in 0..=data.len() {
        let (first, second) = data.split_at(cut);
        let mut reader = FrameReader::new(100);
        let mut messages = Vec::new();
        for part in [first, second] {
            reader.push(part);
            while let Some(message) = reader.next::<TextMessage>().unwrap() {
                messages.push(message);
            }
        }
        assert_eq!(messages, [text("one"), text(""), text("three")], "cut at {cut}");
        assert!(reader.buffer.is_empty());
    }
}

#[test]
fn a_message_beyond_the_limit_is_refused_before_it_arrives() {
    let mut reader = FrameReader::new(10);
    reader.push(&[0, 0, 0, 0, 11]);
    assert_eq!(reader.next::<TextMessage>().unwrap_err().code, GrpcCode::ResourceExhausted);
    let mut reader = FrameReader::new(11);
    reader.push(&[0, 0, 0, 0, 11]);
    assert_eq!(reader.next::<TextMessage>(), Ok(None));
}

#[test]
fn compressed_and_undecodable_messages_are_errors() {
    let mut reader = FrameReader::new(10);
    reader.push(&[1, 0, 0, 0, 0]);
    assert_eq!(reader.next::<TextMessage>().unwrap_err().code, GrpcCode::Unimplemented);
    let mut reader = FrameReader::new(10);
    reader.push(&[0, 0, 0, 0, 2, 0x0a, 9]);
    assert_eq!(reader.next::<TextMessage>().unwrap_err().code, GrpcCode::Internal);
}
