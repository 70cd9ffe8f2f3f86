package webhookauth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"math/big"
	"strings"
)

const (
	maxDocument = 256 * 1024
	maxKeys     = 128
)

// The ways in which a key set is of no use.
var (
	ErrKeySetOversize  = errors.New("the key set is too long")
	ErrKeySetMalformed = errors.New("the key set is malformed")
	ErrKeySetTooMany   = errors.New("the key set has too many keys")
	ErrKeySetNoKeys    = errors.New("the key set has no key that can verify a token")
	ErrKeySetAmbiguous = errors.New("two keys of the key set have the same id")
)

// KeySet holds the keys that an issuer publishes.
type KeySet struct {
	keys []publicKey
}

type publicKey struct {
	id        string
	algorithm string
	encoded   []byte
	verify    func(message, signature []byte) bool
}

// ParseKeySet reads a JSON Web Key Set (RFC 7517). Keys that cannot verify a token are left out.
func ParseKeySet(document []byte) (*KeySet, error) {
	if len(document) > maxDocument {
		return nil, ErrKeySetOversize
	}
	object, err := readObject(document, maxTokenDepth)
	if err != nil {
		return nil, ErrKeySetMalformed
	}
	list, ok := object["keys"].([]any)
	if !ok {
		return nil, ErrKeySetMalformed
	}
	if len(list) > maxKeys {
		return nil, ErrKeySetTooMany
	}
	set := &KeySet{}
	for _, item := range list {
		jwk, ok := item.(map[string]any)
		if !ok {
			return nil, ErrKeySetMalformed
		}
		key, ok := usableKey(jwk)
		if !ok {
			continue
		}
		known := set.find(key.id, key.algorithm)
		switch {
		case known == nil:
			set.keys = append(set.keys, key)
		case !bytes.Equal(known.encoded, key.encoded):
			return nil, ErrKeySetAmbiguous
		}
	}
	if len(set.keys) == 0 {
		return nil, ErrKeySetNoKeys
	}
	return set, nil
}

// Len is the number of keys.
func (s *KeySet) Len() int {
	if s == nil {
		return 0
	}
	return len(s.keys)
}

func (s *KeySet) find(id, algorithm string) *publicKey {
	if s == nil {
		return nil
	}
	for i := range s.keys {
		if s.keys[i].id == id && (algorithm == "" || s.keys[i].algorithm == algorithm) {
			return &s.keys[i]
		}
	}
	return nil
}

// check verifies a signature with the key of this id. The algorithm is the key's: a header can only agree with it.
func (s *KeySet) check(id, algorithm string, message, signature []byte) *Rejection {
	if s.find(id, "") == nil {
		return reject(UnknownKey, "a key that the issuer does not publish")
	}
	key := s.find(id, algorithm)
	if key == nil {
		return reject(Algorithm, "not the algorithm of the key")
	}
	if !key.verify(message, signature) {
		return reject(Signature, "the signature does not match")
	}
	return nil
}

func isAlgorithm(name string) bool {
	return name == "RS256" || name == "ES256" || name == "ES384" || name == "ES512"
}

func usableKey(jwk map[string]any) (publicKey, bool) {
	text := func(name string) string {
		value, _ := jwk[name].(string)
		return value
	}
	has := func(name string) bool {
		_, there := jwk[name]
		return there
	}
	id := text("kid")
	if id == "" || has("use") && text("use") != "sig" {
		return publicKey{}, false
	}
	if has("key_ops") {
		operations, _ := jwk["key_ops"].([]any)
		verifies := false
		for _, operation := range operations {
			verifies = verifies || operation == "verify"
		}
		if !verifies {
			return publicKey{}, false
		}
	}
	key, ok := readKey(text)
	if !ok || has("alg") && text("alg") != key.algorithm {
		return publicKey{}, false
	}
	key.id = id
	return key, true
}

func readKey(text func(string) string) (publicKey, bool) {
	switch {
	case text("kty") == "RSA":
		return readRSA(text)
	case text("kty") == "EC" && text("crv") == "P-256":
		return readEC(text, elliptic.P256(), "ES256", func(m []byte) []byte { h := sha256.Sum256(m); return h[:] })
	case text("kty") == "EC" && text("crv") == "P-384":
		return readEC(text, elliptic.P384(), "ES384", func(m []byte) []byte { h := sha512.Sum384(m); return h[:] })
	case text("kty") == "EC" && text("crv") == "P-521":
		return readEC(text, elliptic.P521(), "ES512", func(m []byte) []byte { h := sha512.Sum512(m); return h[:] })
	default:
		return publicKey{}, false
	}
}

func readRSA(text func(string) string) (publicKey, bool) {
	n, ok := decodeBase64(text("n"))
	e, ok2 := decodeBase64(text("e"))
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	size := (modulus.BitLen() + 7) / 8
	if !ok || !ok2 || size < 256 || size > 1024 || modulus.Bit(0) == 0 || exponent.Bit(0) == 0 {
		return publicKey{}, false
	}
	if !exponent.IsInt64() || exponent.Int64() < 3 || exponent.Int64() > 1<<31-1 {
		return publicKey{}, false
	}
	key := &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}
	return publicKey{
		algorithm: "RS256",
		encoded:   append(modulus.Bytes(), exponent.Bytes()...),
		verify: func(message, signature []byte) bool {
			digest := sha256.Sum256(message)
			return rsa.VerifyPKCS1v15(key, crypto.SHA256, digest[:], signature) == nil
		},
	}, true
}

func readEC(text func(string) string, curve elliptic.Curve, algorithm string, hash func([]byte) []byte) (publicKey, bool) {
	size := (curve.Params().BitSize + 7) / 8
	x, ok := decodeBase64(text("x"))
	y, ok2 := decodeBase64(text("y"))
	if !ok || !ok2 || len(x) != size || len(y) != size {
		return publicKey{}, false
	}
	key := &ecdsa.PublicKey{Curve: curve, X: new(big.Int).SetBytes(x), Y: new(big.Int).SetBytes(y)}
	// This refuses points that are not on the curve.
	if _, err := key.ECDH(); err != nil {
		return publicKey{}, false
	}
	return publicKey{
		algorithm: algorithm,
		encoded:   append(x, y...),
		verify: func(message, signature []byte) bool {
			if len(signature) != 2*size {
				return false
			}
			r, s := new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:])
			return ecdsa.Verify(key, hash(message), r, s)
		},
	}, true
}

// decodeBase64 reads base64url without padding, in its one spelling. Go's decoder would pass over line breaks.
func decodeBase64(text string) ([]byte, bool) {
	if strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(text)
	return decoded, err == nil
}
