package cluster

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// soleCode is the error code that an answer as a whole carries: that at its
// top, else the one that all of its items share, else 0. Only such a code says
// that the request as a whole did nothing.
func soleCode(resp kmsg.Response) int16 {
	code, found := int16(0), false
	same := true
	walkCodes(reflect.ValueOf(resp).Elem(), 0, func(c int16) {
		same = same && (!found || c == code)
		code, found = c, true
	})
	if !same {
		return 0
	}
	return code
}

// walkCodes calls f with the outermost error codes of an answer: those of a
// struct, or where it has none those of the structs in its slices.
func walkCodes(v reflect.Value, depth int, f func(int16)) {
	if c := v.FieldByName("ErrorCode"); c.IsValid() && c.Kind() == reflect.Int16 && (c.Int() != 0 || depth > 0) {
		f(int16(c.Int()))
		return
	}
	if depth == 3 {
		return
	}
	for i := range v.NumField() {
		s := v.Field(i)
		if s.Kind() != reflect.Slice || s.Type().Elem().Kind() != reflect.Struct {
			continue
		}
		for j := range s.Len() {
			walkCodes(s.Index(j), depth+1, f)
		}
	}
}
