package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// api is one of Kafka's requests.
type api struct {
	Key        int16  `json:"key"`
	Name       string `json:"name"`
	MaxVersion int16  `json:"max_version"`
}

// apis lists the requests that this build knows, by key.
func apis() []api {
	var all []api
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if req := kmsg.RequestForKey(key); req != nil {
			all = append(all, api{Key: key, Name: kmsg.NameForKey(key), MaxVersion: req.MaxVersion()})
		}
	}
	return all
}

// findAPI takes a name in any case, or a number.
func findAPI(name string) (api, error) {
	n, err := strconv.ParseInt(name, 10, 16)
	var names []string
	for _, one := range apis() {
		if err == nil && int64(one.Key) == n || strings.EqualFold(one.Name, strings.TrimSuffix(name, "Request")) {
			return one, nil
		}
		names = append(names, one.Name)
	}
	return api{}, usagef("no API is called %s%s; `ottla request --list` shows them", name, didYouMean(near(name, names)))
}

// field describes a field of a message.
type field struct {
	Name    string  `json:"name"`
	Type    string  `json:"type"`
	Default string  `json:"default,omitempty"` // as JSON
	Fields  []field `json:"fields,omitempty"`
}

// schema describes a request and its response.
type schema struct {
	api
	Request  []field `json:"request"`
	Response []field `json:"response"`
}

// schemaOf describes an API.
func schemaOf(a api) schema {
	req := kmsg.RequestForKey(a.Key)
	return schema{
		api:      a,
		Request:  fieldsOf(reflect.ValueOf(req).Elem()),
		Response: fieldsOf(reflect.ValueOf(req.ResponseKind()).Elem()),
	}
}

// fieldsOf describes the fields of a struct that holds its defaults.
func fieldsOf(v reflect.Value) []field {
	var out []field
	for _, f := range messageFields(v.Type()) {
		value := v.FieldByIndex(f.Index)
		one := field{Name: snake(f.Name)}
		kind := f.Type
		suffix := ""
		for !isBytes(kind) && (kind.Kind() == reflect.Slice || kind.Kind() == reflect.Pointer) {
			if kind.Kind() == reflect.Slice {
				suffix += "[]"
			} else {
				suffix += "?"
			}
			kind = kind.Elem()
		}
		if kind.Kind() == reflect.Struct {
			inner := reflect.New(kind)
			setDefaults(inner)
			one.Type, one.Fields = "object"+suffix, fieldsOf(inner.Elem())
		} else {
			one.Type = typeName(kind) + suffix
		}
		if !value.IsZero() || value.Kind() == reflect.Slice || value.Kind() == reflect.Pointer {
			one.Default = string(encodeMessage(nil, value))
		}
		out = append(out, one)
	}
	return out
}

// typeName is the name of a field's type.
func typeName(t reflect.Type) string {
	switch {
	case isID(t):
		return "uuid"
	case isBytes(t):
		return "bytes"
	}
	return t.Kind().String()
}

// write prints the schema for people.
func (s *schema) write(p *printer) error {
	if err := p.printf("%s (API %d), versions up to %d", s.Name, s.Key, s.MaxVersion); err != nil {
		return err
	}
	for _, half := range []struct {
		title  string
		fields []field
	}{{"request", s.Request}, {"response", s.Response}} {
		if err := p.printf("%s", half.title); err != nil {
			return err
		}
		if err := writeFields(p, half.fields, 1); err != nil {
			return err
		}
	}
	return nil
}

func writeFields(p *printer, fields []field, depth int) error {
	if len(fields) == 0 {
		return nil
	}
	widest := slices.MaxFunc(fields, func(a, b field) int { return cmp.Compare(len(a.Name), len(b.Name)) })
	for _, f := range fields {
		line := fmt.Sprintf("%s%-*s  %s", strings.Repeat("  ", depth), len(widest.Name), f.Name, f.Type)
		if f.Default != "" {
			line += " = " + f.Default
		}
		if err := p.printf("%s", line); err != nil {
			return err
		}
		if err := writeFields(p, f.Fields, depth+1); err != nil {
			return err
		}
	}
	return nil
}
