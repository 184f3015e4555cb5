package record

import (
	"bytes"
	"testing"
)

func TestP13RestampedBatchIsTheOneSealedWithThatStamp(t *testing.T) {
	seal := func(s Stamp) []byte {
		var b Builder
		b.Append(1, []byte("k"), []byte("v"), nil)
		wire, _ := b.Seal(s, 0, nil, 0, nil)
		return wire
	}
	last := Stamp{ProducerID: 9, ProducerEpoch: 2, BaseSequence: 0}
	got := seal(Stamp{ProducerID: 8, ProducerEpoch: 1, BaseSequence: 77})
	Restamp(got, last)
	if want := seal(last); !bytes.Equal(got, want) {
		t.Errorf("% x\nwant\n% x", got, want)
	}
}
