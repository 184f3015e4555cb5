package cluster

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestC43OnlyACodeOfAllItemsIsThatOfTheAnswer, as a mutation is sent again where
// that code says that nothing happened. Mutation: the code of the last item.
func TestC43OnlyACodeOfAllItemsIsThatOfTheAnswer(t *testing.T) {
	for _, c := range []struct {
		items []int16
		want  int16
	}{
		{nil, 0}, {[]int16{0}, 0}, {[]int16{41}, 41}, {[]int16{41, 41}, 41},
		{[]int16{0, 41}, 0}, {[]int16{41, 0}, 0}, {[]int16{89, 41}, 0}, {[]int16{41, 41, 36}, 0},
	} {
		resp := kmsg.NewPtrCreateTopicsResponse()
		for _, code := range c.items {
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.ErrorCode = code
			resp.Topics = append(resp.Topics, topic)
		}
		if got := soleCode(resp); got != c.want {
			t.Errorf("topics with %v: %d, want %d", c.items, got, c.want)
		}
	}
	nested := kmsg.NewPtrOffsetDeleteResponse()
	nested.Topics = []kmsg.OffsetDeleteResponseTopic{{Partitions: []kmsg.OffsetDeleteResponseTopicPartition{{ErrorCode: 16}, {ErrorCode: 16}}}}
	if got := soleCode(nested); got != 16 {
		t.Errorf("partitions that share a code: %d", got)
	}
	nested.ErrorCode = 30
	if got := soleCode(nested); got != 30 {
		t.Errorf("a code at the top: %d", got)
	}
}
