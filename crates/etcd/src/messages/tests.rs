use prost::Message as _;

use super::*;

/// The bytes that Go's etcd client sends for `If(ModRevision("k") == 0).Then(Put("k", "v"))`.
#[test]
fn a_create_is_encoded_as_go_encodes_it() {
    let key = Bytes::from_static(b"k");
    let create = TxnRequest {
        compare: vec![Compare::mod_revision(key.clone(), 0)],
        success: vec![Request::Put(PutRequest { key, value: Bytes::from_static(b"v"), lease: 0 }).into()],
        failure: Vec::new(),
    };
    let expected: &[u8] =
        &[0x0a, 7, 0x10, 2, 0x1a, 1, b'k', 0x30, 0, 0x12, 8, 0x12, 6, 0x0a, 1, b'k', 0x12, 1, b'v'];
    assert_eq!(create.encode_to_vec(), expected);
    assert_eq!(TxnRequest::decode(expected).unwrap(), create);
}

#[test]
fn fields_that_are_not_declared_are_skipped() {
    // A KeyValue with key `k`, and field 15 that this client does not know.
    let bytes: &[u8] = &[0x0a, 1, b'k', 0x78, 5];
    assert_eq!(
        KeyValue::decode(bytes).unwrap(),
        KeyValue { key: Bytes::from_static(b"k"), ..KeyValue::default() }
    );
}
