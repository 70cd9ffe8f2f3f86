package webhookauth

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"unicode/utf8"
)

// maxTokenDepth bounds the nesting of tokens, key sets and provider documents. A review may nest as deep as encoding/json reads.
const (
	maxTokenDepth  = 128
	maxReviewDepth = 9000
)

var errNotPlain = errors.New("not a JSON object that reads only one way")

// readObject reads a JSON object into a tree of map[string]any, []any, string, json.Number, bool and nil.
//
// encoding/json takes names for equal that differ in case, keeps the last of two equal names, and replaces what is not UTF-8. Two
// programs could then read the same token differently, so none of this is accepted, and names are compared as they are.
func readObject(document []byte, depth int) (map[string]any, error) {
	if !utf8.Valid(document) || !hasPairedSurrogates(document) {
		return nil, errNotPlain
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	value, err := readValue(decoder, depth)
	if err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errNotPlain
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil, errNotPlain
	}
	return object, nil
}

func readValue(decoder *json.Decoder, depth int) (any, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	if number, ok := token.(json.Number); ok {
		// A number beyond the range of float64 is none.
		if _, err := strconv.ParseFloat(number.String(), 64); err != nil {
			return nil, errNotPlain
		}
	}
	delimiter, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if depth == 0 {
		return nil, errNotPlain
	}
	if delimiter == '[' {
		list := []any{}
		for decoder.More() {
			value, err := readValue(decoder, depth-1)
			if err != nil {
				return nil, err
			}
			list = append(list, value)
		}
		_, err := decoder.Token()
		return list, err
	}
	object := map[string]any{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		name, ok := token.(string)
		if !ok {
			return nil, errNotPlain
		}
		if _, twice := object[name]; twice {
			return nil, errNotPlain
		}
		if object[name], err = readValue(decoder, depth-1); err != nil {
			return nil, err
		}
	}
	_, err = decoder.Token()
	return object, err
}

// hasPairedSurrogates reports whether every escaped surrogate has its partner: encoding/json would replace it.
func hasPairedSurrogates(document []byte) bool {
	escape := func(at int) (uint64, bool) {
		if at+6 > len(document) || document[at] != '\\' || document[at+1] != 'u' {
			return 0, false
		}
		code, err := strconv.ParseUint(string(document[at+2:at+6]), 16, 16)
		return code, err == nil
	}
	for at := 0; at < len(document); at++ {
		if document[at] != '\\' {
			continue
		}
		code, ok := escape(at)
		if !ok {
			at++ // another escape, as of a quote or a backslash
			continue
		}
		at += 5
		switch {
		case code >= 0xDC00 && code <= 0xDFFF:
			return false
		case code >= 0xD800 && code <= 0xDBFF:
			low, ok := escape(at + 1)
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return false
			}
			at += 6
		}
	}
	return true
}

// stringOf returns a text that may be absent or null. ok is false if it is something else.
func stringOf(object map[string]any, name string) (text string, present, ok bool) {
	switch value := object[name].(type) {
	case nil:
		return "", false, true
	case string:
		return value, true, true
	default:
		return "", true, false
	}
}
