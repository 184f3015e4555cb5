package cli

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestNamesInSnakeCase(t *testing.T) {
	for in, want := range map[string]string{
		"TopicID": "topic_id", "ISR": "isr", "NodeID": "node_id", "Topic": "topic", "ACLs": "acls",
		"IncludeClusterAuthorizedOperations": "include_cluster_authorized_operations", "KRaftVersion": "k_raft_version", "MemberIDs": "member_ids",
	} {
		if got := snake(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

func TestEveryRequestAndResponseIsJSONBothWays(t *testing.T) {
	for _, one := range apis() {
		req := kmsg.RequestForKey(one.Key)
		for _, m := range []any{req, req.ResponseKind()} {
			setDefaults(reflect.ValueOf(m))
			fill(reflect.ValueOf(m).Elem(), 0)
			text := encodeMessage(nil, reflect.ValueOf(m).Elem())
			if !json.Valid(text) {
				t.Fatalf("%T: not JSON: %s", m, text)
			}
			again := reflect.New(reflect.TypeOf(m).Elem())
			if err := decodeMessage(text, again.Interface()); err != nil {
				t.Fatalf("%T: %v", m, err)
			}
			back := encodeMessage(nil, again.Elem())
			if diff := cmp.Diff(string(text), string(back)); diff != "" {
				t.Errorf("%T: %s", m, diff)
			}
		}
		if s := schemaOf(one); len(s.Response) == 0 {
			t.Errorf("%s: no response", one.Name)
		}
	}
}

// fill gives every field a value of its own kind.
func fill(v reflect.Value, depth int) {
	switch {
	case isID(v.Type()):
		v.Index(3).SetUint(7)
		return
	case isBytes(v.Type()):
		v.SetBytes([]byte{0xff, 1})
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), depth+1)
		fill(v.Index(1), depth+1)
	case reflect.Struct:
		for _, f := range messageFields(v.Type()) {
			fill(v.FieldByIndex(f.Index), depth+1)
		}
	case reflect.String:
		v.SetString("a\"ü")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		if v.CanInt() {
			v.SetInt(-2)
		} else {
			v.SetUint(3)
		}
	}
}

func TestBodiesAreReadWithTheirDefaults(t *testing.T) {
	req := kmsg.NewPtrListOffsetsRequest()
	err := decodeMessage([]byte(`{"replicaId":-1,"topics":[{"topic":"t","partitions":[{"partition":1,"timestamp":9007199254740993}]}]}`), req)
	if err != nil {
		t.Fatal(err)
	}
	p := req.Topics[0].Partitions[0]
	if p.Timestamp != 9007199254740993 || p.CurrentLeaderEpoch != -1 || p.MaxNumOffsets != 1 {
		t.Errorf("%+v", p)
	}
	md := kmsg.NewPtrMetadataRequest()
	if err := decodeMessage([]byte(`{"topics":[{"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ"},{"topicid":"00000000-0000-0000-0000-000000000002","topic":null}]}`), md); err != nil {
		t.Fatal(err)
	}
	if md.Topics[0].TopicID[15] != 1 || md.Topics[1].TopicID[15] != 2 || md.Topics[1].Topic != nil {
		t.Errorf("%+v", md.Topics)
	}
	dc := kmsg.NewPtrDescribeConfigsRequest()
	if err := decodeMessage([]byte(`{"resources":[{"resource_type":"topic","resource_name":"t"}]}`), dc); err != nil || dc.Resources[0].ResourceType != kmsg.ConfigResourceTypeTopic {
		t.Errorf("%+v, %v", dc, err)
	}
}

func TestBodiesThatDoNotFitSayWhere(t *testing.T) {
	for body, want := range map[string]string{
		`{"topcs":[]}`:                    `the body has no field "topcs" (did you mean topics`,
		`{"zzz":[]}`:                      "there are topics,",
		`{"topics":[{"topic":1}]}`:        "topics[0].topic: expected a string",
		`{"topics":{}}`:                   "topics: expected a list",
		`{"topics":[{"topic_id":"x"}]}`:   "is no id",
		`[]`:                              "expected an object",
		`{`:                               "not JSON",
		`{} {}`:                           "something follows",
		`{"version":3}`:                   "no field",
		`{"allow_auto_topic_creation":1}`: "true or false",
	} {
		err := decodeMessage([]byte(body), kmsg.NewPtrMetadataRequest())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	if err := decodeMessage([]byte(`{"replica_id":99999999999}`), kmsg.NewPtrListOffsetsRequest()); err == nil || !strings.Contains(err.Error(), "replica_id: 99999999999 is no int32") {
		t.Error(err)
	}
}

func TestAPIsByNameAndNumber(t *testing.T) {
	for _, name := range []string{"Metadata", "metadata", "3", "MetadataRequest"} {
		if one, err := findAPI(name); err != nil || one.Key != 3 {
			t.Errorf("%s: %+v, %v", name, one, err)
		}
	}
	for name, want := range map[string]string{"Metdata": "did you mean Metadata", "999": "no API", "-1": "no API", "": "no API"} {
		if _, err := findAPI(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzRequestBody(f *testing.F) {
	f.Add(int16(3), []byte(`{"topics":[{"topic":"t"}]}`))
	f.Add(int16(2), []byte(`{"topics":[{"topic":"t","partitions":[{"timestamp":-1}]}]}`))
	f.Add(int16(36), []byte(`{"sasl_auth_bytes":{"base64":"/w=="}}`))
	f.Fuzz(func(t *testing.T, key int16, body []byte) {
		req := kmsg.RequestForKey(key)
		if req == nil || decodeMessage(body, req) != nil {
			return
		}
		text := encodeMessage(nil, reflect.ValueOf(req).Elem())
		again := kmsg.RequestForKey(key)
		if err := decodeMessage(text, again); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if back := encodeMessage(nil, reflect.ValueOf(again).Elem()); string(back) != string(text) {
			t.Fatalf("%s became %s", text, back)
		}
	})
}
