package conn

import (
	"math"
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Fits reports what of req Kafka's encoding cannot hold: a string of more than
// 32,767 bytes, whose length would wrap in a version that is not flexible and
// which brokers refuse in the others, or a frame of 2 GiB. body is what kmsg
// made of the request, size that of the whole frame. The error is a
// [*kafka.EncodeError].
func Fits(req kmsg.Request, body, size int) error {
	if size-4 > math.MaxInt32 {
		return &kafka.EncodeError{Name: APIName(req.Key()), Size: size - 4, Limit: math.MaxInt32}
	}
	if body <= math.MaxInt16 {
		return nil // no room for such a string
	}
	if field, n := longString(reflect.ValueOf(req)); n > 0 {
		return &kafka.EncodeError{Name: APIName(req.Key()), Field: field, Size: n, Limit: math.MaxInt16}
	}
	return nil
}

// longString is the path to the first string of v that is too long, and its
// size; 0 if there is none.
func longString(v reflect.Value) (field string, size int) {
	switch v.Kind() {
	case reflect.String:
		if v.Len() > math.MaxInt16 {
			return "", v.Len()
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return longString(v.Elem())
		}
	case reflect.Slice:
		switch v.Type().Elem().Kind() {
		case reflect.String, reflect.Pointer, reflect.Slice, reflect.Struct:
		default: // numbers, bytes
			return "", 0
		}
		for i := range v.Len() {
			if field, size = longString(v.Index(i)); size > 0 {
				return field, size
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if field, size = longString(v.Field(i)); size > 0 {
				return join(v.Type().Field(i).Name, field), size
			}
		}
	}
	return "", 0
}

func join(outer, inner string) string {
	if inner == "" {
		return outer
	}
	return outer + "." + inner
}
