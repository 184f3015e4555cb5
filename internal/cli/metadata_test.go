package cli

import (
	"context"
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusing answers Metadata with a code for the answer as a whole.
type refusing struct{}

func (refusing) Request(context.Context, kmsg.Request) (kmsg.Response, error) {
	resp := kmsg.NewPtrMetadataResponse()
	resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
	return resp, nil
}

func TestARefusedAnswerIsNoClusterWithoutTopics(t *testing.T) {
	if _, err := existing(t.Context(), refusing{}, []string{"events"}); !errors.Is(err, kerr.ClusterAuthorizationFailed) {
		t.Error(err)
	}
}
