package producer

import (
	"fmt"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
)

// One allocation per record makes this fail: per batch there are a few, and a
// batch here has thousands of records.
func TestP35AppendDoesNotAllocatePerRecord(t *testing.T) {
	f := newFake(t, 4)
	p := begin(t, f, Config{Linger: time.Hour, DeliveryTimeout: 2 * time.Hour, BufferBytes: 256 << 20, Compression: Uncompressed})
	if _, err := p.Send(t.Context(), text("x")); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.hold = true // nothing comes back, so that only appending is measured
	f.mu.Unlock()
	value := make([]byte, 100)
	headers := []kafka.Header{{Key: "h", Value: value[:10]}}
	keys := make([][]byte, 64)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key-%d", i)
	}
	ctx := t.Context()
	batch := make([]kafka.Record, 100)
	for i := range batch {
		batch[i] = kafka.Record{Topic: "t", Value: value, Key: keys[i%64]}
	}
	var to []Receipt
	for name, c := range map[string]func(){
		"without key": func() { p.Append(ctx, kafka.Record{Topic: "t", Value: value}) },
		"with key":    func() { p.Append(ctx, kafka.Record{Topic: "t", Key: keys[3], Value: value}) },
		"headers":     func() { p.Append(ctx, kafka.Record{Topic: "t", Key: keys[5], Value: value, Headers: headers}) },
		"AppendAll":   func() { to, _ = p.AppendAll(ctx, batch, to[:0]) },
	} {
		for range 100 { // the buffer of the open batch grows
			c()
		}
		if n := testing.AllocsPerRun(2000, c); n > 0.5 {
			t.Errorf("%s: %.2f allocations per call", name, n)
		}
	}
}
