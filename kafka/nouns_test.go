package kafka

import "testing"

// B017 and C3: one address has one canonical form, with IPv6 in brackets.
func TestB017JoinAddrIsCanonical(t *testing.T) {
	for _, c := range []struct {
		host string
		port int32
		want string
	}{
		{"B1", 9092, "b1:9092"},
		{"127.0.0.1", 1, "127.0.0.1:1"},
		{"::1", 9092, "[::1]:9092"},
		{"[::1]", 9092, "[::1]:9092"},
		{"2001:DB8:0::1", 9093, "[2001:db8::1]:9093"},
		{"fe80::1%eth0", 9092, "[fe80::1%eth0]:9092"},
		{"FE80::1%Eth0", 9092, "[fe80::1%Eth0]:9092"},
	} {
		if got := JoinAddr(c.host, c.port); got != c.want {
			t.Errorf("JoinAddr(%q, %d) = %q, want %q", c.host, c.port, got, c.want)
		}
	}
}

func TestCloneSharesNothing(t *testing.T) {
	raw := []byte("keyvaluehv")
	r := Record{Key: raw[:3], Value: raw[3:8], Headers: []Header{{Key: "h", Value: raw[9:]}}}
	c := r.Clone()
	for i := range raw {
		raw[i] = 'x'
	}
	if string(c.Key) != "key" || string(c.Value) != "value" || string(c.Headers[0].Value) != "v" {
		t.Errorf("the clone changed with the source: %q %q %q", c.Key, c.Value, c.Headers[0].Value)
	}
	if n := (Record{}).Clone(); n.Key != nil || n.Value != nil || n.Headers != nil {
		t.Error("null became empty")
	}
	if e := (Record{Key: []byte{}, Value: []byte{}}).Clone(); e.Key == nil || e.Value == nil {
		t.Error("empty became null")
	}
}
