package cli

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// This file turns messages of Kafka's protocol into JSON and back. Names are
// kmsg's in lower-case snake; bytes are as in records; ids are base64 as
// Kafka's tools print them, and may be given as 8-4-4-4-12 digits too.

// snake is the JSON name of a Go field: TopicID is topic_id, ISR is isr.
func snake(name string) string {
	var b strings.Builder
	runes := []rune(name)
	for i, r := range runes {
		if unicode.IsUpper(r) && i > 0 {
			after := i+1 < len(runes) && unicode.IsLower(runes[i+1])
			if !unicode.IsUpper(runes[i-1]) || after && !(i+2 == len(runes) && runes[i+1] == 's') {
				b.WriteByte('_')
			}
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// messageFields lists the fields of a message's struct that are part of the
// protocol; Version is not.
func messageFields(t reflect.Type) []reflect.StructField {
	var fields []reflect.StructField
	for i := range t.NumField() {
		f := t.Field(i)
		if f.IsExported() && f.Name != "Version" && f.Type != reflect.TypeFor[kmsg.Tags]() {
			fields = append(fields, f)
		}
	}
	return fields
}

// isID reports whether t is Kafka's UUID.
func isID(t reflect.Type) bool {
	return t.Kind() == reflect.Array && t.Len() == 16 && t.Elem().Kind() == reflect.Uint8
}

// isBytes reports whether t is a byte slice.
func isBytes(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

// encodeMessage writes a message or a part of one as JSON behind dst.
func encodeMessage(dst []byte, v reflect.Value) []byte {
	switch {
	case isID(v.Type()):
		return appendJSONString(dst, kafka.TopicID(v.Interface().([16]byte)).String())
	case isBytes(v.Type()):
		return appendJSONBytes(dst, v.Bytes())
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return append(dst, "null"...)
		}
		return encodeMessage(dst, v.Elem())
	case reflect.Struct:
		return encodeStruct(dst, v)
	case reflect.Slice:
		if v.IsNil() {
			return append(dst, "null"...)
		}
		dst = append(dst, '[')
		for i := range v.Len() {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = encodeMessage(dst, v.Index(i))
		}
		return append(dst, ']')
	case reflect.String:
		return appendJSONString(dst, strings.ToValidUTF8(v.String(), "\uFFFD"))
	case reflect.Bool:
		return strconv.AppendBool(dst, v.Bool())
	case reflect.Float64, reflect.Float32:
		return appendJSONFloat(dst, v.Float())
	}
	if v.CanInt() {
		return strconv.AppendInt(dst, v.Int(), 10)
	}
	return strconv.AppendUint(dst, v.Uint(), 10)
}

// appendJSONFloat writes a number; NaN and the infinities, which JSON does not
// have, as text.
func appendJSONFloat(dst []byte, f float64) []byte {
	text, err := json.Marshal(f)
	if err != nil {
		return appendJSONString(dst, strconv.FormatFloat(f, 'g', -1, 64))
	}
	return append(dst, text...)
}

// encodeStruct writes the fields, and unknown tags by their number if there
// are any.
func encodeStruct(dst []byte, v reflect.Value) []byte {
	dst = append(dst, '{')
	for i, f := range messageFields(v.Type()) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, snake(f.Name)), ':')
		dst = encodeMessage(dst, v.FieldByIndex(f.Index))
	}
	if f := v.FieldByName("UnknownTags"); f.IsValid() {
		if tags, ok := f.Interface().(kmsg.Tags); ok && tags.Len() > 0 {
			dst = encodeTags(dst, &tags)
		}
	}
	return append(dst, '}')
}

func encodeTags(dst []byte, tags *kmsg.Tags) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(dst, `"unknown_tags":{`...)
	first := true
	tags.Each(func(n uint32, b []byte) {
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(strconv.AppendUint(append(dst, '"'), uint64(n), 10), `":`...)
		dst = append(appendJSONString(append(dst, `{"base64":`...), base64.StdEncoding.EncodeToString(b)), '}')
	})
	return append(dst, '}')
}

// decodeMessage reads a JSON object into the message that into points to.
// What the object does not name keeps its value.
func decodeMessage(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return fmt.Errorf("not JSON: %w", err)
	}
	if dec.More() {
		return fmt.Errorf("something follows the object")
	}
	return decodeValue(v, reflect.ValueOf(into).Elem(), "the body")
}

// decodeValue sets v from a decoded JSON value; path names it in errors.
func decodeValue(j any, v reflect.Value, path string) error {
	switch {
	case isID(v.Type()):
		return decodeID(j, v, path)
	case isBytes(v.Type()):
		return decodeBytes(j, v, path)
	}
	switch v.Kind() {
	case reflect.Pointer:
		if j == nil {
			v.SetZero()
			return nil
		}
		p := reflect.New(v.Type().Elem())
		setDefaults(p)
		if err := decodeValue(j, p.Elem(), path); err != nil {
			return err
		}
		v.Set(p)
		return nil
	case reflect.Struct:
		return decodeStruct(j, v, path)
	case reflect.Slice:
		return decodeSlice(j, v, path)
	case reflect.String:
		s, ok := j.(string)
		if !ok {
			return fmt.Errorf("%s: expected a string", path)
		}
		v.SetString(s)
		return nil
	case reflect.Bool:
		b, ok := j.(bool)
		if !ok {
			return fmt.Errorf("%s: expected true or false", path)
		}
		v.SetBool(b)
		return nil
	}
	return decodeNumber(j, v, path)
}

// setDefaults calls kmsg's defaults of the struct that p points to.
func setDefaults(p reflect.Value) {
	if d, ok := p.Interface().(interface{ Default() }); ok {
		d.Default()
	}
}

func decodeStruct(j any, v reflect.Value, path string) error {
	object, ok := j.(map[string]any)
	if !ok {
		return fmt.Errorf("%s: expected an object", path)
	}
	fields := map[string]reflect.StructField{}
	var names []string
	for _, f := range messageFields(v.Type()) {
		fields[plainName(f.Name)] = f
		names = append(names, snake(f.Name))
	}
	for name, value := range object {
		f, ok := fields[plainName(name)]
		if !ok {
			return fmt.Errorf("%s has no field %q%s", path, name, oneOf(near(name, names), names))
		}
		if err := decodeValue(value, v.FieldByIndex(f.Index), strings.TrimPrefix(path+"."+name, "the body.")); err != nil {
			return err
		}
	}
	return nil
}

// oneOf offers near names, or all if none is near.
func oneOf(nearest, all []string) string {
	if len(nearest) > 0 {
		return didYouMean(nearest)
	}
	return "; there are " + strings.Join(all, ", ")
}

// plainName makes topic_id, topicId and TopicID the same.
func plainName(s string) string { return strings.ToLower(strings.ReplaceAll(s, "_", "")) }

func decodeSlice(j any, v reflect.Value, path string) error {
	if j == nil {
		v.SetZero()
		return nil
	}
	list, ok := j.([]any)
	if !ok {
		return fmt.Errorf("%s: expected a list", path)
	}
	out := reflect.MakeSlice(v.Type(), len(list), len(list))
	for i, item := range list {
		setDefaults(out.Index(i).Addr())
		if err := decodeValue(item, out.Index(i), path+"["+itoa(i)+"]"); err != nil {
			return err
		}
	}
	v.Set(out)
	return nil
}

func decodeNumber(j any, v reflect.Value, path string) error {
	n, ok := j.(json.Number)
	if text, isText := j.(string); isText {
		if u, isEnum := v.Addr().Interface().(encoding.TextUnmarshaler); isEnum {
			if err := u.UnmarshalText([]byte(text)); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			return nil
		}
	}
	if !ok {
		return fmt.Errorf("%s: expected a number", path)
	}
	var err error
	switch {
	case v.CanInt():
		var i int64
		if i, err = strconv.ParseInt(n.String(), 10, v.Type().Bits()); err == nil {
			v.SetInt(i)
		}
	case v.CanUint():
		var u uint64
		if u, err = strconv.ParseUint(n.String(), 10, v.Type().Bits()); err == nil {
			v.SetUint(u)
		}
	default:
		var f float64
		if f, err = n.Float64(); err == nil {
			v.SetFloat(f)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %s is no %s", path, n, v.Kind())
	}
	return nil
}

func decodeBytes(j any, v reflect.Value, path string) error {
	raw, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	var b jsonBytes
	if err := b.UnmarshalJSON(raw); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	v.SetBytes(b.bytes)
	return nil
}

func decodeID(j any, v reflect.Value, path string) error {
	s, _ := j.(string)
	raw, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(raw) != 16 {
		raw = hexID(s)
	}
	if len(raw) != 16 {
		return fmt.Errorf("%s: %q is no id: expected 22 characters of base64 or 8-4-4-4-12 digits", path, s)
	}
	reflect.Copy(v, reflect.ValueOf(raw))
	return nil
}

// hexID reads 8-4-4-4-12 hexadecimal digits, nil if s is something else.
func hexID(s string) []byte {
	digits := strings.ReplaceAll(s, "-", "")
	if len(digits) != 32 {
		return nil
	}
	raw := make([]byte, 16)
	for i := range raw {
		n, err := strconv.ParseUint(digits[2*i:2*i+2], 16, 8)
		if err != nil {
			return nil
		}
		raw[i] = byte(n)
	}
	return raw
}
