package conn

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// TestAStringThatKafkaCannotHoldIsFoundInEveryRequest makes each string of each
// request too long in turn, at each version that has it, and then just fit.
func TestAStringThatKafkaCannotHoldIsFoundInEveryRequest(t *testing.T) {
	leaves := 0
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		eachString(reflect.ValueOf(req), "", func(path string, set func(n int)) {
			leaves++
			for v := range req.MaxVersion() + 1 {
				req.SetVersion(v)
				set(0)
				without := len(req.AppendTo(nil))
				set(math.MaxInt16)
				with := len(req.AppendTo(nil))
				if err := Fits(req, with, with); err != nil {
					t.Errorf("%s: %v", APIName(key), err)
				}
				set(math.MaxInt16 + 1)
				body := len(req.AppendTo(nil))
				err := Fits(req, body, body)
				var long *kafka.EncodeError
				if with-without < math.MaxInt16 { // not in this version
					continue
				}
				if !errors.As(err, &long) || long.Field != path || long.Size != math.MaxInt16+1 || long.Name != APIName(key) {
					t.Errorf("%s %d: %s of 32,768 bytes: %v", APIName(key), v, path, err)
				}
			}
			set(0)
		})
	}
	if leaves < 150 {
		t.Errorf("only %d strings", leaves)
	}
}

// eachString calls f for each string below v, one element in each slice.
func eachString(v reflect.Value, path string, f func(path string, set func(n int))) {
	switch v.Kind() {
	case reflect.String:
		f(strings.TrimPrefix(path, "."), func(n int) { v.SetString(strings.Repeat("x", n)) })
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		eachString(v.Elem(), path, f)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		eachString(v.Index(0), path, f)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		for i := range v.NumField() {
			eachString(v.Field(i), path+"."+v.Type().Field(i).Name, f)
		}
	}
}

func TestBytesMayBeLongerThanStrings(t *testing.T) {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SASLAuthBytes = make([]byte, 1<<20)
	if err := Fits(req, 1<<20+4, 1<<20+30); err != nil {
		t.Error(err)
	}
	if err := Fits(req, 0, math.MaxInt32+4); err != nil {
		t.Error(err)
	}
	var long *kafka.EncodeError
	if err := Fits(req, 0, math.MaxInt32+5); !errors.As(err, &long) || long.Field != "" || long.Size != math.MaxInt32+1 {
		t.Errorf("a frame whose length does not fit its prefix: %v", err)
	}
}
