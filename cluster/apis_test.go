package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// everyAPI sends the empty request of every API that kmsg knows, and holds that
// each ends before its context in an answer of its own kind or a typed error.
func everyAPI(t *testing.T, send func(ctx context.Context, req kmsg.Request) (kmsg.Response, error)) {
	t.Helper()
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		if acls, ok := req.(*kmsg.DescribeACLsRequest); ok { // Kafka closes the connection on a filter of zeros
			acls.ResourceType, acls.ResourcePatternType, acls.Operation, acls.PermissionType = 1, 1, 1, 1
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		start := time.Now()
		resp, err := send(ctx, req)
		var oe *kafka.OpError
		var pe *PartialError
		switch {
		case err == nil && (resp == nil || resp.Key() != key):
			t.Errorf("%s: neither an answer nor an error: %T", kmsg.NameForKey(key), resp)
		case err != nil && !errors.As(err, &oe) && !errors.As(err, &pe):
			t.Errorf("%s: no typed error: %v", kmsg.NameForKey(key), err)
		case (routes[key] == named || key == 24) && (!errors.Is(err, ErrNotRouted) || kafka.MayHaveHappened(err)):
			t.Errorf("%s leads nowhere: %v", kmsg.NameForKey(key), err)
		case ctx.Err() != nil || time.Since(start) > 19*time.Second:
			t.Errorf("%s: ended only with its context: %v", kmsg.NameForKey(key), err)
		}
		if err != nil {
			t.Logf("%s: %v", kmsg.NameForKey(key), err)
		}
		cancel()
	}
}

func TestEveryAPIEndsInAnAnswerOrATypedError(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect()
		everyAPI(t, c.Request)
	})
}
