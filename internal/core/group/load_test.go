package group

import (
	"errors"
	"maps"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// The answer is compared with the question, in both of its forms. Mutation: an
// error or a missing item that counts as no commit.
func TestG36WhoIsNoMemberReadsWhatIsCommitted(t *testing.T) {
	note := "note"
	tps := partitions([]string{"a/0", "a/1"})
	item := func(p int32, offset int64, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
		return kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p, Offset: offset, LeaderEpoch: 4, Metadata: &note, ErrorCode: code}
	}
	several := func(group string, code int16, items ...kmsg.OffsetFetchResponseGroupTopicPartition) *kmsg.OffsetFetchResponse {
		of := []kmsg.OffsetFetchResponseGroupTopic{{Topic: "a", Partitions: items}}
		return &kmsg.OffsetFetchResponse{Groups: []kmsg.OffsetFetchResponseGroup{{Group: group, ErrorCode: code, Topics: of}}}
	}
	single := &kmsg.OffsetFetchResponse{Topics: []kmsg.OffsetFetchResponseTopic{{
		Topic: "a", Partitions: []kmsg.OffsetFetchResponseTopicPartition{
			kmsg.OffsetFetchResponseTopicPartition(item(0, 7, 0)), kmsg.OffsetFetchResponseTopicPartition(item(1, -1, 0)),
		},
	}}}
	seven := Offsets{tps[0]: {Offset: 7, LeaderEpoch: 4, Metadata: note}}
	for name, c := range map[string]struct {
		answer   *kmsg.OffsetFetchResponse
		want     Offsets
		unstable bool
		err      error
	}{
		"of one group":             {answer: single, want: seven},
		"nothing for a/1":          {answer: several("g", 0, item(0, 7, 0), item(1, -1, 0)), want: seven},
		"a/1 left out":             {answer: several("g", 0, item(0, 7, 0)), want: seven, unstable: true},
		"of another group":         {answer: several("other", 0, item(0, 7, 0)), want: Offsets{}, unstable: true},
		"a transaction holds a/1":  {answer: several("g", 0, item(0, 7, 0), item(1, 0, codeUnstable)), want: seven, unstable: true},
		"a transaction holds some": {answer: several("g", codeUnstable), unstable: true},
		"no right to a/1":          {answer: several("g", 0, item(0, 7, 0), item(1, -1, 29)), err: kerr.TopicAuthorizationFailed},
		"no right to the group":    {answer: several("g", 30), err: kerr.GroupAuthorizationFailed},
		"no right, old form":       {answer: &kmsg.OffsetFetchResponse{ErrorCode: 30}, err: kerr.GroupAuthorizationFailed},
	} {
		got, unstable, err := OffsetsOf("g", tps, c.answer)
		if !maps.Equal(got, c.want) || unstable != c.unstable || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: %v %v %v", name, got, unstable, err)
		}
	}
	var at *kafka.OpError
	_, _, err := OffsetsOf("g", tps, several("g", 0, item(1, -1, 29)))
	if !errors.As(err, &at) || at.Topic != "a" || at.Partition != 1 {
		t.Errorf("%v does not say where", err)
	}
}
