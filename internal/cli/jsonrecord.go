package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/ottla/ottla/kafka"
)

// appendJSONRecord writes r as one JSON object, without a newline, behind dst:
// null is null, text a string, bytes that are not UTF-8 {"base64":"…"}.
func appendJSONRecord(dst []byte, r *kafka.Record) []byte {
	dst = appendJSONString(append(dst, `{"topic":`...), r.Topic)
	dst = strconv.AppendInt(append(dst, `,"partition":`...), int64(r.Partition), 10)
	dst = strconv.AppendInt(append(dst, `,"offset":`...), int64(r.Offset), 10)
	dst = strconv.AppendInt(append(dst, `,"timestamp":`...), int64(r.Timestamp), 10)
	dst = appendJSONBytes(append(dst, `,"key":`...), r.Key)
	dst = appendJSONBytes(append(dst, `,"value":`...), r.Value)
	dst = append(dst, `,"headers":[`...)
	for i := range r.Headers {
		if i > 0 {
			dst = append(dst, ',')
		}
		h := &r.Headers[i]
		if dst = append(dst, '['); utf8.ValidString(h.Key) {
			dst = appendJSONString(dst, h.Key)
		} else {
			dst = appendJSONBytes(dst, []byte(h.Key))
		}
		dst = append(appendJSONBytes(append(dst, ','), h.Value), ']')
	}
	return append(dst, `]}`...)
}

// appendJSONBytes writes null, a string, or base64.
func appendJSONBytes(dst, b []byte) []byte {
	switch {
	case b == nil:
		return append(dst, "null"...)
	case utf8.Valid(b):
		return appendJSONString(dst, b)
	default:
		dst = append(dst, `{"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, b)
		return append(dst, `"}`...)
	}
}

// appendJSONString writes valid UTF-8 as a JSON string.
func appendJSONString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c != 0x7f {
			continue
		}
		dst = append(dst, s[start:i]...)
		start = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, `\u00`...)
			dst = append(dst, hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[start:]...), '"')
}

// jsonBytes is a key, value or header in a JSON record.
type jsonBytes struct {
	set   bool // the member was there
	bytes []byte
}

// UnmarshalJSON takes null, a string or {"base64":"…"}.
func (b *jsonBytes) UnmarshalJSON(data []byte) error {
	b.set = true
	switch data[0] {
	case 'n':
		b.bytes = nil
		return nil
	case '"':
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		b.bytes = append([]byte{}, s...)
		return nil
	case '{':
		var o struct {
			Base64 *string `json:"base64"`
		}
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil {
			return err
		}
		if o.Base64 == nil {
			return errors.New(`an object of bytes needs "base64"`)
		}
		raw, err := base64.StdEncoding.DecodeString(*o.Base64)
		if err != nil {
			return fmt.Errorf("base64: %w", err)
		}
		b.bytes = append([]byte{}, raw...)
		return nil
	}
	return errors.New(`bytes are a string, null or {"base64":"…"}`)
}

// jsonRecord is one line of `consume --json`.
type jsonRecord struct {
	Topic     *string       `json:"topic"`
	Partition *int32        `json:"partition"`
	Offset    *int64        `json:"offset"`
	Timestamp *int64        `json:"timestamp"`
	Key       jsonBytes     `json:"key"`
	Value     jsonBytes     `json:"value"`
	Headers   [][]jsonBytes `json:"headers"`
}

// jsonError says without Go's types why something is no record.
func jsonError(err error) error {
	var other *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the object has no end")
	case errors.As(err, &other) && other.Field == "":
		return fmt.Errorf(`expected an object such as {"value":"…"}, not %s`, other.Value)
	case errors.As(err, &other):
		return fmt.Errorf("%q cannot be %s", other.Field, other.Value)
	}
	return err
}

// parseJSONRecord reads one object as `consume --json` prints it. Its topic
// and offset are where it came from and are left out; partition is -1 if the
// object names none, and the timestamp 0 (the time of the call) if it names
// none or the record had none. "value" must be there, and nothing that
// `consume --json` does not print: a misspelt name would lose data.
func parseJSONRecord(line []byte) (kafka.Record, error) {
	if !utf8.Valid(line) {
		return kafka.Record{}, errors.New("not UTF-8")
	}
	var j jsonRecord
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&j); err != nil {
		return kafka.Record{}, jsonError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return kafka.Record{}, errors.New("something follows the object")
	}
	if !j.Value.set {
		return kafka.Record{}, errors.New(`"value" is missing (null is a tombstone)`)
	}
	r := kafka.Record{Partition: -1, Key: j.Key.bytes, Value: j.Value.bytes}
	if j.Partition != nil {
		if r.Partition = *j.Partition; r.Partition < 0 {
			return kafka.Record{}, fmt.Errorf("partition %d is below zero", r.Partition)
		}
	}
	if j.Timestamp != nil && *j.Timestamp > 0 {
		r.Timestamp = kafka.Timestamp(*j.Timestamp)
	}
	for _, h := range j.Headers {
		if len(h) != 2 || h[0].bytes == nil {
			return kafka.Record{}, errors.New(`a header is ["name",value]`)
		}
		r.Headers = append(r.Headers, kafka.Header{Key: string(h[0].bytes), Value: h[1].bytes})
	}
	return r, nil
}
