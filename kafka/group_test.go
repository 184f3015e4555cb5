package kafka

import "testing"

func TestGroupKindsHaveKafkasNames(t *testing.T) {
	for kind, want := range map[GroupKind]string{ClassicGroup: "classic", ConsumerGroup: "consumer", StreamsGroup: "streams"} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is %q, want %q", kind, got, want)
		}
	}
}
