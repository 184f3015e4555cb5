package retry

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestEveryCodeHasItsDisposition holds the whole table, written down a second
// time as lists of codes. Every int16 that is in no list is Fatal.
func TestEveryCodeHasItsDisposition(t *testing.T) {
	want := map[int16]Disposition{}
	for d, codes := range map[Disposition][]int16{
		OK:              {0},
		Retry:           {7, 14, 19, 20, 51, 75, 78, 88, 89},
		RefreshMetadata: {3, 5, 6, 8, 9, 56, 72, 74, 100, 103},
		FindCoordinator: {15, 16},
		FindController:  {41},
		ResetSession:    {70, 71, 106},
		ResetPosition:   {1, 109},
		Rejoin:          {22, 25, 27, 79, 110, 111, 113},
		Fenced:          {82, 90},
		Sequence:        {45, 46, 47, 49, 59},
		Abortable:       {48, 120},
		Rebootstrap:     {129},
	} {
		for _, c := range codes {
			want[c] = d
		}
	}
	for c := math.MinInt16; c <= math.MaxInt16; c++ {
		if got := Of(int16(c)); got != want[int16(c)] {
			t.Errorf("code %d: %v, want %v", c, got, want[int16(c)])
		}
	}
}

func TestACodeMayMeanSomethingElseInItsPlace(t *testing.T) {
	if got := ForFindCoordinator(15); got != Retry {
		t.Errorf("15 as the answer of FindCoordinator: %v", got)
	}
	if got := ForFindCoordinator(16); got != FindCoordinator {
		t.Errorf("16 as the answer of FindCoordinator: %v", got)
	}
	if got := InTransaction(49); got != Abortable {
		t.Errorf("49 in a transaction: %v", got)
	}
	if got := InTransaction(47); got != Sequence {
		t.Errorf("47 in a transaction: %v", got)
	}
}

func TestDispositionNames(t *testing.T) {
	seen := map[string]bool{}
	for d := Fatal; d <= Rebootstrap; d++ {
		if s := d.String(); s == "" || seen[s] {
			t.Errorf("disposition %d is named %q", d, s)
		} else {
			seen[s] = true
		}
	}
	if got := Disposition(200).String(); got != "fatal" {
		t.Errorf("out of range: %q", got)
	}
}

// TestC43OnlyListedAPIsMayBeRepeated holds every API of kmsg to its class.
func TestC43OnlyListedAPIsMayBeRepeated(t *testing.T) {
	safe := map[int16]bool{}
	for _, k := range []int16{1, 2, 3, 9, 10, 12, 15, 16, 18, 21, 23, 29, 32, 35, 41, 46, 48, 50, 55, 60, 61, 65, 66, 68, 69, 74, 75, 77, 89, 90} {
		safe[k] = true
	}
	token := map[int16]bool{8: true, 13: true, 14: true, 24: true, 25: true, 26: true, 28: true}
	for k := int16(-1); k <= kmsg.MaxKey+1; k++ {
		want := Mutation
		switch {
		case safe[k]:
			want = Safe
		case token[k]:
			want = SafeByToken
		}
		if got := ClassOf(k); got != want {
			t.Errorf("%s (%d): %v, want %v", kmsg.NameForKey(k), k, got, want)
		}
		if ClassOf(k).Repeatable() != (want != Mutation) {
			t.Errorf("%d: repeatable %v", k, ClassOf(k).Repeatable())
		}
	}
}

type idempotentProduce struct{ kmsg.ProduceRequest }

func (*idempotentProduce) RepeatClass() Class { return SafeByToken }

func TestC43TheFieldsOfARequestDecideItsClass(t *testing.T) {
	join := kmsg.NewPtrJoinGroupRequest()
	init := kmsg.NewPtrInitProducerIDRequest()
	txn := kmsg.NewPtrInitProducerIDRequest()
	txn.TransactionalID = kmsg.StringPtr("t")
	for _, c := range []struct {
		name string
		req  kmsg.Request
		want Class
	}{
		{"join without member id", join, Mutation},
		{"init without transaction", init, Safe},
		{"init with transaction, no identity", txn, Mutation},
		{"produce", kmsg.NewPtrProduceRequest(), Mutation},
		{"idempotent produce", &idempotentProduce{}, SafeByToken},
		{"create topics", kmsg.NewPtrCreateTopicsRequest(), Mutation},
		{"metadata", kmsg.NewPtrMetadataRequest(), Safe},
	} {
		if got := ClassOfRequest(c.req); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	join.MemberID = "m"
	txn.ProducerID, txn.ProducerEpoch = 7, 0
	if got := ClassOfRequest(join); got != SafeByToken {
		t.Errorf("join with member id: %v", got)
	}
	if got := ClassOfRequest(txn); got != SafeByToken {
		t.Errorf("init with id and epoch: %v", got)
	}
}

func TestBackoffDoublesUpToItsCap(t *testing.T) {
	for attempt, want := range map[int]time.Duration{
		-1: 5 * time.Millisecond, 0: 5 * time.Millisecond, 1: 5 * time.Millisecond, 2: 10 * time.Millisecond, 3: 20 * time.Millisecond,
		8: 640 * time.Millisecond, 9: time.Second, 1000: time.Second, math.MaxInt: time.Second,
	} {
		if got := (Backoff{}).Delay(attempt, nil); got != want {
			t.Errorf("attempt %d: %v, want %v", attempt, got, want)
		}
	}
	if got := Reconnect().Delay(2, nil); got != 100*time.Millisecond {
		t.Errorf("second reconnect: %v", got)
	}
	if got := (Backoff{Base: time.Hour, Cap: math.MaxInt64}).Delay(100, nil); got != math.MaxInt64 {
		t.Errorf("overflow: %v", got)
	}
	if got := (Backoff{Base: time.Hour}).Delay(1, nil); got != time.Second {
		t.Errorf("base above the cap: %v", got)
	}
}

func TestBackoffJitterStaysWithinAFifth(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	lo, hi := time.Hour, time.Duration(0)
	for range 10_000 {
		d := (Backoff{}).Delay(3, rng)
		lo, hi = min(lo, d), max(hi, d)
	}
	if lo < 16*time.Millisecond || hi > 24*time.Millisecond || lo > 17*time.Millisecond || hi < 23*time.Millisecond {
		t.Errorf("20 ms with jitter fell in %v to %v", lo, hi)
	}
}
