package netconn

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
)

// refusal says where in an answer an authorization error stands.
type refusal uint8

const (
	notRefused  refusal = iota
	itemRefused         // for some of what was asked; the rest may have been done
	topRefused          // for the request: nothing was done
)

// refusedBy looks for an authorization error in an answer; nil has none. It
// walks the answer by reflection, which is only done late in a session.
func refusedBy(resp kmsg.Response) refusal {
	if resp == nil {
		return notRefused
	}
	v := reflect.ValueOf(resp).Elem()
	if code := v.FieldByName("ErrorCode"); code.IsValid() && retry.Unauthorized(int16(code.Int())) {
		return topRefused
	}
	if anyRefused(v) {
		return itemRefused
	}
	return notRefused
}

func anyRefused(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Field(i)
			if f.Kind() == reflect.Int16 && v.Type().Field(i).Name == "ErrorCode" && retry.Unauthorized(int16(f.Int())) || anyRefused(f) {
				return true
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Struct {
			return false
		}
		for i := range v.Len() {
			if anyRefused(v.Index(i)) {
				return true
			}
		}
	}
	return false
}

// codeOf is the top-level error code of the answers that have one and matter
// to a reader of the journal.
func codeOf(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.ApiVersionsResponse:
		return r.ErrorCode
	case *kmsg.MetadataResponse:
		return r.ErrorCode
	case *kmsg.FetchResponse:
		return r.ErrorCode
	case *kmsg.FindCoordinatorResponse:
		return r.ErrorCode
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return r.ErrorCode
	case *kmsg.StreamsGroupHeartbeatResponse:
		return r.ErrorCode
	case *kmsg.InitProducerIDResponse:
		return r.ErrorCode
	case *kmsg.EndTxnResponse:
		return r.ErrorCode
	case *kmsg.SASLHandshakeResponse:
		return r.ErrorCode
	case *kmsg.SASLAuthenticateResponse:
		return r.ErrorCode
	}
	return 0
}
